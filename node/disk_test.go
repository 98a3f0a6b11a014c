package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/node"
	"raftboard/node/nodetest"
)

// onDisk gives every node a real data directory.
type onDisk struct {
	t    *testing.T
	dirs []*node.Dir
}

func openDirs(t *testing.T, n int) *onDisk {
	t.Helper()
	d := &onDisk{t: t}
	for i := range n {
		dir, err := node.OpenDir(filepath.Join(t.TempDir(), fmt.Sprint(i)), node.Want{NodeName: fmt.Sprintf("n%d", i)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := dir.Close(); err != nil {
				t.Error(err)
			}
		})
		d.dirs = append(d.dirs, dir)
	}
	return d
}

func (d *onDisk) stores(i int) node.Stores {
	s, err := node.OpenStores(d.dirs[i], nil)
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

func TestAClusterOnDiskKeepsWhatItAcknowledgedWhenAllNodesDie(t *testing.T) {
	disks := openDirs(t, 3)
	synctest.Test(t, func(t *testing.T) {
		disks.t = t
		c := nodetest.Start(t, nodetest.Options{Stores: disks.stores})
		leader := c.WaitLeader()
		for i := range 20 {
			mustPropose(t, leader.Node, create(fmt.Sprintf("b%d", i)))
		}
		for i := range c.Members {
			c.Crash(i)
		}
		for i := range c.Members {
			c.Restart(i)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		v, err := c.WaitLeader().Node.Read(ctx, node.Consistency{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if v.Board(fmt.Sprintf("b%d", i)) == nil {
				t.Errorf("board b%d is gone", i)
			}
		}
	})
}

func TestP21ACorruptNewestSnapshotIsReplacedByAnOlderOneAndTheLog(t *testing.T) {
	disks := openDirs(t, 1)
	snaps := filepath.Join(disks.dirs[0].Path(), "raft", "snapshots")
	synctest.Test(t, func(t *testing.T) {
		disks.t = t
		c := nodetest.Start(t, nodetest.Options{Nodes: 1, Stores: disks.stores,
			Configure: func(_ int, cfg *node.Config) { cfg.TrailingLogs = 1 }})
		n := c.WaitLeader().Node
		for i := range 15 {
			mustPropose(t, n, create(fmt.Sprintf("b%d", i)))
			time.Sleep(time.Second) // snapshots are named by their time
			if i%3 == 2 {
				snapshot(t, n)
			}
		}
		want := n.View().Digest()
		index := n.View().Applied()
		c.Crash(0)
		spoilNewest(t, snaps)
		c.Restart(0)
		n = c.WaitLeader().Node
		if got, known := n.View().DigestAt(index); known && got != want {
			t.Errorf("after the restart the digest at %d is another one", index)
		}
		for i := range 15 {
			if n.View().Board(fmt.Sprintf("b%d", i)) == nil {
				t.Errorf("board b%d is gone", i)
			}
		}
		c.Crash(0)
		for range 3 {
			spoilNewest(t, snaps)
		}
		err := c.TryRestart(0)
		var dir *node.DirError
		if !errors.As(err, &dir) || !strings.Contains(dir.Hint, "new member") {
			t.Errorf("without any readable snapshot the start answers %v", err)
		}
	})
}

func snapshot(t *testing.T, n *node.Node) {
	t.Helper()
	r, index, _, err := n.Snapshot(context.Background())
	if err != nil || index == 0 {
		t.Fatalf("no snapshot: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// spoilNewest flips a bit in the newest snapshot that is still good.
func spoilNewest(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	index := func(e os.DirEntry) (n int) { // names are term-index-time
		if _, err := fmt.Sscanf(strings.Split(e.Name(), "-")[1], "%d", &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return index(a) - index(b) })
	for i := len(entries) - 1; i >= 0; i-- {
		dir := filepath.Join(path, entries[i].Name())
		if _, err := os.Stat(filepath.Join(dir, "spoilt")); err == nil {
			continue
		}
		file := filepath.Join(dir, "state.bin")
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)/2] ^= 1
		if err := errors.Join(os.WriteFile(file, raw, 0o600), os.WriteFile(filepath.Join(dir, "spoilt"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		return
	}
}

func TestP17AFullDiskEndsTheNodeAndTheOthersGoOn(t *testing.T) {
	for _, who := range []string{"leader", "follower"} {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := nodetest.Start(t, nodetest.Options{})
				leader := c.WaitLeader()
				victim := leader
				if who == "follower" {
					victim = c.Members[(leader.Index+1)%3]
				}
				mustPropose(t, leader.Node, create("before"))
				victim.Disk.Fail(fmt.Errorf("write raft/log.db: %w", syscall.ENOSPC))
				_, err := propose(leader.Node, create("during"), 5*time.Second)
				if unknown := (*node.Unknown)(nil); who == "leader" && !errors.As(err, &unknown) {
					t.Errorf("the write that met the full disk ended with %v, expected unknown", err)
				}
				c.Eventually("the node with the full disk stops", func() bool { return victim.Died() != nil })
				if !strings.Contains(victim.Died().Error(), "volume is full") {
					t.Errorf("it died of %v", victim.Died())
				}
				if err := victim.Node.Ready(); err == nil {
					t.Error("it says that it is ready")
				}
				if _, err := victim.Node.Read(context.Background(), node.Consistency{Kind: node.Stale}); err == nil {
					t.Error("it still answers reads")
				}
				mustPropose(t, c.WaitLeader(victim.Index).Node, create("after"))
				c.Crash(victim.Index)
				victim.Disk.Fail(nil)
				c.Restart(victim.Index)
				c.WaitSame()
				if victim.Node.View().Board("after") == nil {
					t.Error("after the restart it lacks a board")
				}
			})
		})
	}
}

func TestP3P17AFailedVoteEndsTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		leader := c.WaitLeader()
		victim := c.Members[(leader.Index+1)%3]
		victim.Disk.Fail(errors.New("input/output error"))
		c.Crash(leader.Index) // an election: the victim has to store a term or a vote
		c.Eventually("the node that cannot vote stops", func() bool { return victim.Died() != nil })
		victim.Disk.Fail(nil)
		c.Crash(victim.Index)
		c.Restart(victim.Index)
		mustPropose(t, c.WaitLeader().Node, create("after"))
	})
}
