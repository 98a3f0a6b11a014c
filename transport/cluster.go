package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/node"
	wirepb "raftboard/transport/pb"
)

const (
	clusterTimeout = 10 * time.Second // of an operator's call that names no deadline
	// lookForMajority is how long no leader is waited for before it is asked why there is none;
	// an election takes less.
	lookForMajority = 5 * time.Second
	snapshotChunk   = 256 << 10
)

// clusterFace is the gRPC face for operators.
type clusterFace struct {
	wirepb.UnimplementedClusterServer
	service *service
}

// operator resolves who calls and requires the operator role.
func (f clusterFace) operator(ctx context.Context) (*boardpb.Actor, error) {
	actor, refused := resolveActor(ctx, f.service.auth)
	if refused == nil && !state.HasRole(actor, boardpb.Role_ROLE_OPERATOR) {
		refused = refuse(boardpb.Code_CODE_FORBIDDEN, fmt.Sprintf("%s is not an operator", actor.Principal),
			"use a credential with the operator role")
	}
	if refused == nil {
		if err := f.service.notDraining(); err != nil {
			refused = err
		}
	}
	return actor, statusOf(refused, f.service.leader())
}

func (s *service) notDraining() *boardpb.Result {
	select {
	case <-s.draining:
		return notDone("this node is stopping", "repeat it at another node")
	default:
		return nil
	}
}

// onLeader runs an operator's act where it belongs: here if this node leads, else by asking
// the leader, one hop at most. What was not done is tried again while there is time, since
// an act may begin with handing the leadership over.
func (f clusterFace) onLeader(ctx context.Context, actor *boardpb.Actor,
	here func(context.Context, *node.Node) error, there func(context.Context, wirepb.ClusterClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	for began, looked := time.Now(), false; ; {
		err := f.once(ctx, actor, here, there)
		if r := resultFromError(err); r.GetCode() != boardpb.Code_CODE_UNAVAILABLE || r.Proposed != boardpb.Proposed_PROPOSED_NO {
			return err
		}
		if !looked && time.Since(began) >= lookForMajority {
			looked = true
			if lost := f.service.majorityLost(ctx); lost != nil {
				return statusOf(lost, nil)
			}
		}
		if !pause(ctx, waitForLeader) {
			return err
		}
	}
}

// majorityLost answers, when so few voters answer that there can be no leader, which ones have
// to come back and how; nil when enough do. It takes statusTimeout at most.
func (s *service) majorityLost(ctx context.Context) *boardpb.Result {
	answer := s.status(ctx, false)
	var missing []string
	reachable := 0
	for _, n := range answer.Nodes {
		switch {
		case n.Suffrage != "voter":
		case n.Role == "unreachable":
			missing = append(missing, fmt.Sprintf("%s (%s)", n.Name, n.GrpcAddr))
		default:
			reachable++
		}
	}
	need := int(answer.Voters)/2 + 1
	if answer.Voters == 0 || reachable >= need {
		return nil
	}
	return notDone(
		fmt.Sprintf("%d of the %d voters answer, and a change of the members needs %d: nothing was changed", reachable, answer.Voters, need),
		fmt.Sprintf("run `raftboard serve` again for %d of these, each on its own data directory: %s; then repeat this",
			need-reachable, strings.Join(missing, ", ")))
}

func (f clusterFace) once(ctx context.Context, actor *boardpb.Actor,
	here func(context.Context, *node.Node) error, there func(context.Context, wirepb.ClusterClient) error) error {
	s := f.service
	n := s.node.Load()
	if n == nil {
		return statusOf(s.noMember(), nil)
	}
	if n.IsLeader() {
		if err := here(ctx, n); err != nil {
			return statusOf(resultOf(err), s.leader())
		}
		return nil
	}
	leader, _ := n.Leader()
	md, _ := metadata.FromIncomingContext(ctx)
	switch {
	case leader == "" || leader == s.self.Id:
		return statusOf(notDone("no leader is known", "repeat it"), nil)
	case len(md.Get(hopHeader)) > 0:
		return statusOf(notDone("this node does not lead any more", "ask the leader"), s.leader())
	}
	conn, err := s.forward.links.conn(leader)
	if err != nil {
		return statusOf(notDone(err.Error(), "repeat it"), s.leader())
	}
	ctx = metadata.AppendToOutgoingContext(ctx, hopHeader, s.self.Id, AsHeader, actor.Principal)
	err = there(ctx, wirepb.NewClusterClient(conn))
	if err != nil && resultFromError(err) == nil {
		return statusOf(unknown(fmt.Sprintf("the leader, node %s, did not answer: %v", leader, status.Convert(err).Message())), s.leader())
	}
	return err
}

func (f clusterFace) Add(ctx context.Context, request *wirepb.AddRequest) (*wirepb.AddResponse, error) {
	actor, err := f.operator(ctx)
	if err != nil {
		return nil, err
	}
	answer := &wirepb.AddResponse{Message: fmt.Sprintf(
		"the name %s may be used again: start the node with an empty --data-dir and --join", request.Name)}
	err = f.onLeader(ctx, actor,
		func(ctx context.Context, n *node.Node) error { return n.Readmit(ctx, request.Name) },
		func(ctx context.Context, c wirepb.ClusterClient) (err error) {
			answer, err = c.Add(ctx, request)
			return err
		})
	return answer, err
}

func (f clusterFace) Remove(ctx context.Context, request *wirepb.RemoveRequest) (*wirepb.RemoveResponse, error) {
	actor, err := f.operator(ctx)
	if err != nil {
		return nil, err
	}
	answer := &wirepb.RemoveResponse{Message: fmt.Sprintf("node %s is removed; its data directory is of no more use", request.Id)}
	err = f.onLeader(ctx, actor,
		func(ctx context.Context, n *node.Node) error { return n.Remove(ctx, request.Id) },
		func(ctx context.Context, c wirepb.ClusterClient) (err error) {
			answer, err = c.Remove(ctx, request)
			return err
		})
	return answer, err
}

func (f clusterFace) Promote(ctx context.Context, request *wirepb.PromoteRequest) (*wirepb.PromoteResponse, error) {
	actor, err := f.operator(ctx)
	if err != nil {
		return nil, err
	}
	answer := &wirepb.PromoteResponse{Message: fmt.Sprintf("node %s has a vote", request.Id)}
	err = f.onLeader(ctx, actor,
		func(ctx context.Context, n *node.Node) error { return n.Promote(ctx, request.Id) },
		func(ctx context.Context, c wirepb.ClusterClient) (err error) {
			answer, err = c.Promote(ctx, request)
			return err
		})
	return answer, err
}

func (f clusterFace) Demote(ctx context.Context, request *wirepb.DemoteRequest) (*wirepb.DemoteResponse, error) {
	actor, err := f.operator(ctx)
	if err != nil {
		return nil, err
	}
	answer := &wirepb.DemoteResponse{Message: fmt.Sprintf("node %s has no vote any more; it still follows", request.Id)}
	err = f.onLeader(ctx, actor,
		func(ctx context.Context, n *node.Node) error { return n.Demote(ctx, request.Id) },
		func(ctx context.Context, c wirepb.ClusterClient) (err error) {
			answer, err = c.Demote(ctx, request)
			return err
		})
	return answer, err
}

// StepDown hands the leadership over. A transfer may fail; the answer is what happened.
func (f clusterFace) StepDown(ctx context.Context, request *wirepb.StepDownRequest) (*wirepb.StepDownResponse, error) {
	actor, err := f.operator(ctx)
	if err != nil {
		return nil, err
	}
	var answer *wirepb.StepDownResponse
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	err = f.once(ctx, actor,
		func(ctx context.Context, n *node.Node) error { return n.StepDown(ctx, request.To) },
		func(ctx context.Context, c wirepb.ClusterClient) (err error) {
			answer, err = c.StepDown(ctx, request)
			return err
		})
	if err == nil && answer == nil {
		answer = &wirepb.StepDownResponse{Leader: f.service.leader()}
	}
	return answer, err
}

// Settings reads the settings of the cluster, and changes those that are named.
func (f clusterFace) Settings(ctx context.Context, request *wirepb.SettingsRequest) (*wirepb.SettingsResponse, error) {
	actor, err := f.operator(ctx)
	if err != nil {
		return nil, err
	}
	s := f.service
	n := s.node.Load()
	if n == nil {
		return nil, statusOf(s.noMember(), nil)
	}
	if request.GraceMs != nil {
		answer := s.apply(ctx, actor, &wirepb.ApplyRequest{Command: &boardpb.Command{
			IdempotencyKey: request.IdempotencyKey,
			Op:             &boardpb.Command_ClusterSet{ClusterSet: &boardpb.ClusterSet{GraceMs: request.GraceMs}},
		}})
		if err := statusOf(answer.Result, answer.Leader); err != nil {
			return nil, err
		}
	}
	view, refused := s.view(ctx, n, node.Consistency{})
	if refused != nil {
		return nil, statusOf(refused, s.leader())
	}
	return &wirepb.SettingsResponse{GraceMs: view.Cluster().GraceMs, Level: view.Cluster().Level}, nil
}

// Snapshot takes a snapshot of this node's state and streams it. Any node can.
func (f clusterFace) Snapshot(_ *wirepb.SnapshotRequest, stream grpc.ServerStreamingServer[wirepb.SnapshotChunk]) error {
	ctx := stream.Context()
	if _, err := f.operator(ctx); err != nil {
		return err
	}
	n := f.service.node.Load()
	if n == nil {
		return statusOf(f.service.noMember(), nil)
	}
	data, index, term, err := n.Snapshot(ctx)
	if err != nil {
		return statusOf(resultOf(err), f.service.leader())
	}
	defer data.Close()
	buffer := make([]byte, snapshotChunk)
	for {
		size, err := io.ReadFull(data, buffer)
		if size > 0 {
			chunk := &wirepb.SnapshotChunk{Index: index, Term: term, Data: slices.Clone(buffer[:size])}
			if err := stream.Send(chunk); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return statusOf(refuse(boardpb.Code_CODE_INTERNAL, "the snapshot cannot be read: "+err.Error(), "take it at another node"), nil)
		}
	}
}
