package transport_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	boardpb "raftboard/fsm/pb"
	"raftboard/node"
	"raftboard/node/nodetest"
	"raftboard/transport"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// P16 with clients: the leader's disk hangs, its server ends, and callers of the others write
// on within the bound and a failover.
func TestP16AServerWhoseDiskHangsEndsAndTheOthersServe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{
			Configure: func(_ int, cfg *transport.Config) { cfg.StoreTimeout = 8 * time.Second }})
		leader, other := c.Leader(), c.Follower()
		w := as(t, c, "w1", other)
		w.ok(set("results/w1/a", "1"))
		c.Members[leader].Disk.Break(nodetest.Fault{Hung: true})
		began := time.Now()
		c.Eventually("somebody writes through another node", func() bool { return w.tries(set("results/w1/b", "1")) })
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
		c.Members[leader].Disk.Break(nodetest.Fault{})
		if err := c.Died(leader); err == nil || !strings.Contains(err.Error(), "the disk does not answer") {
			t.Errorf("it ended with %v", err)
		}
		c.Restart(leader)
		c.WaitReady()
	})
}

func TestP16ANodeWithLittleSpaceSaysSoAndItsCallersWriteOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var low [3]atomic.Bool
		c := clustertest.Start(t, clustertest.Options{Configure: func(i int, cfg *transport.Config) {
			open := cfg.OpenStores
			cfg.OpenStores = func(d *node.Dir, l hclog.Logger) (node.Stores, error) {
				s, err := open(d, l)
				s.Free = func() (uint64, error) {
					if low[i].Load() {
						return 1 << 20, nil
					}
					return 1 << 40, nil
				}
				return s, err
			}
		}})
		leader := c.Leader()
		w := as(t, c, "w1", leader)
		low[leader].Store(true)
		c.Eventually("another node leads", func() bool { return c.Leader() != leader })
		if r := w.ok(set("results/w1/a", "1")); r.Outcome != boardpb.Outcome_OUTCOME_OK {
			t.Error(r)
		}
		time.Sleep(10 * time.Second) // the followers of the new leader have caught up
		for _, n := range clusterStatus(t, c, leader).Nodes {
			short := n.Id == c.Members[leader].Server.NodeID()
			if n.Ready == short || short != strings.Contains(n.Note, "1 MiB are free") {
				t.Errorf("%s: ready %v, %q", n.Name, n.Ready, n.Note)
			}
		}
		for i := range low {
			low[i].Store(true)
		}
		time.Sleep(30 * time.Second)
		if r := w.refused(set("results/w1/b", "1")); r.Code != boardpb.Code_CODE_UNAVAILABLE ||
			r.Proposed != boardpb.Proposed_PROPOSED_NO || !strings.Contains(r.Message, "1 MiB are free") || r.Hint == "" {
			t.Errorf("without space anywhere: %v", r)
		}
	})
}

func TestP15TheStatusShowsWhatTheSizesOfTheLogAreJudgedBy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		as(t, c, "w1", 0).ok(set("results/w1/a", "1"))
		time.Sleep(time.Minute)
		for _, n := range clusterStatus(t, c, 0).Nodes {
			if n.OldestLogMs < 50_000 || n.OldestLogMs > 120_000 || n.LastRestoreMs != -1 {
				t.Errorf("%s: oldest entry %d ms, last restore %d ms", n.Name, n.OldestLogMs, n.LastRestoreMs)
			}
		}
		gone := c.Follower()
		c.Kill(gone)
		for _, n := range clusterStatus(t, c, c.Leader()).Nodes {
			if n.Role == "unreachable" && (n.OldestLogMs != -1 || n.LastRestoreMs != -1) {
				t.Errorf("of %s nothing is known: %v", n.Name, n)
			}
		}
	})
}

// tries applies a command and tells whether it was done.
func (c caller) tries(cmd *boardpb.Command) bool {
	answer, err := c.board.Apply(c.ctx, &wirepb.ApplyRequest{Command: cmd})
	return err == nil && answer.Result.Outcome == boardpb.Outcome_OUTCOME_OK
}
