package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/jepsen/planted"
	"raftboard/node"
	wirepb "raftboard/transport/pb"
)

const (
	maxForwarded  = 4096 // commands of one peer that are being proposed here
	maxActorBytes = 1024 // of a command's actor: two names and some roles
)

// peerFace is the face for the other nodes. Only here a command may arrive with an actor:
// the node that sends it has resolved the credential.
type peerFace struct {
	wirepb.UnimplementedPeerServer
	service *service
	enlist  *enlistment
}

// member lets a call pass that comes from a node of this cluster, and answers the node below.
func (f *peerFace) member(ctx context.Context) (*node.Node, error) {
	n := f.service.node.Load()
	if n == nil {
		return nil, status.Error(codes.Unavailable, "this node does not belong to a cluster yet")
	}
	err := checkPeer(ctx, f.enlist.clusterID(), func(id string) bool {
		return id != f.service.self.Id && f.service.nodeByID(id) != nil // a node never asks itself
	})
	return n, err
}

// Fence answers the index that a follower's read has to reach (RAFT, the read fence).
func (f *peerFace) Fence(ctx context.Context, _ *wirepb.FenceRequest) (*wirepb.FenceResponse, error) {
	n, err := f.member(ctx)
	if err != nil {
		return nil, err
	}
	index, err := n.FenceIndex(ctx)
	if err != nil {
		return &wirepb.FenceResponse{Failure: resultOf(err)}, nil
	}
	return &wirepb.FenceResponse{Index: index}, nil
}

// Digest answers this node's digest after an entry, if it remembers it.
func (f *peerFace) Digest(ctx context.Context, request *wirepb.DigestRequest) (*wirepb.DigestResponse, error) {
	n, err := f.member(ctx)
	if err != nil {
		return nil, err
	}
	sum, known := n.DigestAt(request.Index)
	if !known {
		return &wirepb.DigestResponse{}, nil
	}
	return &wirepb.DigestResponse{Known: true, Digest: sum[:]}, nil
}

// NodeStatus answers this node's own row of `status`.
func (f *peerFace) NodeStatus(ctx context.Context, _ *wirepb.NodeStatusRequest) (*wirepb.NodeStatusResponse, error) {
	if _, err := f.member(ctx); err != nil {
		return nil, err
	}
	return &wirepb.NodeStatusResponse{State: f.service.ownState()}, nil
}

// Forward proposes what other nodes were asked. It never forwards further: who does not
// lead any more answers that nothing was done, and who might lead now.
func (f *peerFace) Forward(stream grpc.BidiStreamingServer[wirepb.ForwardRequest, wirepb.ForwardResponse]) error {
	n, err := f.member(stream.Context())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	p := &forwarded{service: f.service, node: n, answers: make(chan *wirepb.ForwardResponse, maxForwarded),
		calls: map[uint64]context.CancelFunc{}}
	defer p.running.Wait()
	defer cancel()
	requests, ended := make(chan *wirepb.ForwardRequest), make(chan error, 1)
	go func() {
		for {
			request, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case requests <- request:
			case <-ctx.Done():
				return
			}
		}
	}()
	return p.loop(ctx, stream, requests, ended)
}

// forwarded is the receiving end of one forwarding stream; its loop alone sends.
type forwarded struct {
	service *service
	node    *node.Node
	answers chan *wirepb.ForwardResponse // has room for the answer of every call
	calls   map[uint64]context.CancelFunc
	running sync.WaitGroup
}

func (p *forwarded) loop(ctx context.Context, stream grpc.BidiStreamingServer[wirepb.ForwardRequest, wirepb.ForwardResponse],
	requests <-chan *wirepb.ForwardRequest, ended <-chan error) error {
	over := p.service.finished
	for {
		select {
		case request := <-requests:
			if answer := p.take(ctx, request); answer != nil {
				if err := stream.Send(answer); err != nil {
					return err
				}
			}
		case answer := <-p.answers:
			p.calls[answer.Id]()
			delete(p.calls, answer.Id)
			planted.Point("forward-answer")
			if err := stream.Send(answer); err != nil {
				return err
			}
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-over:
			return nil
		}
	}
}

// take starts one command, or answers at once why it is not started.
func (p *forwarded) take(ctx context.Context, request *wirepb.ForwardRequest) *wirepb.ForwardResponse {
	if request.Cancel {
		if stop := p.calls[request.Id]; stop != nil {
			stop()
		}
		return nil
	}
	refused := checkForwarded(request.Command)
	switch {
	case refused != nil:
	case p.calls[request.Id] != nil:
		refused = badField("id", "the id of a forwarded command is in use", "")
	case len(p.calls) >= maxForwarded:
		refused = notDone("the leader has too many forwarded commands in flight", "wait and repeat")
	}
	if refused != nil {
		return &wirepb.ForwardResponse{Id: request.Id, Result: refused, Leader: p.service.leader()}
	}
	timeout := unavailableAfter
	if request.TimeoutMs > 0 {
		timeout = time.Duration(min(request.TimeoutMs, unavailableAfter.Milliseconds())) * time.Millisecond
	}
	call, cancel := context.WithTimeout(ctx, timeout)
	p.calls[request.Id] = cancel
	p.running.Go(func() { p.answers <- p.answer(call, request) })
	return nil
}

func (p *forwarded) answer(ctx context.Context, request *wirepb.ForwardRequest) (answer *wirepb.ForwardResponse) {
	answer = &wirepb.ForwardResponse{Id: request.Id}
	defer func() {
		if panicked := recover(); panicked != nil {
			answer.Result = p.service.panicked(panicked, debug.Stack())
		}
		answer.Leader = p.service.leader()
	}()
	answer.Result = fitResult(p.service.proposeHere(ctx, p.node, request.Command))
	return answer
}

// checkForwarded refuses what no node sends: a command without the actor that the first
// node resolved, or with one that no credential can give, or larger than one that a client
// may send and its actor. Receipts alone are a node's own.
func checkForwarded(c *boardpb.Command) *boardpb.Result {
	if r := checkFromOutside(c, maxRequestBytes+maxActorBytes); r != nil {
		return r
	}
	actor := c.GetActor()
	if c.GetReceipts() != nil && actor.GetPrincipal() == board.SystemActor().Principal && actor.ActingFor == "" {
		return nil // what another node showed its readers
	}
	if why := state.CheckName(actor.GetPrincipal()); why != "" {
		return badField("command.actor", "the forwarded command's principal "+why, "")
	}
	if actor.ActingFor != "" {
		if why := state.CheckName(actor.ActingFor); why != "" {
			return badField("command.actor", "whom the forwarded command's principal acts for: "+why, "")
		}
	}
	for _, role := range actor.Roles {
		if _, known := boardpb.Role_name[int32(role)]; !known || role == boardpb.Role_ROLE_UNSPECIFIED {
			return badField("command.actor", fmt.Sprintf("the forwarded command's actor has role %d, which is none", role), "")
		}
	}
	return nil
}
