package sim_test

import (
	"context"
	"fmt"
	"slices"
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
	w := workload.Register{Clients: 5, Keys: 3}
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
	order, found := check.Agree(h)
	found = append(found, check.Answers(h.Ops, order)...)
	ops := h.Ops
	if len(found) == 0 {
		ops = check.Cut(ops, order)
	}
	found = append(found, check.Registers(ops, patience)...)
	found = append(found, check.Globals(h, order)...)
	return append(found, check.Valid(h, order, d)...)
}

func testRegister(t *testing.T, nemesis string, unseat func(*sim.Run)) {
	for seed := range seeds(2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			var h *history.History
			synctest.Test(t, func(t *testing.T) { h = runRegister(t, seed, nemesis, unseat) })
			report(t, h, judgeRegister(h, registerDemand))
			if seed == 0 && !t.Failed() {
				spoilRegister(t, h)
			}
		})
	}
}

// spoilRegister: what a stale read or a confused conflict would have recorded is condemned.
func spoilRegister(t *testing.T, h *history.History) {
	t.Helper()
	late := func(is func(history.Op) bool) int { // the last of its kind that can be spoiled
		for i := len(h.Ops) - 1; i >= 0; i-- {
			if is(h.Ops[i]) && h.Ops[i].Result.Version > 3 {
				return i
			}
		}
		return -1
	}
	read := late(func(o history.Op) bool { return o.Kind == history.Get && o.Result.Answer == "ok" })
	conflict := late(func(o history.Op) bool {
		return o.Kind == history.Set && o.Result.Answer == "conflict" && o.Result.Value != ""
	})
	gone := late(func(o history.Op) bool { return o.Kind == history.Get && o.Result.Answer == "not_found" })
	for name, m := range map[string]struct {
		op     int
		change func(*history.Op)
	}{
		"a read that is one version behind":         {read, func(o *history.Op) { o.Result.Version-- }},
		"a read of another's value":                 {read, func(o *history.Op) { o.Result.Value = `"nobody.1"` }},
		"a conflict with a version that never was":  {conflict, func(o *history.Op) { o.Result.Version += 500 }},
		"a conflict that shows another value":       {conflict, func(o *history.Op) { o.Result.Value = `"nobody.1"` }},
		"a deleted key that is read with its value": {gone, func(o *history.Op) { o.Result.Answer, o.Result.Value = "ok", `"nobody.1"` }},
	} {
		spoiled := copied(h)
		if m.op < 0 {
			t.Errorf("%s: the run has nothing of the kind", name)
			continue
		}
		m.change(&spoiled.Ops[m.op])
		found := judgeRegister(spoiled, registerDemand)
		if !slices.ContainsFunc(found, func(f check.Finding) bool { return f.Checker == "R1" && f.Class == check.Violation }) {
			t.Errorf("%s: R1 did not fire: %v", name, found)
		}
	}
}

func TestRegistersAreLinearizableWhenTheLeaderDies(t *testing.T) {
	testRegister(t, "N7 on the leader", func(r *sim.Run) { r.KillLeader(5 * time.Second) })
}

func TestRegistersAreLinearizableWhenTheLeaderIsCutOff(t *testing.T) {
	testRegister(t, "N1 on the leader", func(r *sim.Run) { r.IsolateLeader(6 * time.Second) })
}

func TestRegistersAreLinearizableWhenTheLeaderIsPausedAndResumes(t *testing.T) {
	testRegister(t, "N8 on the leader", func(r *sim.Run) { r.PauseLeader(6 * time.Second) })
}
