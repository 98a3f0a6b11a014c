package netns_test

import (
	"strings"
	"testing"
	"time"

	"raftboard/client"
	"raftboard/jepsen/nemesis"
	"raftboard/jepsen/netns"
)

func TestNodesBuiltForItBreakAtPointsAndHaveBadClocksAndDisks(t *testing.T) {
	t.Parallel()
	c, _ := start(t, func(o *netns.Options) {
		o.Tagged, o.Binary = true, tagged.get(t, "raftboard-tagged", "-tags", "faults")
	})
	cl := dial(t, c, "writer")
	node := follower(t, c)
	do(t, c.Failpoint(node, "apply-before:5:panic"))
	do(t, c.Kill(node))
	do(t, c.Start(node))
	broke := dead(t, c, node, func() { set(t, cl, "reg/k", "1") })
	if !strings.Contains(broke.Error(), "exit status 2") {
		t.Errorf("a failpoint ended it so: %v", broke)
	}
	if again := c.Died(node); again != nil {
		t.Errorf("its death is told twice: %v", again)
	}
	do(t, c.Failpoint(node, ""))
	do(t, c.Start(node))
	ready(t, c)

	do(t, c.Disk(node, nemesis.DiskFault{Error: true}))
	if why := dead(t, c, node, func() { set(t, cl, "reg/k", "2") }); !strings.Contains(why.Error(), "input/output error") {
		t.Errorf("a disk that fails ended it so: %v", why)
	}
	do(t, c.Disk(node, nemesis.DiskFault{}))
	do(t, c.Start(node))
	ready(t, c)

	first, _ := leader(t, c)
	right := stamp(t, cl)
	do(t, c.Clock(first, nemesis.ClockFault{Wall: time.Hour}))
	ahead := stamp(t, cl)
	do(t, c.Clock(first, nemesis.ClockFault{}))
	if ahead-right < 50*time.Minute {
		t.Errorf("a wall clock that jumped by an hour stamped %v later", ahead-right)
	}
}

// stamp writes something and answers the wall time that the leader gave it.
func stamp(t *testing.T, cl *client.Client) time.Duration {
	t.Helper()
	set(t, cl, "reg/clock", "tick")
	got, _, err := cl.Board("b").Get(t.Context(), "reg/clock", client.ReadOptions{})
	do(t, err)
	return time.Duration(got.Entry.WallMs) * time.Millisecond
}

// dead waits until a node has ended by itself, while something goes on.
func dead(t *testing.T, c *netns.Cluster, node int, load func()) (why error) {
	t.Helper()
	eventually(t, "a node that ends by itself", 20*time.Second, func() bool {
		load()
		why = c.Died(node)
		return why != nil
	})
	return why
}
