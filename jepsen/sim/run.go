package sim

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"raftboard/client"
	"raftboard/fsm"
	"raftboard/jepsen/history"
	"raftboard/transport"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// Run is one cluster under test in a bubble. Its faults are called from the goroutine of the
// test.
type Run struct {
	Log *history.Log

	t testing.TB
	c *clustertest.Cluster

	mu    sync.Mutex
	lives []int
	faces map[face]wirepb.BoardClient
	hosts map[string]bool // of clients
}

type face struct {
	name string
	node int
}

// Start starts n nodes and waits until they are ready. It must run inside a bubble.
func Start(t testing.TB, log *history.Log, n int) *Run {
	t.Helper()
	r := &Run{Log: log, t: t, lives: make([]int, n), faces: map[face]wirepb.BoardClient{}, hosts: map[string]bool{}}
	r.c = clustertest.Start(t, clustertest.Options{Nodes: n, Configure: r.configure})
	return r
}

// configure is called at every start of a node: a new life begins.
func (r *Run) configure(i int, cfg *transport.Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lives[i]++
	name, life := cfg.Name, r.lives[i]
	cfg.Trace = func(record fsm.TraceRecord) { r.Log.Applied(name, life, record) }
}

// Dial implements workload.Cluster.
func (r *Run) Dial(name string, first int) (*client.Client, error) {
	r.mu.Lock()
	r.hosts[name] = true
	r.mu.Unlock()
	addrs := r.c.Addrs()
	return client.Dial(client.Config{
		Endpoints: append(addrs[first:len(addrs):len(addrs)], addrs[:first]...), As: name, Name: "jepsen", Dialer: r.c.Dialer(name),
	})
}

// Nodes implements workload.Cluster.
func (r *Run) Nodes() (names []string) {
	for _, m := range r.c.Members {
		names = append(names, m.Name)
	}
	return names
}

// Ask implements workload.Cluster.
func (r *Run) Ask(name string, node int) wirepb.BoardClient {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts[name] = true
	at := face{name, node}
	if r.faces[at] == nil {
		r.faces[at] = wirepb.NewBoardClient(r.c.Conn(name, node))
	}
	return r.faces[at]
}

// Freeze implements workload.Cluster.
func (r *Run) Freeze(name string) (thaw func()) {
	cut := func(on bool) {
		for _, m := range r.c.Members {
			r.c.Net.SetCut(name, m.Host, on)
			r.c.Net.SetCut(m.Host, name, on)
		}
	}
	cut(true)
	return func() { cut(false) }
}

// KillLeader is N7 on the leader: it dies, another one leads, and after a while it is back
// with what it had stored.
func (r *Run) KillLeader(down time.Duration) {
	r.unseat("kill", "N7", down, r.c.Kill, r.c.Restart)
}

// IsolateLeader is N1 on the leader: the other nodes lose it, and clients do not.
func (r *Run) IsolateLeader(apart time.Duration) {
	r.unseat("isolate", "N1", apart, r.c.Isolate, r.c.Rejoin)
}

// PauseLeader is N8 on the leader: it stores nothing, sends nothing and hears nothing, and
// then goes on with what was on its way, as if no time had passed. Its timers do run on.
func (r *Run) PauseLeader(lasts time.Duration) {
	r.t.Helper()
	r.unseat("pause", "N8", lasts, func(i int) {
		r.c.Members[i].Disk.Stall(lasts)
		r.cutOff(i, true)
	}, func(i int) { r.cutOff(i, false) })
}

// cutOff cuts a node off from everybody, clients too, or joins it again.
func (r *Run) cutOff(i int, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	host := r.c.Members[i].Host
	for _, other := range r.c.Members {
		if other.Index != i {
			r.c.Net.SetCut(host, other.Host, on)
			r.c.Net.SetCut(other.Host, host, on)
		}
	}
	for client := range r.hosts {
		r.c.Net.SetCut(host, client, on)
		r.c.Net.SetCut(client, host, on)
	}
}

// unseat does something to the leader that lasts so long, or until another one leads.
func (r *Run) unseat(name, nemesis string, lasts time.Duration, do, undo func(int)) {
	r.t.Helper()
	leader := r.c.Leader()
	_, before := r.c.Members[leader].Server.Node().Leader()
	f := history.Fault{Name: name, Nemesis: nemesis, Targets: []string{r.c.Members[leader].Name}, Start: r.Log.Now()}
	do(leader)
	next := r.c.Leader(leader)
	if _, after := r.c.Members[next].Server.Node().Leader(); after > before {
		f.Witness = fmt.Sprintf("%s leads in term %d, before it was term %d", r.c.Members[next].Name, after, before)
	}
	time.Sleep(lasts - (r.Log.Now() - f.Start))
	undo(leader)
	r.c.WaitReady()
	f.End = r.Log.Now()
	r.Log.Fault(f)
}

// StallLeader is N10 on the leader: its disk hangs, so that what it stores takes
// so long, while it goes on sending heartbeats, so that nobody else takes over.
func (r *Run) StallLeader(lasts time.Duration) {
	r.t.Helper()
	leader := r.c.Members[r.c.Leader()]
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
	for i := range r.c.Members {
		r.c.Kill(i)
	}
	for i := range r.c.Members {
		r.c.Restart(i)
	}
	r.Settle()
	f.End = r.Log.Now()
	r.Log.Fault(f)
}

// Settle waits until all nodes are ready and have applied what the leader had.
func (r *Run) Settle() {
	r.t.Helper()
	r.c.WaitReady()
	target := r.c.Members[r.c.Leader()].Server.Node().Status().Applied
	r.c.Eventually("all nodes applied what the leader had", func() bool {
		for _, m := range r.c.Members {
			if m.Server.Node().Status().Applied < target {
				return false
			}
		}
		return true
	})
}
