package check_test

import (
	"slices"
	"testing"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// TestTheHarnessIsCondemnedWhenItIsBroken is M25: a harness that leaves out what it made or reads
// another clock than the nodes proves nothing, whatever it found.
func TestTheHarnessIsCondemnedWhenItIsBroken(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(h *history.History)
	}{
		{"good: it recorded everything", "", func(*history.History) {}},
		{"good: an unknown outcome that was applied", "", func(h *history.History) { h.Ops[1].Outcome = history.Info }},
		{"good: one that never returned", "", func(h *history.History) {
			h.Ops[3].Outcome, h.Ops[3].Ended, h.Ops[3].Return = history.Info, 0, 0
		}},
		{"good: the clock of one node is moved", "", func(h *history.History) { h.Applied[2].At += time.Hour }},
		{"good: a node tells no times", "", func(h *history.History) {
			for i := range h.Applied {
				h.Applied[i].At = 0
			}
		}},
		{"G7: it ignores what is unknown", "G7", func(h *history.History) {
			h.Ops[1].Outcome = history.Info
			h.Ops = slices.DeleteFunc(h.Ops, func(op history.Op) bool { return op.Outcome == history.Info })
		}},
		{"G7: it ignores what is unknown and was never applied", "G7", func(h *history.History) {
			h.Ops = slices.Delete(h.Ops, 1, 2)
			h.Applied = slices.Delete(h.Applied, 2, 3)
		}},
		{"G7: it drops the last operation", "G7", func(h *history.History) { h.Ops = h.Ops[:3] }},
		{"G7: its clock is another", "G7", func(h *history.History) {
			for i := range h.Ops {
				h.Ops[i].Invoke += time.Hour
				h.Ops[i].Return += time.Hour
			}
		}},
		{"G7: its clock is slow", "G7", func(h *history.History) {
			for i := range h.Ops {
				h.Ops[i].Invoke /= 10
				h.Ops[i].Return /= 10
			}
		}},
		{"G7: its clock is set back", "G7", func(h *history.History) { h.Ops[3].Invoke -= 20 * time.Second }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newTrace().lead(2)
			h := &history.History{Run: history.Run{Board: theBoard}}
			for id := uint64(1); id <= 4; id++ {
				b.post(id, "claims/i", id)
				began := time.Duration(id) * 20 * time.Second
				h.Ops = append(h.Ops, history.Op{ID: id, Client: "a", Kind: history.Post, Board: theBoard, Began: 2*id - 1, Ended: 2 * id,
					Invoke: began, Return: began + time.Second, Outcome: history.OK, Result: history.Result{Answer: "ok", Rev: id, Version: 1}})
				b.records[len(b.records)-1].At = began + time.Second/2
			}
			h.Applied = slices.Clone(b.records)
			c.spoil(h)
			fires(t, c.want, check.Harness(h, b.agreed(t)))
		})
	}
}
