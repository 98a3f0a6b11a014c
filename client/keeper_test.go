package client_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

func TestT75AnIdleClientAndAnIdleWatchKeepTheirOneConnectionForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		n := s.nodes["n1:1"]
		n.watch = func(req *wirepb.WatchRequest, stream watchStream) error {
			if err := stream.Send(opened(5)); err != nil {
				return err
			}
			for {
				select {
				case <-time.After(time.Minute):
				case <-stream.Context().Done():
					return nil
				}
				if err := stream.Send(bookmark(4)); err != nil {
					return err
				}
			}
		}
		var broke []client.State
		c := s.client(client.Config{OnState: func(st client.State) {
			if st.Kind == client.StateReconnecting {
				broke = append(broke, st)
			}
		}}, "n1:1")
		l := openLoop(t, c, client.LoopOptions{TTL: 24 * time.Hour})
		w, err := c.Board("default").Watch(context.Background(), client.WatchOptions{Patterns: []string{"**"}})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		time.Sleep(2 * time.Hour)
		if _, err := appendTo(context.Background(), l); err != nil {
			t.Errorf("after two idle hours: %v", err)
		}
		n.lis.mu.Lock()
		defer n.lis.mu.Unlock()
		if n.lis.dials != 1 || len(broke) != 0 {
			t.Errorf("%d connections were made, broken: %v; want one, never closed for pinging", n.lis.dials, broke)
		}
	})
}

func TestALeaseClaimedInATransactionIsKeptWhileItsContextLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 1})
		ctx := background(t)
		c := dial(t, cluster, "w1", cluster.Addrs()...)
		l := openLoop(t, c, client.LoopOptions{})
		work, done := context.WithCancel(ctx)
		duration := int64(5000)
		res, err := l.Txn(work,
			[]*boardpb.Guard{{Test: &boardpb.Guard_Absent{Absent: "draft"}}},
			[]*boardpb.TxnOp{
				{Op: &boardpb.TxnOp_Claim{Claim: &boardpb.Claim{Key: "claims/a", DurationMs: &duration}}},
				{Op: &boardpb.TxnOp_Set{Set: &boardpb.Set{Key: "draft", Value: []byte(`1`)}}},
			})
		ok(t, "txn", res, err)
		lease := l.Held("claims/a", res.Results[0].Generation)
		if lease == nil {
			t.Fatalf("the transaction's grant has no lease: %v", res)
		}
		time.Sleep(30 * time.Second)
		if isLost(lease) {
			t.Fatalf("lost: %+v", lease.Ended())
		}
		done()
		time.Sleep(10 * time.Second)
		other := dial(t, cluster, "w2", cluster.Addrs()...)
		claim(t, ctx, openLoop(t, other, client.LoopOptions{}), "claims/a", time.Minute)

		res, err = l.Txn(ctx, []*boardpb.Guard{{Test: &boardpb.Guard_Absent{Absent: "draft"}}},
			[]*boardpb.TxnOp{{Op: &boardpb.TxnOp_Delete{Delete: &boardpb.Delete{Key: "draft", IfVersion: 1}}}})
		if err != nil || res.Outcome != boardpb.Outcome_OUTCOME_CONFLICT || res.GetFailedGuard() != 0 || res.FailedGuard == nil {
			t.Errorf("a failing guard: %v, %v; want the conflict as a value, with its index", res, err)
		}
	})
}

func TestCloseEndsCallsInFlightWatchesAndRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		s.nodes["n1:1"].watches([]*wirepb.WatchResponse{opened(1)})
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			if c.cmd.GetAppend() != nil {
				return nil
			}
			return c.routine()
		})
		c := s.client(client.Config{}, "n1:1")
		l := openLoop(t, c, client.LoopOptions{})
		w, err := c.Board("default").Watch(context.Background(), client.WatchOptions{Patterns: []string{"**"}})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := appendTo(context.Background(), l)
			ended <- err
		}()
		synctest.Wait()
		start := time.Now()
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-ended; !errors.Is(err, client.ErrClosed) || !errors.Is(err, client.ErrUnknown) {
			t.Errorf("the call in flight: %v; want unknown, because the client was closed", err)
		}
		if _, err := w.Next(context.Background()); !errors.Is(err, client.ErrClosed) {
			t.Errorf("the watch: %v", err)
		}
		if _, err := appendTo(context.Background(), l); !errors.Is(err, client.ErrClosed) {
			t.Errorf("a call afterwards: %v", err)
		}
		if _, err := c.Board("default").Watch(context.Background(), client.WatchOptions{}); !errors.Is(err, client.ErrClosed) {
			t.Errorf("a watch afterwards: %v", err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("closing took %v", d)
		}
		before, _ := renewals(s.nodes["n1:1"])
		time.Sleep(time.Minute)
		if after, _ := renewals(s.nodes["n1:1"]); after != before {
			t.Errorf("%d renewals after Close", after-before)
		}
	})
}

func TestALeaseIsReleasedOrFailedAndThenNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 1})
		ctx := background(t)
		b := dial(t, cluster, "w1", cluster.Addrs()...).Board("default")
		l, err := b.OpenLoop(ctx, client.LoopOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"claims/a", "claims/b"} {
			res, err := l.Post(ctx, key, []byte(`1`))
			ok(t, "post", res, err)
		}
		next := func() *client.Lease {
			lease, res, err := l.ClaimNext(ctx, "claims/*", client.ClaimOptions{Duration: 6 * time.Second})
			if err != nil || lease == nil {
				t.Fatalf("claim next: %v, %v", res, err)
			}
			return lease
		}
		a := next()
		res, err := a.Set(ctx, []byte(`2`), client.SetOptions{})
		ok(t, "set under the lease", res, err)
		res, err = a.Heartbeat(ctx, time.Minute)
		ok(t, "heartbeat", res, err)
		res, err = a.Fail(ctx, "no input", time.Second)
		ok(t, "fail", res, err)
		if context.Cause(a.Context()) != client.ErrWorkEnded || isLost(a) {
			t.Errorf("after fail: cause %v, lost %v", context.Cause(a.Context()), isLost(a))
		}
		if got := next(); got.Key() != "claims/b" {
			t.Errorf("the failed item was not put behind: got %s", got.Key())
		} else if res, err = got.Release(ctx); err != nil {
			t.Errorf("release: %v", err)
		}
		time.Sleep(15 * time.Second) // past the grace of the first leadership, which holds deadlines up
		next()                       // claims/b: it was released before claims/a became claimable again
		got := next()
		if got.Key() != "claims/a" || got.Attempts() != 2 || string(got.Value()) != "2" || got.Previous()[0].EndedBy != boardpb.EndedBy_ENDED_BY_FAILED {
			t.Errorf("claimed %s, attempt %d, value %s, previous %v", got.Key(), got.Attempts(), got.Value(), got.Previous())
		}
		if len(l.Leases()) != 2 {
			t.Errorf("%d leases are cared for, want two", len(l.Leases()))
		}
	})
}

func TestAnOperatorsActIsRepeatedElsewhereOnlyIfItWasNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1", "n2:1", "n3:1")
		s.nodes["n1:1"].lis.cut(true) // cannot be reached: not done
		var asked atomic.Int32
		s.nodes["n2:1"].remove = func() error {
			asked.Add(1)
			s.nodes["n2:1"].lis.cut(true) // the answer is lost: nobody knows
			return nil
		}
		s.nodes["n3:1"].remove = func() error {
			asked.Add(1)
			return nil
		}
		op := s.client(client.Config{}, "n1:1", "n2:1", "n3:1").Cluster()
		if _, err := op.Remove(context.Background(), "n9"); !errors.Is(err, client.ErrUnknown) || errors.Is(err, client.ErrNotDone) {
			t.Errorf("got %v; want unknown", err)
		}
		if got := asked.Load(); got != 1 {
			t.Errorf("asked %d nodes, want one", got)
		}
		if _, err := op.Remove(context.Background(), "n9"); err != nil {
			t.Errorf("asked again, with n1 and n2 down: %v", err)
		}
	})
}
