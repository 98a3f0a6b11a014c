package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/jepsen/planted"
)

// Timing are raft's timeouts: equal on all nodes of a cluster (RAFT P34).
type Timing struct {
	Heartbeat, Election, Lease time.Duration
	Commit                     time.Duration // how soon a quiet follower hears of a commit
}

// DefaultTiming suits disks whose slowest syncs stay under 200 ms.
func DefaultTiming() Timing {
	return Timing{Heartbeat: time.Second, Election: time.Second, Lease: 500 * time.Millisecond, Commit: 10 * time.Millisecond}
}

// Peers is what one node asks of another.
type Peers interface {
	// Fence asks the leader for an index that covers every acknowledged write.
	Fence(ctx context.Context, nodeID string) (index uint64, err error)
	// Digest asks a node for its digest of the state after an entry.
	Digest(ctx context.Context, nodeID string, index uint64) (sum [16]byte, known bool, err error)
}

// Config describes one node. Zero durations and numbers mean the defaults.
type Config struct {
	ID, Name               string
	ClusterID, ClusterName string
	Version                string // of the binary
	GRPCAddr, RaftAddr     string
	Logger                 hclog.Logger
	Timing                 Timing
	SnapshotThreshold      uint64 // entries since the last snapshot; default 8,192
	TrailingLogs           uint64 // entries kept behind a snapshot; default 10,240 (RAFT P15)
	SnapshotInterval       time.Duration
	// StoreTimeout ends the process when one call of a store lasts longer; default 20 s, below
	// zero never. MinFree is what must be free on the volume, in bytes beside a snapshot's, for
	// this node to take writes; default 64 MiB.
	StoreTimeout time.Duration
	MinFree      uint64
	Founders     []*boardpb.Node // the members of the cluster's intent, if this node has one
	Peers        Peers
	Clock        Clock
	// Trace is told what this node applies, on the goroutine that applies; Roles is told what
	// it becomes, on a goroutine of its own. Nil is off and costs nothing. Neither may block.
	Trace func(fsm.TraceRecord)
	Roles func(RoleChange)
	// Die is told of what this node cannot go on from. It ends the process, or at least the
	// goroutine that calls it. It must not wait for Close.
	Die func(error)
}

const (
	defaultSnapshotThreshold = 8192
	defaultTrailingLogs      = 10240
	minTrailingLogs          = 10000
	defaultSnapshotInterval  = 30 * time.Second
	maxAppendEntries         = 8 // × maxBatchBytes is 4 MiB: no heartbeat is answered meanwhile (RAFT P1)
	drainTimeout             = 3 * time.Second
)

// Node is one member of the cluster, from Open to Close.
type Node struct {
	cfg       Config
	log       hclog.Logger
	raft      *raft.Raft
	fsm       *fsm.FSM
	restores  *watchedFSM
	stores    Stores // as raft sees them, without its cache
	sentinel  *sentinel
	transport *guardedTransport
	clock     *boardClock
	began     time.Duration

	queue    *queue
	proposer *proposer
	fence    fence
	writes   atomic.Uint64 // commands of clients so far
	suspects chan uint64
	roles    *roles
	transfer transferWatch
	space    space
	caught   atomic.Bool           // this node has been where the leader was after it heard of it
	opened   atomic.Bool           // raft is there
	doubt    atomic.Pointer[error] // set while no majority of voters agrees on a digest

	failure atomic.Pointer[error]
	closing atomic.Bool
	ctx     context.Context // ends with stop
	stop    <-chan struct{}
	end     context.CancelFunc
	loops   sync.WaitGroup // the node's own goroutines
	futures inflight       // goroutines that wait for raft

	seen struct {
		mu      sync.Mutex
		id      string
		term    uint64
		changed chan struct{}
	}
}

// Open starts a node on a transport and stores. They are wrapped in the guards of this
// package and belong to the node from now on, also when Open fails.
func Open(cfg Config, tr Transport, s Stores) (_ *Node, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, tr.Close(), s.close())
		}
	}()
	if cfg.ID == "" || cfg.Name == "" || cfg.Die == nil {
		return nil, errors.New("node: an id, a name and Die are needed")
	}
	if raft.ServerAddress(cfg.ID) != tr.LocalAddr() {
		return nil, fmt.Errorf("node: the transport's address is %q; it must be the node's id %q (RAFT P27)", tr.LocalAddr(), cfg.ID)
	}
	cfg = cfg.withDefaults()
	n := &Node{cfg: cfg, log: cfg.Logger, clock: newBoardClock(cfg.Clock), queue: newQueue(), suspects: make(chan uint64, 1)}
	n.began = n.clock.source.Mono()
	n.ctx, n.end = context.WithCancel(context.Background())
	n.stop = n.ctx.Done()
	n.seen.changed = make(chan struct{})
	n.proposer = &proposer{n: n}
	n.transport = guardTransport(tr, n.clock.source.Mono)
	n.transport.log = n.log
	n.fsm = fsm.New(fsm.Options{Trace: cfg.Trace, Fatal: n.fail,
		Diverged: func(index uint64, _, _ [16]byte) { n.suspect(index) }})
	n.restores, n.transfer.n = &watchedFSM{FSM: n.fsm, n: n, took: -1}, n
	if err := n.prepare(s); err != nil {
		n.end()
		return nil, err
	}
	if err := n.startRaft(); err != nil {
		n.end()
		return nil, err
	}
	if level := n.fsm.View().Cluster().GetLevel(); level > fsm.MaxLevel {
		n.end()
		return nil, errors.Join(&DirError{Dir: s.Where, Hint: "start it with a newer binary",
			What: fmt.Sprintf("the cluster is at feature level %d, this binary knows %d", level, fsm.MaxLevel)},
			n.raft.Shutdown().Error())
	}
	n.roles = watchRoles(n.raft, cfg.Roles)
	n.loops.Go(n.proposer.run)
	n.loops.Go(n.leadLoop)
	n.loops.Go(n.housekeep)
	n.loops.Go(n.settleLoop)
	n.loops.Go(n.catchUpLoop)
	return n, nil
}

// startRaft lets raft read what is stored. It panics over a log entry that it cannot read, and
// whoever opens the node is who waits here: a store that fails now is an error of Open, and
// nobody is told to die.
func (n *Node) startRaft() (err error) {
	defer func() {
		failed := n.failure.Load()
		if failed == nil {
			return // a panic of another kind goes on
		}
		if p := recover(); p == nil && n.raft != nil {
			err = errors.Join(err, n.raft.Shutdown().Error())
		}
		err = errors.Join(*failed, err)
	}()
	n.raft, err = raft.NewRaft(raftConfig(n.cfg), n.restores, raftLog(n.stores.Log), n.stores.Stable, n.stores.Snapshots, n.transport)
	if err != nil {
		return storeError(n.stores.Where, fmt.Errorf("start raft: %w", err))
	}
	n.opened.Store(true)
	return nil
}

func (s Stores) close() error {
	if s.Close == nil {
		return nil
	}
	return s.Close()
}

// prepare wraps the stores and checks what is in them before raft looks at it.
func (n *Node) prepare(s Stores) error {
	s = withFaults(s)
	s.Snapshots = sealedSnapshots{s.Snapshots}
	n.sentinel = &sentinel{where: s.Where, die: n.fail}
	n.sentinel.stall = &stallWatch{bound: n.cfg.StoreTimeout, mono: n.clock.source.Mono, stuck: n.sentinel.hung}
	snapshots := &guardedSnapshots{SnapshotStore: s.Snapshots, s: n.sentinel, sends: &sendWatch{n: n}}
	verify := verifier(s.Snapshots, func(r io.Reader) error {
		_, err := fsm.VerifySnapshot(watchedReader{r, &progress{n: n, doing: "checking a snapshot"}})
		return err
	})
	n.stores = Stores{
		Log:       &guardedLog{inner: s.Log, s: n.sentinel, snaps: s.Snapshots, verify: verify, warn: n.log.Warn},
		Stable:    &guardedStable{inner: s.Stable, s: n.sentinel, opened: n.opened.Load},
		Snapshots: snapshots,
		Close:     s.Close, Free: s.Free, Where: s.Where,
	}
	if planted.Bug("M24") { // the bug: a vote is two records
		n.stores.Stable = s.Stable
	}
	snap, unreadable, err := checkSnapshots(s, verify, n.cfg.ID, n.log.Warn)
	if err != nil {
		return err
	}
	snapshots.unreadable = unreadable
	cleared, err := clearDivergentLog(s.Log, snap)
	if err != nil {
		return storeError(s.Where, err)
	}
	if cleared {
		n.log.Warn("the log disagreed with the newest snapshot and was emptied: nothing of it ever committed (hashicorp/raft#697)",
			"snapshot", snap.Index)
	}
	return followsOn(s, snap, n.cfg.ID)
}

// raftLog puts raft's cache above the guard (RAFT P18).
func raftLog(guarded raft.LogStore) raft.LogStore {
	cache, err := raft.NewLogCache(logCacheSize, guarded)
	if err != nil {
		return guarded // only for a size below one
	}
	return cache
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	d := DefaultTiming()
	pick := func(v, def time.Duration) time.Duration {
		if v == 0 {
			return def
		}
		return v
	}
	c.Timing = Timing{Heartbeat: pick(c.Timing.Heartbeat, d.Heartbeat), Election: pick(c.Timing.Election, d.Election),
		Lease: pick(c.Timing.Lease, d.Lease), Commit: pick(c.Timing.Commit, d.Commit)}
	c.SnapshotInterval = pick(c.SnapshotInterval, defaultSnapshotInterval)
	c.StoreTimeout = pick(c.StoreTimeout, defaultStoreTimeout)
	if c.MinFree == 0 {
		c.MinFree = defaultMinFree
	}
	if c.SnapshotThreshold == 0 {
		c.SnapshotThreshold = defaultSnapshotThreshold
	}
	if c.TrailingLogs == 0 {
		c.TrailingLogs = defaultTrailingLogs
	}
	return c
}

// raftConfig is every setting of the library in one place.
func raftConfig(c Config) *raft.Config {
	rc := raft.DefaultConfig()
	rc.ProtocolVersion = raft.ProtocolVersionMax // 3 (RAFT P32)
	rc.LocalID = raft.ServerID(c.ID)
	rc.Logger = c.Logger.Named("raft") // never the process-wide one (RAFT P37)
	rc.HeartbeatTimeout, rc.ElectionTimeout = c.Timing.Heartbeat, c.Timing.Election
	rc.LeaderLeaseTimeout, rc.CommitTimeout = c.Timing.Lease, c.Timing.Commit
	rc.MaxAppendEntries = maxAppendEntries
	rc.BatchApplyCh = false // an entry in that queue could outlive its timeout (RAFT P10)
	rc.ShutdownOnRemove = true
	rc.PreVoteDisabled = false // RAFT P23
	rc.TrailingLogs = c.TrailingLogs
	rc.SnapshotThreshold, rc.SnapshotInterval = c.SnapshotThreshold, c.SnapshotInterval
	rc.NoLegacyTelemetry = true
	rc.NotifyCh = nil // blocks raft when unread (RAFT P8)
	return rc
}

// fail stops the node for good. The first reason counts; Die may not return.
func (n *Node) fail(err error) {
	if !n.failure.CompareAndSwap(nil, &err) {
		return
	}
	var dir *DirError
	if errors.As(err, &dir) {
		n.log.Error("this node stops: "+err.Error(), "hint", dir.Hint)
	} else {
		n.log.Error("this node stops: " + err.Error())
	}
	n.transport.mute()
	n.queue.close(&NotDone{Why: "this node has stopped: " + err.Error(), Cause: err})
	if n.opened.Load() {
		n.cfg.Die(err)
	}
}

// Failure is why this node stopped by itself, or nil.
func (n *Node) Failure() error {
	if e := n.failure.Load(); e != nil {
		return *e
	}
	return nil
}

// View is the newest state applied here; Changed is closed at the next one.
func (n *Node) View() *state.View        { return n.fsm.View() }
func (n *Node) Changed() <-chan struct{} { return n.fsm.Changed() }

// Leader is a hint: who led, and in which term, as far as this node knows (RAFT P33).
func (n *Node) Leader() (id string, term uint64) {
	_, leader := n.raft.LeaderWithID()
	return string(leader), n.raft.CurrentTerm()
}

// LeaderChanged is closed when this node hears of another leader or term. Take it before
// Leader when waiting.
func (n *Node) LeaderChanged() <-chan struct{} {
	n.seen.mu.Lock()
	defer n.seen.mu.Unlock()
	return n.seen.changed
}

// IsLeader tells whether this node leads and its leadership is open.
func (n *Node) IsLeader() bool {
	_, ready := n.readyTerm()
	return ready
}

// Snapshot takes a snapshot of the state and opens it. The caller closes the reader.
func (n *Node) Snapshot(ctx context.Context) (r io.ReadCloser, index, term uint64, err error) {
	f := n.raft.Snapshot()
	if err := n.await(ctx, f); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil, 0, 0, &NotDone{Why: "no snapshot was taken: " + err.Error(), Cause: err}
	}
	meta, r, err := f.Open()
	if err != nil {
		return nil, 0, 0, &NotDone{Why: "the snapshot cannot be opened: " + err.Error(), Cause: err}
	}
	return r, meta.Index, meta.Term, nil
}

// Close ends the node and closes its stores. It does not hand the leadership over: StepDown
// comes before it in a graceful stop.
func (n *Node) Close(ctx context.Context) error {
	if n.closing.Swap(true) {
		return nil
	}
	n.queue.close(&NotDone{Why: "this node is stopping"})
	n.end()
	// Raft abandons the futures of entries that its state machine has not taken when it stops
	// (RAFT P9), so those in flight get a moment to end before.
	drain, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	n.futures.wait(drain)
	n.sentinel.closing.Store(true)
	n.transport.release()
	stopped := n.raft.Shutdown().Error()
	n.roles.end()
	n.loops.Wait()
	last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancelLast()
	n.futures.wait(last)
	return errors.Join(stopped, n.stores.close())
}
