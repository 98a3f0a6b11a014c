package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
)

// Refused is an answer to a change of the membership that would not be right to make, with
// the reason and the way on. It travels like any refusal.
type Refused struct{ Result *boardpb.Result }

func (e *Refused) Error() string { return e.Result.GetMessage() }

func refuse(code boardpb.Code, hint, format string, args ...any) error {
	return &Refused{Result: &boardpb.Result{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint}}
}

// servers is raft's latest configuration.
func (n *Node) servers() []raft.Server {
	f := n.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	return f.Configuration().Servers
}

func serverOf(servers []raft.Server, id string) (raft.Server, bool) {
	for _, s := range servers {
		if string(s.ID) == id {
			return s, true
		}
	}
	return raft.Server{}, false
}

// Self is what this node says of itself.
func (n *Node) Self() *boardpb.Node {
	return &boardpb.Node{Id: n.cfg.ID, Name: n.cfg.Name, RaftAddr: n.cfg.RaftAddr, GrpcAddr: n.cfg.GRPCAddr,
		Version: n.cfg.Version, MaxLevel: fsm.MaxLevel}
}

// Removed tells whether a node was removed from the cluster: it must not be admitted again.
func (n *Node) Removed(id string) bool { return recordOf(n.fsm.View().Cluster(), id).GetRemoved() }

// AddNode takes a new node in, on the leader. It starts as a non-voter and becomes a voter
// when it has caught up, unless nonvoter says that it is to stay one. Repeating it is fine.
func (n *Node) AddNode(ctx context.Context, node *boardpb.Node, nonvoter bool) error {
	if err := n.mayPropose(); err != nil {
		return err
	}
	if node.GetId() == "" || !nodeName.MatchString(node.GetName()) {
		return refuse(boardpb.Code_CODE_BAD_REQUEST, "", "a node needs an id and a name of a-z 0-9 . _ -, not %q", node.GetName())
	}
	if err := n.admits(node); err != nil {
		return err
	}
	node = proto.CloneOf(node)
	node.Nonvoter = nonvoter
	if _, ok := serverOf(n.servers(), node.Id); !ok {
		id := raft.ServerID(node.Id)
		if err := n.configure(ctx, n.raft.AddNonvoter(id, raft.ServerAddress(node.Id), 0, left(ctx))); err != nil {
			return err
		}
	} else if rec := recordOf(n.fsm.View().Cluster(), node.Id); rec != nil {
		node.Nonvoter = rec.Nonvoter
	}
	return n.putNode(ctx, node)
}

// UpdateNode records a member's present name, addresses and binary, on the leader.
func (n *Node) UpdateNode(ctx context.Context, node *boardpb.Node) error {
	if err := n.mayPropose(); err != nil {
		return err
	}
	rec := recordOf(n.fsm.View().Cluster(), node.GetId())
	if rec == nil {
		return refuse(boardpb.Code_CODE_NOT_FOUND, "", "node %s is not a member", node.GetId())
	}
	if err := n.admits(node); err != nil {
		return err
	}
	node = proto.CloneOf(node)
	node.Nonvoter = rec.Nonvoter
	return n.putNode(ctx, node)
}

// admits refuses removed ids, names that another node holds, and binaries that are too old.
func (n *Node) admits(node *boardpb.Node) error {
	cluster := n.fsm.View().Cluster()
	if node.MaxLevel < cluster.GetLevel() {
		return refuse(boardpb.Code_CODE_NOT_ACTIVE, "start it with a newer binary",
			"the cluster is at feature level %d, node %s knows %d", cluster.GetLevel(), node.Name, node.MaxLevel)
	}
	for _, rec := range cluster.GetNodes() {
		switch {
		case rec.Id == node.Id && rec.Removed:
			return refuse(boardpb.Code_CODE_FORBIDDEN,
				"start it with an empty --data-dir: it gets a new id and joins as a new member",
				"node %s (%s) was removed from this cluster", node.Name, node.Id)
		case rec.Id != node.Id && rec.Name == node.Name && rec.Removed:
			return refuse(boardpb.Code_CODE_FORBIDDEN, "run `raftboard node add "+node.Name+"` if the name is to be used again",
				"the name %s belonged to a node that was removed", node.Name)
		case rec.Id != node.Id && rec.Name == node.Name:
			return refuse(boardpb.Code_CODE_EXISTS,
				"run `raftboard node remove "+rec.Id+"` if that node is gone, or choose another --node-name",
				"the name %s is held by node %s", node.Name, rec.Id)
		}
	}
	return nil
}

// putNode writes a record, if it says anything new.
func (n *Node) putNode(ctx context.Context, node *boardpb.Node) error {
	if proto.Equal(recordOf(n.fsm.View().Cluster(), node.Id), node) {
		return nil
	}
	return n.internal(ctx, &boardpb.Command{Op: &boardpb.Command_NodePut{NodePut: &boardpb.NodePut{Node: node}}})
}

// dropNode marks a node as removed, and forgets it when it is marked already. The key keeps a
// repeat from doing the second when the first was meant.
func (n *Node) dropNode(ctx context.Context, act, id string) error {
	return n.internal(ctx, &boardpb.Command{IdempotencyKey: act + id,
		Op: &boardpb.Command_NodeDrop{NodeDrop: &boardpb.NodeDrop{Id: id}}})
}

// Readmit lets a removed name be used again, by a node with a new id.
func (n *Node) Readmit(ctx context.Context, name string) error {
	if err := n.mayPropose(); err != nil {
		return err
	}
	for _, rec := range n.fsm.View().Cluster().GetNodes() {
		if rec.Name != name {
			continue
		}
		if !rec.Removed {
			return refuse(boardpb.Code_CODE_EXISTS, "", "node %s is a member already", name)
		}
		return n.dropNode(ctx, "readmit-", rec.Id)
	}
	return refuse(boardpb.Code_CODE_NOT_FOUND, "a new name needs no readmission: start the node with --join",
		"no node named %s was removed", name)
}

// member finds a node by id or name.
func (n *Node) member(idOrName string) (*boardpb.Node, raft.Server, error) {
	servers := n.servers()
	for _, rec := range n.fsm.View().Cluster().GetNodes() {
		if rec.Removed || rec.Id != idOrName && rec.Name != idOrName {
			continue
		}
		if s, ok := serverOf(servers, rec.Id); ok {
			return proto.CloneOf(rec), s, nil
		}
	}
	if s, ok := serverOf(servers, idOrName); ok {
		return &boardpb.Node{Id: idOrName}, s, nil
	}
	return nil, raft.Server{}, refuse(boardpb.Code_CODE_NOT_FOUND, "see `raftboard node list`", "no member has the id or name %q", idOrName)
}

// Promote makes a non-voter a voter, once it has caught up.
func (n *Node) Promote(ctx context.Context, idOrName string) error {
	if err := n.mayPropose(); err != nil {
		return err
	}
	rec, s, err := n.member(idOrName)
	if err != nil || s.Suffrage == raft.Voter {
		return err
	}
	if !n.alive(s.ID) || !n.caughtUp(s.ID) {
		return refuse(boardpb.Code_CODE_WRONG_STATE, "wait until `raftboard node list` shows it near the leader's log",
			"node %s has not caught up", rec.Name)
	}
	if err := n.configure(ctx, n.raft.AddVoter(s.ID, s.Address, 0, left(ctx))); err != nil {
		return err
	}
	rec.Nonvoter = false
	return n.putNode(ctx, rec)
}

// Demote makes a voter a non-voter that stays one.
func (n *Node) Demote(ctx context.Context, idOrName string) error {
	if err := n.mayPropose(); err != nil {
		return err
	}
	rec, s, err := n.member(idOrName)
	if err != nil || s.Suffrage != raft.Voter {
		return err
	}
	if err := n.mayLose(rec, s.ID, "demote"); err != nil {
		return err
	}
	if rec.Id == n.cfg.ID {
		return n.handOver(ctx)
	}
	rec.Nonvoter = true // first, or housekeeping would promote it again
	if err := n.putNode(ctx, rec); err != nil {
		return err
	}
	return n.configure(ctx, n.raft.DemoteVoter(s.ID, 0, left(ctx)))
}

// Remove takes a node out. The record comes first: the node hears of it while it is still a
// member, and a new leader finishes what this one began. A leader hands over before it is
// removed (RAFT P25): the answer is then *NotDone and names whom to ask.
func (n *Node) Remove(ctx context.Context, idOrName string) error {
	if err := n.mayPropose(); err != nil {
		return err
	}
	rec, s, err := n.member(idOrName)
	if err != nil {
		return err
	}
	if s.Suffrage == raft.Voter {
		if err := n.mayLose(rec, s.ID, "remove"); err != nil {
			return err
		}
	}
	if rec.Id == n.cfg.ID {
		return n.handOver(ctx)
	}
	if now := recordOf(n.fsm.View().Cluster(), rec.Id); now != nil && !now.Removed {
		if err := n.dropNode(ctx, "remove-", rec.Id); err != nil {
			return err
		}
	}
	if _, still := serverOf(n.servers(), rec.Id); !still {
		return nil // housekeeping was faster
	}
	return n.configure(ctx, n.raft.RemoveServer(s.ID, 0, left(ctx)))
}

// handOver moves the leadership away and says who has to be asked for the rest.
func (n *Node) handOver(ctx context.Context) error {
	if err := n.StepDown(ctx, ""); err != nil {
		return err
	}
	e := n.notLeading()
	e.Why = "the leader handed its leadership over first; ask the new leader"
	return e
}

// StepDown hands the leadership over, to a given node (id or name) or to whoever is most up to
// date. A transfer may simply fail: the answer is what happened (RAFT P5).
func (n *Node) StepDown(ctx context.Context, to string) error {
	if n.raft.State() != raft.Leader {
		return n.notLeading()
	}
	transfer := func() raft.Future { return n.raft.LeadershipTransfer() }
	if to != "" {
		rec, s, err := n.member(to)
		switch {
		case err != nil:
			return err
		case rec.Id == n.cfg.ID:
			return nil
		case s.Suffrage != raft.Voter || !n.alive(s.ID):
			return refuse(boardpb.Code_CODE_WRONG_STATE, "", "node %s cannot lead: it is not a voter that answers", rec.Name)
		}
		transfer = func() raft.Future { return n.raft.LeadershipTransferToServer(s.ID, s.Address) }
	}
	ctx, cancel := context.WithTimeout(ctx, dutyTimeout)
	defer cancel()
	if err := n.await(ctx, transfer()); err != nil {
		return &NotDone{Why: "the leadership was not handed over: " + err.Error(), Cause: err}
	}
	for { // the transfer has told the other; its election takes a moment
		if id, _ := n.Leader(); n.raft.State() != raft.Leader && id != "" && id != n.cfg.ID {
			return nil
		}
		select {
		case <-time.After(readRetry):
		case <-ctx.Done():
			return &NotDone{Why: "the leadership was offered and not taken in time", Cause: ctx.Err()}
		case <-n.stop:
			return &NotDone{Why: "this node is stopping"}
		}
	}
}

// alive tells whether a peer answered lately. Only a leader knows.
func (n *Node) alive(id raft.ServerID) bool {
	if string(id) == n.cfg.ID {
		return true
	}
	c, ok := n.transport.contact(id)
	return ok && n.clock.source.Mono()-c.at <= contactFresh*n.cfg.Timing.Heartbeat
}

// caughtUp tells whether a peer's log reaches this leader's.
func (n *Node) caughtUp(id raft.ServerID) bool {
	c, ok := n.transport.contact(id)
	return ok && n.alive(id) && c.lastLog+caughtUpEntries >= n.raft.LastIndex()
}

// mayLose refuses what would leave fewer live voters than a majority.
func (n *Node) mayLose(rec *boardpb.Node, id raft.ServerID, verb string) error {
	voters, live, dead := 0, 0, ""
	for _, s := range n.servers() {
		if s.Suffrage != raft.Voter || s.ID == id {
			continue
		}
		voters++
		if n.alive(s.ID) {
			live++
		} else {
			dead = string(s.ID)
		}
	}
	switch {
	case voters == 0:
		return refuse(boardpb.Code_CODE_WRONG_STATE, "add another voter first", "cannot %s %s: it is the only voter", verb, rec.Name)
	case live < voters/2+1:
		return refuse(boardpb.Code_CODE_WRONG_STATE,
			fmt.Sprintf("bring node %s back, or remove it first: `raftboard node remove %s`", dead, dead),
			"cannot %s %s: %d of the %d other voters answer, which is no majority", verb, rec.Name, live, voters)
	}
	return nil
}

// mayPromote tells whether one more voter leaves a live majority even if it fails at once.
func (n *Node) mayPromote(servers []raft.Server) bool {
	voters, live := 1, 0
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			voters++
			if n.alive(s.ID) {
				live++
			}
		}
	}
	return live+1 >= voters/2+1
}

// configure waits for a change of raft's configuration.
func (n *Node) configure(ctx context.Context, f raft.Future) error {
	if err := n.await(ctx, f); err != nil {
		n.transfer.heard(err)
		return n.outcome(err)
	}
	return nil
}

// await waits for a future of raft, at most as long as the caller.
func (n *Node) await(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	n.futures.Go(func() { done <- f.Error() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errors.Join(ctx.Err(), errors.New("the change was proposed and its outcome is not known yet"))
	}
}

// left is how long raft may take to accept a change.
func left(ctx context.Context) time.Duration {
	if d, ok := ctx.Deadline(); ok {
		return max(time.Until(d), time.Millisecond)
	}
	return dutyTimeout
}
