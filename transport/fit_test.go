package transport

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// large is a Result of a txn whose parts carry more than can be sent.
func large(r *boardpb.Result) *boardpb.Result {
	for range 5 {
		r.Results = append(r.Results, &boardpb.Result{Value: bytes.Repeat([]byte("1"), 1<<20)})
	}
	return r
}

func TestT57AResultTooLargeToSendBecomesARefusalThatSaysWhatWasDone(t *testing.T) {
	whole := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Value: bytes.Repeat([]byte("1"), 1<<20)}
	if fitResult(whole) != whole {
		t.Error("a Result that fits was replaced")
	}
	done := fitResult(large(&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Rev: 7, TMs: 5, Replayed: true}))
	if done.Code != boardpb.Code_CODE_TOO_LARGE || done.Outcome != boardpb.Outcome_OUTCOME_OK || done.Rev != 7 || done.TMs != 5 ||
		!done.Replayed || done.Got <= done.Limit || done.Limit != maxAnswerBytes ||
		!strings.Contains(done.Message, "was applied, at rev 7") || !strings.Contains(done.Hint, "read back") {
		t.Errorf("of what was applied: %v", done)
	}
	conflict := fitResult(large(&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_CONFLICT}))
	if conflict.Code != boardpb.Code_CODE_TOO_LARGE || conflict.Outcome != boardpb.Outcome_OUTCOME_CONFLICT ||
		!strings.Contains(conflict.Message, "not applied but came to conflict") {
		t.Errorf("of a conflict: %v", conflict)
	}
	refused := fitResult(large(&boardpb.Result{Code: boardpb.Code_CODE_STALE_LEASE, Message: "stale", Got: 3}))
	if refused.Code != boardpb.Code_CODE_STALE_LEASE || refused.Message != "stale" || refused.Got != 3 || refused.Results != nil {
		t.Errorf("of a refusal: %v", refused)
	}
	for _, r := range []*boardpb.Result{done, conflict, refused} {
		if size := proto.Size(r); size > 1000 {
			t.Errorf("what is said instead has %d bytes", size)
		}
	}
}

func TestT57EndedLeasesThatDoNotFitComeWithALaterAnswer(t *testing.T) {
	r := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Loops: []*boardpb.LoopStatus{{Loop: "l-1"}}}
	const n = 256 * 64
	for i := range n {
		r.Ended = append(r.Ended, &boardpb.Ended{Key: fmt.Sprintf("claims/%s%d", strings.Repeat("x", 300), i), Generation: 1})
	}
	got := fitResult(r)
	if got.Code != boardpb.Code_CODE_UNSPECIFIED || len(got.Loops) != 1 || proto.Size(got) > maxAnswerBytes {
		t.Fatalf("a keepalive's answer is %v with %d bytes", got.Code, proto.Size(got))
	}
	if k := len(got.Ended); k < n/2 || k == n || got.Ended[k-1].Key != r.Ended[n-1].Key {
		t.Errorf("%d of %d are left; those of the calling loop come last and count as told", k, n)
	}
	if len(r.Ended) != n {
		t.Error("the Result that others hold was changed")
	}
}

func TestT57AReadTooLargeToSendBecomesARefusalOfThatRead(t *testing.T) {
	s := &service{self: &boardpb.Node{Id: "a"}}
	small := &wirepb.ReadResponse{Rev: 3}
	if s.fitRead(small) != small {
		t.Error("an answer that fits was replaced")
	}
	answer := &wirepb.ReadResponse{Rev: 3, Answer: &wirepb.ReadResponse_Dump{Dump: &wirepb.DumpAnswer{}}}
	for range 5 {
		entry := &boardpb.Entry{Value: bytes.Repeat([]byte("1"), 1<<20)}
		answer.GetDump().Entries = append(answer.GetDump().Entries, entry)
	}
	got := s.fitRead(answer)
	if r := got.Failure; r.GetCode() != boardpb.Code_CODE_TOO_LARGE || r.Got <= r.Limit || r.Rev != 3 || got.Answer != nil {
		t.Errorf("got %v", got.Failure)
	}
}
