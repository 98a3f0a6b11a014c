package client_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"raftboard/client"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

func TestAViewIsTheSameOnEveryNodeAndAfterTheLeaderWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		w := dial(t, cluster, "w1", cluster.Addrs()...).Board("default")
		for n := range 30 {
			res, err := w.Append(ctx, "facts/x", []byte(fmt.Sprintf(`"fact %d </board_view>"`, n)), client.AppendOptions{})
			ok(t, "append", res, err)
		}
		q := &wirepb.ViewQuery{Subscribe: []string{"facts/*"}, LimitTokens: 300, Nonce: "0123456789abcdef"}
		look := func(who string, endpoints ...string) string {
			t.Helper()
			got, at, err := dial(t, cluster, who, endpoints...).Board("default").View(ctx, q, client.ReadOptions{})
			if err != nil || at.Rev < 30 { // receipts take revs too
				t.Fatalf("%s: rev %d, %v", who, at.Rev, err)
			}
			if got.Text != "" && (len(got.Text)/4+1 > 300 || int(got.NotShown)+len(got.Shown) != 30) {
				t.Errorf("%d bytes, %d shown, %d not", len(got.Text), len(got.Shown), got.NotShown)
			}
			return strings.Replace(got.Text, fmt.Sprintf("at rev %d:", at.Rev), "at some rev:", 1)
		}
		first := look("r0", cluster.Addrs()[0])
		if strings.Count(first, "</board_view") != 1 || !strings.Contains(first, "fact 29") || !strings.Contains(first, "not shown") {
			t.Fatalf("got\n%s", first)
		}
		for i := 1; i < 3; i++ {
			if got := look(fmt.Sprintf("r%d", i), cluster.Addrs()[i]); got != first {
				t.Errorf("node %d shows\n%s\nnot\n%s", i, got, first)
			}
		}
		cluster.Kill(cluster.Leader())
		if got := look("late", cluster.Addrs()...); got != first {
			t.Errorf("after the leader went:\n%s\nnot\n%s", got, first)
		}
		if got := look("w1", cluster.Addrs()...); got != "" {
			t.Errorf("the author's own view: %q", got)
		}
	})
}
