package client_test

import (
	"testing"
	"testing/synctest"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

func TestT16AnItemThatLapsedThreeTimesIsParkedAcrossALeaderChangeAndNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		orc, w1 := dial(t, cluster, "orc", cluster.Addrs()...), dial(t, cluster, "w1", cluster.Addrs()...)
		res, err := orc.CreateBoard(ctx, "jobs", &boardpb.BoardSettings{Namespaces: []*boardpb.Namespace{
			{Pattern: "jobs/*", Mode: boardpb.Mode_MODE_LEASED, MaxAttempts: 3}}})
		ok(t, "create", res, err)
		b := orc.Board("jobs")
		const value = `{"kind":"unheard-of"}`
		res, err = b.Post(ctx, "jobs/p", []byte(value))
		ok(t, "post", res, err)
		told, err := b.Watch(ctx, client.WatchOptions{Patterns: []string{"jobs/*"}, To: "role:orchestrator"})
		if err != nil {
			t.Fatal(err)
		}
		l, err := w1.Board("jobs").OpenLoop(ctx, client.LoopOptions{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			ms := int64(2000)
			op := &boardpb.Command{Op: &boardpb.Command_Claim{Claim: &boardpb.Claim{Key: "jobs/p", DurationMs: &ms}}}
			res, err := w1.Board("jobs").Do(client.WithIdempotencyKey(ctx, "try "+string(rune('a'+n))), inLoop(op, l))
			ok(t, "claim", res, err)
			if n == 1 {
				cluster.Kill(cluster.Leader())
			}
			time.Sleep(30 * time.Second) // two seconds, an election and its grace
		}
		lease, res, err := l.ClaimNext(ctx, "jobs/*", client.ClaimOptions{})
		if lease != nil || err != nil || res.Outcome != boardpb.Outcome_OUTCOME_TIMEOUT || res.Counts.GetParked() != 1 {
			t.Errorf("claim_next: %v, %v, %v; want timeout with one parked", lease, res, err)
		}
		if _, res, err := l.Claim(ctx, "jobs/p", client.ClaimOptions{}); err != nil || res.Outcome != boardpb.Outcome_OUTCOME_NOT_READY || res.Reason == "" {
			t.Errorf("claim: %v, %v; want not_ready with a reason", res, err)
		}
		got, _, err := b.Get(ctx, "jobs/p", client.ReadOptions{})
		if err != nil || string(got.Entry.Value) != value || got.Entry.Author != "orc" ||
			got.Lease.State != boardpb.LeaseState_LEASE_STATE_PARKED || got.Lease.Generation != 3 {
			t.Errorf("get: %v, %v; want it parked, its value as orc wrote it", got, err)
		}
		m, err := told.Next(ctx)
		for err == nil && m.Event == nil {
			m, err = told.Next(ctx)
		}
		if err != nil || m.Event.GetKind() != boardpb.Kind_KIND_PARK || m.Event.Generation != 3 {
			t.Errorf("the orchestrator is told %v, %v; want park of generation 3", m, err)
		}
		res, err = b.Unpark(ctx, "jobs/p")
		ok(t, "unpark", res, err)
		if again := claim(t, ctx, l, "jobs/p", 2*time.Second); again.Generation() != 4 || again.Attempts() != 1 {
			t.Errorf("granted generation %d as attempt %d, want 4 and 1", again.Generation(), again.Attempts())
		}
	})
}

func TestT05WhatIsHeldIsNeverOfferedThroughALeaderChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		w1, w2 := dial(t, cluster, "w1", cluster.Addrs()...), dial(t, cluster, "w2", cluster.Addrs()...)
		l1, l2 := openLoop(t, w1, client.LoopOptions{}), openLoop(t, w2, client.LoopOptions{})
		res, err := l1.Post(ctx, "claims/h1", []byte(`1`))
		ok(t, "post", res, err)
		claim(t, ctx, l1, "claims/h1", 10*time.Second)
		b := w2.Board("default")
		for second := range 120 {
			if second == 40 {
				cluster.Kill(cluster.Leader())
			}
			if lease, res, err := l2.ClaimNext(ctx, "claims/h*", client.ClaimOptions{}); lease != nil || err != nil ||
				res.Counts.GetHeld() != 1 || res.Counts.GetReady() != 0 {
				t.Fatalf("second %d: claim_next: %v, %v", second, res, err)
			}
			for _, q := range []*wirepb.LeasesQuery{{Reclaimable: true}, {States: []boardpb.LeaseState{boardpb.LeaseState_LEASE_STATE_FREE}}, {}} {
				for _, how := range []client.Consistency{client.Linearizable, client.Stale} {
					got, _, err := b.Leases(ctx, q, client.ReadOptions{Consistency: how})
					held := err == nil && len(got.Leases) == 1 && got.Leases[0].Lease.Owner == "w1"
					if asked := !q.Reclaimable && q.States == nil; err != nil || held != asked || !asked && len(got.Leases) > 0 {
						t.Fatalf("second %d: leases %v, %v: %v, %v", second, q, how, got, err)
					}
				}
			}
			time.Sleep(time.Second)
		}
	})
}

func inLoop(c *boardpb.Command, l *client.Loop) *boardpb.Command {
	c.Loop = l.ID()
	return c
}

func TestSeveralKeysAreClaimedAllOrNoneAndKeptAliveThroughALeaderChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		w1, w2 := dial(t, cluster, "w1", cluster.Addrs()...), dial(t, cluster, "w2", cluster.Addrs()...)
		l1, l2 := openLoop(t, w1, client.LoopOptions{}), openLoop(t, w2, client.LoopOptions{})
		res, err := l1.Post(ctx, "claims/a", []byte(`1`))
		ok(t, "post", res, err)
		leases, res, err := l1.ClaimAll(ctx, []string{"claims/a", "claims/b"}, client.ClaimOptions{Duration: 5 * time.Second})
		ok(t, "claim", res, err)
		if len(leases) != 2 || leases[0].Key() != "claims/a" || string(leases[0].Value()) != "1" || leases[1].Key() != "claims/b" {
			t.Fatalf("granted %v", leases)
		}
		cluster.Kill(cluster.Leader())
		time.Sleep(30 * time.Second)
		none, res, err := l2.ClaimAll(ctx, []string{"claims/c", "claims/b", "claims/a"}, client.ClaimOptions{})
		if none != nil || err != nil || res.Outcome != boardpb.Outcome_OUTCOME_HELD || res.Key != "claims/b" || len(res.InTheWay) != 2 {
			t.Errorf("the other's claim: %v, %v, %v; want held, naming both", none, res, err)
		}
		for _, lease := range leases {
			if isLost(lease) {
				t.Errorf("%s is lost: %+v", lease.Key(), lease.Ended())
			}
			res, err := lease.Complete(ctx, nil, "")
			ok(t, "complete", res, err)
		}
		claim(t, ctx, l2, "claims/c", time.Second) // nothing had happened to it
		if _, _, err := l2.ClaimAll(ctx, nil, client.ClaimOptions{}); client.CodeOf(err) != boardpb.Code_CODE_BAD_REQUEST {
			t.Errorf("no keys at all: %v, want bad_request", err)
		}
	})
}
