package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

func TestT17AWorkersStopOnARealClusterLetsNobodyElseInBeforeTheItemIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		w1, w2 := dial(t, cluster, "w1", cluster.Addrs()...), dial(t, cluster, "w2", cluster.Addrs()...)
		for _, key := range []string{"claims/a", "claims/b"} {
			res, err := w2.Board("default").Post(ctx, key, []byte(`1`))
			ok(t, "post", res, err)
		}
		stop, cancel := context.WithCancel(ctx)
		started := make(chan string, 2)
		finished := make(chan error, 1)
		var loop *client.Loop
		go func() {
			finished <- w1.Board("default").Work(stop, client.WorkOptions{Pattern: "claims/*", Duration: 5 * time.Second},
				func(ctx context.Context, item *client.Lease) (client.Done, error) {
					loop = item.Loop()
					started <- item.Key()
					<-stop.Done()
					select {
					case <-time.After(12 * time.Second):
					case <-ctx.Done():
						t.Errorf("the work was cut off: %v", context.Cause(ctx))
					}
					return client.Done{Result: []byte(`"done"`)}, nil
				})
		}()
		key := <-started
		cancel()
		l2 := openLoop(t, w2, client.LoopOptions{})
		for range 11 { // w2 tries every second while the work goes on
			_, res, err := l2.Claim(ctx, key, client.ClaimOptions{})
			if err != nil || res.Outcome != boardpb.Outcome_OUTCOME_HELD || res.Holder != "w1" {
				t.Errorf("w2's claim: %v, %v; want held by w1", res, err)
			}
			time.Sleep(time.Second)
		}
		if err := <-finished; err != nil {
			t.Errorf("Work: %v", err)
		}
		if _, res, err := l2.Claim(ctx, key, client.ClaimOptions{}); err != nil || res.Outcome != boardpb.Outcome_OUTCOME_DONE {
			t.Errorf("w2's claim afterwards: %v, %v; want done", res, err)
		}
		if len(started) != 0 {
			t.Errorf("w1 claimed %s after the signal", <-started)
		}
		if got, _, err := w2.Board("default").LoopStatus(ctx, loop.ID(), client.ReadOptions{}); err != nil || got.Loop.State != boardpb.LoopState_LOOP_STATE_ENDED {
			t.Errorf("w1's loop: %v, %v; want ended", got, err)
		}
	})
}

func TestT19NothingIsHeldTwoTTLsAfterTheWorkEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		w1 := dial(t, cluster, "w1", cluster.Addrs()...)
		l := openLoop(t, w1, client.LoopOptions{})
		const ttl = 5 * time.Second
		func() { // returns
			work, done := context.WithCancel(ctx)
			defer done()
			claim(t, work, l, "claims/a", ttl)
		}()
		func() { // panics and is recovered above
			defer func() { _ = recover() }()
			work, done := context.WithCancel(ctx)
			defer done()
			claim(t, work, l, "claims/b", ttl)
			panic("the work failed")
		}()
		work, done := context.WithCancel(ctx)
		claim(t, work, l, "claims/c", ttl)
		kept := claim(t, ctx, l, "claims/d", ttl)
		time.Sleep(30 * time.Second) // c and d are renewed meanwhile
		holds := func() (keys []string) {
			got, _, err := w1.Board("default").Leases(ctx, &wirepb.LeasesQuery{Holder: "w1"}, client.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range got.Leases {
				keys = append(keys, row.Lease.Key)
			}
			return keys
		}
		if got := join(holds()); got != "claims/c claims/d" {
			t.Errorf("held while the work goes on: %q", got)
		}
		done() // its context is cancelled
		time.Sleep(2 * ttl)
		if got := join(holds()); got != "claims/d" || isLost(kept) {
			t.Errorf("held two ttls later: %q, want claims/d alone; lost %v", got, isLost(kept))
		}
	})
}

func TestT20LostIsToldWhileAllNodesAreDownAndTheProcessClaimsAgainLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		w1 := dial(t, cluster, "w1", cluster.Addrs()...)
		l := openLoop(t, w1, client.LoopOptions{TTL: time.Hour})
		lease := claim(t, ctx, l, "claims/x", 6*time.Second)
		time.Sleep(11 * time.Second)                   // between two renewals
		last := lease.Deadline().Add(-6 * time.Second) // before the last acknowledged renewal was sent
		for i := range 3 {
			cluster.Kill(i)
		}
		<-lease.Lost()
		if d := time.Since(last); d < 6*time.Second || d > 7*time.Second {
			t.Errorf("told %v after the last acknowledged renewal, want 6 s to 7 s", d)
		}
		if !lease.Ended().OwnClock || context.Cause(lease.Context()) != client.ErrLost {
			t.Errorf("ended %+v, cause %v", lease.Ended(), context.Cause(lease.Context()))
		}
		for i := range 3 {
			cluster.Restart(i)
		}
		cluster.WaitReady()
		again := claim(t, ctx, l, "claims/x", 6*time.Second)
		time.Sleep(time.Minute)
		if isLost(again) {
			t.Errorf("the lease claimed again was lost: %+v", again.Ended())
		}
	})
}

func TestT25AfterALongGapTheFirstCallTellsThatTheLeaseIsOver(t *testing.T) {
	for name, taken := range map[string]bool{"nobody took it": false, "w2 took it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := clustertest.Start(t, clustertest.Options{Nodes: 1})
				ctx := background(t)
				w1, w2 := dial(t, cluster, "w1", cluster.Addrs()...), dial(t, cluster, "w2", cluster.Addrs()...)
				// A process that stands still renews nothing and hears no clock: that is what
				// Manual leaves of a loop.
				l1 := openLoop(t, w1, client.LoopOptions{TTL: time.Hour, Manual: true})
				lease := claim(t, ctx, l1, "claims/n", 20*time.Second)
				res, err := l1.Set(ctx, "results/w1/n", []byte(`"half"`), lease.Attach(client.SetOptions{}))
				ok(t, "partial work", res, err)
				time.Sleep(time.Minute)
				want := client.ErrLeaseExpired
				if taken {
					claim(t, ctx, openLoop(t, w2, client.LoopOptions{}), "claims/n", 10*time.Minute)
					want = client.ErrStaleLease
				}
				time.Sleep(time.Minute)
				_, err = lease.Set(context.Background(), []byte(`"late"`), client.SetOptions{})
				var e *client.Error
				if !errors.Is(err, want) || !errors.As(err, &e) {
					t.Fatalf("the first call: %v, want %v", err, want)
				}
				if taken {
					if e.Result.Holder != "w2" || e.Result.Generation != 2 || e.Result.YourGeneration != 1 {
						t.Errorf("told %v; want generation 1 lost to w2's 2", e.Result)
					}
					return
				}
				again := claim(t, context.Background(), l1, "claims/n", 20*time.Second)
				previous := again.Previous()
				if again.Generation() != 2 || len(previous) != 1 || previous[0].Owner != "w1" ||
					len(previous[0].PartialRefs) != 1 || previous[0].PartialRefs[0] != "results/w1/n@1" {
					t.Errorf("generation %d, previous %v; want 2 and its own partial work", again.Generation(), previous)
				}
			})
		})
	}
}

func TestT26ALapseIsToldToItsHolderByTheNextReadAndOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		var told []client.Ended
		w1, err := client.Dial(client.Config{
			Endpoints: cluster.Addrs(), As: "w1", Dialer: cluster.Dialer("w1"), OnEnded: func(e client.Ended) { told = append(told, e) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w1.Close() })
		// The loop is attached by hand, so that nothing but an answer can tell of the lapse.
		opened := openLoop(t, w1, client.LoopOptions{TTL: time.Hour, Manual: true})
		res, err := opened.Do(ctx, &boardpb.Command{Op: &boardpb.Command_Claim{Claim: &boardpb.Claim{Key: "claims/m", DurationMs: ms(10_000)}}})
		ok(t, "claim", res, err)
		opened.Held("claims/m", 1).LetGo() // the client does not look after it any more
		w2 := dial(t, cluster, "w2", cluster.Addrs()...)
		time.Sleep(15 * time.Second)
		claim(t, ctx, openLoop(t, w2, client.LoopOptions{}), "claims/m", time.Minute)
		other := dialTold(t, cluster, &told)
		l := other.Board("default").AttachLoop(opened.ID())
		for i := range 2 {
			_, _, err := other.Board("default").Get(ctx, "facts/other", client.ReadOptions{Loop: l})
			if err != nil && !errors.Is(err, client.ErrNotFound) {
				t.Fatal(err)
			}
			if len(told) != 1 {
				t.Fatalf("after read %d: told %v, want one ending", i+1, told)
			}
		}
		if e := told[0]; e.Key != "claims/m" || e.Generation != 1 || e.Cause != boardpb.EndedBy_ENDED_BY_EXPIRED || e.OwnClock || e.Wall.IsZero() {
			t.Errorf("told %+v; want claims/m, generation 1, expired, and when", e)
		}
	})
}

func dialTold(t testing.TB, cluster *clustertest.Cluster, told *[]client.Ended) *client.Client {
	t.Helper()
	c, err := client.Dial(client.Config{
		Endpoints: cluster.Addrs(), As: "w1", Dialer: cluster.Dialer("w1"), OnEnded: func(e client.Ended) { *told = append(*told, e) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func ms(n int64) *int64 { return &n }
