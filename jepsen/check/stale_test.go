package check_test

import (
	"strconv"
	"testing"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// counting is a run in which one writer counted to 3, at revs 1, 3 and 4: somebody else had rev 2.
type counting struct {
	*traceOf
	h *history.History
}

func (c *counting) op(kind history.Kind, client, asked string, from, to time.Duration, r history.Result) *history.Op {
	id := uint64(len(c.h.Ops) + 1)
	op := history.Op{ID: id, Client: client, Kind: kind, Board: theBoard, Key: "count/n", Asked: asked, Began: uint64(from), Ended: uint64(to),
		Invoke: from * time.Second, Return: to * time.Second, Outcome: history.OK, Result: r}
	if r.Answer != "ok" {
		op.Outcome = history.Failed
	}
	c.h.Ops = append(c.h.Ops, op)
	return &c.h.Ops[id-1]
}

func (c *counting) count(at time.Duration, rev, version uint64) {
	value := strconv.FormatUint(version, 10)
	op := c.op(history.Set, "counter", "", at, at+1, history.Result{Answer: "ok", Rev: rev, Version: version})
	op.Args = history.Args{Value: value, IfVersion: version - 1}
	c.do("", 0, writeOf(*op), ok(rev, version))
}

func (c *counting) read(kind history.Kind, at time.Duration, rev, version uint64) *history.Op {
	return c.op(kind, "reader", "n2", at, at+1, shown(rev, version))
}

func shown(rev, version uint64) history.Result {
	return history.Result{Answer: "ok", Rev: rev, Version: version, Value: strconv.FormatUint(version, 10)}
}

func refusedWith(answer string) history.Result { return history.Result{Answer: answer} }

func TestTheStaleHunterJudgesHandWrittenHistories(t *testing.T) {
	alone := func(c *counting) {
		c.h.Faults = append(c.h.Faults, history.Fault{Name: history.NoMajority, Nemesis: "N1", Start: 40 * time.Second, End: 60 * time.Second})
	}
	hurt := func(c *counting, name, nemesis string) {
		c.h.Faults = append(c.h.Faults, history.Fault{Name: name, Nemesis: nemesis, Targets: []string{"n2"}, Start: 40 * time.Second, End: 60 * time.Second})
	}
	for _, c := range []struct {
		name, want string
		spoil      func(c *counting)
	}{
		{"good: every read shows what had been acknowledged", "", func(*counting) {}},
		{"good: a stale read is behind, and says so", "", func(c *counting) { c.read(history.GetStale, 30, 2, 1) }},
		{"good: a read that overlaps a write shows either", "", func(c *counting) { c.read(history.Get, 20, 3, 2) }},
		{"good: at_least shows the rev", "", func(c *counting) { c.read(history.GetAtLeast, 30, 3, 2).Args.AtLeast = 3 }},
		{"good: a read without an answer says nothing", "", func(c *counting) { c.op(history.Get, "reader", "n2", 30, 31, refusedWith("unavailable")) }},
		{"good: without a majority, unavailable in time", "", func(c *counting) {
			alone(c)
			c.op(history.Get, "reader", "n2", 41, 46, refusedWith("unavailable"))
			c.op(history.Set, "counter", "n1", 41, 46, refusedWith("unavailable"))
		}},
		{"good: without a majority, a stale read", "", func(c *counting) { alone(c); c.read(history.GetStale, 45, 4, 3) }},
		{"good: answered as soon as there is a majority again", "", func(c *counting) {
			alone(c)
			c.op(history.Get, "reader", "n2", 57, 61, shown(4, 3))
		}},
		{"good: a paused node answers late", "", func(c *counting) {
			alone(c)
			hurt(c, "pause", "N8")
			c.op(history.Get, "reader", "n2", 41, 50, refusedWith(""))
		}},
		{"good: a node that is cut off says so in time", "", func(c *counting) {
			hurt(c, "partition", "N1")
			c.op(history.Get, "reader", "n2", 45, 50, refusedWith("unavailable"))
			c.op(history.Get, "reader", "n1", 45, 46, shown(4, 3))
		}},
		{"good: a node answers while the cut is made, and while it is undone", "", func(c *counting) {
			hurt(c, "partition", "N1")
			c.op(history.Get, "reader", "n2", 40, 41, shown(4, 3))
			c.op(history.Get, "reader", "n2", 57, 60, shown(4, 3))
		}},
		{"good: a node that is cut off serves a stale read", "", func(c *counting) {
			hurt(c, "partition", "N1")
			c.read(history.GetStale, 45, 3, 2)
		}},
		{"good: a node that two of five others still reach", "", func(c *counting) {
			hurt(c, "bridge", "N2")
			c.op(history.Get, "reader", "n2", 45, 46, shown(4, 3))
		}},
		{"good: a client that was away hears late", "", func(c *counting) {
			hurt(c, "partition", "N1")
			c.h.Faults = append(c.h.Faults, history.Fault{Name: "pause", Targets: []string{"reader"}, Start: 44 * time.Second, End: 52 * time.Second})
			c.op(history.Get, "reader", "n2", 43, 53, refusedWith("unavailable"))
		}},
		{"H1: an old leader answers", "H1", func(c *counting) { c.read(history.Get, 30, 3, 2) }},
		{"H1: a read behind another read", "H1", func(c *counting) {
			c.h.Ops[2].Outcome = history.Info // nobody was told of 3
			c.read(history.Get, 30, 4, 3)
			c.read(history.Get, 32, 3, 2)
		}},
		{"H1: as if nothing had been written", "H1", func(c *counting) { c.op(history.Get, "reader", "n2", 30, 31, history.Result{Answer: "ok"}) }},
		{"H2: at_least is not reached", "H2", func(c *counting) { c.read(history.GetAtLeast, 30, 3, 2).Args.AtLeast = 4 }},
		{"H2: a stale read names another rev", "H2", func(c *counting) { c.read(history.GetStale, 30, 4, 2) }},
		{"H2: a stale read shows another value", "H2", func(c *counting) { c.read(history.GetStale, 30, 4, 3).Result.Value = "7" }},
		{"H2: a rev that never was", "H2", func(c *counting) { c.read(history.GetStale, 30, 9, 3) }},
		{"H2: a client is shown less than before", "H2", func(c *counting) {
			c.op(history.GetStale, "client-1", "", 30, 31, shown(4, 3))
			c.op(history.GetStale, "client-1", "", 32, 33, shown(3, 2))
		}},
		{"H3: a read is served without a majority", "H3", func(c *counting) { alone(c); c.read(history.Get, 45, 4, 3) }},
		{"H3: a write is refused by state without a majority", "H3", func(c *counting) {
			alone(c)
			c.op(history.Set, "counter", "n1", 45, 46, refusedWith("conflict"))
		}},
		{"H3: unavailable too late", "H3", func(c *counting) { alone(c); c.op(history.Set, "counter", "n1", 41, 49, refusedWith("unavailable")) }},
		{"H3: never answered, though nothing befell the node", "H3", func(c *counting) {
			alone(c)
			hurt(c, "partition", "N1")
			c.op(history.Get, "reader", "n2", 41, 49, refusedWith(""))
		}},
		{"H3: a node that is cut off is late", "H3", func(c *counting) {
			hurt(c, "partition", "N1")
			c.op(history.Get, "reader", "n2", 45, 53, refusedWith("unavailable"))
		}},
		{"H3: a node that is cut off never answers", "H3", func(c *counting) {
			hurt(c, "partition", "N1")
			c.op(history.Set, "counter", "n2", 41, 49, refusedWith(""))
		}},
		{"H3: a node that is cut off serves", "H3", func(c *counting) {
			hurt(c, "partition", "N1")
			c.op(history.Get, "reader", "n2", 45, 46, shown(4, 3))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &counting{traceOf: newTrace().lead(2), h: &history.History{Run: history.Run{Board: theBoard}}}
			b.count(1, 1, 1)
			b.do("z", 0, &boardpb.Command{Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: "other/x"}}}, ok(2, 1))
			b.count(10, 3, 2)
			b.count(20, 4, 3)
			c.spoil(b)
			fires(t, c.want, check.Stale(b.h, b.agreed(t)))
		})
	}
}
