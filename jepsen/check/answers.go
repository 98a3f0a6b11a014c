package check

import (
	"fmt"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// mostAttempts is how often one logical write may be tried at a version (SPEC KV-7).
const mostAttempts = 4

// Answers compares what clients were told with what was applied. G3: every ok is in A, and
// once; R2: with the same rev, version and generation; R3: no fail had an effect; R4: at most
// four attempts, and the fourth conflict is reported; S1, S2: one identity, one effect, one
// answer. An operation that repeated another one under its identity was acknowledged by the
// first answer, and so it is compared with that.
func Answers(ops []history.Op, a *Order) (found []Finding) {
	first, again := identities(a)
	for i := range ops {
		if op := &ops[i]; !op.Kind.Reads() {
			found = append(found, answer(op, a.ByCall(op.CallID()), first)...)
		}
	}
	return append(found, again...)
}

func answer(op *history.Op, records []*history.Applied, first map[place]*history.Applied) (found []Finding) {
	var done []*history.Applied
	var repeated *history.Applied // what was answered again under this operation's call_id
	attempts, reported := map[identity]bool{}, false
	for _, r := range records {
		if r.Command.GetReportConflict() != nil {
			reported = true
			continue
		}
		attempts[identityOf(r)] = true
		if r.OK() {
			done = append(done, r)
		} else if was := first[placeOf(r)]; was != nil && was.OK() {
			repeated = was
		}
	}
	if len(done) == 0 && op.Outcome == history.OK && repeated != nil {
		done = append(done, repeated)
	}
	say := func(f Finding) { found = append(found, f.of(op.ID)) }
	switch {
	case len(done) > 1 && op.Kind == history.Keepalive: // it has no identity: doing it twice is doing it once
		if op.Outcome == history.Failed {
			say(violation("R3", "a keepalive that was answered %s was done", op.Result.Answer).at(done[0].Index))
		}
	case len(done) > 1:
		say(violation("S1", "one %s took effect %d times", op.Kind, len(done)).at(done[1].Index))
	case op.Outcome == history.OK && len(done) == 0:
		say(violation("G3", "an acknowledged %s was never applied", op.Kind))
	case op.Outcome == history.OK:
		if what := told(op, done[0]); what != "" {
			say(violation("R2", "the client was told %s", what).at(done[0].Index))
		}
	case op.Outcome == history.Failed && len(done) > 0 && !putOff(op, records):
		say(violation("R3", "a %s that was answered %s was done", op.Kind, op.Result.Answer).at(done[0].Index))
	}
	if op.Kind != history.Mutate {
		return found
	}
	if len(attempts) > mostAttempts {
		say(violation("R4", "%d attempts of one write", len(attempts)))
	}
	if op.Outcome == history.Failed && op.Result.Answer == "conflict" && op.Result.Error == "" && !reported {
		say(violation("R4", "a conflict that outlived the retries was not reported"))
	}
	return found
}

// putOff says that a command was refused only for then: a copy of the request that arrives once
// there is room runs, and by F-7 it may.
func putOff(op *history.Op, records []*history.Applied) bool {
	return notNow(op) && len(records) > 0 && name(records[0].Result) == op.Result.Answer
}

// notNow: the answer says that there was no room for one more identity.
func notNow(op *history.Op) bool {
	return op.Result.Answer == "limit_in_flight" || op.Result.Answer == "limit_idempotency_keys"
}

// told compares the numbers of an acknowledgement with those applied.
func told(op *history.Op, r *history.Applied) string {
	switch {
	case op.Result.Rev != r.Result.Rev:
		return fmt.Sprintf("rev %d, applied was %d", op.Result.Rev, r.Result.Rev)
	case op.Result.Version != r.Result.Version:
		return fmt.Sprintf("version %d, applied was %d", op.Result.Version, r.Result.Version)
	case op.Result.Generation != r.Result.Generation:
		return fmt.Sprintf("generation %d, applied was %d", op.Result.Generation, r.Result.Generation)
	case op.Key == "" && op.Result.Key != r.Result.Key:
		return fmt.Sprintf("key %q, applied was %q", op.Result.Key, r.Result.Key)
	}
	return ""
}

// identity is under which a command is done once.
type identity struct {
	board, who, loop, key string
	seq                   uint64
}

func identityOf(r *history.Applied) identity {
	c := r.Command
	if c.Seq > 0 {
		return identity{board: c.Board, loop: c.Loop, seq: c.Seq}
	}
	return identity{board: c.Board, who: c.Actor.GetPrincipal(), key: c.IdempotencyKey}
}

func (i identity) none() bool { return i.seq == 0 && i.key == "" }

// identities checks S1 and S2 on A alone. It tells of each repeat which command it repeats. An
// idempotency key is remembered for an hour of board time, and then it is a new one.
func identities(a *Order) (origin map[place]*history.Applied, found []Finding) {
	first := map[identity]*history.Applied{}
	origin = map[place]*history.Applied{}
	for i := range a.Records {
		r := &a.Records[i]
		id := identityOf(r)
		if id.none() || neverRan(r.Result) {
			continue
		}
		was := first[id]
		if was != nil && id.lapsed(was.T, r.T) {
			was = nil
		}
		switch {
		case was == nil && r.Result.Replayed:
			found = append(found, violation("S2", "an answer was given again that was never given first: %s", name(r.Result)).at(r.Index))
		case was == nil:
			first[id] = r
		case !r.Result.Replayed:
			found = append(found, violation("S1", "a command that was applied at entry %d was applied again", was.Index).at(r.Index))
		case compact(was.Result) != compact(r.Result):
			found = append(found, violation("S2", "the answer to a repeat is %v, the first one was %v",
				compact(r.Result), compact(was.Result)).at(r.Index))
			origin[placeOf(r)] = was
		default:
			origin[placeOf(r)] = was
		}
	}
	return origin, found
}

// keyKept is for how long an idempotency key is remembered, in milliseconds (SPEC F-7).
const keyKept = 3_600_000

// lapsed says whether an identity that was first used at one time is a new one at another.
func (i identity) lapsed(first, now int64) bool { return i.key != "" && now >= first+keyKept }

// neverRan answers are about the identity and not about the command: they are not kept.
func neverRan(r *boardpb.Result) bool {
	switch r.Code {
	case boardpb.Code_CODE_EXPIRED_REQUEST, boardpb.Code_CODE_REQUEST_ID_REUSED, boardpb.Code_CODE_LOOP_ENDED,
		boardpb.Code_CODE_LIMIT_IN_FLIGHT, boardpb.Code_CODE_LIMIT_IDEMPOTENCY_KEYS, boardpb.Code_CODE_RESET:
		return true
	case boardpb.Code_CODE_NOT_FOUND, boardpb.Code_CODE_FORBIDDEN:
		return r.Loop != "" // the loop is not there, or another's
	}
	return false
}

type compactAnswer struct {
	answer                   string
	rev, version, generation uint64
}

func compact(r *boardpb.Result) compactAnswer {
	return compactAnswer{name(r), r.Rev, r.Version, r.Generation}
}

func name(r *boardpb.Result) string { return history.Answer(r) }
