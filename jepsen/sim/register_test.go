package sim_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/sim"
	"raftboard/jepsen/workload"
)

// patience of the search on one key, in real time. Decided keys take milliseconds.
const patience = 20 * time.Second

var registerDemand = check.Demand{
	States:      []check.State{check.LeaderChange, check.Conflicted},
	Kinds:       []history.Kind{history.Get, history.Set, history.Delete, history.Mutate},
	BeforeFault: 100,
}

// runRegister lets clients read and write a few keys, through the leader and through every
// node, while the leader is unseated twice.
func runRegister(t *testing.T, seed uint64, nemesis string, unseat func(*sim.Run)) *history.History {
	log := history.NewLog(history.Run{Workload: "W1 register", Nemesis: nemesis, Driver: "sim", Board: "registers", Seed: seed})
	run := sim.Start(t, log, 3)
	env := workload.Env{Cluster: run, Log: log, Board: "registers", Seed: seed}
	w := workload.Register{Clients: 5, Keys: 3, Pace: 60 * time.Millisecond}
	admin, err := run.Dial("admin", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.CreateBoard(t.Context(), env.Board, w.Settings()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var failed error
	var group sync.WaitGroup
	group.Go(func() { failed = w.Run(ctx, env) })
	time.Sleep(2 * time.Second)
	for range 2 {
		unseat(run)
		time.Sleep(time.Second)
	}
	log.Healed(0)
	time.Sleep(2 * time.Second)
	cancel()
	group.Wait()
	if failed != nil {
		t.Fatal(failed)
	}
	run.Replay()
	return log.History()
}

func judgeRegister(h *history.History, d check.Demand) []check.Finding {
	order, found := check.Agree(h.Applied)
	found = append(found, check.Answers(h.Ops, order)...)
	ops := h.Ops
	if len(found) == 0 {
		ops = check.Cut(ops, order)
	}
	found = append(found, check.Registers(ops, patience)...)
	return append(found, check.Valid(h, order, d)...)
}

func testRegister(t *testing.T, nemesis string, unseat func(*sim.Run)) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			var h *history.History
			synctest.Test(t, func(t *testing.T) { h = runRegister(t, seed, nemesis, unseat) })
			report(t, h, judgeRegister(h, registerDemand))
		})
	}
}

func TestRegistersAreLinearizableWhenTheLeaderDies(t *testing.T) {
	testRegister(t, "N7 on the leader", func(r *sim.Run) { r.KillLeader(2 * time.Second) })
}

func TestRegistersAreLinearizableWhenTheLeaderIsCutOff(t *testing.T) {
	testRegister(t, "N1 on the leader", func(r *sim.Run) { r.IsolateLeader(3 * time.Second) })
}
