package sim_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// repeatedOp is the last acknowledged repeat of a command that somebody else was answered to.
func repeatedOp(t *testing.T, h *history.History) *history.Op {
	t.Helper()
	return lastOp(t, h, func(o *history.Op) bool {
		return o.Outcome == history.OK && o.Result.Replayed && o.Seq > 0 && o.Kind == history.Append &&
			slices.ContainsFunc(h.Ops, func(p history.Op) bool {
				return p.ID != o.ID && p.Loop == o.Loop && p.Seq == o.Seq && p.Outcome == history.OK
			})
	})
}

// reply changes the answer to the first command of a kind alike on all nodes.
func reply(t *testing.T, h *history.History, is func(*history.Applied) bool, change func(*boardpb.Result)) {
	t.Helper()
	if !slices.ContainsFunc(h.Applied, func(a history.Applied) bool { return is(&a) }) {
		t.Fatal("the run has nothing of the kind")
	}
	everywhere(h, is, func(a *history.Applied) {
		a.Result, a.ResultHash = proto.CloneOf(a.Result), "changed"
		change(a.Result)
	})
}

func refusedAs(code boardpb.Code) func(*history.Applied) bool {
	return func(a *history.Applied) bool { return a.Command.GetAppend() != nil && a.Result.Code == code }
}

func ran(r *boardpb.Result) { r.Outcome, r.Code, r.Version = boardpb.Outcome_OUTCOME_OK, 0, 999 }

func replayedAppend(a *history.Applied) bool {
	return a.Command.GetAppend() != nil && a.Result.Replayed && a.Result.Outcome == boardpb.Outcome_OUTCOME_OK
}

// retrySpoilt is what bugs would have left in a history of W6.
var retrySpoilt = []spoilt{
	{"the window was not looked into", "S1", func(t *testing.T, h *history.History) {
		reply(t, h, replayedAppend, func(r *boardpb.Result) { r.Replayed = false })
	}},
	{"a repeat is answered ok, and not with the first answer", "S2", func(t *testing.T, h *history.History) {
		reply(t, h, replayedAppend, func(r *boardpb.Result) { r.Version++ })
	}},
	{"two clients were told two versions of one command", "S2", func(t *testing.T, h *history.History) { repeatedOp(t, h).Result.Version++ }},
	{"another body was given the first answer", "S2", func(t *testing.T, h *history.History) {
		reply(t, h, refusedAs(boardpb.Code_CODE_REQUEST_ID_REUSED), func(r *boardpb.Result) { ran(r); r.Replayed = true })
	}},
	{"another body ran", "S1", func(t *testing.T, h *history.History) {
		reply(t, h, refusedAs(boardpb.Code_CODE_REQUEST_ID_REUSED), ran)
	}},
	{"an increment is lost on one node", "S3", func(t *testing.T, h *history.History) {
		at := slices.IndexFunc(h.Finals, func(f history.Final) bool { return f.Entry.GetKey() == "counts/all" })
		h.Finals = slices.Delete(h.Finals, at, at+1)
	}},
	{"an increment counts twice on one node", "S3", func(t *testing.T, h *history.History) {
		at := slices.IndexFunc(h.Finals, func(f history.Final) bool { return f.Entry.GetKey() == "counts/all" })
		h.Finals = append(h.Finals, h.Finals[at])
	}},
	{"an ended loop goes on", "S5", func(t *testing.T, h *history.History) { reply(t, h, refusedAs(boardpb.Code_CODE_LOOP_ENDED), ran) }},
	{"a loop that never was is served", "S5", func(t *testing.T, h *history.History) { reply(t, h, refusedAs(boardpb.Code_CODE_NOT_FOUND), ran) }},
	{"what was abandoned runs later", "S6", func(t *testing.T, h *history.History) { reply(t, h, refusedAs(boardpb.Code_CODE_EXPIRED_REQUEST), ran) }},
	{"a seq too far above the floor runs", "S6", func(t *testing.T, h *history.History) { reply(t, h, refusedAs(boardpb.Code_CODE_LIMIT_IN_FLIGHT), ran) }},
	{"not done was said of what was done", "R3", func(t *testing.T, h *history.History) {
		op := lastOp(t, h, func(o *history.Op) bool {
			return o.Kind == history.Append && o.Outcome == history.OK && !o.Result.Replayed
		})
		op.Outcome, op.Result.Answer = history.Failed, "unavailable"
	}},
}

func TestRepeatedCommandsTakeEffectOnceAndGetOneAnswerWhenTheLeaderDies(t *testing.T) {
	testLoad(t, "retry", 2, 9*time.Second, retrySpoilt)
}
