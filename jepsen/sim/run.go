package sim

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"raftboard/client"
	"raftboard/fsm"
	"raftboard/jepsen/history"
	"raftboard/jepsen/nemesis"
	"raftboard/jepsen/planted"
	"raftboard/jepsen/workload"
	"raftboard/node"
	"raftboard/transport"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// Options vary a run.
type Options struct {
	Nodes int           // that found the cluster; 3 when it is 0
	Hop   time.Duration // how long one way takes; 2 ms when it is 0
	Dir   string        // of data directories; the caller removes it
	// Compact makes logs small, so that snapshots and compaction happen in seconds.
	Compact bool
}

// With Compact a log is cut every second or two, to a few entries behind the oldest snapshot.
const (
	compactEntries  = 24
	compactEvery    = time.Second
	compactTrailing = 8
)

// Run is one cluster under test in a bubble. Safe for several goroutines.
type Run struct {
	Log *history.Log

	o       Options
	servers *clustertest.Servers

	mu    sync.Mutex
	seats []*seat
	faces map[face]wirepb.BoardClient

	t testing.TB // of Start; nil otherwise
}

var (
	_ workload.Cluster = (*Run)(nil)
	_ nemesis.Target   = (*Run)(nil)
)

type face struct {
	name string
	node int
}

// Open makes the nodes of a new cluster inside a bubble, starts them, and waits until all are
// ready and know each other. Close must be called also when it fails, unless there is no Run.
func Open(log *history.Log, o Options) (*Run, error) {
	r := &Run{Log: log, o: o, faces: map[face]wirepb.BoardClient{}}
	servers, err := clustertest.Open(clustertest.Options{Nodes: o.Nodes, Hop: o.Hop, Dir: o.Dir, Configure: r.configure, Died: r.died})
	if err != nil {
		return nil, err
	}
	r.servers = servers
	for range servers.Count() {
		r.seats = append(r.seats, newSeat())
	}
	return r, servers.Found()
}

// NoteDeaths notes every death that nobody has asked about. It is called when the run is over,
// before its history is taken; a restart notes by itself.
func (r *Run) NoteDeaths() {
	for i := range r.servers.Count() {
		r.noteDeath(i)
	}
}

// Close ends all nodes and connections, and then waits, in virtual time, until nothing runs
// any more.
func (r *Run) Close() { r.servers.Close() }

// configure is called at every start of a node: a new life begins.
func (r *Run) configure(i int, cfg *transport.Config) {
	name, s := cfg.Name, r.seat(i)
	r.mu.Lock()
	s.life++
	life, version := s.life, s.version
	r.mu.Unlock()
	if planted.Bug("M11") {
		r.servers.Member(i).Disk.Lazy(true)
	}
	cfg.Version = version
	cfg.Clock = s.clock.seam()
	cfg.Trace = func(record fsm.TraceRecord) { r.Log.Applied(name, life, record) }
	cfg.Roles = func(c node.RoleChange) {
		role := c.Role
		if role == "shutdown" {
			role = "down"
		}
		r.Log.Role(history.Role{Node: name, Life: life, Term: c.Term, Role: role})
	}
	if r.o.Compact {
		cfg.SnapshotThreshold, cfg.SnapshotInterval, cfg.TrailingLogs = compactEntries, compactEvery, compactTrailing
	}
}

// Nodes implements workload.Cluster and nemesis.Target.
func (r *Run) Nodes() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, s := range r.seats {
		name := r.servers.Member(i).Name
		if s.retired {
			name = ""
		}
		names = append(names, name)
	}
	return names
}

// Dial implements workload.Cluster.
func (r *Run) Dial(name string, first int) (*client.Client, error) {
	var addrs []string
	nodes := r.Nodes()
	for i := range nodes {
		if at := (first + i) % len(nodes); nodes[at] != "" {
			addrs = append(addrs, r.servers.Addr(at))
		}
	}
	return client.Dial(client.Config{Endpoints: addrs, As: name, Name: "jepsen", Dialer: r.servers.Dialer(name)})
}

// Ask implements workload.Cluster. Its connections are made again soon after a node is back,
// so that it is asked again; the client's own backoff is what Dial is for.
func (r *Run) Ask(name string, node int) wirepb.BoardClient {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := face{name, node}
	if r.faces[at] != nil {
		return r.faces[at]
	}
	conn, err := r.servers.TryConn(name, node, grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: time.Second,
	}))
	if err != nil {
		return wirepb.NewBoardClient(unreachable{err})
	}
	r.faces[at] = wirepb.NewBoardClient(conn)
	return r.faces[at]
}

// Freeze implements workload.Cluster.
func (r *Run) Freeze(name string) (thaw func()) {
	r.servers.Net.Hold(name)
	return func() { r.servers.Net.Release(name, 0, 0) }
}

// seat is a node as this driver sees it, across its lives.
type seat struct {
	turn  chan struct{} // holds one: who starts or ends the process
	clock *clock

	// guarded by Run.mu
	version string
	life    int
	paused  bool
	retired bool
	dead    error // why it ended by itself, until somebody asks
}

// The two builds that Switch changes between: the same source under two names.
const (
	version      = "faults"
	otherVersion = "faults-other"
)

func newSeat() *seat { return &seat{turn: make(chan struct{}, 1), clock: newClock(), version: version} }

func (r *Run) seat(i int) *seat {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seats[i]
}

var errNoNode = errors.New("there is no such node")

// take is the seat of a node whose process nobody else starts or ends until give.
func (r *Run) take(i int) (s *seat, give func(), err error) {
	r.mu.Lock()
	if i < 0 || i >= len(r.seats) {
		r.mu.Unlock()
		return nil, nil, fmt.Errorf("node %d: %w", i, errNoNode)
	}
	s = r.seats[i]
	r.mu.Unlock()
	s.turn <- struct{}{} // not a mutex: the clock of the bubble moves while somebody waits
	return s, func() { <-s.turn }, nil
}
