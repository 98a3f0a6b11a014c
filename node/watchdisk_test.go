package node_test

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"raftboard/node"
	"raftboard/node/nodetest"
)

// ---- P16: the disk hangs ------------------------------------------------------

func TestP16ALeaderWhoseDiskHangsStaysLeaderUnlessItIsWatched(t *testing.T) {
	for _, c := range []struct {
		timeout, stops time.Duration // stops: at the latest; 0: never
	}{{-1, 0}, {0, 22 * time.Second}, {6 * time.Second, 8 * time.Second}} {
		t.Run(fmt.Sprint(c.timeout), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { hang(t, c.timeout, c.stops) })
		})
	}
}

func hang(t *testing.T, timeout, stops time.Duration) {
	c := nodetest.Start(t, nodetest.Options{Configure: func(_ int, cfg *node.Config) { cfg.StoreTimeout = timeout }})
	old := c.WaitLeader()
	c.WaitSame()
	mustPropose(t, old.Node, create("before"))
	old.Disk.Break(nodetest.Fault{Hung: true})
	began := time.Now()
	if _, err := propose(old.Node, create("hangs"), time.Second); err == nil {
		t.Fatal("a write was acknowledged by a disk that hangs")
	}
	for time.Since(began) < time.Minute && old.Died() == nil {
		time.Sleep(100 * time.Millisecond)
	}
	took := time.Since(began)
	if stops == 0 {
		if old.Died() != nil || c.Leader(old.Index) != nil || old.Node.Library().State() != raft.Leader {
			t.Errorf("stopped with %v, leader %v: expected that nobody took over from a leader that writes nothing", old.Died(), c.Leader(old.Index))
		}
		old.Disk.Break(nodetest.Fault{})
		return
	}
	if took > stops {
		t.Fatalf("it stopped after %v (%v), expected at most %v", took, old.Died(), stops)
	}
	saysAndHelps(t, old, "the disk does not answer", "check the disk")
	mustPropose(t, c.WaitLeader(old.Index).Node, create("after"))
	if failover := time.Since(began) - took; failover > 6*time.Second {
		t.Errorf("another node wrote %v later", failover)
	}
	old.Disk.Break(nodetest.Fault{})
	c.Crash(old.Index)
	c.Restart(old.Index)
	c.WaitSame()
}

// A disk that is very slow but answers ends no process, however much waits for it.
func TestP16ASlowDiskEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		c.WaitLeader()
		for _, m := range c.Members {
			m.Disk.Break(nodetest.Fault{Slow: 4 * time.Second})
		}
		var o outcomes
		for i := range 120 {
			if m := c.Leader(); m != nil {
				o.write(m.Node, fmt.Sprintf("b%d", i), 20*time.Second)
			}
			time.Sleep(time.Second)
		}
		o.wg.Wait()
		for _, m := range c.Members {
			if m.Died() != nil {
				t.Errorf("%s: %v", m.Name, m.Died())
			}
			m.Disk.Break(nodetest.Fault{})
		}
		if slowest := c.WaitLeader().Node.Status().SlowestStore; slowest < 4*time.Second || slowest > 10*time.Second {
			t.Errorf("the slowest call took %v", slowest)
		}
	})
}

// ---- P16: little space --------------------------------------------------------

// roomy gives every node a disk in memory whose free space the test sets.
func roomy(free *[3]atomic.Uint64) nodetest.Options {
	var disks [3]*nodetest.Disk
	for i := range disks {
		disks[i] = nodetest.NewDisk()
		free[i].Store(1 << 40)
	}
	return nodetest.Options{Stores: func(i int) node.Stores {
		s := disks[i].Stores()
		s.Free = func() (uint64, error) { return free[i].Load(), nil }
		return s
	}}
}

func TestP16ALeaderWithLittleSpaceTakesNoWritesAndHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free [3]atomic.Uint64
		c := nodetest.Start(t, roomy(&free))
		old := c.WaitLeader()
		c.WaitSame()
		free[old.Index].Store(63 << 20)
		next := c.WaitLeader(old.Index)
		mustPropose(t, next.Node, create("elsewhere"))
		if err := old.Node.Ready(); err == nil || !strings.Contains(err.Error(), "63 MiB are free") {
			t.Errorf("it says of its readiness: %v", err)
		}
		c.WaitSame() // it goes on storing what the leader sends
		free[old.Index].Store(70 << 20)
		time.Sleep(5 * time.Second)
		if err := old.Node.Ready(); err == nil {
			t.Error("a little more than what set it off made it ready again")
		}
		free[old.Index].Store(90 << 20)
		c.Eventually("it is ready again", func() bool { return old.Node.Ready() == nil })
		if old.Died() != nil {
			t.Error(old.Died())
		}
	})
}

func TestP16WhereEveryNodeIsShortOfSpaceWritesAreRefusedAndTheLeadershipDoesNotGoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free [3]atomic.Uint64
		c := nodetest.Start(t, roomy(&free))
		c.WaitLeader()
		c.WaitSame()
		for i := range free {
			free[i].Store(10 << 20)
		}
		time.Sleep(time.Minute)
		leader := c.WaitLeader()
		_, term := leader.Node.Leader()
		_, err := propose(leader.Node, create("x"), 5*time.Second)
		var not *node.NotDone
		if !errors.As(err, &not) || !strings.Contains(not.Why, "10 MiB are free") || not.Hint == "" {
			t.Errorf("a write ends with %v, expected not done and the reason", err)
		}
		time.Sleep(3 * time.Minute)
		if _, later := c.WaitLeader().Node.Leader(); later != term {
			t.Errorf("term %d, three minutes before it was %d", later, term)
		}
		for i := range free {
			free[i].Store(1 << 40)
		}
		c.Eventually("writes are taken again", func() bool {
			_, err := propose(c.WaitLeader().Node, create("y"), 5*time.Second)
			return err == nil
		})
	})
}

// ---- P22 ----------------------------------------------------------------------

// unreadable are snapshots that cannot be opened, or not be read to the end, while bad is set.
type unreadable struct {
	raft.SnapshotStore
	bad *atomic.Int32 // 1: open fails, 2: reading fails, 3: there is none
}

var errSector = errors.New("unreadable sector")

func (u unreadable) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, rc, err := u.SnapshotStore.Open(id)
	switch {
	case err != nil:
		return nil, nil, err
	case u.bad.Load() == 1:
		return nil, nil, errors.Join(errSector, rc.Close())
	case u.bad.Load() == 2:
		return meta, &brokenReader{ReadCloser: rc}, nil
	}
	return meta, rc, nil
}

func (u unreadable) List() ([]*raft.SnapshotMeta, error) {
	if u.bad.Load() == 3 {
		return nil, nil
	}
	return u.SnapshotStore.List()
}

// brokenReader reads its first sector.
type brokenReader struct {
	io.ReadCloser
	read bool
}

func (b *brokenReader) Read(p []byte) (int, error) {
	if b.read {
		return 0, errSector
	}
	b.read = true
	return b.ReadCloser.Read(p)
}

func TestP22ALeaderThatCannotSendItsSnapshotHandsOverAndStops(t *testing.T) {
	for kind, how := range map[int32]string{1: "open snapshot", 2: "unreadable sector", 3: "list the snapshots"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { sendNothing(t, kind, how) })
		})
	}
}

func sendNothing(t *testing.T, kind int32, how string) {
	var bad [3]atomic.Int32
	var disks [3]*nodetest.Disk
	for i := range disks {
		disks[i] = nodetest.NewDisk()
	}
	c := nodetest.Start(t, nodetest.Options{
		Configure: func(_ int, cfg *node.Config) { cfg.TrailingLogs, cfg.SnapshotThreshold = 1, 1<<30 },
		Stores: func(i int) node.Stores {
			s := disks[i].Stores()
			s.Snapshots = unreadable{s.Snapshots, &bad[i]}
			return s
		}})
	leader := c.WaitLeader()
	c.WaitSame()
	late := c.Members[(leader.Index+1)%3]
	c.Crash(late.Index)
	for i := range 9 {
		mustPropose(t, leader.Node, create(fmt.Sprintf("b%d", i)))
		c.Eventually("both have it", func() bool {
			return c.Members[(leader.Index+2)%3].Node.View().Applied() == leader.Node.View().Applied()
		})
		snapshot(t, leader.Node)
		snapshot(t, c.Members[(leader.Index+2)%3].Node)
	}
	if c.WaitLeader() != leader {
		t.Fatal("the leadership moved")
	}
	bad[leader.Index].Store(kind)
	c.Restart(late.Index)
	c.Eventually("the leader stops itself", func() bool { return leader.Died() != nil })
	saysAndHelps(t, leader, "hashicorp/raft#522", "start the node again")
	if !strings.Contains(leader.Died().Error(), how) {
		t.Errorf("it says %v, expected %q in it", leader.Died(), how)
	}
	next := c.WaitLeader(leader.Index)
	mustPropose(t, next.Node, create("after"))
	c.WaitSame() // the late one has it too
	bad[leader.Index].Store(0)
	c.Crash(leader.Index)
	c.Restart(leader.Index)
	c.WaitSame()
}

// The way back after P22: the node starts from an older snapshot and its log, and when it
// leads again it sends that one, not the damaged one that is still the newest.
func TestP22AfterARestartALeaderSendsASnapshotThatCanBeRead(t *testing.T) {
	disks := openDirs(t, 3)
	synctest.Test(t, func(t *testing.T) {
		disks.t = t
		c := nodetest.Start(t, nodetest.Options{Stores: disks.stores,
			Configure: func(_ int, cfg *node.Config) { cfg.TrailingLogs, cfg.SnapshotThreshold = 1, 1<<30 }})
		c.WaitLeader()
		c.WaitSame()
		c.Crash(0)
		for i := range 9 {
			mustPropose(t, c.WaitLeader().Node, create(fmt.Sprintf("b%d", i)))
			c.WaitSame()
			time.Sleep(time.Second)
			snapshot(t, c.Members[1].Node)
			snapshot(t, c.Members[2].Node)
		}
		c.Crash(1)
		c.Crash(2)
		for i := 1; i < 3; i++ { // whoever leads: its newest snapshot is damaged
			spoilNewest(t, filepath.Join(disks.dirs[i].Path(), "raft", "snapshots"))
		}
		c.Restart(1)
		c.Restart(2)
		c.WaitLeader()
		c.Restart(0)
		c.WaitSame()
		for _, m := range c.Members {
			if m.Died() != nil {
				t.Error(m.Died())
			}
		}
		if took := c.Members[0].Node.Status().LastRestore; took < 0 {
			t.Error("no snapshot was sent: the test shows nothing")
		}
	})
}

// ---- P15 ----------------------------------------------------------------------

func TestP15TheAgeOfTheOldestEntryIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{Configure: func(_ int, cfg *node.Config) {
			cfg.TrailingLogs, cfg.SnapshotThreshold, cfg.Timing.Commit = 1, 1<<30, 200*time.Millisecond
		}})
		leader := c.WaitLeader()
		mustPropose(t, leader.Node, create("a"))
		c.WaitSame()
		time.Sleep(10 * time.Minute)
		for _, m := range c.Members {
			if s := m.Node.Status(); s.OldestLog < 9*time.Minute || s.OldestLog > 11*time.Minute || s.LastRestore != -1 {
				t.Errorf("%s: oldest entry %v, last restore %v", m.Name, s.OldestLog, s.LastRestore)
			}
		}
		for i := range 5 {
			mustPropose(t, leader.Node, create(fmt.Sprint("b", i)))
			snapshot(t, leader.Node)
		}
		if s := leader.Node.Status(); s.OldestLog < 0 || s.OldestLog > time.Minute {
			t.Errorf("after a cut the oldest entry is %v old", s.OldestLog)
		}
	})
}
