package client_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"raftboard/client"
	"raftboard/transport/clustertest"
)

// F-18, F-31: what was built on a wrong finding is found on every node, before and after the
// leader dies.
func TestAPoisonedFindingIsTracedAndMarkedOnEveryNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		scout, writer := dial(t, cluster, "scout", cluster.Addrs()...).Board("default"), dial(t, cluster, "w2", cluster.Addrs()...).Board("default")
		res, err := scout.Append(ctx, "findings/a", []byte(`"wrong"`), client.AppendOptions{Source: "probe"})
		ok(t, "append", res, err)
		res, err = writer.Append(ctx, "findings/b", []byte(`"so it is"`), client.AppendOptions{Cites: []string{"findings/a"}})
		ok(t, "append", res, err)
		res, err = writer.Set(ctx, "results/w2/c", []byte(`1`), client.SetOptions{Cites: []string{"kv:findings/b@1"}})
		ok(t, "set", res, err)
		before := res.Rev
		if _, err := writer.Set(ctx, "results/w2/d", []byte(`1`), client.SetOptions{Cites: []string{"findings/none"}}); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("a citation of what never was: %v", err)
		}
		if _, err := writer.Set(ctx, "results/w2/d", []byte(`1`), client.SetOptions{Cites: make([]string, 65)}); !errors.Is(err, client.ErrLimitCites) {
			t.Errorf("65 citations: %v", err)
		}
		dead := cluster.Leader()
		cluster.Kill(dead)
		cluster.WaitReady()
		res, err = scout.Invalidate(ctx, "findings/a@1", "measured on the wrong host")
		ok(t, "invalidate", res, err)
		cluster.Restart(dead)
		cluster.WaitReady()
		for _, addr := range cluster.Addrs() {
			reader := dial(t, cluster, "w3", addr).Board("default")
			got, _, err := reader.Get(ctx, "results/w2/c", client.ReadOptions{})
			if err != nil || len(got.GetMark().GetRestsOn()) != 1 || got.Mark.RestsOn[0] != "kv:findings/a@1" {
				t.Errorf("%s: %v, %v; want a mark that names findings/a", addr, got, err)
			}
			if a, _, err := reader.Get(ctx, "findings/a", client.ReadOptions{}); err != nil || a.GetMark().GetInvalidation().GetAuthor() != "scout" {
				t.Errorf("%s: %v, %v; want it readable, and marked", addr, a, err)
			}
			if then, _, err := reader.Get(ctx, "results/w2/c", client.ReadOptions{AtRev: before}); err != nil || then.GetMark() != nil {
				t.Errorf("%s: before the invalidation: %v, %v", addr, then, err)
			}
			trace, _, err := reader.Trace(ctx, "findings/a", 0, 0, client.ReadOptions{})
			if err != nil || len(trace.GetRows()) != 2 || trace.Rows[1].Ref != "kv:results/w2/c@1" || trace.Rows[1].Distance != 2 || !trace.Rows[1].CitesIt {
				t.Errorf("%s: %v, %v; want findings/b and then the result", addr, trace, err)
			}
		}
	})
}
