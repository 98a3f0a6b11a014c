package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/planted"
	"raftboard/node"
	wirepb "raftboard/transport/pb"
)

// service is the one service layer: (context, actor, typed request) to Result. Every face
// (the session, the unary doubles, later HTTP and MCP) is a thin adapter over it and adds
// no rule of its own.
type service struct {
	self    *boardpb.Node
	auth    string
	exposed bool // auth is off and an address is not loopback
	dataDir string
	started time.Time
	limits  Limits
	logger  hclog.Logger
	book    *addressBook
	forward *forwarder

	identity func() (clusterID, clusterName string)
	waiting  func() string             // what a fresh node waits for
	node     atomic.Pointer[node.Node] // nil until this node belongs to a cluster

	inFlight, sessions, watchers, exports *gate
	looking                               looks
	receipts                              *receipts

	leaving  chan struct{} // closed when this node is no longer ready: it will stop
	draining chan struct{} // closed when nothing new is let in
	finished chan struct{} // closed when the time for finishing is over
}

// waitForLeader is the longest pause between two tries to find who leads.
const waitForLeader = 100 * time.Millisecond

// apply proposes one command for a caller and answers its Result, or that it was not done,
// or that this is not known. It waits for a leader and a majority at most unavailableAfter,
// and never longer than the context.
func (s *service) apply(ctx context.Context, actor *boardpb.Actor, request *wirepb.ApplyRequest) *wirepb.ApplyResponse {
	if refused := s.enter(); refused != nil {
		return s.applied(refused, nil)
	}
	defer s.inFlight.leave()
	c := request.GetCommand()
	if refused := checkFromClient(c); refused != nil {
		return s.applied(refused, nil)
	}
	c.Actor = actor
	if n := s.node.Load(); n == nil || !n.IsLeader() { // where it is proposed it is checked as well
		if refused := fsm.Check(c); refused != nil {
			return s.applied(refused, nil)
		}
	}
	r, leader := s.propose(ctx, c)
	answer := s.applied(r, leader)
	s.readResult(c, answer.Result)
	return answer
}

// enter lets a call in while the server is open and not overrun.
func (s *service) enter() *boardpb.Result {
	if refused := s.notDraining(); refused != nil {
		return refused
	}
	return s.inFlight.enter()
}

// checkFromClient refuses what only a server may put into a command.
func checkFromClient(c *boardpb.Command) *boardpb.Result {
	if c.GetActor() != nil {
		return badField("command.actor", "the command names an actor; only the server does, from the credential (C11)",
			"leave actor unset")
	}
	if c.GetReceipts() != nil {
		return ofTheNodes()
	}
	return checkFromOutside(c, maxRequestBytes)
}

func ofTheNodes() *boardpb.Result {
	return refuse(boardpb.Code_CODE_FORBIDDEN, "this command is proposed by the nodes themselves",
		"use the Cluster service (raftboard node …)")
}

// checkFromOutside refuses what nobody may send to a leader, be it a client or the node
// that a client asked.
func checkFromOutside(c *boardpb.Command, most int) *boardpb.Result {
	if c == nil {
		return badField("command", "the request holds no command", "send one command")
	}
	if c.Entropy != 0 {
		return badField("command.entropy", "the command brings its own entropy; the leader puts it in", "leave entropy unset")
	}
	switch c.Op.(type) {
	case *boardpb.Command_Lead, *boardpb.Command_Tick, *boardpb.Command_Level,
		*boardpb.Command_NodePut, *boardpb.Command_NodeDrop:
		return ofTheNodes()
	}
	if size := proto.Size(c); size > most {
		r := refuse(boardpb.Code_CODE_TOO_LARGE,
			fmt.Sprintf("the command has %d bytes; at most %d are taken", size, most), "send less in one command")
		r.Got, r.Limit, r.Field = uint64(size), uint64(most), "command"
		return r
	}
	return nil
}

// propose carries a command whose actor is resolved to whoever leads: here, or one hop
// away. A command that was not done is tried again, at the next leader if need be, while
// there is time: an election then costs its callers a pause and no error.
func (s *service) propose(ctx context.Context, c *boardpb.Command) (*boardpb.Result, *wirepb.Leader) {
	within := unavailableAfter
	if planted.Bug("M35") { // the bug: as long as it takes
		within = time.Hour
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		r, leader := s.proposeOnce(ctx, c)
		if r.Code != boardpb.Code_CODE_UNAVAILABLE || r.Proposed != boardpb.Proposed_PROPOSED_NO {
			return r, leader
		}
		// A try that the end of the call cuts short would turn this definite answer into "unknown".
		rest := pauseAfter(r)
		if until, _ := ctx.Deadline(); time.Until(until) < rest+waitForLeader || !pause(ctx, rest) {
			return r, leader
		}
	}
}

// pauseAfter is how long a command that was not done rests before it is tried again: as
// long as it takes to find a new leader, and longer when the answer asks for that, as a
// leader does that has too much to do.
func pauseAfter(r *boardpb.Result) time.Duration {
	d := waitForLeader/2 + rand.N(waitForLeader/2)
	if r.RetryAfterMs > retryAfterMs { // more than every answer of this kind says
		d += time.Duration(r.RetryAfterMs) * time.Millisecond
	}
	return d
}

func (s *service) proposeOnce(ctx context.Context, c *boardpb.Command) (*boardpb.Result, *wirepb.Leader) {
	n := s.node.Load()
	if n == nil {
		return s.noMember(), nil
	}
	if n.IsLeader() {
		return s.proposeHere(ctx, n, c), nil
	}
	leader, term := n.Leader()
	if leader == "" || leader == s.self.Id {
		return notDone("no leader is known: an election is under way, or this node cannot reach a majority",
			"repeat it, also at another node"), nil
	}
	return s.forward.forward(ctx, leader, term, c)
}

// noMember answers a call to a fresh node, with what it waits for.
func (s *service) noMember() *boardpb.Result {
	if cluster, _ := s.identity(); cluster != "" {
		return notDone("this node is starting: it restores its state from disk", "wait until it is ready, or ask another node")
	}
	message := "this node does not belong to a cluster yet"
	if waits := s.waiting(); waits != "" {
		message += ": " + waits
	}
	return notDone(message, "wait until it has joined, or ask another node")
}

func (s *service) proposeHere(ctx context.Context, n *node.Node, c *boardpb.Command) *boardpb.Result {
	r, err := n.Propose(ctx, c)
	if err != nil {
		return resultOf(err)
	}
	return r
}

// resultOf is the message for an error of the node below. Whatever is not known to be
// definite is unknown.
func resultOf(err error) *boardpb.Result {
	var refused *node.Refused
	if errors.As(err, &refused) {
		return refused.Result
	}
	var known interface {
		error
		Result() *boardpb.Result
	}
	if errors.As(err, &known) {
		r := known.Result()
		if r.RetryAfterMs == 0 && r.Code == boardpb.Code_CODE_UNAVAILABLE {
			r.RetryAfterMs = retryAfterMs
		}
		return r
	}
	return unknown(err.Error())
}

// pause waits, and says whether there is still time.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// applied wraps a Result, if it is not too large to send, with who answered and who leads.
func (s *service) applied(r *boardpb.Result, leader *wirepb.Leader) *wirepb.ApplyResponse {
	if leader == nil {
		leader = s.leader()
	}
	return &wirepb.ApplyResponse{Result: fitResult(r), Leader: leader, NodeId: s.self.Id}
}

// leader is the hint that every answer carries; nil when nobody is known to lead.
func (s *service) leader() *wirepb.Leader {
	n := s.node.Load()
	if n == nil {
		return nil
	}
	id, term := n.Leader()
	if id == "" {
		return nil
	}
	hint := &wirepb.Leader{NodeId: id, Term: term}
	if known := s.nodeByID(id); known != nil {
		hint.Name, hint.GrpcAddr = known.Name, known.GrpcAddr
	}
	return hint
}

// nodeByID answers what is known of a node: what it says of itself before what is recorded.
func (s *service) nodeByID(id string) *boardpb.Node {
	if id == s.self.Id {
		return s.self
	}
	if known := s.book.node(id); known != nil {
		return known
	}
	if n := s.node.Load(); n != nil {
		for _, recorded := range n.View().Cluster().Nodes {
			if recorded.Id == id {
				return recorded
			}
		}
	}
	return nil
}

// panicked answers a call whose handling panicked, and says where in the log.
func (s *service) panicked(p any, stack []byte) *boardpb.Result {
	s.logger.Error("a call panicked", "panic", p, "stack", string(stack))
	r := refuse(boardpb.Code_CODE_INTERNAL, "the call failed inside the server", "see the log of this node")
	r.Proposed = boardpb.Proposed_PROPOSED_UNKNOWN
	return r
}
