package node

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
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
	contactForgets  = 64 // peers remembered at most
	contactFresh    = 3  // heartbeat timeouts without an answer until a peer counts as away
	caughtUpEntries = 64 // a non-voter this close to the leader's log is caught up
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

// guardedTransport takes the heartbeat fast path away and notes who answers.
type guardedTransport struct {
	Transport
	mono func() time.Duration

	mu    sync.Mutex
	peers map[raft.ServerID]contact
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
	return &guardedTransport{Transport: tr, mono: mono, peers: map[raft.ServerID]contact{}}
}

// SetHeartbeatHandler ignores the handler: heartbeats then go through raft's main goroutine
// like any other request, so a deposed leader cannot take a new term while it still writes
// (RAFT P1, hashicorp/raft#695).
func (g *guardedTransport) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntries notes answers. They say who is alive and how far its log reaches; they never
// decide whether this node still leads (RAFT P2).
func (g *guardedTransport) AppendEntries(id raft.ServerID, to raft.ServerAddress,
	req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := g.Transport.AppendEntries(id, to, req, resp)
	if err != nil || resp.Term != req.Term {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.peers[id]; known || len(g.peers) < contactForgets {
		g.peers[id] = contact{at: g.mono(), lastLog: resp.LastLog}
	}
	return nil
}

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
