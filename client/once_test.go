package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/transport"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// losing breaks about one connection in every hundred reads, and what it would have read
// is lost: commands that arrived, answers that did not.
type losing struct {
	mu   sync.Mutex
	rand *rand.Rand
	lost atomic.Int32
	off  atomic.Bool
}

func (l *losing) dialer(next func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := next(ctx, addr)
		if err != nil {
			return nil, err
		}
		return &losingConn{Conn: c, l: l}, nil
	}
}

type losingConn struct {
	net.Conn
	l *losing
}

func (c *losingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.l.mu.Lock()
	lose := c.l.rand.IntN(100) < 3
	c.l.mu.Unlock()
	if err == nil && lose && !c.l.off.Load() {
		c.l.lost.Add(1)
		c.Close()
		return 0, errors.New("connection reset by peer")
	}
	return n, err
}

func TestT34LostRepliesNeitherDoubleNorLoseAnEffectAcrossALeaderChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items = 60
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3, Configure: func(_ int, c *transport.Config) {
			c.SnapshotThreshold, c.SnapshotInterval, c.TrailingLogs = 30, time.Second, 10
		}})
		loss := &losing{rand: rand.New(rand.NewPCG(34, 1))}
		c, err := client.Dial(client.Config{
			Endpoints: cluster.Addrs(), As: "w1", Dialer: loss.dialer(cluster.Dialer("w1")),
			NoLeader: time.Minute, Timeout: 2 * time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		ctx := background(t)
		l := openLoop(t, c, client.LoopOptions{})
		var wg sync.WaitGroup
		var replayed atomic.Int32
		versions := make([]uint64, items)
		for i := range items {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 300 * time.Millisecond)
				res, err := l.Append(ctx, "facts/x", fmt.Appendf(nil, "%d", i), client.AppendOptions{})
				if err != nil {
					t.Errorf("append %d: %v", i, err)
					return
				}
				versions[i] = res.Version
				if res.Replayed {
					replayed.Add(1)
				}
				key := fmt.Sprintf("claims/f-%d", i)
				if res, err := l.Post(ctx, key, []byte(`1`)); err != nil || res.Version != 1 {
					t.Errorf("post %s: %v, %v", key, res, err)
				}
				lease, res, err := l.Claim(ctx, key, client.ClaimOptions{Duration: 5 * time.Minute})
				if err != nil || lease == nil || lease.Generation() != 1 {
					t.Errorf("claim %s: %v, %v", key, res, err)
					return
				}
				if res, err := lease.Complete(ctx, []byte(`2`), ""); err != nil || res.Outcome != boardpb.Outcome_OUTCOME_OK {
					t.Errorf("complete %s: %v, %v", key, res, err)
				}
			})
		}
		time.Sleep(5 * time.Second)
		killed := cluster.Leader()
		cluster.Kill(killed)
		time.Sleep(5 * time.Second)
		cluster.Restart(killed)
		wg.Wait()
		loss.off.Store(true)
		for _, m := range cluster.Members {
			if m.Server.Node().Status().SnapshotIndex == 0 {
				t.Errorf("%s took no snapshot: the test does not prove what it should", m.Name)
			}
		}
		if loss.lost.Load() < 5 || replayed.Load() == 0 {
			t.Errorf("%d connections broke, %d answers were replayed: the test proves nothing", loss.lost.Load(), replayed.Load())
		}
		b := c.Board("default")
		got, _, err := b.History(ctx, "facts/x", 500, 0, client.ReadOptions{})
		if err != nil || len(got.Entries) != items {
			t.Fatalf("%d items, %v; want %d", len(got.GetEntries()), err, items)
		}
		for _, e := range got.Entries {
			var i int
			fmt.Sscan(string(e.Value), &i)
			if versions[i] != e.Version {
				t.Errorf("append %d was answered version %d and is version %d", i, versions[i], e.Version)
			}
		}
		counts := map[boardpb.Kind]int{}
		for after := uint64(0); ; {
			page, _, err := b.Events(ctx, &wirepb.EventsQuery{AfterRev: after, AfterWholeRev: true, Limit: 1000}, client.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Events {
				counts[e.Kind]++
				after = e.Rev
			}
			if !page.HasMore {
				break
			}
		}
		for _, kind := range []boardpb.Kind{boardpb.Kind_KIND_APPEND, boardpb.Kind_KIND_POST, boardpb.Kind_KIND_CLAIM, boardpb.Kind_KIND_COMPLETE} {
			if counts[kind] != items {
				t.Errorf("%d events of %v, want %d", counts[kind], kind, items)
			}
		}
	})
}

// cutReplies drops what a node sends to a host; what the host sends arrives.
func cutReplies(cluster *clustertest.Cluster, host string, cut bool, nodes ...int) {
	for _, i := range nodes {
		cluster.Net.SetCut(cluster.Members[i].Host, host, cut)
	}
}

func TestT36OfTwoEqualWritesWithLostRepliesOneIsOkAndTheOtherAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		w1, w2 := dial(t, cluster, "w1", cluster.Addrs()...), dial(t, cluster, "w2", cluster.Addrs()...)
		for v := range uint64(3) {
			res, err := w1.Board("default").Set(ctx, "draft", []byte(`"old"`), client.SetOptions{IfVersion: v})
			ok(t, "set", res, err)
		}
		loops := []*client.Loop{openLoop(t, w1, client.LoopOptions{}), openLoop(t, w2, client.LoopOptions{})}
		leader := cluster.Leader()
		cutReplies(cluster, "w1", true, leader)
		cutReplies(cluster, "w2", true, leader)
		results := make([]*boardpb.Result, 2)
		var wg sync.WaitGroup
		for i, l := range loops {
			wg.Go(func() {
				res, err := l.Set(ctx, "draft", []byte(`"same"`), client.SetOptions{IfVersion: 3})
				if err != nil {
					t.Errorf("set: %v", err)
				}
				results[i] = res
			})
		}
		wg.Wait()
		won := 0
		for i, res := range results {
			switch {
			case res.GetOutcome() == boardpb.Outcome_OUTCOME_OK && res.Version == 4:
				won++
			case res.GetOutcome() == boardpb.Outcome_OUTCOME_CONFLICT && res.Version == 4 && res.Author == fmt.Sprintf("w%d", 2-i):
			default:
				t.Errorf("w%d got %v", i+1, res)
			}
			if !res.GetReplayed() {
				t.Errorf("w%d got its answer without a retry: the test proves nothing", i+1)
			}
		}
		if won != 1 {
			t.Errorf("%d of two writes are ok, want one", won)
		}
	})
}

func TestT29AReleaseThatIsLostOrRepeatedNeverTouchesAnothersHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		w1, w2 := dial(t, cluster, "w1", cluster.Addrs()...), dial(t, cluster, "w2", cluster.Addrs()...)
		w3 := dial(t, cluster, "w3", cluster.Addrs()...)
		l1, l2 := openLoop(t, w1, client.LoopOptions{}), openLoop(t, w2, client.LoopOptions{})
		lease := claim(t, ctx, l1, "claims/v", time.Minute)
		leader := cluster.Leader()
		cutReplies(cluster, "w1", true, leader)
		res, err := lease.Release(ctx)
		if ok(t, "release", res, err); !res.Replayed {
			t.Errorf("the release was answered at once: the test proves nothing")
		}
		cutReplies(cluster, "w1", false, leader)
		if _, err := lease.Release(ctx); !errors.Is(err, client.ErrNoLease) {
			t.Errorf("released again: %v, want no_lease", err)
		}
		if isLost(lease) {
			t.Error("a lease that was released counts as lost")
		}
		other := claim(t, ctx, l2, "claims/v", time.Minute)
		var e *client.Error
		if _, err := lease.Release(ctx); !errors.Is(err, client.ErrStaleLease) || !errors.As(err, &e) || e.Result.Generation != other.Generation() {
			t.Errorf("released after w2 took it: %v, want stale_lease that names generation %d", err, other.Generation())
		}
		if _, err := openLoop(t, w3, client.LoopOptions{}).Do(ctx, release("claims/v", other.Generation())); !errors.Is(err, client.ErrNotHolder) {
			t.Errorf("released by w3: %v, want not_holder", err)
		}
		if got, _, err := w1.Board("default").Leases(ctx, &wirepb.LeasesQuery{Pattern: "claims/v"}, client.ReadOptions{}); err != nil ||
			len(got.Leases) != 1 || got.Leases[0].Lease.Owner != "w2" {
			t.Errorf("leases: %v, %v; want w2's hold untouched", got, err)
		}

		lapsed := claim(t, ctx, openLoop(t, w1, client.LoopOptions{TTL: time.Hour, Manual: true}), "claims/u", 5*time.Second)
		time.Sleep(30 * time.Second)
		if _, err := lapsed.Release(ctx); !errors.Is(err, client.ErrLeaseExpired) && !errors.Is(err, client.ErrNoLease) {
			t.Errorf("released after expiry: %v, want lease_expired or no_lease", err)
		}
		found, _, err := w1.Board("default").Events(ctx, &wirepb.EventsQuery{Kinds: []boardpb.Kind{boardpb.Kind_KIND_RELEASE}}, client.ReadOptions{})
		if err != nil || len(found.Events) != 1 {
			t.Errorf("%d release events, %v; want that of the one release", len(found.GetEvents()), err)
		}
		if again := claim(t, ctx, l1, "claims/u", time.Minute); again.Generation() != 2 {
			t.Errorf("claimed again: generation %d, want 2", again.Generation())
		}
	})
}

func release(key string, generation uint64) *boardpb.Command {
	return &boardpb.Command{Op: &boardpb.Command_Release{Release: &boardpb.Release{Key: key, Generation: generation}}}
}

func TestKV7FourWritersThatConflictReportItAfterThreeRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		w1, w2 := dial(t, cluster, "w1", cluster.Addrs()...), dial(t, cluster, "w2", cluster.Addrs()...)
		rival := w2.Board("default")
		var version uint64
		attempts := 0
		res, err := w1.Board("default").Mutate(ctx, "draft", func(cur *boardpb.Entry) ([]byte, error) {
			attempts++
			res, err := rival.Set(ctx, "draft", []byte(`"rival"`), client.SetOptions{IfVersion: cur.GetVersion()})
			version = ok(t, "the rival's set", res, err).Version
			return []byte(`"mine"`), nil
		})
		if err != nil || res.Outcome != boardpb.Outcome_OUTCOME_CONFLICT || res.Version != version || res.Author != "w2" {
			t.Fatalf("got %v, %v; want the last conflict as a value, version %d by w2", res, err, version)
		}
		if attempts != 4 {
			t.Errorf("%d attempts, want 4", attempts)
		}
		found, _, err := rival.Events(ctx, &wirepb.EventsQuery{Kinds: []boardpb.Kind{boardpb.Kind_KIND_PERSISTENT_CONFLICT}}, client.ReadOptions{})
		if err != nil || len(found.Events) != 1 || found.Events[0].Key != "draft" || found.Events[0].Author != "w1" || found.Events[0].To != "role:orchestrator" {
			t.Errorf("events %v, %v; want one persistent_conflict of w1 to the orchestrator", found, err)
		}

		// Without a rival the same call settles, also for writers that meet by chance.
		writers := []*client.Client{w1, w2, dial(t, cluster, "w3", cluster.Addrs()...), dial(t, cluster, "w4", cluster.Addrs()...)}
		var wg sync.WaitGroup
		var settled atomic.Int32
		for i, w := range writers {
			wg.Go(func() {
				res, err := w.Board("default").Mutate(ctx, "draft", func(*boardpb.Entry) ([]byte, error) { return fmt.Appendf(nil, "%d", i), nil })
				if err != nil {
					t.Errorf("w%d: %v", i+1, err)
				}
				if res.GetOutcome() == boardpb.Outcome_OUTCOME_OK {
					settled.Add(1)
				}
			})
		}
		wg.Wait()
		got, _, err := rival.Get(ctx, "draft", client.ReadOptions{})
		if err != nil || got.Entry.Version != version+uint64(settled.Load()) || settled.Load() == 0 {
			t.Errorf("version %d after %d accepted writes on %d, %v", got.GetEntry().GetVersion(), settled.Load(), version, err)
		}
	})
}

func TestABusyLeaderIsWaitedForLongerThanNoLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		start := time.Now()
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			if time.Since(start) < 7*time.Second {
				busy := &boardpb.Result{Code: boardpb.Code_CODE_UNAVAILABLE, Proposed: no, RetryAfterMs: 200,
					Message: "too many commands wait at the leader"}
				return c.appliedBy(busy, &wirepb.Leader{NodeId: "id-n1:1", GrpcAddr: "n1:1", Term: 1})
			}
			return c.routine()
		})
		c := s.client(client.Config{}, "n1:1")
		if _, err := c.Board("default").Append(context.Background(), "facts/a", []byte(`1`), client.AppendOptions{}); err != nil {
			t.Errorf("after %v: %v; want patience, because somebody leads", time.Since(start), err)
		}
	})
}
