package sim_test

import (
	"testing"
	"time"

	"raftboard/jepsen/history"
)

// lastRead is the last read of a kind that one node, or the client, answered with a count.
func lastRead(t *testing.T, h *history.History, kind history.Kind, direct bool) *history.Op {
	t.Helper()
	return lastOp(t, h, func(o *history.Op) bool {
		return o.Kind == kind && o.Outcome == history.OK && o.Result.Version > 5 && (o.Asked != "") == direct
	})
}

// staleSpoilt is what bugs would have left in a history of W8.
var staleSpoilt = []spoilt{
	{"a default read without a fence", "H1", func(t *testing.T, h *history.History) {
		op := lastRead(t, h, history.Get, true)
		old := lastOp(t, h, func(o *history.Op) bool {
			return o.Outcome == history.OK && o.Kind.Reads() && o.Result.Version > 0 && o.Result.Version+3 < op.Result.Version
		})
		op.Result = old.Result // true, and old
	}},
	{"at_least does not wait", "H2", func(t *testing.T, h *history.History) {
		op := lastRead(t, h, history.GetAtLeast, true)
		op.Args.AtLeast = op.Result.Rev + 1
	}},
	{"a stale read names a newer rev than it shows", "H2", func(t *testing.T, h *history.History) { lastRead(t, h, history.GetStale, true).Result.Version-- }},
	{"a read shows a value that was never there", "H2", func(t *testing.T, h *history.History) { lastRead(t, h, history.GetStale, true).Result.Value = "999999" }},
	{"a client is sent back", "H2", func(t *testing.T, h *history.History) {
		op := lastRead(t, h, history.GetStale, false)
		before := lastOp(t, h, func(o *history.Op) bool {
			return o.Client == op.Client && o.ID < op.ID && o.Outcome == history.OK && o.Result.Version > 3
		})
		op.Result = lastOp(t, h, func(o *history.Op) bool {
			return o.Outcome == history.OK && o.Kind.Reads() && o.Result.Version > 0 && o.Result.Rev < before.Result.Rev
		}).Result
	}},
	{"reads are served without a majority", "H3", func(_ *testing.T, h *history.History) {
		h.Faults = append(h.Faults, history.Fault{Name: history.NoMajority, Nemesis: "N1", Start: 3 * time.Second, End: 5 * time.Second, Witness: "said so"})
	}},
	{"a node without a majority never answers", "H3", func(t *testing.T, h *history.History) {
		op := lastOp(t, h, func(o *history.Op) bool { return o.Kind == history.Get && o.Asked != "" && o.Outcome == history.OK })
		op.Outcome, op.Return, op.Result = history.Failed, op.Invoke+8*time.Second, history.Result{}
		h.Faults = append(h.Faults, history.Fault{Name: history.NoMajority, Nemesis: "N1", Start: op.Invoke, End: op.Return, Witness: "said so"})
		for i := range h.Faults { // nothing else befell it
			if h.Faults[i].Name != history.NoMajority {
				h.Faults[i].Targets = nil
			}
		}
	}},
}

func TestNobodyIsShownThePastAsThePresentWhenTheLeaderDies(t *testing.T) {
	testLoad(t, "stale-reads", 2, 9*time.Second, staleSpoilt)
}
