package netns_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raftboard/client"
	"raftboard/jepsen/nemesis"
	"raftboard/jepsen/netns"
)

// value reads a key, which must be answered.
func value(t *testing.T, cl *client.Client, key string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, _, err := cl.Board("b").Get(ctx, key, client.ReadOptions{})
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return string(got.Entry.Value)
}

// follower is a node that does not lead.
func follower(t *testing.T, c *netns.Cluster) int {
	t.Helper()
	first, _ := leader(t, c)
	return (first + 1) % len(c.Nodes())
}

// still says how much a node applied in a while.
func still(t *testing.T, c *netns.Cluster, node int, cl *client.Client, writes int) uint64 {
	t.Helper()
	before, _ := c.Status(t.Context(), node)
	for i := range writes {
		set(t, cl, "reg/flow", fmt.Sprint(i))
	}
	after, err := c.Status(t.Context(), node)
	if err != nil {
		return 0
	}
	return after.Applied - before.Applied
}

func TestPowerIsCutAndDisksFailAndTheClusterComesBack(t *testing.T) {
	t.Parallel()
	var dir string
	c, log := start(t, func(o *netns.Options) {
		dir = o.Dir
		o.PowerDisks, o.SnapshotThreshold, o.TrailingLogs, o.SnapshotInterval = true, 20, 10, time.Second
	})
	cl := dial(t, c, "writer")
	for i := range 60 {
		set(t, cl, "reg/kept", fmt.Sprint(i))
	}
	do(t, c.PowerOff(0, 1, 2))
	for i := range 3 {
		if _, err := c.Status(t.Context(), i); err == nil {
			t.Error("a node without power answers")
		}
		if died := c.Died(i); died != nil {
			t.Errorf("its power was cut, and it is said to have died by itself: %v", died)
		}
	}
	for i := range 3 {
		do(t, c.Start(i))
	}
	ready(t, c)
	if got := value(t, cl, "reg/kept"); got != `"59"` {
		t.Errorf("acknowledged was 59, and there is %s", got)
	}

	node := follower(t, c)
	do(t, c.Disk(node, nemesis.DiskFault{Hung: true}))
	if n := still(t, c, node, cl, 20); n > 0 {
		t.Errorf("a node with a hung disk applied %d entries", n)
	}
	do(t, c.Disk(node, nemesis.DiskFault{}))
	ready(t, c)
	do(t, c.Disk(node, nemesis.DiskFault{Hung: true}))
	do(t, c.Kill(node)) // must not wait for the disk
	do(t, c.Disk(node, nemesis.DiskFault{}))
	do(t, c.Start(node))
	ready(t, c)

	do(t, c.Disk(node, nemesis.DiskFault{Full: true}))
	still(t, c, node, cl, 20)
	do(t, c.Disk(node, nemesis.DiskFault{}))
	if died := c.Died(node); died != nil {
		t.Logf("of a full disk: %v", died)
		do(t, c.Start(node))
	}
	ready(t, c)
	eventually(t, "a snapshot of its own", 20*time.Second, func() bool {
		set(t, cl, "reg/flow", "more")
		s, err := c.Status(t.Context(), node)
		return err == nil && s.Snapshot > 0
	})
	do(t, c.Kill(node))
	everyDamage(t, c, node, filepath.Join(dir, c.Nodes()[node]))
	do(t, c.Start(node))
	ready(t, c)

	if len(log.History().Install) == 0 {
		t.Error("no life began with a snapshot")
	}
	if _, err := c.Corrupt(follower(t, c), nemesis.FlipLog, nil); err == nil || !strings.Contains(err.Error(), "runs") {
		t.Errorf("the disk of a running node was damaged: %v", err)
	}
}

// everyDamage does each kind of damage to a node that is down, sees that its disk is another
// one afterwards, and leaves an older copy on it.
func everyDamage(t *testing.T, c *netns.Cluster, node int, dir string) {
	t.Helper()
	dice := rand.New(rand.NewPCG(1, 2))
	for _, kind := range []nemesis.Corruption{nemesis.FlipMeta, nemesis.FlipSnap, nemesis.SwappedSnap, nemesis.EmptySnap,
		nemesis.FlipLog, nemesis.CutTail, nemesis.OlderCopy, nemesis.WipeAll, nemesis.OlderCopy} {
		before := sums(t, dir)
		what, err := c.Corrupt(node, kind, dice)
		switch {
		case kind == nemesis.SwappedSnap && errors.Is(err, nemesis.ErrUnsupported):
			t.Logf("%s: %v", kind, err)
		case err != nil || what == "":
			t.Errorf("%s: %q, %v", kind, what, err)
		case maps.Equal(before, sums(t, dir)):
			t.Errorf("%s: %s, and the disk is as it was", kind, what)
		default:
			t.Logf("%s: %s", kind, what)
		}
	}
}

// sums are of the files of a data directory on a mounted disk.
func sums(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	files := map[string][32]byte{}
	data, err := filepath.Glob(dir + "/rbn-*/data")
	if err != nil || len(data) != 1 {
		t.Fatalf("data directories %v: %v", data, err)
	}
	err = filepath.WalkDir(data[0], func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		files[path] = sha256.Sum256(raw)
		return err
	})
	do(t, err)
	return files
}

// syncs measures how long an acknowledged write takes.
func syncs(t *testing.T, cl *client.Client, n int) time.Duration {
	t.Helper()
	began := time.Now()
	for i := range n {
		set(t, cl, "reg/timed", fmt.Sprint(i))
	}
	return time.Since(began) / time.Duration(n)
}

func TestASlowDiskAndASmallShareOfACoreAreFelt(t *testing.T) {
	t.Parallel()
	c, _ := start(t, func(o *netns.Options) { o.PowerDisks = true })
	cl := dial(t, c, "writer")
	first, _ := leader(t, c)
	quick := syncs(t, cl, 20)
	for i := range c.Nodes() {
		if i != first {
			do(t, c.Disk(i, nemesis.DiskFault{Slow: 100 * time.Millisecond}))
		}
	}
	slow := syncs(t, cl, 20)
	for i := range c.Nodes() {
		do(t, c.Disk(i, nemesis.DiskFault{}))
	}
	t.Logf("a write took %v, with slow disks %v", quick, slow)
	if slow < 50*time.Millisecond || slow < 3*quick {
		t.Errorf("a write took %v, and with disks that are slower by 100ms it took %v", quick, slow)
	}
	do(t, c.Starve(first, 0.05))
	starved := syncs(t, cl, 20)
	do(t, c.Starve(first, 0))
	t.Logf("with a twentieth of a core %v", starved)
	ready(t, c)
}
