package check_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

const sec = time.Second

// change is a run in which n4 joined at 10 s, n2 was removed at 20 s, and n3 lost its disk at
// 30 s and was replaced by n5.
type change struct {
	h *history.History
	b *traceOf
}

func newChange() *change {
	c := &change{b: newTrace(), h: &history.History{Run: history.Run{Board: theBoard, Ended: 120 * sec}}}
	for i := range 3 {
		c.put(fmt.Sprint("id-", i+1), fmt.Sprint("n", i+1), sec)
	}
	c.on("n3", 1, 2*sec)
	c.h.Faults = []history.Fault{
		{Name: "add", Nemesis: "N13", Targets: []string{"n4"}, Start: 10 * sec, End: 12 * sec},
		{Name: "remove", Nemesis: "N13", Targets: []string{"n2"}, Start: 20 * sec, End: 21 * sec},
		{Name: "wipe", Nemesis: "N13", Targets: []string{"n3"}, Start: 30 * sec, End: 40 * sec},
	}
	c.put("id-4", "n4", 11*sec)
	c.on("n4", 1, 11*sec)
	c.drop("id-2", 20*sec)
	c.drop("id-3", 35*sec)
	c.put("id-5", "n5", 38*sec)
	c.h.Roles = []history.Role{
		{Node: "n1", Life: 1, At: sec, Term: 2, Role: "leader"}, {Node: "n2", Life: 1, At: sec, Term: 2, Role: "follower"},
	}
	c.h.Ops = []history.Op{
		{ID: 1, Client: "c", Kind: history.Append, Key: "list/0", Outcome: history.OK, Result: history.Result{Version: 2}},
		{ID: 2, Client: "c", Kind: history.Append, Key: "list/0", Outcome: history.Info},
	}
	for _, reader := range []string{"n1", "n4"} {
		c.h.Finals = append(c.h.Finals, history.Final{Reader: reader, Entry: &boardpb.Entry{Key: "list/0", Version: 1}},
			history.Final{Reader: reader, Entry: &boardpb.Entry{Key: "list/0", Version: 2}})
	}
	return c
}

// put and drop are entries that n1 applies.
func (c *change) put(id, name string, at time.Duration) {
	c.b.raw(&boardpb.Command{Op: &boardpb.Command_NodePut{NodePut: &boardpb.NodePut{Node: &boardpb.Node{Id: id, Name: name}}}}, ok(0, 0)).At = at
}

func (c *change) drop(id string, at time.Duration) {
	c.b.raw(&boardpb.Command{Op: &boardpb.Command_NodeDrop{NodeDrop: &boardpb.NodeDrop{Id: id}}}, ok(0, 0)).At = at
}

// on lets another node apply in a life what n1 has so far.
func (c *change) on(node string, life int, at time.Duration) {
	for _, r := range c.b.records {
		if r.Node == "n1" {
			r.Node, r.Life, r.At = node, life, at
			c.h.Applied = append(c.h.Applied, r)
		}
	}
}

func (c *change) forget(node string) {
	c.h.Applied = slices.DeleteFunc(c.h.Applied, func(r history.Applied) bool { return r.Node == node })
}

func (c *change) role(node string, at time.Duration, term uint64, role string) {
	c.h.Roles = append(c.h.Roles, history.Role{Node: node, Life: 1, At: at, Term: term, Role: role})
}

func TestTheOperationsCheckerJudgesHandWrittenHistories(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(c *change)
	}{
		{"good: one joins, one leaves, one is replaced", "", func(*change) {}},
		{"B1: an acknowledged append is not seen through a node that joined", "B1", func(c *change) {
			c.h.Finals = c.h.Finals[:len(c.h.Finals)-1]
		}},
		{"B1: an acknowledged post is nowhere", "B1", func(c *change) {
			c.h.Ops = append(c.h.Ops, history.Op{ID: 3, Kind: history.Post, Key: "claims/i", Outcome: history.OK, Result: history.Result{Version: 1}})
		}},
		{"invalid: nobody read the board", "G7", func(c *change) { c.h.Finals = nil }},
		{"good: the removed node stands once, and one term is lost", "", func(c *change) {
			c.role("n2", 23*sec, 2, "candidate")
			c.role("n1", 24*sec, 3, "follower")
		}},
		{"B2: the removed node stands again and again", "B2", func(c *change) {
			c.role("n2", 23*sec, 2, "candidate")
			c.role("n1", 24*sec, 4, "follower")
		}},
		{"good: the others elect among themselves", "", func(c *change) { c.role("n1", 24*sec, 4, "leader") }},
		{"good: the removed node led, and handed over first", "", func(c *change) {
			c.h.Roles[0].Role, c.h.Roles[1].Role = "follower", "leader"
			c.role("n1", 20*sec+1, 3, "leader")
			c.role("n2", 23*sec, 3, "candidate")
			c.role("n1", 24*sec, 4, "leader")
		}},
		{"good: something else was done meanwhile", "", func(c *change) {
			c.role("n2", 25*sec, 2, "candidate")
			c.role("n1", 26*sec, 4, "follower")
			c.h.Faults = append(c.h.Faults, history.Fault{Name: "kill", Nemesis: "N7", Targets: []string{"n1"}, Start: 24 * sec, End: 25 * sec})
		}},
		{"B3: the new node has nothing", "B3", func(c *change) { c.h.Faults[0].Targets[0] = "n9" }},
		{"B3: the new node is late", "B3", func(c *change) {
			c.forget("n4")
			c.on("n4", 1, 80*sec)
		}},
		{"good: it is, and it was killed on the way", "", func(c *change) {
			c.forget("n4")
			c.on("n4", 1, 80*sec)
			c.h.Faults = append(c.h.Faults, history.Fault{Name: "kill", Nemesis: "N7", Targets: []string{"n4"}, Start: 15 * sec, End: 60 * sec})
		}},
		{"good: it has it in a snapshot", "", func(c *change) {
			c.forget("n4")
			c.h.Install = []history.Installed{{Node: "n4", Life: 1, At: 20 * sec, Index: 4}}
		}},
		{"invalid: the run ended too soon to tell", "G7", func(c *change) {
			c.h.Faults[0].Targets[0] = "n9"
			c.h.Run.Ended = 41 * sec
		}},
		{"B4: a dropped id is taken in again", "B4", func(c *change) { c.put("id-2", "n2", 50*sec) }},
		{"B4: a wiped node applies again without another id", "B4", func(c *change) { c.on("n3", 2, 33*sec) }},
		{"good: a wiped node comes back under its name and another id", "", func(c *change) {
			c.put("id-6", "n3", 34*sec)
			c.on("n3", 2, 36*sec)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := newChange()
			c.spoil(run)
			run.h.Applied = append(run.b.records, run.h.Applied...)
			order, found := check.Agree(run.h)
			fires(t, c.want, append(found, check.Operations(run.h, order)...))
		})
	}
}

func TestAReadShowsWhatItsCallerHadBeenTold(t *testing.T) {
	for _, c := range []struct {
		name, want string
		told, rev  uint64
	}{{"good: it shows it", "", 7, 7}, {"good: it shows more", "", 7, 9}, {"good: it had been told nothing", "", 0, 3}, {"H1: it is older", "H1", 7, 6}} {
		t.Run(c.name, func(t *testing.T) {
			fires(t, c.want, check.Heard([]history.Op{{ID: 1, Kind: history.Get, Outcome: history.OK,
				Args: history.Args{AtLeast: c.told}, Result: history.Result{Rev: c.rev}}}))
		})
	}
}
