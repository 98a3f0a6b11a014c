package check_test

import (
	"slices"
	"testing"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// TestAHistoryOfHalfARunProvesNothing: what a run says of itself, and what it must have at its end.
func TestAHistoryOfHalfARunProvesNothing(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(h *history.History)
	}{
		{"good", "", func(*history.History) {}},
		{"good: a life that ended within an entry", "", func(h *history.History) { h.Applied[len(h.Applied)-1].Digest = "" }},
		{"a time of nothing", "G7", func(h *history.History) { h.Run.Time = 0 }},
		{"a rate below nothing", "G7", func(h *history.History) { h.Run.Rate = -5 }},
		{"no nodes", "G7", func(h *history.History) { h.Run.Nodes = nil }},
		{"no nemesis", "G7", func(h *history.History) { h.Run.Nemesis = "" }},
		{"an unknown nemesis", "G7", func(h *history.History) { h.Run.Nemesis = "kill,lightning" }},
		{"a control with faults", "G7", func(h *history.History) { h.Run.Nemesis = "none" }},
		{"over before its time", "G7", func(h *history.History) { h.Run.Time = time.Hour }},
		{"never healed", "G7", func(h *history.History) { h.Run.Healed = 0 }},
		{"over before its heal", "G7", func(h *history.History) { h.Run.Ended = 0 }},
		{"without a bound", "G7", func(h *history.History) { h.Run.Bound = 0 }},
		{"nothing after the heal", "G7", func(h *history.History) { h.Ops = h.Ops[:2] }},
		{"no roles", "G7", func(h *history.History) { h.Roles = nil }},
		{"no digests", "G7", func(h *history.History) {
			for i := range h.Applied {
				h.Applied[i].Digest = ""
			}
		}},
		{"no life told", "G7", func(h *history.History) {
			for i := range h.Applied {
				h.Applied[i].Life = 2
			}
		}},
		{"nobody knows when", "G7", func(h *history.History) {
			for i := range h.Applied {
				h.Applied[i].At = 0
			}
		}},
		{"roles of another node only", "G7", func(h *history.History) { h.Roles[0].Node = "n9" }},
		{"a rate that was not planned", "G7", func(h *history.History) { h.Run.Rate = 1 }},
		{"a time that was not planned", "G7", func(h *history.History) { h.Run.Time = time.Second }},
		{"an election that may take for ever", "G7", func(h *history.History) { h.Run.Failover = time.Hour }},
		{"a day after the heal", "G7", func(h *history.History) { h.Run.Bound = 24 * time.Hour }},
		{"a hole in the count", "G7", func(h *history.History) { h.Ops[2].Began, h.Ops[2].Ended = 7, 8 }},
		{"a number counted twice", "G7", func(h *history.History) { h.Ops[2].Began = 4 }},
		{"a write outside without its record", "G7", func(h *history.History) { h.Ops[2].Ended = 7 }},
		{"good: a write outside", "", func(h *history.History) {
			h.Ops[2].Ended = 7
			h.Outside = []history.Outside{{Client: "a", Key: "b", Generation: 1, Accepted: true, Place: 6}}
		}},
		{"answered without an end", "G7", func(h *history.History) { h.Ops[2].Ended = 0 }},
		{"no outcome", "G7", func(h *history.History) { h.Ops[1].Outcome = "perhaps" }},
		{"a fault that ended before it began", "G7", func(h *history.History) { h.Faults[0].Start = time.Second }},
		{"a fault beyond the run", "G7", func(h *history.History) { h.Faults[0].End = time.Hour }},
		{"a fault seen that could not be done", "G7", func(h *history.History) { h.Faults[0].Error = "no such node" }},
		{"no work under faults", "G7", func(h *history.History) {
			h.Ops[0].Outcome, h.Ops[1].Outcome = history.Info, history.Info
		}},
		{"mostly unknown before the first fault", "G7", func(h *history.History) {
			h.Faults[0].Start, h.Faults[0].End = 15*time.Second, 16*time.Second
			h.Ops[0].Outcome = history.Info
		}},
		{"readers who see another lease", "G4", func(h *history.History) {
			other := h.Finals[0]
			other.Reader = history.FinalReader("n2")
			h.Finals = append(h.Finals, other, lease("n1", 1), lease("n2", 2))
		}},
		{"a lease that one reader sees", "G4", func(h *history.History) {
			other := h.Finals[0]
			other.Reader = history.FinalReader("n2")
			h.Finals = append(h.Finals, other, lease("n1", 1))
		}},
		{"a member that nobody read", "G7", func(h *history.History) { h.Finals = nil }},
		{"another value", "G4", func(h *history.History) { h.Finals[1].Entry.Value = []byte("2") }},
		{"another version", "G4", func(h *history.History) { h.Finals[1].Entry.Version = 9 }},
		{"another rev", "G4", func(h *history.History) { h.Finals[1].Entry.Rev = 9 }},
		{"a key is not shown", "G4", func(h *history.History) { h.Finals = slices.Delete(h.Finals, 1, 2) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newTrace().lead(2)
			h := &history.History{Run: history.Run{Board: theBoard, Rerun: "faults run --time 5s --rate 10", Nemesis: "kill", Nodes: []string{"n1"}, Time: 5 * time.Second, Rate: 10,
				Healed: 25 * time.Second, Ended: time.Minute, Bound: time.Minute},
				Roles:  []history.Role{{Node: "n1", Life: 1, Term: 2, Role: "leader"}},
				Faults: []history.Fault{{Name: "kill", Nemesis: "N7", Targets: []string{"n1"}, Witness: "gone"}}}
			for id := uint64(1); id <= 3; id++ {
				key := string(rune('a' + id))
				b.post(id, key, id)
				began := time.Duration(id) * 10 * time.Second
				h.Ops = append(h.Ops, history.Op{ID: id, Client: "a", Kind: history.Set, Board: theBoard, Key: key, Began: 2*id - 1, Ended: 2 * id,
					Invoke: began, Return: began + time.Second, Outcome: history.OK, Result: history.Result{Answer: "ok", Rev: id, Version: 1}})
				h.Finals = append(h.Finals, history.Final{Reader: history.FinalReader("n1"), Board: theBoard, Rev: 3,
					Entry: &boardpb.Entry{Key: key, Version: 1, Value: []byte("1"), Rev: id}})
			}
			for i := range b.records {
				b.records[i].At = time.Second
			}
			h.Applied = slices.Clone(b.records)
			order := b.agreed(t)
			c.spoil(h)
			fires(t, c.want, check.Recorded(h, order))
		})
	}
}

func lease(node string, generation uint64) history.Final {
	return history.Final{Reader: history.FinalReader(node), Board: theBoard, Rev: 3, Lease: &boardpb.Lease{Key: "b", Generation: generation}}
}

// TestWhoeverWasToldSomethingWroteItDown: a watcher or a holder of whom nothing is recorded has
// nothing to object to.
func TestWhoeverWasToldSomethingWroteItDown(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(h *history.History)
	}{
		{"good", "", func(*history.History) {}},
		{"nothing of a watcher", "G7", func(h *history.History) { h.Feed = h.Feed[:1] }},
		{"nothing of the pages", "G7", func(h *history.History) { h.Feed = h.Feed[1:] }},
		{"no beliefs", "G7", func(h *history.History) { h.Beliefs = nil }},
		{"the belief of another client", "G7", func(h *history.History) { h.Beliefs[0].Client = "b" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newTrace().lead(2)
			b.records[0].At = time.Second
			h := &history.History{Run: history.Run{Workload: "lease", Board: theBoard, Rerun: "faults run …", Nemesis: "none", Nodes: []string{"n1"},
				Time: 5 * time.Second, Rate: 10, Healed: 5 * time.Second, Ended: time.Minute, Bound: time.Minute},
				Applied: slices.Clone(b.records),
				Roles:   []history.Role{{Node: "n1", Life: 1, Term: 2, Role: "leader"}},
				Ops: []history.Op{{ID: 1, Client: "a", Kind: history.Claim, Board: theBoard, Key: "k", Began: 1, Ended: 2, Invoke: 6 * time.Second,
					Return: 7 * time.Second, Outcome: history.OK, Result: history.Result{Answer: "ok", Generation: 3}}},
				Beliefs: []history.Belief{{Client: "a", Board: theBoard, Key: "k", Generation: 3, Why: history.BeliefGiven}},
				Feed:    []history.Told{{Watcher: "pages", Board: theBoard, Bookmark: 1}, {Watcher: "watcher-1", Board: theBoard, Bookmark: 1}},
				Finals:  []history.Final{{Reader: history.FinalReader("n1"), Board: theBoard}}}
			c.spoil(h)
			fires(t, c.want, check.Recorded(h, b.agreed(t)))
		})
	}
}

func TestTooLittleIsTooLittleAtWhateverRate(t *testing.T) {
	for _, rate := range []int{1, 10} {
		if got := check.Demanded(history.Run{Workload: "register", Nemesis: "kill", Time: 5 * time.Second, Rate: rate}).BeforeFault; got < 4 {
			t.Errorf("%d operations a second: %d operations before the first fault are enough", rate, got)
		}
	}
}

func TestAFaultBehindTheWorkIsNone(t *testing.T) {
	h := &history.History{Run: history.Run{Healed: time.Second},
		Faults: []history.Fault{{Name: "kill", Nemesis: "N7", Targets: []string{"n1"}, Witness: "gone", Start: 2 * time.Second, End: 3 * time.Second}}}
	fires(t, "G7", check.Valid(h, newTrace().agreed(t), check.Demand{Faults: [][]string{{"kill"}}}))
	h.Faults[0].Start = time.Second / 2
	fires(t, "", check.Valid(h, newTrace().agreed(t), check.Demand{Faults: [][]string{{"kill"}}}))
}
