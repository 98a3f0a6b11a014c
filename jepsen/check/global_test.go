package check_test

import (
	"testing"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// members is a sound run of two nodes whose leader is killed from 20 s to 40 s, with an
// operation every second, each answered at once.
func members() *history.History {
	records, second := twoNodes()
	for _, r := range records[:second] {
		r.Node = "n3"
		records = append(records, r)
	}
	h := &history.History{
		Run:     history.Run{Nodes: []string{"n1", "n2", "n3"}, Healed: 40 * time.Second, Ended: 80 * time.Second},
		Applied: records,
		Faults:  []history.Fault{{Name: "kill", Nemesis: "N7", Targets: []string{"n1"}, Start: 20 * time.Second, End: 40 * time.Second}},
	}
	for i := range 80 {
		at := time.Duration(i) * time.Second
		h.Ops = append(h.Ops, history.Op{ID: uint64(i + 1), Client: "c", Kind: history.Set, Outcome: history.OK, Invoke: at, Return: at + time.Millisecond,
			Began: uint64(2*i + 1), Ended: uint64(2*i + 2), Result: history.Result{Answer: "ok"}})
	}
	return h
}

// goesOn lets one node apply more than the five entries that all have.
func goesOn(h *history.History, name string, commands ...*boardpb.Command) {
	b := &traceOf{node: name, life: 1, term: 2, index: 5, t: 9000}
	for _, c := range commands {
		b.raw(c, ok(0, 0))
	}
	h.Applied = append(h.Applied, b.records...)
}

// silent makes all operations that began in a stretch time out after a while.
func silent(h *history.History, from, to, after time.Duration) {
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Invoke >= from && op.Invoke < to {
			op.Outcome, op.Result, op.Return = history.Info, history.Result{Error: "deadline exceeded"}, op.Invoke+after
		}
	}
}

func TestWhatEveryRunIsHeldTo(t *testing.T) {
	const s = time.Second
	node := func(id, name string) *boardpb.Command {
		return &boardpb.Command{Op: &boardpb.Command_NodePut{NodePut: &boardpb.NodePut{Node: &boardpb.Node{Id: id, Name: name}}}}
	}
	drop := func(id string) *boardpb.Command {
		return &boardpb.Command{Op: &boardpb.Command_NodeDrop{NodeDrop: &boardpb.NodeDrop{Id: id}}}
	}
	for _, c := range []struct {
		name, want string
		spoil      func(h *history.History)
	}{
		{"good", "", func(*history.History) {}},
		{"good: one node is a tick ahead", "", func(h *history.History) {
			goesOn(h, "n1", &boardpb.Command{Op: &boardpb.Command_Tick{Tick: &boardpb.Tick{}}})
		}},
		{"good: a node that was removed is behind", "", func(h *history.History) {
			for _, n := range []string{"n1", "n3"} {
				goesOn(h, n, node("id-2", "n2"), drop("id-2"))
			}
		}},
		{"G4: one node is behind at the end", "G4", func(h *history.History) { h.Applied = h.Applied[:len(h.Applied)-1] }},
		{"G4: a removed name is back under a new id, and behind", "G4", func(h *history.History) {
			for _, n := range []string{"n1", "n3"} {
				goesOn(h, n, node("id-2", "n2"), drop("id-2"), node("id-3", "n2"))
			}
		}},
		{"G4: the newest life of a node is behind", "G4", func(h *history.History) {
			r := h.Applied[0]
			r.Life = 2
			h.Applied = append(h.Applied, r)
		}},
		{"G4: a member applied nothing", "G4", func(h *history.History) { h.Run.Nodes = append(h.Run.Nodes, "n4") }},
		{"G5: a process ended by itself", "G5", func(h *history.History) {
			h.Notes = []history.Note{{Kind: history.NoteDied, Node: "n1", Text: "exit status 2"}}
		}},
		{"G5: goroutines were left", "G5", func(h *history.History) { h.Notes = []history.Note{{Kind: history.NoteLeak, Text: "3 goroutines"}} }},
		{"G6: the cluster could not be mended", "G6", func(h *history.History) { h.Notes = []history.Note{{Kind: history.NoteStuck, Text: "n1 is not ready"}} }},
		{"good: nothing is answered for a while after the kill", "", func(h *history.History) { silent(h, 20*s, 30*s, 3*s) }},
		{"G6: nothing is answered while a majority is connected", "G6", func(h *history.History) { silent(h, 20*s, 38*s, 3*s) }},
		{"good: the same, and there was no majority", "", func(h *history.History) {
			silent(h, 20*s, 38*s, 3*s)
			h.Faults = append(h.Faults, history.Fault{Name: history.NoMajority, Nemesis: "N7", Start: 20 * s, End: 40 * s})
		}},
		{"good: the same, and both were killed", "", func(h *history.History) {
			silent(h, 20*s, 38*s, 3*s)
			h.Faults[0].Targets = []string{"n1", "n2"}
		}},
		{"good: the same, and the disks were slow", "", func(h *history.History) {
			silent(h, 20*s, 38*s, 3*s)
			h.Faults[0].Nemesis = "N10"
		}},
		{"good: the clients gave up too soon to tell", "", func(h *history.History) { silent(h, 20*s, 38*s, s) }},
		{"good: refusals are answers", "", func(h *history.History) {
			silent(h, 20*s, 38*s, 3*s)
			h.Ops[30].Outcome, h.Ops[30].Result.Answer = history.Failed, "conflict"
		}},
		{"G6: not done is none", "G6", func(h *history.History) {
			silent(h, 20*s, 38*s, 3*s)
			h.Ops[30].Outcome, h.Ops[30].Result.Answer = history.Failed, "unavailable"
		}},
		{"G6: nothing is answered after the heal", "G6", func(h *history.History) { silent(h, 40*s, 80*s, 3*s) }},
		{"G6: nothing is answered in the short while that is left after the heal", "G6", func(h *history.History) {
			h.Ops = h.Ops[:43]
			silent(h, 40*s, 43*s, 7*s)
		}},
		{"good: one of them is", "", func(h *history.History) {
			h.Ops = h.Ops[:43]
			silent(h, 40*s, 42*s, 7*s)
		}},
		{"G6: one operation long after the heal is not answered", "G6", func(h *history.History) { silent(h, 70*s, 71*s, 3*s) }},
		{"good: its client was paused", "", func(h *history.History) {
			silent(h, 70*s, 71*s, 3*s)
			h.Faults = append(h.Faults, history.Fault{Name: "pause", Targets: []string{"c"}, Start: 70 * s, End: 72 * s})
		}},
		{"good: it was asked of a node that has left", "", func(h *history.History) {
			silent(h, 70*s, 71*s, 3*s)
			h.Ops[70].Asked = "n7"
		}},
		{"G6: the run says how long a failover may take", "G6", func(h *history.History) {
			silent(h, 20*s, 30*s, 3*s)
			h.Run.Failover = 5 * s
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := members()
			c.spoil(h)
			order, found := check.Agree(h)
			fires(t, c.want, append(found, check.Globals(h, order)...))
		})
	}
}
