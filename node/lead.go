package node

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"raftboard/fsm"
	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
)

// Everything a leader does is in this file. It hangs on the term, never on having been told,
// and may run twice (RAFT P8): LeaderCh only wakes the loop, and NotifyCh, which blocks raft
// while nobody reads it, is not used.

const (
	tickAfter     = time.Second     // since the last stamp, while a deadline is pending (SPEC F-4)
	compareEach   = 5 * time.Second // while there are writes: the digests are compared at least so often
	housekeepEach = time.Second     // membership, records, feature level
	dutyTimeout   = 5 * time.Second // of one act of housekeeping
	dutiesAtOnce  = 16
)

// leadLoop opens leaderships, runs board time and ticks. It runs on every node and does
// nothing but notice changes on those that do not lead.
func (n *Node) leadLoop() {
	every := time.NewTicker(sampleEvery)
	defer every.Stop()
	var ticks ticker
	for {
		changed := n.fsm.Changed()
		select {
		case <-n.stop:
			return
		case <-n.raft.LeaderCh():
		case <-every.C:
		case <-changed:
		}
		n.noticeLeader()
		if !n.checkMembership() {
			return
		}
		if n.openLeadership() {
			ticks.proposeIfDue(n)
		}
	}
}

// openLeadership sees to it that a Lead of the current term is applied before anything else.
func (n *Node) openLeadership() (ready bool) {
	if n.raft.State() != raft.Leader {
		n.clock.stop()
		if !n.queue.empty() {
			n.queue.refuse(n.notLeading())
		}
		return false
	}
	term := n.raft.CurrentTerm()
	if at, ok := n.readyTerm(); !ok || at != term || !n.clock.runs(term) {
		n.proposer.requestLead(lead{term: term})
		return false
	}
	n.queue.poke()
	if n.clock.sample() {
		n.proposer.requestLead(lead{term: term, resumed: true})
		return false
	}
	return true
}

// readyTerm is the term of an applied Lead that names this node, while it is the current one
// and this node leads. A restarted ex-leader replays its own Lead, hence the last condition.
func (n *Node) readyTerm() (term uint64, ready bool) {
	c := n.fsm.View().Cluster()
	if c.GetLeaderId() != n.cfg.ID {
		return 0, false
	}
	term = n.raft.CurrentTerm()
	return term, c.GetLeaderTerm() == term && n.raft.State() == raft.Leader
}

// ticker proposes ticks, one at a time.
type ticker struct {
	pending *proposal
	at      time.Duration // monotonic, of the last one
	writes  uint64        // Node.writes at that time
}

// proposeIfDue proposes a tick whenever a deadline is pending and a second has passed since
// the last stamp, and at once while more are due than one step takes. The tick carries a
// digest of an earlier entry for the others to compare (DESIGN §10). A busy board would never
// be compared by that alone, so writes bring a tick of their own every few seconds.
func (k *ticker) proposeIfDue(n *Node) {
	if k.pending != nil && len(k.pending.answer) == 0 || n.doubt.Load() != nil {
		return
	}
	v := n.fsm.View()
	_, deadline := v.Deadline()
	now, writes := n.clock.source.Mono(), n.writes.Load()
	compare := writes != k.writes && now-k.at >= compareEach
	if !compare && !v.Overdue() && !(deadline && n.clock.sinceStamp() >= tickAfter) {
		return
	}
	sum := v.Digest()
	data, err := encodeCommand(&boardpb.Command{Actor: board.SystemActor(), Op: &boardpb.Command_Tick{
		Tick: &boardpb.Tick{CheckIndex: v.Applied(), CheckDigest: sum[:]}}})
	if err != nil {
		n.log.Error("a tick cannot be encoded", "error", err)
		return
	}
	p := newProposal(context.Background(), data)
	if n.queue.push(p, true) == nil {
		k.pending, k.at, k.writes = p, now, writes
	}
}

// noticeLeader wakes those who wait for a change of leader or term.
func (n *Node) noticeLeader() {
	id, term := n.Leader()
	n.seen.mu.Lock()
	defer n.seen.mu.Unlock()
	if n.seen.id == id && n.seen.term == term {
		return
	}
	n.seen.id, n.seen.term = id, term
	close(n.seen.changed)
	n.seen.changed = make(chan struct{})
}

// checkMembership stops a node that was removed from the cluster (RAFT P23).
func (n *Node) checkMembership() bool {
	removed := n.Removed(n.cfg.ID)
	if !removed && (n.raft.State() != raft.Shutdown || n.closing.Load()) {
		return true
	}
	n.ToldRemoved()
	return false
}

// ToldRemoved stops a node that was removed. One that was away meanwhile cannot learn it from
// its own state: the peer links tell it when another member says so.
func (n *Node) ToldRemoved() {
	n.fail(&DirError{Dir: n.stores.Where, What: "this node was removed from the cluster",
		Hint: "to bring the machine back, start it with an empty --data-dir and --join: it becomes a new member"})
}

// housekeep keeps records, membership and feature level in step, while this node leads.
func (n *Node) housekeep() {
	every := time.NewTicker(housekeepEach)
	defer every.Stop()
	for {
		select {
		case <-n.stop:
			return
		case <-every.C:
		}
		n.checkSpace()
		for range dutiesAtOnce {
			if _, ready := n.readyTerm(); !ready || n.doubt.Load() != nil {
				break
			}
			servers := n.servers()
			n.transport.keepOnly(servers)
			ctx, cancel := context.WithTimeout(n.ctx, dutyTimeout)
			did, err := n.duty(ctx, servers)
			cancel()
			if err != nil {
				n.log.Debug("a duty of the leader has to be done again", "error", err)
			}
			if err != nil || !did {
				break
			}
		}
	}
}

// duty does the first thing that is due.
func (n *Node) duty(ctx context.Context, servers []raft.Server) (did bool, err error) {
	cluster := n.fsm.View().Cluster()
	for _, s := range servers {
		rec := recordOf(cluster, string(s.ID))
		switch want := n.knownNode(string(s.ID)); {
		case rec.GetRemoved():
			return true, n.configure(ctx, n.raft.RemoveServer(s.ID, 0, dutyTimeout))
		case rec == nil && want != nil:
			return true, n.putNode(ctx, want)
		case rec != nil && string(s.ID) == n.cfg.ID && !sameNode(rec, want):
			want.Nonvoter = rec.Nonvoter
			return true, n.putNode(ctx, want)
		case s.Suffrage == raft.Nonvoter && rec != nil && !rec.Nonvoter && n.caughtUp(s.ID) && n.mayPromote(servers):
			n.log.Info("a node has caught up and becomes a voter", "node", rec.Name, "id", rec.Id)
			return true, n.configure(ctx, n.raft.AddVoter(s.ID, s.Address, 0, dutyTimeout))
		}
	}
	if level := commonLevel(cluster, servers); level > cluster.GetLevel() {
		n.log.Info("every node knows a higher feature level", "level", level)
		return true, n.internal(ctx, &boardpb.Command{Op: &boardpb.Command_Level{Level: &boardpb.Level{Level: level}}})
	}
	return false, nil
}

// internal proposes a command of the leader itself.
func (n *Node) internal(ctx context.Context, c *boardpb.Command) error {
	c.Actor = board.SystemActor()
	r, err := n.submit(ctx, c, true)
	if err == nil && r.GetCode() != boardpb.Code_CODE_UNSPECIFIED {
		return &Refused{Result: r}
	}
	return err
}

// commonLevel is the highest feature level that every node reports, non-voters too; 0 while
// one of them has no record.
func commonLevel(c *boardpb.ClusterRecord, servers []raft.Server) uint32 {
	level := uint32(fsm.MaxLevel)
	for _, s := range servers {
		rec := recordOf(c, string(s.ID))
		if rec == nil {
			return 0
		}
		level = min(level, rec.MaxLevel)
	}
	return level
}

func recordOf(c *boardpb.ClusterRecord, id string) *boardpb.Node {
	for _, rec := range c.GetNodes() {
		if rec.Id == id {
			return rec
		}
	}
	return nil
}

// knownNode is what this node knows of a member without a record: itself, and who was in the
// intent of the cluster.
func (n *Node) knownNode(id string) *boardpb.Node {
	if id == n.cfg.ID {
		return n.Self()
	}
	for _, m := range n.cfg.Founders {
		if m.Id == id {
			return proto.CloneOf(m)
		}
	}
	return nil
}

// sameNode compares what a node says of itself with its record.
func sameNode(rec, self *boardpb.Node) bool {
	return rec.Name == self.Name && rec.RaftAddr == self.RaftAddr && rec.GrpcAddr == self.GrpcAddr &&
		rec.Version == self.Version && rec.MaxLevel == self.MaxLevel
}
