package sim_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/workload"
)

func staleGuarded(a *history.Applied) bool {
	return a.Command.GetSet().GetGeneration() > 0 && a.Result.Code == boardpb.Code_CODE_STALE_LEASE
}

// reclaimed is a lease that ran out, what its holder believed, and what the next one did.
func reclaimed(t *testing.T, h *history.History) (w *check.Window, older, newer *history.Belief) {
	t.Helper()
	for _, w := range check.Whole(h).Windows {
		older, newer = nil, nil
		for i := range h.Beliefs {
			switch b := &h.Beliefs[i]; {
			case w.Cause != "expired" || b.Key != w.Key:
			case b.Generation == w.Generation:
				older = b
			case b.Generation > w.Generation && (newer == nil || b.Generation < newer.Generation):
				newer = b
			}
		}
		if older != nil && newer != nil && older.Client != newer.Client {
			return w, older, newer
		}
	}
	t.Fatal("no lease ran out and was claimed again")
	return nil, nil, nil
}

// leaseSpoilt is what bugs would have left in a history of W4.
var leaseSpoilt = []spoilt{
	{"generation not checked", "L2", func(_ *testing.T, h *history.History) {
		everywhere(h, staleGuarded, func(a *history.Applied) {
			a.Result, a.ResultHash = &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: a.Command.GetSet().Key, Rev: a.Result.Rev}, "changed"
		})
	}},
	{"what a lease guards goes back to an older generation", "L2", func(t *testing.T, h *history.History) {
		old := firstOp(h, history.Fenced, history.OK)
		late := lastOp(t, h, func(o *history.Op) bool {
			return o.Kind == history.Fenced && o.Outcome == history.OK && o.Key == old.Key
		})
		if late.Args.Generation <= old.Args.Generation {
			t.Fatal("the list has one generation")
		}
		old.Args.Value, late.Args.Value = late.Args.Value, old.Args.Value
	}},
	{"a generation is given twice", "L1", func(_ *testing.T, h *history.History) {
		everywhere(h, func(a *history.Applied) bool {
			return a.Command.GetClaim() != nil && a.OK() && !a.Result.Renewed && a.Result.Generation == 3
		}, func(a *history.Applied) {
			a.Result, a.ResultHash = proto.CloneOf(a.Result), "changed"
			a.Result.Generation = 2
		})
	}},
	{"time runs back", "L4", func(_ *testing.T, h *history.History) {
		everywhere(h, func(a *history.Applied) bool { return a.Command.GetRelease() != nil && a.OK() },
			func(a *history.Applied) { a.T, a.ResultHash = a.T-60_000, "changed" })
	}},
	{"the feed tells of an expiry that was not", "L3", func(_ *testing.T, h *history.History) {
		at := slices.IndexFunc(h.Feed, func(w history.Told) bool { return w.Event.GetKind() == boardpb.Kind_KIND_LEASE_EXPIRED })
		h.Feed[at].Event = proto.CloneOf(h.Feed[at].Event)
		h.Feed[at].Event.TMs -= 2000
	}},
	{"a lease expired early in real time", "L5", func(t *testing.T, h *history.History) {
		w, b, _ := reclaimed(t, h)
		b.Until = w.Ended + b.Duration/2 // so the last renewal was sent half a duration before the end
	}},
	{"a lease expired minutes late", "L6", func(t *testing.T, h *history.History) {
		w, _, _ := reclaimed(t, h)
		h.Applied = slices.Clone(h.Applied)
		for i := range h.Applied { // from then on everybody was slow to apply, and nothing was done to them
			if h.Applied[i].T >= w.To {
				h.Applied[i].At += 10 * time.Minute
			}
		}
	}},
	{"an acknowledged write was under another generation", "L7", func(t *testing.T, h *history.History) {
		lastOp(t, h, func(o *history.Op) bool {
			return o.Kind == history.Guarded && o.Outcome == history.OK && o.Args.Generation > 1
		}).Args.Generation--
	}},
	{"nobody was paused, and two believed to hold one key", "L8", func(t *testing.T, h *history.History) {
		_, older, newer := reclaimed(t, h)
		older.Paused, older.To = false, newer.From+time.Millisecond
		older.Until, newer.To, newer.Until = older.To, newer.From+time.Second, newer.From+time.Second
	}},
	{"an election cost a holder its lease", "L9", func(t *testing.T, h *history.History) {
		var elected int64
		for _, a := range h.Applied {
			if a.Command.GetLead() != nil && a.Term > 2 && elected == 0 {
				elected = a.T
			}
		}
		for _, w := range check.Whole(h).Windows {
			for i := len(h.Beliefs) - 1; i >= 0; i-- { // of two beliefs in one grant the last one counts
				if b := &h.Beliefs[i]; w.From < elected && (w.To > elected+1 || w.Cause == "") && b.Key == w.Key && b.Generation == w.Generation {
					b.Paused, b.Why = false, history.BeliefTold
					h.Feed = append(h.Feed, history.Told{Watcher: "watcher-1", Board: h.Run.Board, Event: &boardpb.Event{
						Kind: boardpb.Kind_KIND_LEASE_EXPIRED, Key: w.Key, Generation: w.Generation, TMs: elected + 1}})
					return
				}
			}
		}
		t.Fatal("nobody held anything during the election")
	}},
}

func TestLeasesHaveOneHolderWhenTheLeaderDies(t *testing.T) {
	testLoad(t, "lease", 1, 30*time.Second, leaseSpoilt)
}

// The contrast that L8 is for: holders that are paused believe for too long, and those that
// are not never do, although the leader dies.
func TestTwoBelieveToHoldOneKeyOnlyWhereOneIsPaused(t *testing.T) {
	figures := func(calm bool, seed uint64, lasts time.Duration) *check.HolderFigures {
		var h *history.History
		synctest.Test(t, func(t *testing.T) {
			h = runLoad(t, workload.Lease{Holders: 6, Keys: 3, Calm: calm}, seed, lasts)
		})
		j := check.Whole(h)
		f, found := check.Holders(h, j.Order, j.Windows)
		for _, v := range found {
			t.Error(v)
		}
		t.Logf("calm %v: %s", calm, f)
		return f
	}
	if f := figures(true, 3, 21*time.Second); f.Overlaps > 0 || f.Beliefs < 20 {
		t.Errorf("nobody was paused: %+v", f)
	}
	for seed := range uint64(4) { // mostly the first one has it
		if figures(false, seed, 30*time.Second).OverlapPaused > 0 {
			return
		}
	}
	t.Error("holders were paused, and none believed for too long")
}
