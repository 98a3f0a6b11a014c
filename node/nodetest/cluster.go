package nodetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/node"
)

const (
	defaultHop = 2 * time.Millisecond
	patience   = 2 * time.Minute // of every wait of a helper, in virtual time
)

// Options vary a cluster. Zero values mean three nodes, 2 ms a hop and in-memory disks.
type Options struct {
	Nodes     int
	Hop       time.Duration
	Configure func(i int, c *node.Config)
	// Stores replaces a node's disk; it is called at every start of the node.
	Stores func(i int) node.Stores
	// Wrap stands between a node and its transport.
	Wrap func(i int, t node.Transport) node.Transport
}

// Cluster is the nodes and what joins them. Start it inside a bubble; it stops itself when
// the test of that bubble ends.
type Cluster struct {
	t       testing.TB
	o       Options
	Net     *Network
	Members []*Member // changed by the test's own goroutine only
	intent  node.Intent

	mu      sync.Mutex
	running map[string]*node.Node // by id: what the network reaches
}

// Member is one node across its restarts. Node is nil while it is down.
type Member struct {
	Index int
	ID    string
	Name  string
	Disk  *Disk
	Node  *node.Node

	mu   sync.Mutex
	died error
}

// Died is why the node stopped itself since its last start, or nil.
func (m *Member) Died() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.died
}

func (m *Member) record() *boardpb.Node {
	return &boardpb.Node{Id: m.ID, Name: m.Name, RaftAddr: m.Name + ":7401", GrpcAddr: m.Name + ":7400",
		Version: "test", MaxLevel: 1}
}

// Start bootstraps a cluster and starts its nodes.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Hop == 0 {
		o.Hop = defaultHop
	}
	c := &Cluster{t: t, o: o, Net: NewNetwork(o.Hop), running: map[string]*node.Node{}}
	t.Cleanup(c.stop)
	var founders []*boardpb.Node
	for range o.Nodes {
		founders = append(founders, c.newMember().record())
	}
	c.intent = node.NewIntent("cluster", "test", founders)
	first := c.stores(c.Members[0])
	if err := node.Bootstrap(c.Members[0].ID, first, c.intent); err != nil {
		t.Fatal(err)
	}
	if first.Close != nil {
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range c.Members {
		c.Restart(i)
	}
	return c
}

func (c *Cluster) newMember() *Member {
	i := len(c.Members)
	m := &Member{Index: i, ID: fmt.Sprintf("id-%d", i), Name: fmt.Sprintf("n%d", i), Disk: NewDisk()}
	c.Members = append(c.Members, m)
	return m
}

func (c *Cluster) stores(m *Member) node.Stores {
	if c.o.Stores != nil {
		return c.o.Stores(m.Index)
	}
	return m.Disk.Stores()
}

// Restart starts a node that is down, on what it had stored.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	if err := c.TryRestart(i); err != nil {
		c.t.Fatalf("node %d does not start: %v", i, err)
	}
}

// TryRestart is Restart for a node that may refuse.
func (c *Cluster) TryRestart(i int) error {
	m := c.Members[i]
	m.mu.Lock()
	m.died = nil
	m.mu.Unlock()
	cfg := node.Config{ID: m.ID, Name: m.Name, ClusterID: c.intent.ClusterID, ClusterName: c.intent.ClusterName, Version: "test",
		RaftAddr: m.Name + ":7401", GRPCAddr: m.Name + ":7400", Founders: c.intent.Nodes(), Peers: peers{c, m.ID},
		Die: func(err error) {
			m.mu.Lock()
			m.died = err
			m.mu.Unlock()
			c.Net.Drop(m.ID)
			go c.bury(m)
			runtime.Goexit() // the goroutine of a process that ended does nothing more
		}}
	if c.o.Configure != nil {
		c.o.Configure(i, &cfg)
	}
	var tr node.Transport = node.NewTransport(c.Net.Listen(m.ID), nil)
	if c.o.Wrap != nil {
		tr = c.o.Wrap(i, tr)
	}
	n, err := node.Open(cfg, tr, c.stores(m))
	if err != nil {
		c.Net.Drop(m.ID)
		return err
	}
	m.Node = n
	c.reach(m.ID, n)
	return nil
}

// reach sets, and forgets for nil, which node the others reach under an id.
func (c *Cluster) reach(id string, n *node.Node) (before *node.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before = c.running[id]
	if c.running[id] = n; n == nil {
		delete(c.running, id)
	}
	return before
}

// bury ends what is left of a node whose process would have ended by itself.
func (c *Cluster) bury(m *Member) {
	if n := c.reach(m.ID, nil); n != nil {
		c.end(m, n)
	}
}

func (c *Cluster) end(m *Member, n *node.Node) {
	c.Net.Drop(m.ID)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		c.t.Errorf("%s does not close: %v", m.Name, err)
	}
	c.Net.Drop(m.ID)
}

// Crash ends a node without a word to the others.
func (c *Cluster) Crash(i int) {
	c.t.Helper()
	m := c.Members[i]
	if m.Node == nil {
		return
	}
	n := m.Node
	m.Node = nil
	c.reach(m.ID, nil)
	c.end(m, n)
}

// Join starts a fresh node and has the leader take it in.
func (c *Cluster) Join(nonvoter bool) *Member {
	c.t.Helper()
	m := c.newMember()
	c.Restart(m.Index)
	c.Eventually("node "+m.Name+" is taken in", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return c.WaitLeader().Node.AddNode(ctx, m.record(), nonvoter) == nil
	})
	return m
}

// Isolate cuts a node off from all others in both directions; Heal mends every link.
func (c *Cluster) Isolate(i int) {
	for _, o := range c.Members {
		if o.Index != i {
			c.Net.SetCut(c.Members[i].ID, o.ID, true)
			c.Net.SetCut(o.ID, c.Members[i].ID, true)
		}
	}
}

// Cut holds back what one node sends to another.
func (c *Cluster) Cut(from, to int, cut bool) {
	c.Net.SetCut(c.Members[from].ID, c.Members[to].ID, cut)
}

// Heal mends every link.
func (c *Cluster) Heal() {
	for _, a := range c.Members {
		for _, b := range c.Members {
			c.Net.SetCut(a.ID, b.ID, false)
		}
	}
}

// Leader is the member whose leadership is open, or nil. A deposed one may still think so.
func (c *Cluster) Leader(except ...int) *Member {
	var best *Member
	var term uint64
	for _, m := range c.Members {
		if m.Node == nil || m.Died() != nil || contains(except, m.Index) || !m.Node.IsLeader() {
			continue
		}
		if _, at := m.Node.Leader(); at > term {
			best, term = m, at
		}
	}
	return best
}

func contains(list []int, i int) bool {
	for _, v := range list {
		if v == i {
			return true
		}
	}
	return false
}

// WaitLeader waits until somebody leads, other than those excepted.
func (c *Cluster) WaitLeader(except ...int) *Member {
	c.t.Helper()
	var m *Member
	c.Eventually("somebody leads", func() bool {
		m = c.Leader(except...)
		return m != nil
	})
	return m
}

// WaitSame waits until every running node shows the same state.
func (c *Cluster) WaitSame() {
	c.t.Helper()
	c.Eventually("all nodes show the same state", func() bool {
		var first *state.View
		for _, m := range c.Members {
			if m.Node == nil || m.Died() != nil {
				continue
			}
			v := m.Node.View()
			if first == nil {
				first = v
			}
			if v.Applied() != first.Applied() || v.Digest() != first.Digest() {
				return false
			}
		}
		return true
	})
}

// Eventually waits, in virtual time, until something holds.
func (c *Cluster) Eventually(what string, holds func() bool) {
	c.t.Helper()
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	c.t.Fatalf("not within %v: %s", patience, what)
}

// stop ends everything and then waits longer than any timer: a bubble that is left while a
// goroutine still waits is reported as a deadlock.
func (c *Cluster) stop() {
	for _, m := range c.Members {
		m.Disk.Fail(nil)
		c.Crash(m.Index)
	}
	c.Net.Drop("")
	time.Sleep(2 * time.Minute)
}

// peers is how one node asks another: one hop there, one back, over the same cuts.
type peers struct {
	c    *Cluster
	from string
}

var errUnreachable = errors.New("unreachable")

// ask finds a node over the network; back waits for its answer's way.
func (p peers) ask(ctx context.Context, to string) (n *node.Node, back func() error, err error) {
	cross := func(from, to string) error {
		time.Sleep(p.c.Net.Hop)
		for p.c.Net.IsCut(from, to) {
			select {
			case <-time.After(writePoll):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	if err := cross(p.from, to); err != nil {
		return nil, nil, err
	}
	p.c.mu.Lock()
	n = p.c.running[to]
	p.c.mu.Unlock()
	if n != nil {
		return n, func() error { return cross(to, p.from) }, nil
	}
	time.Sleep(dialFailureCost)
	return nil, nil, errUnreachable
}

func (p peers) Fence(ctx context.Context, id string) (uint64, error) {
	n, back, err := p.ask(ctx, id)
	if err != nil {
		return 0, err
	}
	index, err := n.FenceIndex(ctx)
	return index, errors.Join(err, back())
}

func (p peers) Digest(ctx context.Context, id string, index uint64) ([16]byte, bool, error) {
	n, back, err := p.ask(ctx, id)
	if err != nil {
		return [16]byte{}, false, err
	}
	sum, known := n.DigestAt(index)
	return sum, known, back()
}
