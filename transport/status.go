package transport

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/status"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// statusTimeout bounds how long status waits for another node.
const statusTimeout = time.Second

// Status is the cluster as seen from here: the record, and every node's word on itself. A
// node that does not answer in time is shown as unreachable; status itself never fails for
// lack of a leader.
func (f clusterFace) Status(ctx context.Context, request *wirepb.StatusRequest) (*wirepb.StatusResponse, error) {
	if _, refused := resolveActor(ctx, f.service.auth); refused != nil {
		return nil, statusOf(refused, f.service.leader())
	}
	return f.service.status(ctx, request.Local), nil
}

// Nodes is the list of members with their states.
func (f clusterFace) Nodes(ctx context.Context, _ *wirepb.NodesRequest) (*wirepb.NodesResponse, error) {
	if _, refused := resolveActor(ctx, f.service.auth); refused != nil {
		return nil, statusOf(refused, f.service.leader())
	}
	return &wirepb.NodesResponse{Nodes: f.service.status(ctx, false).Nodes}, nil
}

// Members is how clients keep up with the nodes: what this node's own state says, at once.
func (f clusterFace) Members(ctx context.Context, _ *wirepb.MembersRequest) (*wirepb.MembersResponse, error) {
	if _, refused := resolveActor(ctx, f.service.auth); refused != nil {
		return nil, statusOf(refused, f.service.leader())
	}
	return f.service.members(), nil
}

func (s *service) members() *wirepb.MembersResponse {
	answer := &wirepb.MembersResponse{NodeId: s.self.Id, Leader: s.leader()}
	answer.ClusterId, _ = s.identity()
	n := s.node.Load()
	if n == nil {
		return answer
	}
	view := n.View()
	answer.Applied = view.Applied()
	for _, known := range view.Cluster().Nodes { // the record alone: what applied orders
		if !known.Removed {
			answer.Members = append(answer.Members, known)
		}
	}
	return answer
}

func (s *service) status(ctx context.Context, local bool) *wirepb.StatusResponse {
	answer := &wirepb.StatusResponse{NodeId: s.self.Id, Leader: s.leader(), Health: "no leader"}
	answer.ClusterId, answer.ClusterName = s.identity()
	if s.exposed {
		answer.Warnings = append(answer.Warnings,
			"authentication is off and this node listens on the network: whoever reaches it may state any name")
	}
	n := s.node.Load()
	if n == nil {
		answer.Nodes = []*wirepb.NodeState{s.ownState()}
		answer.Warnings = append(answer.Warnings, s.noMember().Message)
		return answer
	}
	view := n.View()
	answer.Cluster, answer.Boards = view.Cluster(), boardRows(view)
	own := n.Status()
	if local {
		answer.Nodes = []*wirepb.NodeState{s.ownState()}
	} else {
		answer.Nodes = s.askStates(ctx, append(slices.Clone(own.Voters), own.Nonvoters...))
	}
	for _, state := range answer.Nodes { // suffrage as this node knows it
		if slices.Contains(own.Nonvoters, state.Id) {
			state.Suffrage = "nonvoter"
		} else if slices.Contains(own.Voters, state.Id) {
			state.Suffrage = "voter"
		}
	}
	s.judge(answer, len(own.Voters), local)
	return answer
}

// judge says how the cluster is, in words.
func (s *service) judge(answer *wirepb.StatusResponse, voters int, local bool) {
	answer.Voters = uint32(voters)
	reachable, troubled := 0, 0
	for _, n := range answer.Nodes {
		if n.Suffrage == "voter" && n.Role != "unreachable" {
			reachable++
		}
		if !n.Ready {
			troubled++
		}
	}
	if !local {
		answer.CanLose = uint32(max(0, reachable-(voters/2+1)))
	}
	switch {
	case answer.Leader == nil:
		answer.Health = "no leader"
	case troubled > 0:
		answer.Health = "degraded"
	default:
		answer.Health = "healthy"
	}
}

// askStates asks every member at once for its own state.
func (s *service) askStates(ctx context.Context, ids []string) []*wirepb.NodeState {
	if !slices.Contains(ids, s.self.Id) {
		ids = append(ids, s.self.Id)
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	states := make([]*wirepb.NodeState, len(ids))
	var asking sync.WaitGroup
	for i, id := range ids {
		if id == s.self.Id {
			states[i] = s.ownState()
			continue
		}
		asking.Go(func() { states[i] = s.askState(ctx, id) })
	}
	asking.Wait()
	slices.SortFunc(states, func(a, b *wirepb.NodeState) int { return strings.Compare(a.Name, b.Name) })
	return states
}

func (s *service) askState(ctx context.Context, id string) *wirepb.NodeState {
	known := s.nodeByID(id)
	unreachable := &wirepb.NodeState{Id: id, Name: known.GetName(), RaftAddr: known.GetRaftAddr(), GrpcAddr: known.GetGrpcAddr(),
		Version: known.GetVersion(), Role: "unreachable", LastContactMs: -1, OldestLogMs: -1, LastRestoreMs: -1}
	peer, err := s.forward.links.to(id)
	if err == nil {
		var answer *wirepb.NodeStatusResponse
		if answer, err = peer.NodeStatus(s.forward.links.sign(ctx), &wirepb.NodeStatusRequest{}); err == nil {
			return answer.State
		}
	}
	unreachable.Note = clip(status.Convert(err).Message(), 256)
	return unreachable
}

// ownState is this node's row.
func (s *service) ownState() *wirepb.NodeState {
	state := &wirepb.NodeState{
		Id: s.self.Id, Name: s.self.Name, RaftAddr: s.self.RaftAddr, GrpcAddr: s.self.GrpcAddr, Version: s.self.Version,
		Role: "follower", Suffrage: "none", LastContactMs: -1, OldestLogMs: -1, LastRestoreMs: -1,
		UptimeMs:         time.Since(s.started).Milliseconds(),
		Watchers:         uint64(s.watchers.inside.Load()),
		Sessions:         uint64(s.sessions.inside.Load()),
		LogBytes:         dirBytes(filepath.Join(s.dataDir, "raft")),
		DiskFreeBytes:    diskFree(s.dataDir),
		AdmissionRefused: s.watchers.refused.Load() + s.sessions.refused.Load() + s.inFlight.refused.Load(),
	}
	if err := s.ready(); err != nil {
		state.Note = err.Error()
	} else {
		state.Ready = true
	}
	n := s.node.Load()
	if n == nil {
		return state
	}
	own, view := n.Status(), n.View()
	state.Role, state.Suffrage = own.Role, own.Suffrage
	state.Term, state.Applied, state.Commit = own.Term, own.Applied, own.Commit
	state.LastLog, state.FirstLog, state.SnapshotIndex = own.LastLog, own.FirstLog, own.SnapshotIndex
	if own.LastContact >= 0 {
		state.LastContactMs = own.LastContact.Milliseconds()
	}
	if own.OldestLog >= 0 {
		state.OldestLogMs = own.OldestLog.Milliseconds()
	}
	if own.LastRestore >= 0 {
		state.LastRestoreMs = own.LastRestore.Milliseconds()
	}
	state.SlowestStoreMs, state.SnapshotsSent = own.SlowestStore.Milliseconds(), own.SnapshotsSent
	digest := view.Digest()
	state.Digest, state.DigestIndex = digest[:], view.Applied()
	state.StateBytes = view.StateBytes()
	state.LeaderChanges = leaderChanges(view.Cluster())
	return state
}

// leaderChanges counts the elections among the leaderships the record remembers.
func leaderChanges(c *boardpb.ClusterRecord) (changes uint64) {
	for _, l := range c.Leaderships {
		if !l.Resumed {
			changes++
		}
	}
	return changes
}

// dirBytes sums the sizes of the files below a directory; what cannot be read counts nothing.
func dirBytes(dir string) (bytes uint64) {
	filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			bytes += uint64(info.Size())
		}
		return nil
	})
	return bytes
}

func diskFree(dir string) uint64 {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0
	}
	return fs.Bavail * uint64(fs.Bsize)
}
