package client_test

import (
	"testing"
	"testing/synctest"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/transport/clustertest"
)

// join gives a client of a real cluster, on a host of its own named like its principal.
func dial(t testing.TB, c *clustertest.Cluster, as string, endpoints ...string) *client.Client {
	t.Helper()
	cl, err := client.Dial(client.Config{Endpoints: endpoints, As: as, Dialer: c.Dialer(as), NoLeader: 30 * time.Second, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	return cl
}

func ok(t testing.TB, what string, res *boardpb.Result, err error) *boardpb.Result {
	t.Helper()
	if err != nil || res.Outcome != boardpb.Outcome_OUTCOME_OK {
		t.Fatalf("%s: %v, %v", what, res, err)
	}
	return res
}

func TestAWorkersDayOnARealClusterSurvivesTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		c := dial(t, cluster, "w1", cluster.Addrs()...)
		ctx := background(t)
		b := c.Board("default")
		l := openLoop(t, c, client.LoopOptions{})
		w, err := b.Watch(ctx, client.WatchOptions{Patterns: []string{"**"}})
		if err != nil {
			t.Fatal(err)
		}
		res, err := l.Post(ctx, "claims/a", []byte(`{"path": "x"}`))
		ok(t, "post", res, err)
		lease := claim(t, ctx, l, "claims/a", 9*time.Second)
		if string(lease.Value()) != `{"path": "x"}` || lease.Generation() != 1 || lease.Attempts() != 1 {
			t.Errorf("granted %q, generation %d, attempts %d", lease.Value(), lease.Generation(), lease.Attempts())
		}
		cluster.Kill(cluster.Leader())
		time.Sleep(20 * time.Second)
		if isLost(lease) {
			t.Fatalf("lost: %+v", lease.Ended())
		}
		res, err = lease.Complete(ctx, []byte(`{"lines": 3}`), "results/w1/a")
		ok(t, "complete", res, err)
		got, at, err := b.Get(ctx, "results/w1/a", client.ReadOptions{})
		if err != nil || string(got.Entry.Value) != `{"lines": 3}` {
			t.Fatalf("get: %v, %v", got, err)
		}
		for _, consistency := range []client.Consistency{client.Stale, client.AtLeast} {
			if _, later, err := b.Get(ctx, "results/w1/a", client.ReadOptions{Consistency: consistency}); err != nil || later.Rev < at.Rev {
				t.Errorf("%v: rev %d, %v; want at least %d", consistency, later.Rev, err, at.Rev)
			}
		}
		if err := l.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		var kinds []boardpb.Kind
		for len(kinds) == 0 || kinds[len(kinds)-1] != boardpb.Kind_KIND_LOOP_CLOSE {
			m, err := w.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if m.Kind == client.MessageEvent {
				kinds = append(kinds, m.Event.Kind)
			}
		}
		for _, want := range []boardpb.Kind{boardpb.Kind_KIND_POST, boardpb.Kind_KIND_CLAIM, boardpb.Kind_KIND_COMPLETE} {
			n := 0
			for _, kind := range kinds {
				if kind == want {
					n++
				}
			}
			if n != 1 {
				t.Errorf("the watch told %v %d times: %v", want, n, kinds)
			}
		}
	})
}

func TestTheClusterFaceStepsDownAndTellsWhoLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		op := dial(t, cluster, "op", cluster.Addrs()...).Cluster()
		before, err := op.Status(ctx, false)
		if err != nil || before.Voters != 3 || before.Leader == nil {
			t.Fatalf("status: %v, %v", before, err)
		}
		if _, err := op.StepDown(ctx, ""); err != nil {
			t.Fatalf("step down: %v", err)
		}
		cluster.Eventually("another node leads", func() bool {
			after, err := op.Status(ctx, false)
			return err == nil && after.Leader.GetNodeId() != "" && after.Leader.NodeId != before.Leader.NodeId
		})
		grace := 7 * time.Second
		if set, err := op.Settings(ctx, &grace); err != nil || set.GraceMs != 7000 {
			t.Errorf("settings: %v, %v", set, err)
		}
		if read, err := op.Settings(ctx, nil); err != nil || read.GraceMs != 7000 {
			t.Errorf("settings read: %v, %v", read, err)
		}
		nodes, err := op.Nodes(ctx)
		if err != nil || len(nodes.Nodes) != 3 {
			t.Errorf("nodes: %v, %v", nodes, err)
		}
	})
}

func TestALoopOpenedAgainUnderItsNonceGoesOnAndRenewsNothingItNoLongerWorksOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		first := dial(t, cluster, "w1", cluster.Addrs()...)
		l := openLoop(t, first, client.LoopOptions{Nonce: "p1", TTL: time.Hour})
		for range 20 {
			res, err := appendTo(ctx, l)
			ok(t, "append", res, err)
		}
		claim(t, ctx, l, "claims/a", 5*time.Second)
		claim(t, ctx, l, "claims/b", 5*time.Second)
		first.Close() // the process is gone, its loop is not

		second := dial(t, cluster, "w1", cluster.Addrs()...)
		again := openLoop(t, second, client.LoopOptions{Nonce: "p1", TTL: time.Hour})
		if again.ID() != l.ID() {
			t.Fatalf("opened %s, want %s again", again.ID(), l.ID())
		}
		res, err := appendTo(ctx, again)
		if ok(t, "append", res, err); res.Replayed || res.Version != 21 {
			t.Errorf("got %v; want version 21, written anew", res)
		}
		b := claim(t, ctx, again, "claims/b", 5*time.Second)
		if b.Generation() != 1 {
			t.Errorf("generation %d: the loop held it still", b.Generation())
		}
		time.Sleep(20 * time.Second)
		if isLost(b) {
			t.Errorf("the lease claimed again was lost: %+v", b.Ended())
		}
		other := dial(t, cluster, "w2", cluster.Addrs()...)
		claim(t, ctx, openLoop(t, other, client.LoopOptions{}), "claims/a", time.Minute)
	})
}
