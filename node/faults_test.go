package node_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"raftboard/node"
	"raftboard/node/nodetest"
)

// ---- P1 -----------------------------------------------------------------------

const divergenceRuns = 12

func TestP1OnTheStockHeartbeatPathReplicasDiverge(t *testing.T) {
	if n := countDivergence(t, func(tr node.Transport) node.Transport { return tr }); n < divergenceRuns/2 {
		t.Errorf("diverged in %d of %d runs, expected at least half", n, divergenceRuns)
	}
}

func TestP1BehindTheGuardReplicasAgree(t *testing.T) {
	if n := countDivergence(t, node.Guarded); n != 0 {
		t.Errorf("diverged in %d of %d runs", n, divergenceRuns)
	}
}

func countDivergence(t *testing.T, wrap func(node.Transport) node.Transport) (n int) {
	for range divergenceRuns {
		if diverges(t, wrap) {
			n++
		}
	}
	return n
}

// heartbeatsOnly loses, while hold is set, every append to the first raft that is no heartbeat:
// the moment after a pause in which the new leader's heartbeat is read before its entries.
type heartbeatsOnly struct {
	node.Transport
	hold *atomic.Bool
}

var errHeld = errors.New("held back")

func (h heartbeatsOnly) holds(to raft.ServerAddress) bool { return to == "n0" && h.hold.Load() }

func (h heartbeatsOnly) AppendEntries(id raft.ServerID, to raft.ServerAddress,
	req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	heartbeat := len(req.Entries) == 0 && req.PrevLogEntry == 0 && req.LeaderCommitIndex == 0
	if !heartbeat && h.holds(to) {
		time.Sleep(20 * time.Millisecond)
		return errHeld
	}
	return h.Transport.AppendEntries(id, to, req, resp)
}

func (h heartbeatsOnly) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	if h.holds(to) {
		return nil, errHeld
	}
	return h.Transport.AppendEntriesPipeline(id, to)
}

// diverges plays hashicorp/raft#695 once: n0 leads and is cut off; the others elect. Only the
// way towards n0 heals, and a heartbeat sets n0's term while n0's main goroutine still waits
// in its leader loop. A client writes through n0, which stamps the entry with a term that it
// does not lead. All heals.
func diverges(t *testing.T, wrap func(node.Transport) node.Transport) (diverged bool) {
	synctest.Test(t, func(t *testing.T) {
		var hold atomic.Bool
		c := startBare(t, bareOptions{configure: slowFirst,
			wrap: func(tr node.Transport) node.Transport { return heartbeatsOnly{wrap(tr), &hold} }})
		old, others := c.nodes[0], c.nodes[1:]
		c.makeLeader(old)
		term := old.raft.CurrentTerm()
		c.isolate(old, true)
		next := c.leaderAmong(others...)

		hold.Store(true)
		for _, o := range others {
			c.net.SetCut(o.name, old.name, false)
		}
		for range 400 {
			if old.raft.CurrentTerm() != term {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		old.raft.Apply([]byte("written by the deposed leader"), time.Second)
		time.Sleep(20 * time.Millisecond)

		hold.Store(false)
		c.isolate(old, false)
		for i := range 20 {
			if err := next.raft.Apply(fmt.Appendf(nil, "w%d", i), time.Second).Error(); err != nil {
				break // deposed meanwhile: what was written by then is compared
			}
		}
		time.Sleep(10 * time.Second)

		mine := old.rec.applied()
		for _, o := range others {
			theirs := o.rec.applied()
			for i, v := range mine {
				if theirs[i] != v {
					diverged = true
				}
			}
		}
	})
	return diverged
}

// ---- P2 -----------------------------------------------------------------------

const verifyRuns = 30

func TestP2VerifyLeaderAgreesAfterANewerLeaderWrote(t *testing.T) {
	verify := func(n *node.Node) bool { return n.Library().VerifyLeader().Error() == nil }
	if n := countStale(t, verify); n < 1 {
		t.Errorf("stale in %d of %d runs, expected some", n, verifyRuns)
	}
}

func TestP2TheFenceRefusesOnADeposedLeader(t *testing.T) {
	fence := func(n *node.Node) bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := n.FenceIndex(ctx)
		return err == nil
	}
	if n := countStale(t, fence); n != 0 {
		t.Errorf("stale in %d of %d runs", n, verifyRuns)
	}
}

// lateAcks delivers acknowledgements of heartbeats late: the follower has answered, and the
// answer waits in the leader's socket. Nothing is pipelined, so one method sees every append.
type lateAcks struct {
	node.Transport
	mu    sync.Mutex
	until map[raft.ServerID]time.Time
}

func (l *lateAcks) hold(id raft.ServerID, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until[id] = until
}

func (l *lateAcks) AppendEntries(id raft.ServerID, to raft.ServerAddress,
	req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := l.Transport.AppendEntries(id, to, req, resp)
	l.mu.Lock()
	until := l.until[id]
	l.mu.Unlock()
	if err == nil && len(req.Entries) == 0 {
		time.Sleep(time.Until(until))
	}
	return err
}

func (l *lateAcks) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// countStale plays a stalled leader: an acknowledgement is on its way, the disk stalls, the
// others elect a leader which acknowledges a write, and only then is the old leader asked.
func countStale(t *testing.T, ask func(*node.Node) bool) (stale int) {
	for range verifyRuns {
		synctest.Test(t, func(t *testing.T) {
			transports := make([]*lateAcks, 3)
			c := nodetest.Start(t, nodetest.Options{Wrap: func(i int, tr node.Transport) node.Transport {
				transports[i] = &lateAcks{Transport: tr, until: map[raft.ServerID]time.Time{}}
				return transports[i]
			}})
			old := c.WaitLeader()
			mustPropose(t, old.Node, create("v1"))

			resume := time.Now().Add(8 * time.Second)
			follower := c.Members[(old.Index+1)%3]
			transports[old.Index].hold(raft.ServerID(follower.ID), resume)
			time.Sleep(400 * time.Millisecond) // long enough for a heartbeat to be answered
			old.Disk.Stall(time.Until(resume))
			go old.Node.Library().Apply(nil, time.Second)
			time.Sleep(5 * time.Millisecond)

			c.Isolate(old.Index)
			next := c.WaitLeader(old.Index)
			mustPropose(t, next.Node, create("v3"))
			if !time.Now().Before(resume) {
				t.Fatal("the old leader resumed before the new one wrote")
			}
			if ask(old.Node) {
				stale++
			}
		})
	}
	return stale
}

// ---- P4 -----------------------------------------------------------------------

func TestP4StockAFollowerWithADivergentTailInstallsSnapshotsForEver(t *testing.T) {
	restores, lag := snapshotLoop(t, nil)
	if restores < 100 || lag == 0 {
		t.Errorf("%d restores, %d behind: expected many and no progress", restores, lag)
	}
	if restores, lag = snapshotLoop(t, func(*bareNode) error { return nil }); lag == 0 {
		t.Errorf("after a restart %d restores, %d behind: expected the loop to go on", restores, lag)
	}
}

func TestP4ClearingADivergentLogAtTheStartEndsTheLoop(t *testing.T) {
	restores, lag := snapshotLoop(t, func(n *bareNode) error { return node.ClearDivergentLog(n.store, n.snaps) })
	if lag != 0 || restores > 10 {
		t.Errorf("%d restores, %d behind: expected a few and none", restores, lag)
	}
}

// snapshotLoop leaves n0 with uncommitted entries, lets the others compact past them, and
// heals. With repair set, n0 is restarted after a minute and repair runs in between.
func snapshotLoop(t *testing.T, repair func(*bareNode) error) (restores int, lag uint64) {
	synctest.Test(t, func(t *testing.T) {
		c := startBare(t, bareOptions{configure: func(i int, config *raft.Config) {
			slowFirst(i, config)
			config.TrailingLogs = 0
			config.SnapshotThreshold = 1 << 30 // only when asked
		}})
		old, others := c.nodes[0], c.nodes[1:]
		c.makeLeader(old)
		c.isolate(old, true)
		for range 40 {
			old.raft.Apply([]byte("never commits"), time.Second)
		}
		next := c.leaderAmong(others...)
		for range 10 {
			if err := next.raft.Apply([]byte("kept"), time.Second).Error(); err != nil {
				t.Fatal(err)
			}
		}
		for _, o := range others {
			if err := o.raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		c.isolate(old, false)
		for range 10 {
			for _, o := range others {
				if o.raft.State() == raft.Leader {
					o.raft.Apply([]byte("after the heal"), time.Second)
				}
			}
			time.Sleep(6 * time.Second)
		}
		if repair != nil {
			c.restart(old, func() error {
				old.rec.countRestores(true)
				return repair(old)
			})
			time.Sleep(30 * time.Second)
		}
		var top uint64
		for _, o := range others {
			top = max(top, o.raft.AppliedIndex())
		}
		restores, lag = old.rec.countRestores(false), top-old.raft.AppliedIndex()
	})
	return restores, lag
}

// ---- P6 -----------------------------------------------------------------------

// batchMachine notes how raft tells it about each kind of entry, and can be made slow.
type batchMachine struct {
	*recorder
	lock    sync.Mutex
	delay   time.Duration
	last    uint64
	batched int // configurations in batches
	stored  int // by StoreConfiguration
}

func (b *batchMachine) ApplyBatch(logs []*raft.Log) []any {
	b.lock.Lock()
	delay := b.delay
	b.lock.Unlock()
	time.Sleep(delay)
	b.lock.Lock()
	defer b.lock.Unlock()
	for _, l := range logs {
		b.last = l.Index
		if l.Type == raft.LogConfiguration {
			b.batched++
		}
	}
	return make([]any, len(logs))
}

func (b *batchMachine) StoreConfiguration(uint64, raft.Configuration) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.stored++
}

func (b *batchMachine) seen() (last uint64, batched, stored int) {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.last, b.batched, b.stored
}

func withBatchMachine(t *testing.T, scenario func(t *testing.T, leader *raft.Raft, m *batchMachine)) {
	synctest.Test(t, func(t *testing.T) {
		var machines []*batchMachine
		c := startBare(t, bareOptions{wrap: node.Guarded, fsm: func(r *recorder) raft.FSM {
			machines = append(machines, &batchMachine{recorder: r})
			return machines[len(machines)-1]
		}})
		c.makeLeader(c.nodes[0])
		scenario(t, c.nodes[0].raft, machines[0])
	})
}

func TestP6StockRaftCountsAnEntryAsAppliedBeforeTheMachineHasIt(t *testing.T) {
	withBatchMachine(t, func(t *testing.T, leader *raft.Raft, m *batchMachine) {
		m.lock.Lock()
		m.delay = time.Second
		m.lock.Unlock()
		f := leader.Apply([]byte("x"), time.Second)
		time.Sleep(500 * time.Millisecond)
		if last, _, _ := m.seen(); leader.AppliedIndex() <= last {
			t.Errorf("AppliedIndex %d, machine at %d: expected raft to be ahead", leader.AppliedIndex(), last)
		}
		if err := f.Error(); err != nil {
			t.Error(err)
		}
	})
}

func TestP6StockABatchingMachineGetsConfigurationsInItsBatches(t *testing.T) {
	withBatchMachine(t, func(t *testing.T, leader *raft.Raft, m *batchMachine) {
		if err := leader.AddNonvoter("n9", "n9", 0, time.Second).Error(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, batched, stored := m.seen(); batched == 0 || stored != 0 {
			t.Errorf("%d configurations in batches, %d by StoreConfiguration: expected some and none", batched, stored)
		}
		if err := leader.RemoveServer("n9", 0, time.Second).Error(); err != nil {
			t.Error(err)
		}
	})
}

func TestP6StockABarrierLeavesTheMachineBelowTheCommitIndex(t *testing.T) {
	withBatchMachine(t, func(t *testing.T, leader *raft.Raft, m *batchMachine) {
		if err := leader.Barrier(time.Second).Error(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if last, _, _ := m.seen(); last >= leader.CommitIndex() {
			t.Errorf("machine at %d, commit index %d: expected the machine below", last, leader.CommitIndex())
		}
	})
}

// What waits for the state machine's own index is answered although barriers, which never
// reach it, stand above; waiting for raft's commit index would last for ever.
func TestP6ReadsOnFollowersPassWhileOnlyBarriersAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		leader := c.WaitLeader()
		c.WaitSame()
		for range 5 {
			for _, m := range c.Members {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				if _, err := m.Node.Read(ctx, node.Consistency{}); err != nil {
					t.Errorf("%s: %v", m.Name, err)
				}
				cancel()
			}
		}
		if s := leader.Node.Status(); s.Applied >= s.Commit {
			t.Errorf("the machine is at %d, the commit index at %d: no barrier was written", s.Applied, s.Commit)
		}
	})
}
