package sim_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/sim"
	"raftboard/jepsen/workload"
)

const (
	bound    = 3 * time.Minute // from the heal until everything is done
	rate     = 50              // operations per second
	warmUp   = 5 * time.Second // before the first fault
	coolDown = 2 * time.Second // between the heal and the end of the load
)

// workDemand is the cell W5 × N7: what a run of it must have met.
var workDemand = check.Demand{
	States:      []check.State{check.LeaderChange, check.Reclaim, check.FencedWrite, check.Renewed, check.FeedResumed, check.Unparked},
	Kinds:       []history.Kind{history.Post, history.ClaimNext, history.Partial, history.Complete, history.Fail, history.Unpark, history.Mutate},
	BeforeFault: 100,
}

// runWork lets a workload with workers in it work while the leader is hurt in the middle; then everything that
// was begun is finished, and all nodes are killed at once.
func runWork(t *testing.T, name string, seed uint64, do func(*sim.Run)) *history.History {
	w, err := workload.New(name)
	if err != nil {
		t.Fatal(err)
	}
	log := history.NewLog(history.Run{Workload: name, Driver: "sim", Board: "default", Seed: seed})
	run := sim.Start(t, log, 3)
	stop := make(chan struct{})
	env := workload.Env{Cluster: run, Log: log, Board: "default", Seed: seed, Rate: rate, Stop: stop}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	admin, err := run.Dial("admin", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.CreateBoard(ctx, env.Board, w.Settings()); err != nil {
		t.Fatal(err)
	}
	watchers := watch(ctx, t, env, w)
	for _, one := range watchers {
		defer one.Close()
	}
	var failed error
	var group sync.WaitGroup
	group.Go(func() { failed = w.Run(ctx, env) })
	time.Sleep(warmUp)
	do(run)
	log.Healed(bound)
	time.Sleep(coolDown)
	close(stop)
	group.Wait()
	if failed != nil {
		t.Fatal(failed)
	}
	finish(ctx, t, run, env, watchers)
	return log.History()
}

func watch(ctx context.Context, t *testing.T, env workload.Env, load workload.Workload) (watchers []*workload.Watcher) {
	t.Helper()
	if !load.Watched() {
		return nil
	}
	for i := range env.Cluster.Nodes() {
		w, err := workload.Watch(ctx, env, fmt.Sprintf("watcher-%d", i+1), i)
		if err != nil {
			t.Fatal(err)
		}
		watchers = append(watchers, w)
	}
	return watchers
}

// finish reads everything once more after every node went through its log again.
func finish(ctx context.Context, t *testing.T, run *sim.Run, env workload.Env, watchers []*workload.Watcher) {
	t.Helper()
	run.Replay()
	if err := workload.Finals(ctx, env); err != nil {
		t.Fatal(err)
	}
	if len(watchers) == 0 {
		return
	}
	last, err := workload.Pages(ctx, env, "pages")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, w := range watchers {
		w.Reach(ctx, last)
	}
}

// judge is every finding of a run, held to what its cell must have met.
func judge(h *history.History, d check.Demand) []check.Finding {
	j := check.Whole(h)
	return append(j.Findings, check.Valid(h, j.Order, d)...)
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

func testWork(t *testing.T, name string, few uint64, do func(*sim.Run), demand check.Demand) {
	for seed := range seeds(few) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			var h *history.History
			synctest.Test(t, func(t *testing.T) { h = runWork(t, name, seed, do) })
			report(t, h, judge(h, demand))
			t.Logf("%+v", check.Whole(h).Figures)
		})
	}
}

func killLeader(r *sim.Run) { r.KillLeader(10 * time.Second) }

func TestWorkIsDoneOnceAndNothingIsLostWhenTheLeaderDies(t *testing.T) {
	testWork(t, "work", 3, killLeader, workDemand)
}

func TestWorkIsDoneOnceAndNothingIsLostWhenTheLeaderIsCutOff(t *testing.T) {
	testWork(t, "work", 1, func(r *sim.Run) { r.IsolateLeader(10 * time.Second) }, workDemand)
}

func TestWorkIsDoneOnceAndNothingIsLostWhenTheLeaderIsPausedAndResumes(t *testing.T) {
	testWork(t, "work", 1, func(r *sim.Run) { r.PauseLeader(10 * time.Second) }, workDemand)
}

// A leader whose disk hangs for longer than the leases last: board time must stand still, so
// that nobody who works loses an item that could not be renewed.
func TestWorkIsDoneOnceAndNothingIsLostWhenTheLeadersDiskHangs(t *testing.T) {
	demand := workDemand
	demand.States = []check.State{check.Resumed, check.Reclaim, check.FencedWrite, check.Renewed}
	testWork(t, "work", 1, func(r *sim.Run) { r.StallLeader(8 * time.Second) }, demand)
}
