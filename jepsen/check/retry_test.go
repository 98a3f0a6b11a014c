package check_test

import (
	"testing"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// repeated is a run in which a counted, was not answered, and repeated.
type repeated struct {
	*traceOf
	h  *history.History
	id uint64
}

// told is an attempt as a client saw it, and as it was applied.
func (b *repeated) told(seq, floor uint64, value string, outcome history.Outcome, r *boardpb.Result) *history.Op {
	b.id++
	op := history.Op{ID: b.id, Client: "a", Loop: "l-a", Seq: seq, Kind: history.Append, Board: theBoard, Key: "counts/all",
		Args: history.Args{Value: value, Floor: floor}, Began: 2 * b.id, Ended: 2*b.id + 1, Outcome: outcome}
	if outcome != history.Info {
		op.Result = history.Result{Answer: history.Answer(r), Rev: r.Rev, Version: r.Version, Replayed: r.Replayed}
	}
	b.h.Ops = append(b.h.Ops, op)
	b.applied("a", "l-a", seq, floor, value, op.CallID(), r)
	return &b.h.Ops[len(b.h.Ops)-1]
}

func (b *repeated) applied(w, loop string, seq, floor uint64, value, call string, r *boardpb.Result) {
	b.raw(&boardpb.Command{Board: theBoard, Actor: &boardpb.Actor{Principal: w}, Loop: loop, Seq: seq, Floor: floor, CallId: call,
		Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: "counts/all", Value: []byte(value)}}}, r)
}

func (b *repeated) close(seq, rev uint64) {
	b.raw(&boardpb.Command{Board: theBoard, Actor: &boardpb.Actor{Principal: "a"}, Loop: "l-a", Seq: seq, Floor: 1,
		Op: &boardpb.Command_LoopClose{LoopClose: &boardpb.LoopClose{Loop: "l-a"}}}, ok(rev, 0))
}

func (b *repeated) sees(values ...string) {
	b.h.Finals = []history.Final{{Reader: "r", Board: theBoard, Entry: &boardpb.Entry{Key: "plan"}}}
	for i, v := range values {
		b.h.Finals = append(b.h.Finals, history.Final{Reader: "r", Board: theBoard,
			Entry: &boardpb.Entry{Key: "counts/all", Version: uint64(i + 1), Value: []byte(v)}})
	}
}

func begun() *repeated {
	b := &repeated{traceOf: newTrace(), h: &history.History{Run: history.Run{Board: theBoard}}}
	b.lead(2).raw(&boardpb.Command{Board: theBoard, Actor: &boardpb.Actor{Principal: "a"}, Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{}}},
		&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Loop: "l-a", TtlMs: 3_600_000, Rev: 1})
	b.told(1, 1, "x", history.Info, ok(2, 1))
	b.told(1, 1, "x", history.OK, again(ok(2, 1)))
	b.sees("x")
	return b
}

func again(r *boardpb.Result) *boardpb.Result { r.Replayed = true; return r }

func no(code boardpb.Code) *boardpb.Result { return &boardpb.Result{Code: code} }

const (
	loopEnded = boardpb.Code_CODE_LOOP_ENDED
	tooOld    = boardpb.Code_CODE_EXPIRED_REQUEST
	reused    = boardpb.Code_CODE_REQUEST_ID_REUSED
	tooFar    = boardpb.Code_CODE_LIMIT_IN_FLIGHT
)

func TestTheRetryCheckerJudgesHandWrittenHistories(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(b *repeated)
	}{
		{"good: repeated, and answered with the first answer", "", func(*repeated) {}},
		{"good: another body is refused", "", func(b *repeated) { b.told(1, 1, "y", history.Failed, no(reused)) }},
		{"good: below the floor it is refused", "", func(b *repeated) {
			b.told(2, 2, "y", history.OK, ok(3, 2))
			b.told(1, 1, "x", history.Failed, no(tooOld))
			b.sees("x", "y")
		}},
		{"good: a closed loop gives first answers, and refuses what is new", "", func(b *repeated) {
			b.close(2, 3)
			b.told(1, 1, "x", history.OK, again(ok(2, 1)))
			b.told(3, 1, "y", history.Failed, no(loopEnded))
		}},
		{"good: nobody knows whether a silent loop has ended", "", func(b *repeated) {
			b.at(3_600_000)
			b.told(2, 1, "y", history.Failed, no(loopEnded))
		}},
		{"good: too far above the floor, and a late copy has room", "", func(b *repeated) {
			b.told(257, 1, "y", history.Failed, no(tooFar))
			b.told(2, 2, "z", history.OK, ok(3, 2))
			b.applied("a", "l-a", 257, 1, "y", b.h.Ops[2].CallID(), ok(4, 3))
			b.sees("x", "z", "y")
		}},
		{"good: an unknown loop is not found", "", func(b *repeated) {
			b.applied("a", "l-z", 1, 1, "y", "", &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Loop: "l-z"})
		}},
		{"S1: another body ran under the same identity", "S1 S3", func(b *repeated) {
			b.told(1, 1, "y", history.OK, ok(2, 1))
			b.h.Ops[2].Result.Replayed = true
			b.sees("x", "y")
		}},
		{"S2: another body was given the first answer", "S2", func(b *repeated) { b.told(1, 1, "y", history.OK, again(ok(2, 1))) }},
		{"S2: the same body was refused as another", "S2", func(b *repeated) { b.told(1, 1, "x", history.Failed, no(reused)) }},
		{"S2: the first one was refused as a repeat", "S2", func(b *repeated) { b.told(2, 1, "y", history.Failed, no(reused)) }},
		{"S2: two clients were told two versions", "S2", func(b *repeated) {
			b.told(1, 1, "x", history.OK, again(ok(2, 1))).Result.Version = 2
		}},
		{"S2: a conflict became an ok", "S2", func(b *repeated) {
			b.told(1, 1, "x", history.Failed, again(ok(2, 1))).Result.Answer = "conflict"
		}},
		{"S2: two clients were both told that it was done just now", "S2", func(b *repeated) {
			b.h.Ops[1].Result.Replayed = false
			b.told(1, 1, "x", history.OK, again(ok(2, 1))).Result.Replayed = false
		}},
		{"S3: an acknowledged increment is lost", "S3", func(b *repeated) { b.sees() }},
		{"S3: an increment counts twice", "S3", func(b *repeated) { b.sees("x", "x") }},
		{"S3: one more than anybody asked for", "S3", func(b *repeated) { b.sees("x", "z") }},
		{"S3: what took effect is not counted", "S3", func(b *repeated) { b.told(2, 1, "y", history.Info, ok(3, 2)) }},
		{"S5: a closed loop runs something new", "S5", func(b *repeated) {
			b.close(2, 3)
			b.told(3, 1, "y", history.OK, ok(4, 2))
			b.sees("x", "y")
		}},
		{"S5: a closed loop forgot what was done on it", "S5", func(b *repeated) {
			b.close(2, 3)
			b.told(1, 1, "x", history.Failed, no(loopEnded))
		}},
		{"S5: a loop that lives is said to have ended", "S5", func(b *repeated) { b.told(2, 1, "y", history.Failed, no(loopEnded)) }},
		{"S5: a loop that nobody opened runs a command", "S5 S3", func(b *repeated) { b.applied("a", "l-z", 1, 1, "y", "", ok(3, 2)); b.sees("x", "y") }},
		{"S6: an abandoned seq runs later", "S6", func(b *repeated) {
			b.told(3, 3, "y", history.OK, ok(3, 2))
			b.told(2, 1, "z", history.OK, ok(4, 3))
			b.sees("x", "y", "z")
		}},
		{"S6: a seq below the floor still has its answer", "S6", func(b *repeated) {
			b.told(3, 3, "y", history.OK, ok(3, 2))
			b.told(1, 1, "x", history.OK, again(ok(2, 1)))
			b.sees("x", "y")
		}},
		{"S6: a seq above the floor is refused as expired", "S6", func(b *repeated) { b.told(2, 1, "y", history.Failed, no(tooOld)) }},
		{"S6: a seq too far above the floor is run", "S6", func(b *repeated) {
			b.told(257, 1, "y", history.OK, ok(3, 2))
			b.sees("x", "y")
		}},
		{"S6: a seq within the window is refused as too far", "S6", func(b *repeated) { b.told(256, 1, "y", history.Failed, no(tooFar)) }},
		{"invalid: nobody read the counter", "G7", func(b *repeated) { b.h.Finals = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := begun()
			c.spoil(b)
			fires(t, c.want, check.Retry(b.h, b.agreed(t)))
			if c.want == "" {
				fires(t, "", check.Answers(b.h.Ops, b.agreed(t)))
			}
		})
	}
}

// keyed is a command of a caller without a loop.
func (b *traceOf) keyed(key, value string, r *boardpb.Result) {
	b.raw(&boardpb.Command{Board: theBoard, Actor: &boardpb.Actor{Principal: "a"}, IdempotencyKey: key, CallId: "op-9",
		Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: "counts/all", Value: []byte(value)}}}, r)
}

func TestAnIdempotencyKeyIsRememberedForAnHourOfBoardTime(t *testing.T) {
	for _, c := range []struct {
		name, want string
		after      int64
		again      *boardpb.Result
	}{
		{"good: within the hour the first answer", "", 3_599_999, again(ok(2, 1))},
		{"good: after the hour it runs anew", "", 3_600_000, ok(3, 2)},
		{"S1: within the hour it runs again", "S1", 3_599_999, ok(3, 2)},
		{"S2: after the hour an answer that was never given", "S2", 3_600_000, again(ok(2, 1))},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newTrace().lead(2).at(1000)
			b.keyed("k", "x", ok(2, 1))
			b.at(1000+c.after).keyed("k", "x", c.again)
			fires(t, c.want, check.Answers(nil, b.agreed(t)))
		})
	}
}

func TestAnOperationThatRepeatedAnotherIsComparedWithTheFirstAnswer(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(op *history.Op)
	}{
		{"good: told the first answer", "", func(*history.Op) {}},
		{"R2: told another version", "R2", func(op *history.Op) { op.Result.Version = 2 }},
		{"R2: told another rev", "R2", func(op *history.Op) { op.Result.Rev = 3 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := begun()
			c.spoil(&b.h.Ops[1])
			fires(t, c.want, check.Answers(b.h.Ops, b.agreed(t)))
		})
	}
}
