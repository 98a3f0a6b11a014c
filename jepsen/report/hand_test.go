package report_test

import (
	"fmt"
	"time"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// hand writes a history by hand: a cluster of three in which every command takes effect at
// once, an operation every 10 ms.
type hand struct {
	h     history.History
	count uint64
	index uint64
	rev   uint64
	now   time.Duration
}

const aBoard = "faults"

func newHand(workload string) *hand {
	b := &hand{h: history.History{Run: history.Run{Workload: workload, Nemesis: "kill", Driver: "sim", Board: aBoard, Nodes: []string{"n1", "n2", "n3"},
		Seed: 7, Version: "test", Rerun: "go run ./jepsen/cmd/faults run --seed 7"}}}
	for i, node := range b.h.Run.Nodes {
		role := "follower"
		if i == 0 {
			role = "leader"
		}
		b.h.Roles = append(b.h.Roles, history.Role{Node: node, Life: 1, At: time.Millisecond, Term: 2, Role: role})
	}
	return b
}

// op is an operation that took 5 ms.
func (b *hand) op(o history.Op) *history.Op {
	b.now += 10 * time.Millisecond
	o.ID, o.Board = uint64(len(b.h.Ops)+1), aBoard
	b.count++
	o.Began, o.Invoke = b.count, b.now
	b.count++
	o.Ended, o.Return = b.count, b.now+5*time.Millisecond
	b.h.Ops = append(b.h.Ops, o)
	return &b.h.Ops[len(b.h.Ops)-1]
}

// apply is a command on all nodes.
func (b *hand) apply(c *boardpb.Command, r *boardpb.Result) {
	b.index++
	c.Board = aBoard
	for i, node := range b.h.Run.Nodes {
		a := history.Trace(node, 1, fsm.TraceRecord{Index: b.index, Term: 2, Command: c, Result: r, T: b.now.Milliseconds(),
			Digest: [16]byte{1, byte(b.index), byte(b.index >> 8)}})
		a.At = b.now + time.Duration(i+1)*time.Millisecond
		b.h.Applied = append(b.h.Applied, a)
	}
}

// set writes a register, at the next version of its key.
func (b *hand) set(client, key, value string, version uint64) {
	b.rev++
	o := b.op(history.Op{Client: client, Kind: history.Set, Key: key, Args: history.Args{Value: value, IfVersion: version - 1}, Outcome: history.OK,
		Result: history.Result{Answer: "ok", Version: version, Rev: b.rev}})
	b.apply(&boardpb.Command{CallId: o.CallID(), Actor: &boardpb.Actor{Principal: client},
		Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: key, Value: []byte(value), IfVersion: version - 1}}},
		&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: key, Version: version, Rev: b.rev})
}

func (b *hand) get(client, key, value string, version uint64) *history.Op {
	return b.op(history.Op{Client: client, Kind: history.Get, Key: key, Asked: "n2", Answered: "n2", Outcome: history.OK,
		Result: history.Result{Answer: "ok", Version: version, Value: value, Rev: b.rev}})
}

// claim grants key to who until the board's own account ends it.
func (b *hand) claim(who, key string, generation uint64, ms int64) {
	b.rev++
	o := b.op(history.Op{Client: who + "/1", Loop: "l-" + who, Kind: history.ClaimNext, Args: history.Args{Pattern: "claims/*"}, Outcome: history.OK,
		Result: history.Result{Answer: "ok", Key: key, Generation: generation, Rev: b.rev}})
	b.apply(&boardpb.Command{CallId: o.CallID(), Loop: "l-" + who, Actor: &boardpb.Actor{Principal: who},
		Op: &boardpb.Command_ClaimNext{ClaimNext: &boardpb.ClaimNext{Pattern: "claims/*", DurationMs: &ms}}},
		&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: key, Generation: generation, Rev: b.rev, DurationMs: ms, ExpiresTMs: b.now.Milliseconds() + ms})
}

// complete hands key in; a late one is refused.
func (b *hand) complete(who, key string, generation uint64, late bool) {
	outcome, answer := history.OK, "ok"
	res := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: key, Generation: generation}
	if late {
		outcome, answer = history.Failed, "stale_lease"
		res = &boardpb.Result{Code: boardpb.Code_CODE_STALE_LEASE, Key: key, Generation: generation + 1}
	} else {
		b.rev++
	}
	res.Rev = b.rev
	o := b.op(history.Op{Client: who + "/1", Loop: "l-" + who, Kind: history.Complete, Key: key, Args: history.Args{Generation: generation}, Outcome: outcome,
		Result: history.Result{Answer: answer, Generation: res.Generation, Rev: res.Rev}})
	b.apply(&boardpb.Command{CallId: o.CallID(), Loop: "l-" + who, Actor: &boardpb.Actor{Principal: who},
		Op: &boardpb.Command_Complete{Complete: &boardpb.Complete{Key: key, Generation: generation}}}, res)
}

// kill is a fault that ended before now.
func (b *hand) kill(node, witness string) {
	b.h.Faults = append(b.h.Faults, history.Fault{Name: "kill", Nemesis: "N7", Targets: []string{node}, Start: b.now + time.Millisecond, End: b.now + 100*time.Millisecond, Witness: witness})
	b.now += 150 * time.Millisecond
}

// event is what watcher w is told.
func (b *hand) event(w string, rev uint64) {
	b.now += time.Millisecond
	b.h.Feed = append(b.h.Feed, history.Told{Watcher: w, Board: aBoard, At: b.now, Event: &boardpb.Event{Rev: rev, Kind: boardpb.Kind_KIND_SET, Key: "reg/a"}})
}

func (b *hand) done() *history.History {
	b.h.Run.Healed, b.h.Run.Ended, b.h.Run.Bound = b.now, b.now+time.Second, time.Minute
	return &b.h
}

// registers is a run in which one key is written and read in turn, and a node dies in between.
// A stale run ends with a read of the version before the newest.
func registers(n int, stale bool) *history.History {
	b := newHand("register")
	value := func(i int) string { return fmt.Sprintf("%q", fmt.Sprintf("v.%d", i)) }
	for i := 1; i <= n; i++ {
		b.set("client-1", "reg/a", value(i), uint64(i))
		b.get("client-2", "reg/a", value(i), uint64(i))
		if i == n/2 {
			b.kill("n1", "n2 leads in term 3")
		}
	}
	if stale {
		b.get("client-3", "reg/a", value(n-1), uint64(n-1))
	}
	return b.done()
}
