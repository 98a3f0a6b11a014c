package sim

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"raftboard/jepsen/history"
	"raftboard/jepsen/nemesis"
)

// What a test of this driver, or of a workload on it, needs of one cluster without a plan: a
// start, one fault to the leader, the end. What goes wrong fails the test.

// Start starts n nodes and waits until they are ready. They end with the test of the bubble.
func Start(t testing.TB, log *history.Log, n int) *Run {
	t.Helper()
	r, err := Open(log, Options{Nodes: n, Dir: t.TempDir()})
	if r != nil {
		r.t = t
		t.Cleanup(r.Close)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *Run) must(errs ...error) {
	r.t.Helper()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
}

// KillLeader is N7 on the leader: it dies, another one leads, and after a while it is back
// with what it had stored.
func (r *Run) KillLeader(down time.Duration) {
	r.t.Helper()
	r.unseat("kill", "N7", down, r.Kill, r.Start)
}

// IsolateLeader is N1 on the leader: the other nodes lose it, and clients do not.
func (r *Run) IsolateLeader(apart time.Duration) {
	r.t.Helper()
	shape := func(i int, s nemesis.Shape) (err error) {
		for other := range r.servers.Count() {
			if other != i {
				err = errors.Join(err, r.Link(i, other, s), r.Link(other, i, s))
			}
		}
		return err
	}
	r.unseat("isolate", "N1", apart, func(i int) error { return shape(i, nemesis.Shape{Cut: true}) },
		func(i int) error { return shape(i, nemesis.Shape{}) })
}

// PauseLeader is N8 on the leader.
func (r *Run) PauseLeader(lasts time.Duration) {
	r.t.Helper()
	r.unseat("pause", "N8", lasts, r.Pause, r.Resume)
}

func (r *Run) leader(except ...int) (found int) {
	r.t.Helper()
	r.must(r.servers.Await("a node leads", func() (ok bool) {
		found, ok = r.servers.FindLeader(except...)
		return ok
	}))
	return found
}

func (r *Run) term(i int) uint64 {
	_, term := r.servers.Running(i).Node().Leader()
	return term
}

// unseat does something to the leader that lasts so long, or until another one leads.
func (r *Run) unseat(name, id string, lasts time.Duration, do, undo func(int) error) {
	r.t.Helper()
	leader := r.leader()
	before := r.term(leader)
	f := history.Fault{Name: name, Nemesis: id, Targets: []string{r.servers.Member(leader).Name}, Start: r.Log.Now()}
	r.must(do(leader))
	next := r.leader(leader)
	if after := r.term(next); after > before {
		f.Witness = fmt.Sprintf("%s leads in term %d, before it was term %d", r.servers.Member(next).Name, after, before)
	}
	time.Sleep(lasts - (r.Log.Now() - f.Start))
	r.must(undo(leader), r.ready())
	f.End = r.Log.Now()
	r.Log.Fault(f)
}

func (r *Run) ready() error {
	return r.servers.Await("the nodes are ready", func() bool { return r.servers.AllReady() })
}

// StallLeader is N10 on the leader: its disk hangs for so long, while it goes on sending
// heartbeats, so that nobody else takes over.
func (r *Run) StallLeader(lasts time.Duration) {
	r.t.Helper()
	leader := r.servers.Member(r.leader())
	f := history.Fault{Name: "stall", Nemesis: "N10", Targets: []string{leader.Name}, Start: r.Log.Now()}
	leader.Disk.Stall(lasts)
	time.Sleep(lasts / 4)
	before := leader.Server.Node().Status().Applied
	time.Sleep(lasts / 2)
	if after := leader.Server.Node().Status().Applied; after == before {
		f.Witness = fmt.Sprintf("nothing was applied above entry %d for %v", before, lasts/2)
	}
	time.Sleep(lasts / 4)
	f.End = r.Log.Now()
	r.Log.Fault(f)
}

// Replay kills all nodes at once and starts them again, so that each goes through what its
// disk holds once more, in a new life.
func (r *Run) Replay() {
	r.t.Helper()
	f := history.Fault{Name: "kill all", Nemesis: "N7", Targets: r.Nodes(), Start: r.Log.Now(), Witness: "every node began another life"}
	for i := range r.servers.Count() {
		r.must(r.Kill(i))
	}
	for i := range r.servers.Count() {
		r.must(r.Start(i))
	}
	r.Settle()
	f.End = r.Log.Now()
	r.Log.Fault(f)
}

// Settle waits until all nodes are ready and have applied what the leader had.
func (r *Run) Settle() {
	r.t.Helper()
	r.must(r.ready())
	applied := func(i int) uint64 { return r.servers.Running(i).Node().Status().Applied }
	target := applied(r.leader())
	r.must(r.servers.Await("all nodes applied what the leader had", func() bool {
		for i := range r.servers.Count() {
			if applied(i) < target {
				return false
			}
		}
		return true
	}))
}
