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
		{"a member that nobody read", "G7", func(h *history.History) { h.Finals = nil }},
		{"another value", "G4", func(h *history.History) { h.Finals[1].Entry.Value = []byte("2") }},
		{"another version", "G4", func(h *history.History) { h.Finals[1].Entry.Version = 9 }},
		{"another rev", "G4", func(h *history.History) { h.Finals[1].Entry.Rev = 9 }},
		{"a key is not shown", "G4", func(h *history.History) { h.Finals = slices.Delete(h.Finals, 1, 2) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newTrace().lead(2)
			h := &history.History{Run: history.Run{Board: theBoard, Rerun: "faults run …", Nemesis: "kill", Nodes: []string{"n1"}, Time: 5 * time.Second, Rate: 10,
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
			h.Applied = slices.Clone(b.records)
			order := b.agreed(t)
			c.spoil(h)
			fires(t, c.want, check.Recorded(h, order))
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
