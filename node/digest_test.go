package node_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/node"
	"raftboard/node/nodetest"
)

// tampered changes one entry on its way to some nodes: they apply another command at an index,
// as after a fault of the library, of memory or of a binary.
type tampered struct {
	node.Transport
	victims *atomic.Pointer[map[raft.ServerID]string] // id → name it gets instead
}

func (x tampered) AppendEntries(id raft.ServerID, to raft.ServerAddress,
	req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	victims := x.victims.Load()
	if victims == nil {
		return x.Transport.AppendEntries(id, to, req, resp)
	}
	if instead, ok := (*victims)[id]; ok {
		changed := *req
		changed.Entries = nil
		for _, e := range req.Entries {
			changed.Entries = append(changed.Entries, tamper(e, instead))
		}
		req = &changed
	}
	return x.Transport.AppendEntries(id, to, req, resp)
}

func (x tampered) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func tamper(e *raft.Log, instead string) *raft.Log {
	var b boardpb.Batch
	if e.Type != raft.LogCommand || proto.Unmarshal(e.Data, &b) != nil || len(b.Commands) == 0 || b.Commands[0].GetBoardCreate() == nil {
		return e
	}
	b.Commands[0].GetBoardCreate().Name = instead
	data, err := proto.Marshal(&b)
	if err != nil {
		return e
	}
	changed := *e
	changed.Data = data
	return &changed
}

// diverge starts a cluster with a pending deadline, so that there are ticks, and makes the
// given nodes (relative to the leader) apply another command.
func diverge(t *testing.T, instead map[int]string) (c *nodetest.Cluster, leader *nodetest.Member) {
	t.Helper()
	var victims atomic.Pointer[map[raft.ServerID]string]
	c = nodetest.Start(t, nodetest.Options{Wrap: func(_ int, tr node.Transport) node.Transport { return tampered{tr, &victims} }})
	leader = c.WaitLeader()
	newWorker(t, c, "w", "claims/x", time.Hour)
	c.WaitSame()
	m := map[raft.ServerID]string{}
	for offset, name := range instead {
		m[raft.ServerID(c.Members[(leader.Index+offset)%3].ID)] = name
	}
	victims.Store(&m)
	mustPropose(t, leader.Node, create("right"))
	return c, leader
}

func TestC9AFollowerThatDiffersStopsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, leader := diverge(t, map[int]string{1: "wrong"})
		victim := c.Members[(leader.Index+1)%3]
		c.Eventually("the node that differs stops", func() bool { return victim.Died() != nil })
		if msg := victim.Died().Error(); !strings.Contains(msg, "differs from that of 2 voters") {
			t.Errorf("it died of %v", msg)
		}
		for _, m := range c.Members {
			if m != victim && m.Died() != nil {
				t.Errorf("%s stopped too: %v", m.Name, m.Died())
			}
		}
		mustPropose(t, c.WaitLeader().Node, create("after"))
	})
}

func TestC9ALeaderThatDiffersStopsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, leader := diverge(t, map[int]string{1: "agreed", 2: "agreed"})
		c.Eventually("the leader that differs stops", func() bool { return leader.Died() != nil })
		next := c.WaitLeader(leader.Index)
		mustPropose(t, next.Node, create("after"))
		for _, m := range c.Members {
			if m != leader && m.Died() != nil {
				t.Errorf("%s stopped too: %v", m.Name, m.Died())
			}
		}
	})
}

func TestC9WithoutAMajorityValueAllRefuseWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, leader := diverge(t, map[int]string{1: "one", 2: "two"})
		c.Eventually("writes are refused", func() bool {
			_, err := propose(leader.Node, create("x"), time.Second)
			return err != nil && strings.Contains(err.Error(), "no majority of the voters agrees")
		})
		for _, m := range c.Members {
			if m.Died() != nil {
				t.Errorf("%s stopped: %v", m.Name, m.Died())
			}
		}
		if leader.Node.Ready() == nil {
			t.Error("the leader says that it is ready")
		}
	})
}

// mutePeers answers nothing about digests while mute.
type mutePeers struct {
	node.Peers
	mute *atomic.Bool
}

func (p mutePeers) Digest(ctx context.Context, nodeID string, index uint64) (sum [16]byte, known bool, err error) {
	if p.mute.Load() {
		return sum, false, errors.New("no answer")
	}
	return p.Peers.Digest(ctx, nodeID, index)
}

func TestC9ANodeInDoubtAboutAnEntryThatOthersForgotComparesANewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mute atomic.Bool
		c := nodetest.Start(t, nodetest.Options{Configure: func(_ int, cfg *node.Config) {
			cfg.Peers = mutePeers{cfg.Peers, &mute}
		}})
		leader := c.WaitLeader()
		c.WaitSame()
		doubter := c.Members[(leader.Index+1)%3]
		mute.Store(true)
		doubter.Node.Suspect(doubter.Node.View().Applied())
		doubts := func() bool {
			err := doubter.Node.Ready()
			return err != nil && strings.Contains(err.Error(), "no majority of the voters agrees")
		}
		c.Eventually("the node is in doubt", doubts)
		w := newWorker(t, c, "w", "claims/x", time.Hour)
		for range 2*state.DigestsKept + 1 { // the list is cut when it is twice as long
			w.renew()
		}
		mute.Store(false)
		c.Eventually("the doubt is settled", func() bool { return !doubts() })
	})
}

func TestNodesThatAgreeAreNeverSuspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		c.WaitLeader()
		w := newWorker(t, c, "w", "claims/x", time.Minute)
		for range 5 {
			w.renew()
			time.Sleep(20 * time.Second)
		}
		for _, m := range c.Members {
			m.Node.Suspect(m.Node.View().Applied())
		}
		time.Sleep(time.Minute)
		for _, m := range c.Members {
			if m.Died() != nil || m.Node.Ready() != nil {
				t.Errorf("%s: %v, %v", m.Name, m.Died(), m.Node.Ready())
			}
		}
	})
}
