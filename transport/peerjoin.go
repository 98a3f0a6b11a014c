package transport

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/node"
	wirepb "raftboard/transport/pb"
)

// hopHeader marks a call that one node passed on to another: it is never passed on again
// (RAFT P33).
const hopHeader = "raftboard-hop"

// Hello tells who this node is, what it belongs to and whom it knows. It is how fresh nodes
// find each other and how members learn of new addresses (RAFT P27).
func (f *peerFace) Hello(ctx context.Context, request *wirepb.HelloRequest) (*wirepb.HelloResponse, error) {
	if err := grpc.SetHeader(ctx, metadata.Pairs(processHdr, f.enlist.process)); err != nil {
		return nil, err
	}
	return f.enlist.answerHello(ctx, f.service, request), nil
}

func (e *enlistment) answerHello(ctx context.Context, s *service, request *wirepb.HelloRequest) *wirepb.HelloResponse {
	ours, caller := e.clusterID(), request.GetNode()
	_, intent, err := e.dir.Intent()
	answer := &wirepb.HelloResponse{ClusterId: ours, Node: e.self, Timing: timingOf(e.cfg.Timing),
		Fresh: ours == "", HasIntent: err == nil && intent}
	switch {
	case caller.GetId() == "" || caller.GetName() == "":
		answer.Refused = "a hello needs the id and the name of who calls"
	case request.To != "" && request.To != e.self.Id:
		answer.Refused = fmt.Sprintf("this is node %s (%s), not %s", e.self.Id, e.self.Name, clip(request.To, 64))
	case request.ClusterId != "" && ours != "" && request.ClusterId != ours:
		answer.Refused = fmt.Sprintf("this node belongs to cluster %s, not %s", ours, clip(request.ClusterId, 64))
	case caller.Name == e.self.Name && caller.Id != e.self.Id:
		answer.Refused = fmt.Sprintf("the name %s is held by node %s; if that is gone for good, run `raftboard node remove %s`",
			e.self.Name, e.self.Id, e.self.Id)
	}
	if answer.Refused != "" {
		return answer
	}
	if ours != "" {
		if live := e.rival(ctx, caller); live != nil { // named to the caller, who may have to stop
			answer.Refused, answer.Nodes = rivalAt(live.GrpcAddr)+": "+rivalHint, []*boardpb.Node{live}
			return answer
		}
	}
	switch {
	case caller.Id == e.self.Id: // --join may list this node too
	case ours == "" && request.ClusterId == "":
		if sameTiming(request.Timing, e.cfg.Timing) {
			e.sight(caller, request.Seen)
		}
	case ours != "" && request.ClusterId == ours && s.nodeByID(caller.Id) != nil:
		e.book.learn(caller)
	}
	answer.Seen, answer.Leader = e.seenIDs(), s.leader()
	if request.ClusterId == ours {
		answer.Nodes = e.book.all()
	}
	return answer
}

// Intent asks a fresh node to accept, durably and once, what the new cluster will be.
func (f *peerFace) Intent(_ context.Context, request *wirepb.IntentRequest) (*wirepb.IntentResponse, error) {
	e := f.enlist
	refused := func(why string) (*wirepb.IntentResponse, error) {
		return &wirepb.IntentResponse{ClusterId: e.clusterID(), Why: why}, nil
	}
	if e.cfg.BootstrapExpect != len(request.Members) {
		return refused(fmt.Sprintf("this node expects %d founding nodes, not %d", e.cfg.BootstrapExpect, len(request.Members)))
	}
	in := node.NewIntent(request.ClusterId, request.ClusterName, request.Members)
	if e.cfg.ClusterName != "" && in.ClusterName != e.cfg.ClusterName {
		return refused(fmt.Sprintf("this node is to belong to cluster %q", e.cfg.ClusterName))
	}
	if err := e.dir.AcceptIntent(in); err != nil {
		return refused(err.Error())
	}
	for _, n := range request.Members {
		e.book.learn(n)
	}
	if err := e.dir.SetCluster(in.ClusterID, in.ClusterName); err != nil {
		return refused(err.Error())
	}
	e.done()
	return &wirepb.IntentResponse{Accepted: true, ClusterId: in.ClusterID}, nil
}

// Join lets a node in, or takes down the present addresses of one that is in. The leader
// does it; another node passes the call on once.
func (f *peerFace) Join(ctx context.Context, request *wirepb.JoinRequest) (*wirepb.JoinResponse, error) {
	s := f.service
	n := s.node.Load()
	if n == nil {
		return nil, statusOf(s.noMember(), nil)
	}
	if refused := f.checkJoin(request); refused != nil {
		return nil, statusOf(refused, s.leader())
	}
	if live := f.enlist.rival(ctx, request.Node); live != nil {
		return nil, statusOf(refuse(boardpb.Code_CODE_EXISTS, rivalAt(live.GrpcAddr), rivalHint), s.leader())
	}
	if !n.IsLeader() {
		return f.passJoinOn(ctx, n, request)
	}
	if err := n.AddNode(ctx, request.Node, request.Nonvoter); err != nil {
		return nil, statusOf(resultOf(err), s.leader())
	}
	f.enlist.book.learn(request.Node)
	identity := f.enlist.dir.Identity()
	return &wirepb.JoinResponse{ClusterId: identity.ClusterID, ClusterName: identity.ClusterName,
		Nodes: append(f.enlist.book.all(), f.enlist.self)}, nil
}

func (f *peerFace) checkJoin(request *wirepb.JoinRequest) *boardpb.Result {
	e := f.enlist
	ours := e.dir.Identity()
	switch {
	case request.GetNode().GetId() == "" || request.GetNode().GetName() == "":
		return badField("node", "a node that joins needs an id and a name", "")
	case request.Node.RaftAddr == "" || request.Node.GrpcAddr == "":
		return badField("node", "a node that joins must say where it is reached", "set --advertise")
	case request.ClusterId != "" && request.ClusterId != ours.ClusterID:
		return refuse(boardpb.Code_CODE_WRONG_STATE,
			fmt.Sprintf("this is cluster %s, node %s belongs to cluster %s", ours.ClusterID, request.Node.Name, clip(request.ClusterId, 64)),
			"join that cluster's nodes, or start it with an empty --data-dir to become a new member here")
	case !sameTiming(request.Timing, e.cfg.Timing):
		t := e.cfg.Timing
		return refuse(boardpb.Code_CODE_WRONG_STATE,
			fmt.Sprintf("this cluster runs with heartbeat %v, election %v, lease %v, and node %s with %v", t.Heartbeat, t.Election,
				t.Lease, request.Node.Name, request.Timing),
			"start it with the same timing: it must be equal on every node")
	}
	return nil
}

// passJoinOn asks the leader, unless another node has passed the call on already.
func (f *peerFace) passJoinOn(ctx context.Context, n *node.Node, request *wirepb.JoinRequest) (*wirepb.JoinResponse, error) {
	s := f.service
	leader, _ := n.Leader()
	if md, _ := metadata.FromIncomingContext(ctx); len(md.Get(hopHeader)) > 0 || leader == "" || leader == s.self.Id {
		return nil, statusOf(notDone("no leader is known that could let a node in", "repeat it"), s.leader())
	}
	peer, err := s.forward.links.to(leader)
	if err != nil {
		return nil, statusOf(notDone(err.Error(), "repeat it"), s.leader())
	}
	return peer.Join(metadata.AppendToOutgoingContext(ctx, hopHeader, s.self.Id), request)
}

// admit answers a connection to the Raft port (RAFT P26): only members of this cluster that
// were not removed are let through, and of two processes with one id the one that is known.
func (e *enlistment) admit(ctx context.Context, n func() *node.Node) func(*wirepb.HelloRequest) *wirepb.HelloResponse {
	return func(request *wirepb.HelloRequest) *wirepb.HelloResponse {
		ours, caller := e.clusterID(), request.GetNode()
		answer := &wirepb.HelloResponse{ClusterId: ours, Node: e.self}
		switch {
		case request.ClusterId != ours:
			answer.Refused = fmt.Sprintf("this node belongs to cluster %s, not %s", ours, clip(request.ClusterId, 64))
		case request.To != e.self.Id:
			answer.Refused = fmt.Sprintf("this is node %s (%s), not %s", e.self.Id, e.self.Name, clip(request.To, 64))
		case caller.GetId() == "" || caller.Id == e.self.Id:
			answer.Refused = "the caller gives no id of its own"
		case n() != nil && n().Removed(caller.Id):
			answer.Refused = fmt.Sprintf("node %s was removed from this cluster; start it with an empty --data-dir to join as a new member",
				clip(caller.Id, 64))
		}
		if answer.Refused == "" {
			ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
			defer cancel()
			if live := e.rival(ctx, caller); live != nil {
				answer.Refused = rivalAt(live.GrpcAddr)
			}
		}
		return answer
	}
}

// announce makes this node's present addresses known after a start, and learns those of
// the others: a Hello to all of --join and the book, and one Join, which for a member only
// updates its record. It ends when the record is right, or with an error when the cluster
// says that this node was removed from it: nobody will ever call it again.
func (e *enlistment) announce(ctx context.Context, n *node.Node) error {
	defer e.hangUp(false)
	for {
		addrs := e.targets(ctx)
		for _, known := range e.book.all() {
			if known.Id != e.self.Id && known.GrpcAddr != "" {
				addrs = append(addrs, known.GrpcAddr)
			}
		}
		answers, _ := e.greetAll(ctx, addrs) // a member that runs does not end for a rival: it was here first
		for _, a := range answers {
			e.takeDown(a)
		}
		if e.recorded(n) && n.Ready() == nil {
			return nil
		}
		for _, a := range answers {
			if a.hello.ClusterId != e.clusterID() || n.IsLeader() { // a leader sees to its own record
				continue
			}
			err := e.updateRecord(ctx, a)
			if err == nil {
				break
			}
			if r := resultFromError(err); r.GetCode() == boardpb.Code_CODE_FORBIDDEN {
				return &node.DirError{Dir: e.dir.Path(), What: r.Message, Hint: r.Hint, Cause: err}
			}
			e.logger.Debug("the record of this node is not updated yet", "via", a.addr, "error", err)
		}
		if !pause(ctx, discoverEvery*3) {
			return nil
		}
	}
}

func (e *enlistment) updateRecord(ctx context.Context, via helloAnswer) error {
	peer, err := e.peer(via.addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	_, err = peer.Join(ctx, &wirepb.JoinRequest{ClusterId: e.clusterID(), Node: e.self, Timing: timingOf(e.cfg.Timing)})
	return err
}

// recorded says whether the cluster's record of this node is what it is.
func (e *enlistment) recorded(n *node.Node) bool {
	for _, r := range n.View().Cluster().Nodes {
		if r.Id == e.self.Id {
			return sameNode(r, e.self) && r.Version == e.self.Version && r.MaxLevel == e.self.MaxLevel
		}
	}
	return false
}

// followRecord keeps the address book in step with the cluster record until ctx ends. What
// a node says of itself is newer than a record that is being replayed, so only a record
// that changes while this node is up to date overrules the book.
func (e *enlistment) followRecord(ctx context.Context, n *node.Node) {
	last := map[string]*boardpb.Node{}
	for {
		changed := n.Changed()
		for _, r := range n.View().Cluster().Nodes {
			before := last[r.Id]
			last[r.Id] = r
			switch {
			case r.Id == e.self.Id || proto.Equal(before, r):
			case r.Removed:
				e.book.forget(r.Id)
			case before == nil || n.Ready() != nil:
				e.book.hearsay(r)
			default:
				e.book.learn(r)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
