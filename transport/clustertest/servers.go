package clustertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"raftboard/node"
	"raftboard/node/nodetest"
	"raftboard/transport"
)

const (
	defaultHop = 2 * time.Millisecond
	patience   = 2 * time.Minute       // of every wait, in virtual time
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
	// Dir is where the data directories are made; a test may leave it to its own.
	Dir string
	// Died is told of a server that stopped by itself; it is down then. Nil leaves it where
	// it is, for Cluster.Died.
	Died func(i int, why error)
}

// Servers are the servers of a cluster and the network that joins them, without a test: what
// goes wrong is answered. Open makes them inside a bubble, Close ends them.
//
// Members and their fields may be read by one goroutine, which is also the one that starts
// and ends servers; the methods Count, Member and Running are for all the others.
type Servers struct {
	Net     *Network
	Members []*Member

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

// Open makes the members of a new cluster. No server runs yet.
func Open(o Options) (*Servers, error) {
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Hop == 0 {
		o.Hop = defaultHop
	}
	s := &Servers{Net: NewNetwork(o.Hop), o: o}
	for i := range o.Nodes {
		if _, err := s.NewMember(fmt.Sprintf("n%d", i+1)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Found starts every member, as fresh processes that found a cluster over Hello and Intent,
// and waits until all are ready and know the records of all: a name is defended from then on.
func (s *Servers) Found() error {
	for i := range s.Members {
		if err := s.TryRestart(i); err != nil {
			return fmt.Errorf("node %s does not start: %w", s.Members[i].Name, err)
		}
	}
	return s.Await("every node is ready and has the records of all", func() bool {
		for _, m := range s.Members {
			if m.Server == nil || m.Server.Ready() != nil || m.Server.Node() == nil ||
				len(m.Server.Node().View().Cluster().Nodes) < s.o.Nodes {
				return false
			}
		}
		return true
	})
}

// NewMember adds a member that is not started.
func (s *Servers) NewMember(name string) (*Member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &Member{Index: len(s.Members), Name: name, Host: fmt.Sprintf("127.0.1.%d", len(s.Members)+1), Disk: nodetest.NewDisk()}
	var err error
	if m.Dir, err = os.MkdirTemp(s.o.Dir, name+"-"); err != nil {
		return nil, err
	}
	s.Net.AddNode(m.Host)
	s.Members = append(s.Members[:len(s.Members):len(s.Members)], m)
	return m, nil
}

// Count is how many members there are, those that are down too.
func (s *Servers) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.Members)
}

// Member is one of them.
func (s *Servers) Member(i int) *Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Members[i]
}

// Running is the server of a member; nil while it is down.
func (s *Servers) Running(i int) *transport.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Members[i].Server
}

// Addr is where clients reach a node.
func (s *Servers) Addr(i int) string { return net.JoinHostPort(s.Member(i).Host, grpcPort) }

// Addrs are those of all nodes.
func (s *Servers) Addrs() (addrs []string) {
	for i := range s.Count() {
		addrs = append(addrs, s.Addr(i))
	}
	return addrs
}

// config is what a member is started with: the founders know each other, whoever came later
// knows them all and joins.
func (s *Servers) config(m *Member) transport.Config {
	cfg := transport.DefaultConfig()
	cfg.Name, cfg.DataDir, cfg.ClusterName, cfg.Version = m.Name, m.Dir, "test", "test"
	cfg.GRPCAddr, cfg.RaftAddr, cfg.AdminAddr = net.JoinHostPort(m.Host, grpcPort), net.JoinHostPort(m.Host, raftPort), ""
	cfg.Auth = transport.AuthOff
	if m.Index < s.o.Nodes {
		cfg.BootstrapExpect = s.o.Nodes
	}
	for i := range s.Count() {
		if i != m.Index {
			cfg.Join = append(cfg.Join, s.Addr(i))
		}
	}
	cfg.Network = transport.Network{Listen: s.Net.Listen, Dial: s.Dialer(m.Host)}
	disk := m.Disk
	cfg.OpenStores = func(*node.Dir, hclog.Logger) (node.Stores, error) { return disk.Stores(), nil }
	if s.o.Configure != nil {
		s.o.Configure(m.Index, &cfg)
	}
	return cfg
}

// Dialer connects as a host of the network; a host that is no node is a client's.
func (s *Servers) Dialer(host string) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) { return s.Net.Dial(ctx, host, addr) }
}

// TryConn is a gRPC connection of a host to a node; it is closed with the servers.
func (s *Servers) TryConn(host string, i int, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+s.Addr(i), append(more,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(s.Dialer(host)))...)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, conn)
	return conn, nil
}

// TryRestart starts a node that is down, on what it had stored. It may refuse.
func (s *Servers) TryRestart(i int) error {
	m := s.Member(i)
	server, err := transport.Start(context.Background(), s.config(m))
	if err != nil {
		return err
	}
	died := make(chan error, 1)
	s.mu.Lock()
	m.Server, m.died = server, died
	s.mu.Unlock()
	go func() {
		err := server.Wait()
		s.mu.Lock()
		byItself := s.o.Died != nil && m.Server == server
		if byItself {
			m.Server = nil
			m.Disk.Cut() // a write that hangs ends with the process
		}
		s.mu.Unlock()
		if byItself {
			s.o.Died(i, err)
		}
		died <- err
	}()
	return nil
}

// take is the server of a node that is about to end; nil if it is down.
func (s *Servers) take(i int) *transport.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	server := s.Members[i].Server
	s.Members[i].Server = nil
	return server
}

// Kill ends nodes in one instant, as SIGKILL does: their connections break, nobody is told
// anything, and only what was stored remains. It returns when nothing of them runs any more.
func (s *Servers) Kill(nodes ...int) {
	s.die(nodes, func(d *nodetest.Disk) { d.Cut() })
}

// PowerOff is Kill by a loss of power: what was stored and not synced is gone too. It answers
// how many writes that was.
func (s *Servers) PowerOff(nodes ...int) (lost int) {
	s.die(nodes, func(d *nodetest.Disk) { lost += d.PowerLoss() })
	return lost
}

func (s *Servers) die(nodes []int, disk func(*nodetest.Disk)) {
	running := map[int]*transport.Server{}
	for _, i := range nodes {
		if server := s.take(i); server != nil {
			running[i] = server
			s.Net.SetDown(s.Member(i).Host, true)
		}
		disk(s.Member(i).Disk)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	var group sync.WaitGroup
	for i, server := range running {
		group.Go(func() {
			server.Stop(ended)
			s.Net.SetDown(s.Member(i).Host, false)
		})
	}
	group.Wait()
}

// Stop ends a node gracefully, as SIGTERM does.
func (s *Servers) Stop(i int) error {
	server := s.take(i)
	if server == nil {
		return nil
	}
	return server.Stop(context.Background())
}

// TryWipe empties the disk of a node that is down: its data directory and its Raft state.
func (s *Servers) TryWipe(i int) error {
	m := s.Member(i)
	dir, err := os.MkdirTemp(s.o.Dir, m.Name+"-")
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Dir, m.Disk = dir, nodetest.NewDisk()
	return nil
}

// FindLeader is the node that leads now and is none of those excepted. A deposed leader may
// think so too; of two the one of the newer term counts.
func (s *Servers) FindLeader(except ...int) (found int, ok bool) {
	var newest uint64
	for i := range s.Count() {
		server := s.Running(i)
		if server == nil || server.Node() == nil || slices.Contains(except, i) || !server.Node().IsLeader() {
			continue
		}
		if _, term := server.Node().Leader(); term > newest {
			found, newest = i, term
		}
	}
	return found, newest > 0
}

// AllReady says whether the given nodes, or all that run, are ready.
func (s *Servers) AllReady(only ...int) bool {
	for i := range s.Count() {
		server := s.Running(i)
		wanted := len(only) == 0 && server != nil || slices.Contains(only, i)
		if wanted && (server == nil || server.Ready() != nil) {
			return false
		}
	}
	return true
}

// Await waits, in virtual time, until something holds; the error says what did not.
func (s *Servers) Await(what string, holds func() bool) error {
	for began := time.Now(); time.Since(began) < patience; time.Sleep(poll) {
		if holds() {
			return nil
		}
	}
	return fmt.Errorf("not within %v: %s\n%s", patience, what, s.States())
}

// States tells, for people, what the nodes say of themselves.
func (s *Servers) States() (text string) {
	for i := range s.Count() {
		name, server := s.Member(i).Name, s.Running(i)
		switch {
		case server == nil:
			text += name + ": down\n"
		case server.Node() == nil:
			text += name + ": no member\n"
		default:
			now := server.Node().Status()
			text += fmt.Sprintf("%s: %s term %d applied %d commit %d last %d voters %d: %v\n",
				name, now.Role, now.Term, now.Applied, now.Commit, now.LastLog, len(now.Voters), now.Note)
		}
	}
	return text
}

// Close ends everything and then waits longer than any timer: a bubble that is left while a
// goroutine still waits is reported as a deadlock.
func (s *Servers) Close() {
	s.mu.Lock()
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	for _, conn := range conns {
		conn.Close()
	}
	var all []int
	for i := range s.Count() {
		all = append(all, i)
	}
	s.Kill(all...)
	s.Net.Reset("")
	time.Sleep(patience)
}

// CopyMember makes a member of a copy of another one's data directory and disk, as they are
// now: the same node id on another host. It is started with TryRestart.
func (s *Servers) CopyMember(of int) (*Member, error) {
	original := s.Member(of)
	m, err := s.NewMember(original.Name)
	if err != nil {
		return nil, err
	}
	disk, err := original.Disk.Copy()
	if err != nil {
		return nil, err
	}
	m.Disk = disk
	return m, errors.Join(os.Remove(m.Dir), os.CopyFS(m.Dir, os.DirFS(filepath.Clean(original.Dir))))
}
