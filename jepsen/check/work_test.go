package check_test

import (
	"testing"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// goodWork is the story every bad one departs from: a stores half and is lost, b claims and
// completes, a is late.
type goodWork struct {
	h *history.History
	b *traceOf

	previous  *boardpb.Previous
	late      *boardpb.Result
	result    *boardpb.Result
	lateGen   uint64
	finalItem *boardpb.Lease
	entries   []*boardpb.Entry
	again     bool // completed once more
	unposted  bool
	undone    bool
}

func newWork() *goodWork {
	w := &goodWork{b: newTrace(), h: &history.History{Run: history.Run{Board: theBoard, Healed: time.Minute, Bound: time.Minute, Ended: 3 * time.Minute}}}
	w.previous = expired("a", 1, "results/a/part@1")
	w.late, w.lateGen, w.result = refused(stale, 1, 2), 1, done(7, 2, "results/b/r@1")
	w.finalItem = &boardpb.Lease{Key: "claims/i", State: boardpb.LeaseState_LEASE_STATE_DONE, ResultRef: "results/b/r@1"}
	w.entries = []*boardpb.Entry{
		{Key: "claims/i", Version: 1, Value: []byte("1")}, {Key: "results/a/part", Version: 1, Value: []byte("2")},
		{Key: "results/b/r", Version: 1, Value: []byte("b's")},
	}
	w.h.Faults = []history.Fault{{Name: "pause", Targets: []string{"a"}}}
	w.h.Ops = []history.Op{
		{ID: 1, Client: "poster", Kind: history.Post, Key: "claims/i", Outcome: history.OK},
		{ID: 2, Client: "a", Kind: history.Partial, Key: "results/a/part", Outcome: history.OK,
			Args: history.Args{Value: "2"}, Result: history.Result{Version: 1}},
		{ID: 102, Client: "b", Kind: history.Complete, Key: "claims/i", Outcome: history.OK, Return: 70 * time.Second},
		{ID: 201, Client: "a", Kind: history.ClaimNext, Outcome: history.OK},
	}
	return w
}

func (w *goodWork) judge(t *testing.T) []check.Finding {
	t.Helper()
	b := w.b.lead(2).at(20_000).open("a", 1).open("b", 2)
	if !w.unposted {
		b.post(1, "claims/i", 3)
	}
	b.claim("a", 1, "claims/i", 1, 3000, 4).partial("a", 2, "claims/i", 1, 5)
	b.at(24_000).claim("b", 1, "claims/i", 2, 3000, 6, w.previous)
	if !w.undone {
		b.complete("b", 2, "claims/i", 2, "b's", w.result)
	}
	b.complete("a", 3, "claims/i", w.lateGen, "a's", w.late)
	if w.again {
		b.complete("b", 4, "claims/i", 2, "b's", done(9, 2, "results/b/r@2"))
	}
	for _, reader := range []string{"r1", "r2"} {
		for _, e := range w.entries {
			w.h.Finals = append(w.h.Finals, history.Final{Reader: reader, Entry: e})
		}
		w.h.Finals = append(w.h.Finals, history.Final{Reader: reader, Lease: w.finalItem})
	}
	order := b.agreed(t)
	windows, _ := check.Leases(order) // what it finds is tested elsewhere
	return check.Work(w.h, order, windows)
}

func TestTheWorkCheckerJudgesHandWrittenHistories(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(w *goodWork)
	}{
		{"good: lost, claimed again, done, the late one refused", "", func(*goodWork) {}},
		{"Q1: completed twice", "Q1", func(w *goodWork) { w.again = true }},
		{"Q1: acknowledged, and it does not stand", "Q1 Q6", func(w *goodWork) { w.undone = true }},
		{"Q3: acknowledged post that is nowhere", "Q3", func(w *goodWork) { w.entries = w.entries[1:] }},
		{"Q3: an item nobody posted", "Q3", func(w *goodWork) { w.unposted = true; w.h.Ops = w.h.Ops[1:] }},
		{"Q3: partial work is gone", "Q3", func(w *goodWork) { w.entries = append(w.entries[:1:1], w.entries[2]) }},
		{"Q3: the next claimant is not told of partial work", "Q3", func(w *goodWork) { w.previous.PartialRefs = nil }},
		{"Q4: the result is another one", "Q4", func(w *goodWork) {
			w.entries[2] = &boardpb.Entry{Key: "results/b/r", Version: 1, Value: []byte("else")}
		}},
		{"Q4: a reader sees the item as free", "Q4", func(w *goodWork) {
			w.finalItem = &boardpb.Lease{Key: "claims/i", State: boardpb.LeaseState_LEASE_STATE_FREE}
		}},
		{"Q5: what was handed in late is stored all the same", "Q5", func(w *goodWork) {
			w.entries = append(w.entries, &boardpb.Entry{Key: "results/a/r", Version: 1, Value: []byte("a's")})
		}},
		{"Q5: refused as stale, and no later generation stands", "Q5", func(w *goodWork) { w.lateGen = 2 }},
		{"good: the holder gave it up in a call that was not done", "", func(w *goodWork) {
			w.h.Faults = nil
			w.h.Ops = append(w.h.Ops, history.Op{ID: 202, Client: "a", Kind: history.Fail, Key: "claims/i", Outcome: history.Failed,
				Args: history.Args{Generation: 1}})
		}},
		{"L9: the holder was there all the time", "L9", func(w *goodWork) { w.h.Faults = nil }},
		{"Q6: done long after the heal", "Q6", func(w *goodWork) { w.h.Ops[2].Return = 121 * time.Second }},
		{"Q6: never done", "Q6", func(w *goodWork) { w.undone = true; w.h.Ops = w.h.Ops[:2] }},
		{"invalid: ended before the bound", "G7", func(w *goodWork) {
			w.undone, w.h.Ops, w.h.Run.Ended = true, w.h.Ops[:2], 90*time.Second
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWork()
			c.spoil(w)
			fires(t, c.want, w.judge(t))
		})
	}
}
