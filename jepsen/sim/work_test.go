package sim_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/sim"
	"raftboard/jepsen/workload"
)

const (
	workers  = 5
	workSize = 60
	bound    = 3 * time.Minute // from the heal until everything is done
)

// workDemand is the cell W5 × N7: what a run of it must have met.
var workDemand = check.Demand{
	States:      []check.State{check.LeaderChange, check.Reclaim, check.FencedWrite, check.Renewed, check.FeedResumed},
	Kinds:       []history.Kind{history.Post, history.ClaimNext, history.Partial, history.Complete, history.Fail},
	BeforeFault: 20,
}

// runWork lets workers share items while the leader is killed in the middle and restarted,
// one worker crashes and one is paused past its lease; then all nodes are killed at once.
func runWork(t *testing.T, seed uint64, nemesis string, do func(*sim.Run)) *history.History {
	log := history.NewLog(history.Run{Workload: "W5 work", Nemesis: nemesis, Driver: "sim", Board: "default", Seed: seed})
	run := sim.Start(t, log, 3)
	env := workload.Env{Cluster: run, Log: log, Board: "default", Seed: seed}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var watchers []*workload.Watcher
	for i := range run.Nodes() {
		w, err := workload.Watch(ctx, env, fmt.Sprintf("watcher-%d", i+1), i)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		watchers = append(watchers, w)
	}
	var done atomic.Int64
	var failed error
	var group sync.WaitGroup
	group.Go(func() {
		failed = workload.Work{Items: workSize, Workers: workers, Lease: 3 * time.Second, Step: time.Second}.Run(ctx, env, &done)
	})
	for done.Load() < workSize/3 {
		if time.Sleep(50 * time.Millisecond); ctx.Err() != nil {
			t.Fatalf("%d items are done, and nothing moves any more", done.Load())
		}
	}
	do(run)
	log.Healed(bound)
	group.Wait()
	if failed != nil {
		t.Fatal(failed)
	}
	finish(ctx, t, run, env, watchers)
	return log.History()
}

// finish reads everything once more after every node went through its log again.
func finish(ctx context.Context, t *testing.T, run *sim.Run, env workload.Env, watchers []*workload.Watcher) {
	t.Helper()
	run.Replay()
	last, err := workload.Pages(ctx, env, "pages")
	if err != nil {
		t.Fatal(err)
	}
	if err := workload.Finals(ctx, env); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, w := range watchers {
		w.Reach(ctx, last)
	}
}

func judgeWork(h *history.History, d check.Demand) []check.Finding {
	order, found := check.Agree(h)
	windows, more := check.Leases(order)
	found = append(found, more...)
	found = append(found, check.Answers(h.Ops, order)...)
	found = append(found, check.Work(h, order, windows)...)
	found = append(found, check.Feed(h, order, windows)...)
	found = append(found, check.Globals(h, order)...)
	return append(found, check.Valid(h, order, d)...)
}

// report fails the test unless the run is VALID.
func report(t *testing.T, h *history.History, found []check.Finding) {
	t.Helper()
	for i, f := range found {
		if i == 20 {
			t.Errorf("and %d more", len(found)-i)
			break
		}
		t.Error(f)
	}
	order, _ := check.Agree(h)
	outcomes := map[history.Outcome]int{}
	for _, op := range h.Ops {
		outcomes[op.Outcome]++
	}
	t.Logf("%s: %s under %s, seed %d: %v, %d entries, %v in virtual time; met %v",
		check.Judge(found), h.Run.Workload, h.Run.Nemesis, h.Run.Seed, outcomes, len(order.Records), h.Run.Ended, check.Sometimes(h, order))
	for _, f := range h.Faults {
		t.Logf("fault %s of %v, %v to %v: %s", f.Name, f.Targets, f.Start, f.End, f.Witness)
	}
}

// seeds is how many seeds each run is given: JEPSEN_SEEDS of the environment, or a few.
func seeds(few uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv("JEPSEN_SEEDS"), 10, 32); err == nil {
		return n
	}
	return few
}

func testWork(t *testing.T, few uint64, nemesis string, do func(*sim.Run), demand check.Demand) {
	for seed := range seeds(few) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			var h *history.History
			synctest.Test(t, func(t *testing.T) { h = runWork(t, seed, nemesis, do) })
			report(t, h, judgeWork(h, demand))
		})
	}
}

func TestWorkIsDoneOnceAndNothingIsLostWhenTheLeaderDies(t *testing.T) {
	testWork(t, 3, "N7 on the leader", func(r *sim.Run) { r.KillLeader(10 * time.Second) }, workDemand)
}

func TestWorkIsDoneOnceAndNothingIsLostWhenTheLeaderIsCutOff(t *testing.T) {
	testWork(t, 1, "N1 on the leader", func(r *sim.Run) { r.IsolateLeader(10 * time.Second) }, workDemand)
}

func TestWorkIsDoneOnceAndNothingIsLostWhenTheLeaderIsPausedAndResumes(t *testing.T) {
	testWork(t, 1, "N8 on the leader", func(r *sim.Run) { r.PauseLeader(10 * time.Second) }, workDemand)
}

// A leader whose disk hangs for longer than the leases last: board time must stand still, so
// that nobody who works loses an item that could not be renewed.
func TestWorkIsDoneOnceAndNothingIsLostWhenTheLeadersDiskHangs(t *testing.T) {
	demand := workDemand
	demand.States = []check.State{check.Resumed, check.Reclaim, check.FencedWrite, check.Renewed}
	testWork(t, 1, "N10 on the leader", func(r *sim.Run) { r.StallLeader(8 * time.Second) }, demand)
}
