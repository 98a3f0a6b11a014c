package node

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"raftboard/jepsen/planted"
)

// Transport is what a node needs of its Raft transport. Raft asks for the last two by type
// assertion and goes without in silence; here the compiler asks (RAFT P24).
type Transport interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
}

// Settings of the Raft transport that must be equal on every node (RAFT P28, P32).
const (
	rpcTimeout      = 10 * time.Second
	rpcPool         = 3
	rpcsInFlight    = 2
	newTimeFormat   = true
	awaitPeerMost   = 30 * time.Second // that an append waits for its peer to be back
	contactForgets  = 64               // peers remembered at most
	contactFresh    = 3                // heartbeat timeouts without an answer until a peer counts as away
	caughtUpEntries = 64               // a non-voter this close to the leader's log is caught up
)

// NewTransport is raft.NetworkTransport over a stream layer, with the one setting every node
// of a cluster must share. It has no ServerAddressProvider: its EncodePeer would put
// host:port into votes (RAFT P27).
func NewTransport(stream raft.StreamLayer, logger hclog.Logger) *raft.NetworkTransport {
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: stream, Logger: logger, MaxPool: rpcPool, MaxRPCsInFlight: rpcsInFlight,
		Timeout: rpcTimeout, MsgpackUseNewTimeFormat: newTimeFormat,
	})
}

// guardedTransport takes the heartbeat fast path away, notes who answers, and keeps raft from
// backing off from a peer that is back.
type guardedTransport struct {
	Transport
	mono   func() time.Duration
	log    hclog.Logger
	closed chan struct{}
	muted  atomic.Bool
	sent   atomic.Uint64 // snapshots, or what became of them

	mu      sync.Mutex
	peers   map[raft.ServerID]contact
	waiting map[raft.ServerID]chan struct{} // closed at the next answer of a peer
	once    sync.Once
}

var (
	_ raft.WithPreVote = (*guardedTransport)(nil)
	_ raft.WithClose   = (*guardedTransport)(nil)
)

// contact is what a peer last answered to an append or a heartbeat.
type contact struct {
	at      time.Duration // monotonic, of the answer
	lastLog uint64
}

func guardTransport(tr Transport, mono func() time.Duration) *guardedTransport {
	return &guardedTransport{Transport: tr, mono: mono, log: hclog.NewNullLogger(), closed: make(chan struct{}),
		peers: map[raft.ServerID]contact{}, waiting: map[raft.ServerID]chan struct{}{}}
}

// SetHeartbeatHandler ignores the handler: heartbeats then go through raft's main goroutine
// like any other request, so a deposed leader cannot take a new term while it still writes
// (RAFT P1, hashicorp/raft#695).
func (g *guardedTransport) SetHeartbeatHandler(fast func(raft.RPC)) {
	if planted.Bug("M20") {
		g.Transport.SetHeartbeatHandler(fast)
	}
}

// AppendEntries notes answers. They say who is alive and how far its log reaches; they never
// decide whether this node still leads (RAFT P2).
//
// After some failed appends raft waits up to 10 s before the next one, however long the peer
// has been answering heartbeats again, and a restarted node would show old state for so long.
// So an append that failed waits here for a sign of life and is then sent again.
func (g *guardedTransport) AppendEntries(id raft.ServerID, to raft.ServerAddress,
	req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if g.muted.Load() {
		return errMuted
	}
	err := g.Transport.AppendEntries(id, to, req, resp)
	for until := g.mono() + awaitPeerMost; err != nil && !isHeartbeat(req) && g.awaitPeer(id, until-g.mono()); {
		err = g.Transport.AppendEntries(id, to, req, resp) // again: the pool may hold dead connections
	}
	if err == nil && resp.Term == req.Term {
		g.note(id, resp.LastLog)
	}
	return err
}

// InstallSnapshot counts and says what a follower costs that is behind the log: one that never
// gets there is seen by it (RAFT P15).
func (g *guardedTransport) InstallSnapshot(id raft.ServerID, to raft.ServerAddress,
	req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	g.sent.Add(1)
	log, began := g.log.With("to", id, "index", req.LastLogIndex, "bytes", req.Size), g.mono()
	log.Info("sending a snapshot")
	err := g.Transport.InstallSnapshot(id, to, req, resp, data)
	if err != nil {
		log.Warn("the snapshot was not sent", "after", g.mono()-began, "error", err)
		return err
	}
	log.Info("the snapshot was sent", "after", g.mono()-began, "taken", resp.Success)
	return nil
}

// isHeartbeat recognises what raft's heartbeat loop sends, as its own transport does.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return len(req.Entries) == 0 && req.PrevLogEntry == 0 && req.PrevLogTerm == 0 && req.LeaderCommitIndex == 0
}

func (g *guardedTransport) note(id raft.ServerID, lastLog uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.peers[id]; known || len(g.peers) < contactForgets {
		g.peers[id] = contact{at: g.mono(), lastLog: lastLog}
	}
	if ch := g.waiting[id]; ch != nil {
		close(ch)
		delete(g.waiting, id)
	}
}

// awaitPeer waits for the next answer of a peer and tells whether one came.
func (g *guardedTransport) awaitPeer(id raft.ServerID, most time.Duration) bool {
	g.mu.Lock()
	ch := g.waiting[id]
	if ch == nil {
		ch = make(chan struct{})
		g.waiting[id] = ch
	}
	g.mu.Unlock()
	patience := time.NewTimer(max(most, 0))
	defer patience.Stop()
	select {
	case <-ch:
		return true
	case <-patience.C:
	case <-g.closed:
	}
	return false
}

// mute ends what this node says as a leader. Its heartbeats do not wait for raft's main
// goroutine, so a node that stopped, with that goroutine hanging in its disk, would else stay
// leader for as long as its process lives (RAFT P16).
func (g *guardedTransport) mute() { g.muted.Store(true) }

var errMuted = errors.New("this node has stopped")

// release ends every wait, before raft is shut down.
func (g *guardedTransport) release() { g.once.Do(func() { close(g.closed) }) }

func (g *guardedTransport) contact(id raft.ServerID) (contact, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.peers[id]
	return c, ok
}

// keepOnly forgets peers that are not in the configuration.
func (g *guardedTransport) keepOnly(servers []raft.Server) {
	member := make(map[raft.ServerID]bool, len(servers))
	for _, s := range servers {
		member[s.ID] = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.peers {
		if !member[id] {
			delete(g.peers, id)
		}
	}
}
