package fsm

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/jepsen/planted"
)

// lead opens a leadership. It carries no time: board time stands where the last leader
// left it, and from there every deadline gets the grace (DESIGN 7).
func (m *machine) lead(term uint64, c *boardpb.Command, o *boardpb.Lead) *boardpb.Result {
	if r := board.Permit(c); r != nil {
		return r
	}
	m.state.SetCluster(func(rec *boardpb.ClusterRecord) {
		rec.GraceUntilMs = rec.TMs + rec.GraceMs
		if planted.Bug("M27") {
			rec.GraceUntilMs = rec.TMs
		}
		rec.LeaderTerm, rec.LeaderId = term, o.NodeId
		rec.Leaderships = append(rec.Leaderships, &boardpb.Leadership{
			Term: term, NodeId: o.NodeId, TMs: rec.TMs, WallMs: rec.WallMs, Resumed: o.Resumed,
		})
		if n := len(rec.Leaderships); n > state.MaxLeaderships {
			rec.Leaderships = rec.Leaderships[n-state.MaxLeaderships:]
		}
	})
	return ok()
}

func ok() *boardpb.Result { return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK} }

// onCluster runs a command that belongs to no board. Those of clients may carry an
// idempotency key, remembered beside the cluster.
func (m *machine) onCluster(c *boardpb.Command) *boardpb.Result {
	s := m.state
	hash := m.bodyHash(c)
	if r := board.MayAct(c); r != nil {
		return r
	}
	if r := board.Check(c); r != nil {
		return r
	}
	x := s.BeginTxn(state.ClusterBoard, c)
	if r := board.Identity(x, hash); r != nil {
		x.Commit()
		return r
	}
	x.Commit()
	r := board.Permit(c)
	if r == nil {
		r = m.manage(c)
	}
	if board.Keeps(c, r) {
		x = s.BeginTxn(state.ClusterBoard, c)
		board.Remember(x, r, hash)
		x.Commit()
	}
	return r
}

// manage lists the language of the cluster: one line per operation.
func (m *machine) manage(c *boardpb.Command) *boardpb.Result {
	s := m.state
	switch o := c.Op.(type) {
	case *boardpb.Command_Tick:
		return ok() // it was time itself; the digest it carries is compared outside
	case *boardpb.Command_Level:
		return m.raiseLevel(o.Level.Level)
	case *boardpb.Command_NodePut:
		return m.putNode(o.NodePut.Node)
	case *boardpb.Command_NodeDrop:
		return m.dropNode(o.NodeDrop.Id)
	case *boardpb.Command_ClusterSet:
		return m.setCluster(o.ClusterSet)
	case *boardpb.Command_BoardCreate:
		return board.BoardCreate(s, c, o.BoardCreate)
	case *boardpb.Command_BoardSet:
		return board.BoardSet(s, c, o.BoardSet)
	case *boardpb.Command_BoardCompact:
		return board.BoardCompact(s, c, o.BoardCompact)
	case *boardpb.Command_BoardFork:
		return board.BoardFork(s, c, o.BoardFork)
	case *boardpb.Command_BoardClose:
		return board.BoardClose(s, c, o.BoardClose)
	case *boardpb.Command_BoardDelete:
		return board.BoardDelete(s, o.BoardDelete)
	}
	panic(fmt.Sprintf("fsm: no case for %T", c.Op))
}

func (m *machine) raiseLevel(level uint32) *boardpb.Result {
	if level > MaxLevel {
		// Only a leader whose every node reported the level proposes it.
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_ACTIVE, Got: uint64(level), Limit: MaxLevel}
	}
	m.state.SetCluster(func(rec *boardpb.ClusterRecord) { rec.Level = max(rec.Level, level) })
	return ok()
}

func (m *machine) setCluster(o *boardpb.ClusterSet) *boardpb.Result {
	m.state.SetCluster(func(rec *boardpb.ClusterRecord) {
		if o.GraceMs != nil {
			rec.GraceMs = *o.GraceMs
		}
	})
	return ok()
}

// putNode records a node, or its new addresses. A name belongs to one id, and a removed
// id never returns (RAFT P27).
func (m *machine) putNode(n *boardpb.Node) *boardpb.Result {
	if n.GetId() == "" || n.GetName() == "" {
		return &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Field: "node", Message: "node: an id and a name"}
	}
	for _, text := range []string{n.Id, n.Name, n.RaftAddr, n.GrpcAddr, n.Version} {
		if len(text) > state.MaxNodeText {
			return &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Field: "node", Got: uint64(len(text)), Limit: state.MaxNodeText,
				Message: fmt.Sprintf("node: a text of %d bytes, at most %d", len(text), state.MaxNodeText)}
		}
	}
	nodes := m.state.Cluster().Nodes
	for _, other := range nodes {
		switch {
		case other.Id == n.Id && other.Removed:
			return &boardpb.Result{Code: boardpb.Code_CODE_WRONG_STATE, Key: "node " + other.Id, Field: "removed",
				Message: fmt.Sprintf("node %s (%s) was removed; its data directory can't come back", other.Name, other.Id),
				Hint:    "move the directory away and join as a new node"}
		case other.Id != n.Id && other.Name == n.Name:
			return &boardpb.Result{Code: boardpb.Code_CODE_EXISTS, Field: "node " + n.Name, Holder: other.Id,
				Message: fmt.Sprintf("the name %s belongs to node %s", n.Name, other.Id),
				Hint:    "raftboard node remove " + other.Id}
		}
	}
	at, found := slices.BinarySearchFunc(nodes, n.Id, func(o *boardpb.Node, id string) int { return cmp.Compare(o.Id, id) })
	if !found && len(nodes) >= state.MaxNodes {
		return &boardpb.Result{Code: boardpb.Code_CODE_WRONG_STATE, Field: "full", Key: "cluster",
			Message: fmt.Sprintf("%d nodes are remembered, at most %d", len(nodes), state.MaxNodes), Hint: "forget removed ones: raftboard node add NAME"}
	}
	next := slices.Clone(nodes)
	if found {
		next[at] = n
	} else {
		next = slices.Insert(next, at, n)
	}
	m.state.SetCluster(func(rec *boardpb.ClusterRecord) { rec.Nodes = next })
	return ok()
}

// dropNode marks a node as removed: its name and id are refused from now on. Dropping it
// once more forgets it, which re-admits the name.
func (m *machine) dropNode(id string) *boardpb.Result {
	nodes := m.state.Cluster().Nodes
	at := slices.IndexFunc(nodes, func(n *boardpb.Node) bool { return n.Id == id })
	if at < 0 {
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Field: "node " + id}
	}
	next := slices.Clone(nodes)
	if nodes[at].Removed {
		next = slices.Delete(next, at, at+1)
	} else {
		next[at] = proto.CloneOf(nodes[at])
		next[at].Removed = true
	}
	m.state.SetCluster(func(rec *boardpb.ClusterRecord) { rec.Nodes = next })
	return ok()
}
