package netns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"raftboard/jepsen/history"
	"raftboard/jepsen/nemesis"
	"raftboard/jepsen/workload"
)

// Options say what a cluster is to be.
type Options struct {
	Nodes int          // 3 or 5
	Log   *history.Log // gets what the nodes apply, and what they should not say
	// Binary is a built raftboard; OtherBinary the same source under another version, for
	// Switch, or "". Tagged says that both were built with the tag "faults".
	Binary, OtherBinary string
	Tagged              bool
	// Dir is the directory of the run, made if it is missing: data, logs and traces of the
	// nodes. It stays; another run needs another one.
	Dir string
	Env []string // of the nodes, in addition to that of this process: "MUTANT=M5"
	// Relay lets connections between nodes pass through the harness, so that they can be held
	// and delayed. PowerDisks gives each node a file system of its own, whose power can be cut.
	Relay, PowerDisks bool
	// 0 leaves it to the node.
	SnapshotThreshold, TrailingLogs uint64
	SnapshotInterval                time.Duration
}

func (o Options) validate() error {
	switch {
	case o.Nodes != 3 && o.Nodes != 5:
		return fmt.Errorf("netns: %d nodes: 3 or 5", o.Nodes)
	case o.Log == nil || o.Binary == "" || o.Dir == "":
		return errors.New("netns: Log, Binary and Dir must be given")
	}
	return nil
}

// readyWithin bounds the wait for the first leader.
const readyWithin = 60 * time.Second

// Cluster is nodes as real processes. It implements workload.Cluster and nemesis.Target, and
// its methods may be called from any goroutine.
type Cluster struct {
	opt    Options
	dir    string // absolute
	tag    string // begins the names of all that this cluster made
	hub    *space
	wall   *wall // of packets to the clients
	joints joints
	faces  faces
	relay  *relay

	mu     sync.Mutex
	closed bool
	nodes  []*node
	gates  map[[2]int]*gate // by from and to
	holds  map[string][2]*gate
}

var (
	_ workload.Cluster = (*Cluster)(nil)
	_ nemesis.Target   = (*Cluster)(nil)
)

// Start makes the namespaces and starts the nodes, and returns when all are ready and one of
// them leads, within 60 s. It begins with Sweep. When it fails it has removed what it made;
// Needs says whether this machine can do it at all.
func Start(ctx context.Context, opt Options) (*Cluster, error) {
	if err := opt.validate(); err != nil {
		return nil, err
	}
	if err := errors.Join(Needs(), Sweep()); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(opt.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(filepath.Join(dir, "n1")); err == nil {
		return nil, fmt.Errorf("netns: %s holds an earlier run: give an empty directory", dir)
	}
	c := &Cluster{opt: opt, dir: dir, gates: map[[2]int]*gate{}, holds: map[string][2]*gate{}}
	c.joints.all = map[*joint]struct{}{}
	c.faces.conns = map[faceKey]face{}
	c.relay = newRelay(c)
	err = c.makeHub()
	for i := 0; i < opt.Nodes && err == nil; i++ {
		_, err = c.add(fmt.Sprintf("n%d", i+1), opt.Nodes)
	}
	for i := 0; i < opt.Nodes && err == nil; i++ {
		err = c.Start(i)
	}
	if err == nil {
		err = c.ready(ctx)
	}
	for i := 0; i < opt.Nodes && err == nil; i++ {
		err = c.with(i, (*node).keepStopped)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("netns: %w", err), c.Close())
	}
	return c, nil
}

func (c *Cluster) makeHub() error {
	mine, err := owner()
	if err != nil {
		return err
	}
	if c.hub, err = newSpace(mine, "hub"); err != nil {
		return err
	}
	c.tag = strings.TrimSuffix(c.hub.name, "hub")
	_, err = c.hub.run(strings.Join([]string{
		"link add bridge address " + bridgeMAC + " type bridge forward_delay 0",
		"addr add " + clientsAddr + "/16 dev bridge",
		"addr add " + eyeAddr + "/16 dev bridge",
		"link set bridge up",
	}, "\n"), "ip", "-batch", "-")
	if err == nil {
		c.wall, err = newWall(c.hub, clientsAddr)
	}
	return err
}

// add makes a node that is not started yet: its namespace on the bridge, and its disk.
// founders is how many found the cluster together with it; 0 is one that joins.
func (c *Cluster) add(name string, founders int) (*node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch i := len(c.nodes); {
	case c.closed:
		return nil, errClosed
	case i >= maxNodes:
		return nil, fmt.Errorf("%d nodes, at most %d", i, maxNodes)
	}
	for _, n := range c.nodes {
		if n.name == name {
			return nil, fmt.Errorf("there is a node %s", name)
		}
	}
	n := &node{c: c, index: len(c.nodes), name: name, founders: founders}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.plug(); err != nil {
		return nil, errors.Join(err, n.remove())
	}
	c.nodes = append(c.nodes, n)
	return n, nil
}

var errClosed = errors.New("netns: the cluster is closed")

// maxNodes bounds the nodes of a cluster, dead ones too: their numbers stand in addresses.
const maxNodes = 99

const (
	clientsAddr = "10.77.0.254"
	eyeAddr     = "10.77.0.253"
	// bridgeMAC is stated: a bridge that chooses its own takes another when a node is plugged in
	// or out, and its neighbours then send to nobody for up to a minute.
	bridgeMAC = "02:00:0a:4d:00:fe"
	grpcPort  = "8970"
	raftPort  = "8971"
)

func nodeAddr(i int) string { return fmt.Sprintf("10.77.0.%d", i+1) }
func faceAddr(i int) string { return fmt.Sprintf("10.77.1.%d", i+1) }

// numberAt is the number of the node whose address or face this is.
func numberAt(addr netip.Addr) (i int, ok bool) {
	if !addr.Is4() {
		return 0, false
	}
	b := addr.As4()
	i = int(b[3]) - 1
	return i, b[0] == 10 && b[1] == 77 && b[2] <= 1 && i >= 0 && i < maxNodes
}

// Nodes implements both interfaces.
func (c *Cluster) Nodes() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		if n.retired.Load() {
			names = append(names, "")
			continue
		}
		names = append(names, n.name)
	}
	return names
}

func (c *Cluster) node(i int) (*node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if i < 0 || i >= len(c.nodes) {
		return nil, fmt.Errorf("netns: no node %d: there are %d", i, len(c.nodes))
	}
	return c.nodes[i], nil
}

// ready waits until every node is ready, and one leads.
func (c *Cluster) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		led, why := false, error(nil)
		for i := range c.Nodes() {
			if died := c.Died(i); died != nil {
				return died
			}
			s, err := c.Status(ctx, i)
			if err == nil && !s.Ready {
				err = fmt.Errorf("%s is not ready", c.Nodes()[i])
			}
			led, why = led || s.Leader, errors.Join(why, err)
		}
		if led && why == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the nodes were not ready in time: %w", errors.Join(why, ctx.Err()))
		}
	}
}

// Close ends everything that the cluster made but its directory: connections, processes, file
// systems, namespaces, cgroups. It returns when the traces of all lives are in the log, so the
// history is to be taken after it. What ended by itself and was not asked for with Died is
// noted in the log. Calling it again does nothing.
func (c *Cluster) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	nodes := c.nodes
	c.mu.Unlock()
	c.faces.close()
	c.relay.close()
	c.joints.close()
	for _, note := range leaks(nodes) {
		c.opt.Log.Note(note)
	}
	var err error
	for _, n := range nodes {
		err = errors.Join(err, n.close())
	}
	if c.hub != nil {
		err = errors.Join(err, c.hub.close())
	}
	return err
}
