package netns_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raftboard/client"
	"raftboard/jepsen/nemesis"
	"raftboard/jepsen/netns"
)

// logsOf is what all lives of a node wrote to their logs.
func logsOf(t *testing.T, dir, name string) (text string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, name, "life*.log"))
	do(t, err)
	for _, path := range logs {
		raw, err := os.ReadFile(path)
		do(t, err)
		text += string(raw)
	}
	return text
}

// filled fills the volume of a node and sees it named by the node, which takes no work: it says
// that it is not ready, or it has ended. It answers whether it ended.
func filled(t *testing.T, c *netns.Cluster, dir string, node int, between func()) (ended bool) {
	t.Helper()
	before := len(logsOf(t, dir, c.Nodes()[node]))
	do(t, c.Disk(node, nemesis.DiskFault{Full: true})) // it may be down
	between()
	eventually(t, "a node with a full volume that is not ready", 30*time.Second, func() bool {
		if died := c.Died(node); died != nil {
			ended = true
			return true
		}
		s, err := c.Status(t.Context(), node)
		return err == nil && !s.Ready
	})
	name := c.Nodes()[node]
	// A node that has just started is not ready either, and has not met its disk yet.
	eventually(t, name+" names the volume that is full", 30*time.Second, func() bool {
		said := logsOf(t, dir, name)[before:]
		return strings.Contains(said, "volume") && strings.Contains(said, filepath.Join(dir, name))
	})
	return ended
}

// emptied gives the space back, and starts the node if it has ended.
func emptied(t *testing.T, c *netns.Cluster, node int, ended bool) {
	t.Helper()
	do(t, c.Disk(node, nemesis.DiskFault{}))
	if ended || c.Died(node) != nil {
		do(t, c.Start(node))
	}
	ready(t, c)
}

// flow writes keys that nobody wrote before, each acknowledged.
func flow(t *testing.T, cl *client.Client, written *int, n int) {
	t.Helper()
	for range n {
		set(t, cl, fmt.Sprintf("reg/t%d", *written), fmt.Sprint(*written))
		*written++
	}
}

// T-81 with volumes of 256 MiB, snapshots every 20 entries and logs that are cut behind 10, so
// that writes, snapshots and compactions all meet the full volume.
func TestT81AFullVolumeIsNamedCostsNoWriteAndHealsWithSpace(t *testing.T) {
	t.Parallel()
	var dir string
	c, _ := start(t, func(o *netns.Options) {
		dir = o.Dir
		o.PowerDisks, o.SnapshotThreshold, o.TrailingLogs, o.SnapshotInterval = true, 20, 10, time.Second
	})
	cl, written := dial(t, c, "writer"), 0
	flow(t, cl, &written, 40)

	n2 := follower(t, c) // during writes, snapshots and compaction of a follower
	ended := filled(t, c, dir, n2, func() { flow(t, cl, &written, 60) })
	t.Logf("follower: ended %v", ended)
	emptied(t, c, n2, ended)

	do(t, c.Kill(n2)) // during a start
	ended = filled(t, c, dir, n2, func() {
		if err := c.Start(n2); err != nil {
			t.Logf("start on a full volume: %v", err)
		}
		flow(t, cl, &written, 20)
	})
	t.Logf("start: ended %v", ended)
	emptied(t, c, n2, ended)

	first, _ := leader(t, c) // the leader's
	ended = filled(t, c, dir, first, func() { leader(t, c, first); flow(t, cl, &written, 40) })
	t.Logf("leader: ended %v", ended)
	emptied(t, c, first, ended)

	flow(t, cl, &written, 40) // each takes snapshots again
	for i := range written {
		if got, want := value(t, cl, fmt.Sprintf("reg/t%d", i)), fmt.Sprintf("%q", fmt.Sprint(i)); got != want {
			t.Errorf("acknowledged was %s, and there is %s", want, got)
		}
	}
	states, err := filepath.Glob(filepath.Join(dir, "*", "rbn-*", "data", "raft", "snapshots", "*", "state.bin"))
	do(t, err)
	whole := 0
	for _, path := range states {
		info, err := os.Stat(path)
		switch {
		case err != nil || strings.Contains(path, ".tmp"+string(filepath.Separator)):
		case info.Size() == 0:
			t.Errorf("%s is empty", path)
		default:
			whole++
		}
	}
	if whole < 3 {
		t.Errorf("%d whole snapshots on three nodes: %v", whole, states)
	}
}
