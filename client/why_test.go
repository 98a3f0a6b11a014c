package client_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/client"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// Who holds an item, and the command that takes it away, is told alike by every node, and by the
// next leader, which gives the holder time.
func TestWhyTellsTheHolderOnEveryNodeAndAfterTheLeaderWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		w := dial(t, cluster, "w1", cluster.Addrs()...)
		l := openLoop(t, w, client.LoopOptions{Label: "host-7"})
		res, err := l.Post(ctx, "claims/a", []byte(`1`))
		ok(t, "post", res, err)
		claim(t, ctx, l, "claims/a", time.Minute)
		held := func(who string, endpoints ...string) *wirepb.WhyRow {
			t.Helper()
			answer, _, err := dial(t, cluster, who, endpoints...).Board("default").Why(ctx, "claims/a", client.ReadOptions{})
			if err != nil {
				t.Fatalf("%s: %v", who, err)
			}
			for _, row := range answer.Rows {
				if row.What == "held" {
					return row
				}
			}
			t.Fatalf("%s: nobody holds it: %v", who, answer)
			return nil
		}
		for i, addr := range cluster.Addrs() {
			row := held("r"+string(rune('0'+i)), addr)
			if row.Who != "w1" || !strings.Contains(row.About, `generation 1, attempt 1, loop `+l.ID()+`, label "host-7"`) ||
				row.Command != "raftboard release claims/a --force --reason TEXT" || row.EndsInMs <= 0 || row.SinceWallMs == 0 {
				t.Errorf("node %d: %v", i, row)
			}
		}
		cluster.Kill(cluster.Leader())
		if row := held("late", cluster.Addrs()...); row.Who != "w1" || row.EndsInMs <= 0 {
			t.Errorf("after the leader went: %v", row)
		}
	})
}
