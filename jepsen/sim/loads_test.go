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

// load is a workload by its name.
func load(t *testing.T, name string) workload.Workload {
	t.Helper()
	w, err := workload.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// runLoad runs a workload while the leader is killed in the middle and restarted,
// kills all nodes at once, and reads everything through every node.
func runLoad(t *testing.T, w workload.Workload, seed uint64, lasts time.Duration) *history.History {
	t.Helper()
	const rate = 50
	log := history.NewLog(history.Run{Workload: w.Name(), Nemesis: "kill", Driver: "sim", Board: "faults", Seed: seed, Time: lasts, Rate: rate})
	run := sim.Start(t, log, 3)
	ctx, cancel := context.WithTimeout(t.Context(), lasts+10*time.Minute)
	defer cancel()
	admin, err := run.Dial("admin", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	stop := make(chan struct{})
	env := workload.Env{Cluster: run, Log: log, Board: "faults", Seed: seed, Rate: rate, Stop: stop}
	if _, err := admin.CreateBoard(ctx, env.Board, w.Settings()); err != nil {
		t.Fatal(err)
	}
	var watchers []*workload.Watcher
	for i := range run.Nodes() {
		if !w.Watched() {
			break
		}
		watcher, err := workload.Watch(ctx, env, fmt.Sprintf("watcher-%d", i+1), i)
		if err != nil {
			t.Fatal(err)
		}
		defer watcher.Close()
		watchers = append(watchers, watcher)
	}
	var failed error
	var group sync.WaitGroup
	group.Go(func() { failed = w.Run(ctx, env) })
	time.Sleep(lasts / 3)
	run.KillLeader(lasts / 3)
	log.Healed(bound)
	time.Sleep(lasts / 3)
	close(stop)
	stopped := log.Now()
	group.Wait()
	if took := log.Now() - stopped; took > 20*time.Second {
		t.Errorf("the workload went on for %v after it was to stop", took)
	}
	if failed != nil {
		t.Fatal(failed)
	}
	finish(ctx, t, run, env, watchers)
	return log.History()
}

// spoilt is one thing that could have gone wrong in a run, with the checker that claims to
// notice.
type spoilt struct {
	name, want string
	spoil      func(t *testing.T, h *history.History)
}

// testLoad: runs of a workload are VALID, and copies of the first one that were spoiled are
// condemned by the checker named.
func testLoad(t *testing.T, name string, few uint64, lasts time.Duration, spoil []spoilt) {
	for seed := range seeds(few) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			var h *history.History
			synctest.Test(t, func(t *testing.T) { h = runLoad(t, load(t, name), seed, lasts) })
			if h == nil {
				t.FailNow()
			}
			h = reread(t, h)
			report(t, h, check.Whole(h).Findings)
			report(t, h, replay(t, h))
			if seed > 0 || t.Failed() {
				return
			}
			for _, m := range spoil {
				t.Run(m.name, func(t *testing.T) {
					c := copied(h)
					m.spoil(t, c)
					found := check.Whole(c).Findings
					if !slices.ContainsFunc(found, func(f check.Finding) bool { return f.Checker == m.want && f.Class == check.Violation }) {
						t.Errorf("%s did not fire: %v", m.want, found)
					}
				})
			}
		})
	}
}

// lastOp is the last operation that is so; a test without one fails.
func lastOp(t *testing.T, h *history.History, is func(*history.Op) bool) *history.Op {
	t.Helper()
	for i := len(h.Ops) - 1; i >= 0; i-- {
		if is(&h.Ops[i]) {
			return &h.Ops[i]
		}
	}
	t.Fatal("the run has nothing of the kind")
	return nil
}

// A board where everything was deleted holds nothing at the end, and that it was read is seen
// all the same.
func TestAnEmptyBoardIsReadAtTheEndToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := history.NewLog(history.Run{Workload: "register", Driver: "sim", Board: "faults", Seed: 1})
		run := sim.Start(t, log, 3)
		admin, err := run.Dial("admin", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		if _, err := admin.CreateBoard(t.Context(), "faults", load(t, "register").Settings()); err != nil {
			t.Fatal(err)
		}
		if err := workload.Finals(t.Context(), workload.Env{Cluster: run, Log: log, Board: "faults", Seed: 1}); err != nil {
			t.Fatal(err)
		}
		read := map[string]bool{}
		for _, f := range log.History().Finals {
			read[f.Reader] = true
		}
		for _, node := range run.Nodes() {
			if !read[history.FinalReader(node)] {
				t.Errorf("nothing tells that the board was read through %s", node)
			}
		}
	})
}
