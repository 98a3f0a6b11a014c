package node_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/node"
	"raftboard/node/nodetest"
)

func TestSnapshotsComeByThemselvesAndAFollowerFarBehindInstallsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{Configure: func(_ int, cfg *node.Config) {
			cfg.SnapshotThreshold, cfg.SnapshotInterval, cfg.TrailingLogs = 20, 5*time.Second, 5
		}})
		leader := c.WaitLeader()
		c.WaitSame()
		away := (leader.Index + 1) % 3
		c.Isolate(away)
		for i := range 60 {
			mustPropose(t, leader.Node, create(fmt.Sprintf("b%d", i)))
			time.Sleep(200 * time.Millisecond)
		}
		c.Eventually("the log is cut past the one that is away", func() bool {
			s := leader.Node.Status()
			return s.SnapshotIndex > 40 && s.FirstLog > c.Members[away].Node.Status().LastLog+1
		})
		c.Heal()
		n := c.Members[away].Node
		c.Eventually("it has installed the snapshot and what came after", func() bool { return n.View().Board("b59") != nil })
		if s := n.Status(); s.SnapshotIndex == 0 {
			t.Errorf("no snapshot was installed: %+v", s)
		}
		ctx, cancel := brief()
		defer cancel()
		if _, err := n.Read(ctx, node.Consistency{}); err != nil { // the applied index came with the snapshot (P6)
			t.Errorf("a read after the install: %v", err)
		}
		mustPropose(t, c.WaitLeader().Node, create("after"))
		c.WaitSame()
	})
}
