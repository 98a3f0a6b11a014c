package node_test

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"raftboard/node"
	"raftboard/node/nodetest"
)

// The library without a node around it. Every sleep here is virtual: each of these clusters
// stands in a bubble (testing/synctest) of the test that starts it. When an upgrade makes a stock test of the library
// stop failing, its guard may be reconsidered.

const bareSize = 3

// recorder remembers what was applied at which index.
type recorder struct {
	mu       sync.Mutex
	data     map[uint64]string
	restores int
}

func newRecorder() *recorder { return &recorder{data: map[uint64]string{}} }

func (r *recorder) Apply(l *raft.Log) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data[l.Index] = string(l.Data)
	return nil
}

func (r *recorder) applied() map[uint64]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[uint64]string, len(r.data))
	for i, v := range r.data {
		out[i] = v
	}
	return out
}

func (r *recorder) Snapshot() (raft.FSMSnapshot, error) { return emptySnapshot{}, nil }

// Restore takes virtual time, or a loop of restores would spin without the clock moving.
func (r *recorder) Restore(rc io.ReadCloser) error {
	time.Sleep(100 * time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restores++
	return rc.Close()
}

func (r *recorder) countRestores(reset bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.restores
	if reset {
		r.restores = 0
	}
	return n
}

type emptySnapshot struct{}

func (emptySnapshot) Persist(sink raft.SnapshotSink) error { return sink.Close() }
func (emptySnapshot) Release()                             {}

// bareNode is one raft; its stores outlive a restart.
type bareNode struct {
	name   string
	raft   *raft.Raft
	fsm    raft.FSM
	rec    *recorder
	config *raft.Config
	store  *raft.InmemStore
	snaps  *raft.InmemSnapshotStore
}

type bareOptions struct {
	wrap      func(node.Transport) node.Transport
	configure func(i int, c *raft.Config)
	fsm       func(*recorder) raft.FSM
}

// bareCluster is three rafts on one network. Start it inside a bubble.
type bareCluster struct {
	t     testing.TB
	net   *nodetest.Network
	o     bareOptions
	nodes []*bareNode
}

func startBare(t testing.TB, o bareOptions) *bareCluster {
	t.Helper()
	c := &bareCluster{t: t, net: nodetest.NewNetwork(0), o: o}
	t.Cleanup(c.stop)
	var members raft.Configuration
	for i := range bareSize {
		n := &bareNode{name: fmt.Sprintf("n%d", i), rec: newRecorder(), config: raft.DefaultConfig(),
			store: raft.NewInmemStore(), snaps: raft.NewInmemSnapshotStore()}
		n.fsm = n.rec
		if o.fsm != nil {
			n.fsm = o.fsm(n.rec)
		}
		n.config.LocalID, n.config.Logger = raft.ServerID(n.name), hclog.NewNullLogger()
		if o.configure != nil {
			o.configure(i, n.config)
		}
		c.nodes = append(c.nodes, n)
		members.Servers = append(members.Servers, raft.Server{ID: raft.ServerID(n.name), Address: raft.ServerAddress(n.name)})
	}
	for _, n := range c.nodes {
		if err := raft.BootstrapCluster(n.config, n.store, n.store, n.snaps, nil, members); err != nil {
			t.Fatal(err)
		}
		c.start(n)
	}
	return c
}

func (c *bareCluster) start(n *bareNode) {
	c.t.Helper()
	var tr node.Transport = node.NewTransport(c.net.Listen(n.name), nil)
	if c.o.wrap != nil {
		tr = c.o.wrap(tr)
	}
	r, err := raft.NewRaft(n.config, n.fsm, n.store, n.store, n.snaps, tr)
	if err != nil {
		c.t.Fatal(err)
	}
	n.raft = r
}

// restart stops a raft, lets the caller work on its stores, and starts it again.
func (c *bareCluster) restart(n *bareNode, between func() error) {
	c.t.Helper()
	if err := n.raft.Shutdown().Error(); err != nil {
		c.t.Fatal(err)
	}
	c.net.Drop(n.name)
	time.Sleep(3 * time.Second)
	if err := between(); err != nil {
		c.t.Fatal(err)
	}
	c.start(n)
}

func (c *bareCluster) isolate(n *bareNode, cut bool) {
	for _, o := range c.nodes {
		if o != n {
			c.net.SetCut(n.name, o.name, cut)
			c.net.SetCut(o.name, n.name, cut)
		}
	}
}

func (c *bareCluster) leaderAmong(nodes ...*bareNode) *bareNode {
	c.t.Helper()
	for range 3000 {
		time.Sleep(10 * time.Millisecond)
		for _, n := range nodes {
			if n.raft.State() == raft.Leader {
				return n
			}
		}
	}
	c.t.Fatal("nobody leads")
	return nil
}

// makeLeader moves the leadership to n and waits until n has applied all of it.
func (c *bareCluster) makeLeader(n *bareNode) {
	c.t.Helper()
	for range 4000 {
		time.Sleep(20 * time.Millisecond)
		if n.raft.State() == raft.Leader {
			if err := n.raft.Barrier(time.Second).Error(); err != nil {
				c.t.Fatal(err)
			}
			return
		}
		for _, o := range c.nodes {
			if o.raft.State() == raft.Leader {
				// It may fail: the loop tries until n leads.
				if err := o.raft.LeadershipTransferToServer(n.config.LocalID, raft.ServerAddress(n.name)).Error(); err != nil {
					continue
				}
			}
		}
	}
	c.t.Fatalf("%s never led", n.name)
}

func (c *bareCluster) stop() {
	for _, n := range c.nodes {
		if n.raft == nil {
			continue
		}
		if err := n.raft.Shutdown().Error(); err != nil {
			c.t.Error(err)
		}
	}
	c.net.Drop("")
	time.Sleep(2 * time.Minute)
}

// slowFirst gives the first raft long timeouts and the others short ones, so that it keeps
// believing it leads while the others have moved on: it stands in for a paused process.
func slowFirst(i int, c *raft.Config) {
	d := 300 * time.Millisecond
	if i == 0 {
		d = 2 * time.Second
	}
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = d, d, d
}
