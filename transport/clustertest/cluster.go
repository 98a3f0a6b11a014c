package clustertest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"raftboard/node"
	"raftboard/node/nodetest"
	"raftboard/transport"
)

const (
	defaultHop = 2 * time.Millisecond
	patience   = 2 * time.Minute       // of every wait of a helper, in virtual time
	poll       = 20 * time.Millisecond // how often a wait looks
	grpcPort   = "8970"
	raftPort   = "8971"
)

// Options vary a cluster. Zero values mean three nodes and 2 ms a hop.
type Options struct {
	Nodes     int
	Hop       time.Duration
	Configure func(i int, c *transport.Config)
	// Later starts no node: the test does, with Restart or Add.
	Later bool
}

// Cluster is the servers and the network that joins them. It stops itself when the test of
// its bubble ends.
type Cluster struct {
	Net     *Network
	Members []*Member

	t testing.TB
	o Options

	mu    sync.Mutex
	conns []*grpc.ClientConn
}

// Member is one server across its restarts. Server is nil while it is down.
type Member struct {
	Index  int
	Name   string // of the node
	Host   string // on the network
	Dir    string // the data directory
	Disk   *nodetest.Disk
	Server *transport.Server

	died chan error // why the server stopped by itself; holds one
}

// Start makes a cluster that founds itself over Hello and Intent, as three fresh processes
// do, and waits until every node is ready. It must run inside a bubble.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Hop == 0 {
		o.Hop = defaultHop
	}
	c := &Cluster{Net: NewNetwork(o.Hop), t: t, o: o}
	t.Cleanup(c.stop)
	for range o.Nodes {
		c.newMember(fmt.Sprintf("n%d", len(c.Members)+1))
	}
	if o.Later {
		return c
	}
	for i := range c.Members {
		c.Restart(i)
	}
	c.WaitReady()
	c.waitRecords()
	return c
}

// waitRecords waits until every node knows the records of all: a name is defended from then on.
func (c *Cluster) waitRecords() {
	c.t.Helper()
	c.Eventually("every node has the records of all", func() bool {
		for _, m := range c.Members {
			if m.Server == nil || m.Server.Node() == nil || len(m.Server.Node().View().Cluster().Nodes) < c.o.Nodes {
				return false
			}
		}
		return true
	})
}

func (c *Cluster) newMember(name string) *Member {
	i := len(c.Members)
	m := &Member{Index: i, Name: name, Host: fmt.Sprintf("127.0.1.%d", i+1), Dir: c.t.TempDir(), Disk: nodetest.NewDisk()}
	c.Members = append(c.Members, m)
	return m
}

// Addr is where clients reach a node.
func (c *Cluster) Addr(i int) string { return net.JoinHostPort(c.Members[i].Host, grpcPort) }

// Addrs are those of all nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for i := range c.Members {
		addrs = append(addrs, c.Addr(i))
	}
	return addrs
}

// config is what a member is started with: the founders know each other, whoever came later
// knows them all and joins.
func (c *Cluster) config(m *Member) transport.Config {
	cfg := transport.DefaultConfig()
	cfg.Name, cfg.DataDir, cfg.ClusterName, cfg.Version = m.Name, m.Dir, "test", "test"
	cfg.GRPCAddr, cfg.RaftAddr, cfg.AdminAddr = net.JoinHostPort(m.Host, grpcPort), net.JoinHostPort(m.Host, raftPort), ""
	cfg.Auth = transport.AuthOff
	if m.Index < c.o.Nodes {
		cfg.BootstrapExpect = c.o.Nodes
	}
	for _, other := range c.Members {
		if other != m {
			cfg.Join = append(cfg.Join, net.JoinHostPort(other.Host, grpcPort))
		}
	}
	cfg.Network = transport.Network{Listen: c.Net.Listen, Dial: c.Dialer(m.Host)}
	cfg.OpenStores = func(*node.Dir, hclog.Logger) (node.Stores, error) { return m.Disk.Stores(), nil }
	if c.o.Configure != nil {
		c.o.Configure(m.Index, &cfg)
	}
	return cfg
}

// Dialer connects as a host of the network; a host that is no node is a client's.
func (c *Cluster) Dialer(host string) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) { return c.Net.Dial(ctx, host, addr) }
}

// Dial is Dialer of the host "client".
func (c *Cluster) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return c.Net.Dial(ctx, "client", addr)
}

// Conn is a gRPC connection of a host to a node; it is closed with the cluster.
func (c *Cluster) Conn(host string, i int) *grpc.ClientConn {
	c.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+c.Addr(i),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(c.Dialer(host)))
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, conn)
	return conn
}

// As states a caller's name, as clients do under --auth off.
func As(ctx context.Context, name string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, transport.AsHeader, name)
}

// Restart starts a node that is down, on what it had stored.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	if err := c.TryRestart(i); err != nil {
		c.t.Fatalf("node %s does not start: %v", c.Members[i].Name, err)
	}
}

// TryRestart is Restart for a node that may refuse.
func (c *Cluster) TryRestart(i int) error {
	m := c.Members[i]
	server, err := transport.Start(context.Background(), c.config(m))
	if err != nil {
		return err
	}
	m.Server, m.died = server, make(chan error, 1)
	died := m.died
	go func() { died <- server.Wait() }()
	return nil
}

// Died waits until a node has stopped by itself and answers why.
func (c *Cluster) Died(i int) error {
	c.t.Helper()
	select {
	case err := <-c.Members[i].died:
		c.Members[i].Server = nil
		return err
	case <-time.After(patience):
		c.t.Fatalf("node %s did not stop within %v", c.Members[i].Name, patience)
		return nil
	}
}

// Kill ends a node as SIGKILL does: its connections break at once, nobody is told anything,
// and only what was stored remains.
func (c *Cluster) Kill(i int) {
	m := c.Members[i]
	if m.Server == nil {
		return
	}
	c.Net.SetDown(m.Host, true)
	server := m.Server
	m.Server = nil
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	server.Stop(ended)
	c.Net.SetDown(m.Host, false)
}

// Stop ends a node gracefully, as SIGTERM does.
func (c *Cluster) Stop(i int) error {
	m := c.Members[i]
	server := m.Server
	m.Server = nil
	return server.Stop(context.Background())
}

// Wipe empties the disk of a node that is down: its data directory and its Raft state.
func (c *Cluster) Wipe(i int) {
	m := c.Members[i]
	m.Dir, m.Disk = c.t.TempDir(), nodetest.NewDisk()
}

// Add starts a fresh node that joins by itself and waits until it is ready.
func (c *Cluster) Add(name string) *Member {
	c.t.Helper()
	m := c.newMember(name)
	c.Restart(m.Index)
	c.WaitReady(m.Index)
	return m
}

// Isolate cuts a node off from all other nodes in both directions; clients still reach it.
func (c *Cluster) Isolate(i int) { c.isolate(i, true) }

// Rejoin mends what Isolate cut.
func (c *Cluster) Rejoin(i int) { c.isolate(i, false) }

func (c *Cluster) isolate(i int, cut bool) {
	for _, other := range c.Members {
		if other.Index != i {
			c.Net.SetCut(c.Members[i].Host, other.Host, cut)
			c.Net.SetCut(other.Host, c.Members[i].Host, cut)
		}
	}
}

// Leader waits until a node leads that is none of those excepted, and answers its index. A
// deposed leader may think so too; of two the one of the newer term counts.
func (c *Cluster) Leader(except ...int) int {
	c.t.Helper()
	found := -1
	c.Eventually("a node leads", func() bool {
		var newest uint64
		for _, m := range c.Members {
			if m.Server == nil || m.Server.Node() == nil || slices.Contains(except, m.Index) || !m.Server.Node().IsLeader() {
				continue
			}
			if _, term := m.Server.Node().Leader(); term > newest {
				found, newest = m.Index, term
			}
		}
		return newest > 0
	})
	return found
}

// Follower waits for a leader and answers the index of a ready node that does not lead.
func (c *Cluster) Follower(except ...int) int {
	c.t.Helper()
	found := -1
	c.Eventually("a node follows", func() bool {
		leader := c.Leader()
		for _, m := range c.Members {
			if m.Index != leader && !slices.Contains(except, m.Index) && m.Server != nil && m.Server.Ready() == nil {
				found = m.Index
				return true
			}
		}
		return false
	})
	return found
}

// WaitReady waits until the given nodes, or all that run, are ready.
func (c *Cluster) WaitReady(only ...int) {
	c.t.Helper()
	c.Eventually("the nodes are ready", func() bool {
		for _, m := range c.Members {
			wanted := len(only) == 0 && m.Server != nil || slices.Contains(only, m.Index)
			if wanted && (m.Server == nil || m.Server.Ready() != nil) {
				return false
			}
		}
		return true
	})
}

// Eventually waits, in virtual time, until something holds.
func (c *Cluster) Eventually(what string, holds func() bool) {
	c.t.Helper()
	for began := time.Now(); time.Since(began) < patience; time.Sleep(poll) {
		if holds() {
			return
		}
	}
	c.t.Fatalf("not within %v: %s\n%s", patience, what, c.states())
}

// states tells, for a failing test, what the nodes say of themselves.
func (c *Cluster) states() (text string) {
	for _, m := range c.Members {
		switch {
		case m.Server == nil:
			text += m.Name + ": down\n"
		case m.Server.Node() == nil:
			text += m.Name + ": no member\n"
		default:
			s := m.Server.Node().Status()
			text += fmt.Sprintf("%s: %s term %d applied %d commit %d last %d voters %d: %v\n",
				m.Name, s.Role, s.Term, s.Applied, s.Commit, s.LastLog, len(s.Voters), s.Note)
		}
	}
	return text
}

// stop ends everything and then waits longer than any timer: a bubble that is left while a
// goroutine still waits is reported as a deadlock.
func (c *Cluster) stop() {
	c.mu.Lock()
	conns := c.conns
	c.conns = nil
	c.mu.Unlock()
	for _, conn := range conns {
		conn.Close()
	}
	for _, m := range c.Members {
		m.Disk.Fail(nil)
		c.Kill(m.Index)
	}
	c.Net.Reset("")
	time.Sleep(patience)
}
