package nodetest

import (
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"raftboard/node"
)

func onDisk(t *testing.T, do func(t *testing.T, d *Disk, s node.Stores)) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDisk()
		do(t, d, d.Stores())
	})
}

func entry(i uint64) *raft.Log { return &raft.Log{Index: i, Term: 1, Data: []byte{byte(i), 0xff}} }

func fill(t *testing.T, s node.Stores, from, to uint64) {
	t.Helper()
	for i := from; i <= to; i++ {
		if err := s.Log.StoreLogs([]*raft.Log{entry(i)}); err != nil {
			t.Fatal(err)
		}
	}
}

func ends(t *testing.T, s node.Stores, first, last uint64) {
	t.Helper()
	f, err := s.Log.FirstIndex()
	l, err2 := s.Log.LastIndex()
	if f != first || l != last || err != nil || err2 != nil {
		t.Errorf("the log reaches from %d to %d, want %d to %d (%v, %v)", f, l, first, last, err, err2)
	}
}

func TestALogThatIsCutSaysWhereItBeginsAndEnds(t *testing.T) {
	onDisk(t, func(t *testing.T, _ *Disk, s node.Stores) {
		fill(t, s, 1, 5)
		fill(t, s, 9, 10) // an install leaves such a gap
		s.Log.DeleteRange(1, 5)
		ends(t, s, 9, 10)
		s.Log.DeleteRange(10, 20)
		ends(t, s, 9, 9)
		s.Log.DeleteRange(1, 20)
		ends(t, s, 0, 0)
		if err := s.Log.GetLog(9, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("a deleted entry answers %v", err)
		}
	})
}

func TestAPowerLossTakesWhatWasNotSyncedAndAKillTakesNothing(t *testing.T) {
	onDisk(t, func(t *testing.T, d *Disk, s node.Stores) {
		fill(t, s, 1, 3)
		s.Stable.SetUint64([]byte("CurrentTerm"), 4)
		if lost := d.PowerLoss(); lost != 0 {
			t.Errorf("a disk that syncs lost %d writes", lost)
		}
		d.Lazy(true)
		s = d.Stores()
		fill(t, s, 4, 6)
		time.Sleep(writeBack)
		fill(t, s, 7, 8)
		s.Log.DeleteRange(1, 1)
		s.Stable.SetUint64([]byte("CurrentTerm"), 5)
		s.Stable.Set([]byte("vote"), []byte("x"))
		snap, _ := s.Snapshots.Create(1, 6, 1, raft.Configuration{}, 1, nil)
		snap.Write([]byte("state"))
		snap.Close()
		d.Cut() // a kill
		ends(t, d.Stores(), 2, 8)
		if lost := d.PowerLoss(); lost == 0 {
			t.Error("nothing was lost")
		}
		s = d.Stores()
		ends(t, s, 1, 6)
		if v, err := s.Stable.GetUint64([]byte("CurrentTerm")); v != 4 || err != nil {
			t.Errorf("the term is %d, %v", v, err)
		}
		if _, err := s.Stable.Get([]byte("vote")); err == nil {
			t.Error("the vote is still there")
		}
		if metas, _ := s.Snapshots.List(); len(metas) != 1 {
			t.Error("the snapshot is gone")
		}
	})
}

func TestAWriteThatHangsWhenItsProcessDiesNeverHappens(t *testing.T) {
	onDisk(t, func(t *testing.T, d *Disk, s node.Stores) {
		fill(t, s, 1, 1)
		d.Hold(true)
		done := make(chan error, 1)
		go func() { done <- s.Log.StoreLog(entry(2)) }()
		time.Sleep(time.Hour)
		d.Cut()
		if err := <-done; !errors.Is(err, errGone) {
			t.Errorf("it ended with %v", err)
		}
		d.Hold(false)
		if err := s.Log.StoreLog(entry(2)); !errors.Is(err, errGone) {
			t.Errorf("a dead process writes: %v", err)
		}
		next := d.Stores()
		fill(t, next, 2, 2)
		ends(t, next, 1, 2)
	})
}

func TestADiskIsBadInTheWaysThatWereAskedFor(t *testing.T) {
	onDisk(t, func(t *testing.T, d *Disk, s node.Stores) {
		d.Break(Fault{Slow: 300 * time.Millisecond})
		began := time.Now()
		fill(t, s, 1, 2)
		if took := time.Since(began); took != 600*time.Millisecond {
			t.Errorf("two slow writes took %v", took)
		}
		for want, f := range map[error]Fault{syscall.ENOSPC: {Full: true}, syscall.EIO: {Error: true}} {
			d.Break(f)
			if err := s.Log.StoreLog(entry(3)); !errors.Is(err, want) {
				t.Errorf("%+v fails with %v", f, err)
			}
		}
		d.Break(Fault{Short: true})
		if err := s.Log.StoreLogs([]*raft.Log{entry(3), entry(4), entry(5), entry(6)}); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("a short write ends with %v", err)
		}
		ends(t, s, 1, 4)
		d.Break(Fault{Hung: true})
		done := make(chan error, 1)
		go func() { done <- s.Log.StoreLog(entry(5)) }()
		time.Sleep(time.Minute)
		ends(t, s, 1, 4)
		d.Break(Fault{})
		if err := <-done; err != nil {
			t.Error(err)
		}
		ends(t, s, 1, 5)
	})
}

func TestDamageIsDoneAndSaid(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	read := func(s node.Stores) (string, error) {
		metas, err := s.Snapshots.List()
		if err != nil || len(metas) == 0 {
			return "", err
		}
		_, r, err := s.Snapshots.Open(metas[0].ID)
		if err != nil {
			return "", err
		}
		raw, err := io.ReadAll(r)
		return string(raw), err
	}
	for name, c := range map[string]struct {
		do    func(*Disk) (string, error)
		check func(t *testing.T, s node.Stores)
		says  string
	}{
		"cut tail": {func(d *Disk) (string, error) { return d.CutTail(3) }, func(t *testing.T, s node.Stores) { ends(t, s, 1, 7) }, "8 to 10"},
		"flipped bit": {func(d *Disk) (string, error) { return d.FlipLog(dice) }, func(t *testing.T, s node.Stores) {
			damaged := 0
			for i := uint64(1); i <= 10; i++ {
				if err := s.Log.GetLog(i, &raft.Log{}); err != nil {
					damaged++
				}
			}
			if damaged != 1 {
				t.Errorf("%d entries are damaged", damaged)
			}
		}, "flipped"},
		"flipped bit of a snapshot": {func(d *Disk) (string, error) { return d.FlipSnapshot(dice) }, func(t *testing.T, s node.Stores) {
			if text, err := read(s); err == nil {
				t.Errorf("it reads %q", text)
			}
		}, "1-10-2"},
		"empty snapshot": {func(d *Disk) (string, error) { return d.EmptySnapshot() }, func(t *testing.T, s node.Stores) {
			if text, err := read(s); err == nil {
				t.Errorf("it reads %q", text)
			}
		}, "empty"},
		"swapped snapshots": {func(d *Disk) (string, error) { return d.SwapSnapshots() }, func(t *testing.T, s node.Stores) {
			if text, err := read(s); text != "at 5" || err != nil {
				t.Errorf("the newest reads %q, %v", text, err)
			}
		}, "each other's"},
		"older copy": {func(d *Disk) (string, error) { return d.Older(dice) }, func(t *testing.T, s node.Stores) { ends(t, s, 1, 6) }, "ends at entry 6"},
	} {
		t.Run(name, func(t *testing.T) {
			onDisk(t, func(t *testing.T, d *Disk, s node.Stores) {
				if what, err := c.do(d); err == nil {
					t.Errorf("an empty disk: %s", what)
				}
				fill(t, s, 1, 5)
				for _, index := range []uint64{5, 10} {
					snap, _ := s.Snapshots.Create(1, index, 1, raft.Configuration{}, 1, nil)
					snap.Write([]byte(map[uint64]string{5: "at 5", 10: "at 10"}[index]))
					snap.Close()
				}
				time.Sleep(checkpointEvery)
				fill(t, s, 6, 10)
				kept, _ := d.Copy()
				what, err := c.do(d)
				if err != nil || !strings.Contains(what, c.says) {
					t.Errorf("it says %q, %v", what, err)
				}
				c.check(t, d.Stores())
				ends(t, kept.Stores(), 1, 10) // a copy is not touched
			})
		})
	}
}
