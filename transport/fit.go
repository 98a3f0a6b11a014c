package transport

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// maxAnswerBytes bounds one Result or one answer to a query. The rest of a message is for
// what goes around it: ids, who leads, and the hop from the leader to the node that was
// asked. A message above maxMessageBytes would end the whole stream it is sent on, with
// every other call of it (TRIALS T-57).
const maxAnswerBytes = maxMessageBytes - 64<<10

// fitResult answers r, or what is said instead of a Result that is too large to send. What
// a command did is not undone by that: the refusal keeps the outcome, the rev and the times.
func fitResult(r *boardpb.Result) *boardpb.Result {
	size := proto.Size(r)
	if size <= maxAnswerBytes {
		return r
	}
	if shorter := cutEnded(r, size); shorter != nil {
		return shorter
	}
	out := refuse(boardpb.Code_CODE_TOO_LARGE, "", "")
	out.Outcome, out.Rev, out.Replayed, out.TMs, out.WallMs = r.Outcome, r.Rev, r.Replayed, r.TMs, r.WallMs
	out.Key, out.Version, out.Generation, out.Field = r.Key, r.Version, r.Generation, "answer"
	out.Got, out.Limit = uint64(size), maxAnswerBytes
	tail := fmt.Sprintf("but its answer has %d bytes and at most %d can be sent", size, maxAnswerBytes)
	switch {
	case r.Outcome == boardpb.Outcome_OUTCOME_OK:
		out.Message = fmt.Sprintf("the command was applied, at rev %d, %s", r.Rev, tail)
		out.Hint = "do not send it anew: read back what it did, and name fewer keys in one command"
	case r.Outcome != boardpb.Outcome_OUTCOME_UNSPECIFIED:
		out.Message = fmt.Sprintf("the command was not applied but came to %s, %s", outcomeName(r.Outcome), tail)
		out.Hint = "read what is there, and name fewer keys in one command"
	default: // a refusal stays what it was, without what came along
		out.Code, out.Message, out.Hint, out.Field = r.Code, r.Message, r.Hint, r.Field
		out.Got, out.Limit, out.Proposed, out.RetryAfterMs = r.Got, r.Limit, r.Proposed, r.RetryAfterMs
	}
	return out
}

func outcomeName(o boardpb.Outcome) string {
	return strings.ToLower(strings.TrimPrefix(o.String(), "OUTCOME_"))
}

// cutEnded drops as many of the leases that ended as do not fit; nil if that is not
// enough. The first are those of other loops than the calling one: no answer has told them
// for good before the loop itself has had one, so they come again.
func cutEnded(r *boardpb.Result, size int) *boardpb.Result {
	drop := 0
	for drop < len(r.Ended) && size > maxAnswerBytes {
		size -= proto.Size(r.Ended[drop]) // and its tag and length, which are left as room
		drop++
	}
	if size > maxAnswerBytes {
		return nil
	}
	out := proto.CloneOf(r)
	out.Ended = out.Ended[drop:]
	return out
}

// fitRead answers the answer to a query, or the refusal that is said instead of one that is
// too large to send.
func (s *service) fitRead(answer *wirepb.ReadResponse) *wirepb.ReadResponse {
	size := proto.Size(answer)
	if size <= maxAnswerBytes {
		return answer
	}
	r := refuse(boardpb.Code_CODE_TOO_LARGE,
		fmt.Sprintf("the answer has %d bytes; at most %d can be sent", size, maxAnswerBytes), "ask for less at once")
	r.Got, r.Limit, r.Field, r.Rev = uint64(size), maxAnswerBytes, "answer", answer.Rev
	return s.failedRead(r)
}
