package node_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/fsm"
	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/node"
	"raftboard/node/nodetest"
)

// worker is a loop that holds one lease on the default board.
type worker struct {
	c    *nodetest.Cluster
	t    *testing.T
	as   *boardpb.Actor
	loop string
	seq  uint64
	key  string
	gen  uint64
}

// do sends a command to whoever leads until it has an answer. An unknown one is repeated
// under the same identity.
func (w *worker) do(cmd *boardpb.Command) *boardpb.Result {
	w.t.Helper()
	cmd.Board, cmd.Actor, cmd.Loop = "default", w.as, w.loop
	if w.loop != "" {
		w.seq++
		cmd.Seq, cmd.Floor = w.seq, w.seq
	}
	for range 400 {
		if leader := w.c.Leader(); leader != nil {
			if r, err := propose(leader.Node, cmd, 2*time.Second); err == nil {
				return r
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.t.Fatal("no answer")
	return nil
}

func newWorker(t *testing.T, c *nodetest.Cluster, name, key string, lease time.Duration) *worker {
	t.Helper()
	w := &worker{c: c, t: t, key: key, as: &boardpb.Actor{Principal: name, Roles: []boardpb.Role{boardpb.Role_ROLE_WORKER}}}
	r := w.do(&boardpb.Command{Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{Nonce: name, TtlMs: 3_600_000}}})
	if w.loop = r.Loop; w.loop == "" {
		t.Fatalf("no loop: %v", r)
	}
	ms := lease.Milliseconds()
	r = w.do(&boardpb.Command{Op: &boardpb.Command_Claim{Claim: &boardpb.Claim{Key: key, DurationMs: &ms}}})
	if r.Outcome != boardpb.Outcome_OUTCOME_OK {
		t.Fatalf("no claim: %v", r)
	}
	w.gen = r.Generation
	return w
}

// renew heartbeats the lease and tells whether it lives.
func (w *worker) renew() bool {
	r := w.do(&boardpb.Command{Op: &boardpb.Command_Heartbeat{Heartbeat: &boardpb.Heartbeat{Key: w.key, Generation: w.gen}}})
	return r.Outcome == boardpb.Outcome_OUTCOME_OK
}

// held tells whether the state still shows the lease.
func (w *worker) held() bool {
	w.t.Helper()
	b := w.c.WaitLeader().Node.View().Board("default")
	expiries := board.EventFilter{Kinds: []boardpb.Kind{boardpb.Kind_KIND_LEASE_EXPIRED}, Patterns: []string{w.key}}
	ended, _, _, r := board.Since(b, board.Cursor{}, expiries)
	if r != nil {
		w.t.Fatal(r)
	}
	return len(ended) == 0
}

func TestT23AnElectionCostsNoLiveHolderItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		c.WaitLeader()
		w := newWorker(t, c, "w", "claims/x", 3*time.Second)
		for range 5 {
			old := c.WaitLeader()
			if !w.renew() {
				t.Fatal("the lease was lost")
			}
			c.Crash(old.Index)
			c.WaitLeader()
			c.Restart(old.Index)
		}
		if !w.renew() {
			t.Error("the lease was lost")
		}
	})
}

func TestT23AnAbandonedLeaseExpiresByTicksAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		c.WaitLeader()
		time.Sleep(15 * time.Second) // past the first grace
		w := newWorker(t, c, "w", "claims/x", 5*time.Second)
		began := time.Now()
		time.Sleep(4900 * time.Millisecond)
		if !w.held() {
			t.Error("it expired too early")
		}
		c.Eventually("it expires", func() bool { return !w.held() })
		if took := time.Since(began); took > 7*time.Second {
			t.Errorf("it took %v to expire a lease of 5 s", took)
		}
	})
}

func TestT22AStallOfTheLeadersDiskCostsNoLiveHolderItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		c.WaitLeader()
		time.Sleep(15 * time.Second)
		leader := c.WaitLeader()
		w := newWorker(t, c, "w", "claims/x", 3*time.Second)
		before := leader.Node.View()
		leader.Disk.Stall(20 * time.Second)
		mark := time.Now()
		if !w.renew() { // it waits behind the stall
			t.Error("the lease was lost in a stall of the leader's disk")
		}
		if time.Since(mark) < 15*time.Second {
			t.Fatalf("the renewal took only %v: there was no stall", time.Since(mark))
		}
		v := c.WaitLeader().Node.View()
		if passed := v.T() - before.T(); passed > 5000 {
			t.Errorf("board time moved by %d ms in the stall", passed)
		}
		last := v.Cluster().Leaderships[len(v.Cluster().Leaderships)-1]
		if first := before.Cluster().GetLeaderTerm(); last.Term == first && !last.Resumed {
			t.Errorf("the same leader went on without a resumed Lead: %v", last)
		}
		if !w.held() {
			t.Error("the lease expired")
		}
	})
}

// skewed is a clock that a test moves.
type skewed struct {
	wall atomic.Int64 // added to the wall clock, ns
	mono atomic.Int64 // added to the monotonic clock, ns
}

func (s *skewed) clock() node.Clock {
	origin := time.Now()
	return node.Clock{
		Wall: func() time.Time { return time.Now().Add(time.Duration(s.wall.Load())) },
		Mono: func() time.Duration { return time.Since(origin) + time.Duration(s.mono.Load()) },
	}
}

func TestAPausedMachineReopensItsLeadershipBeforeAnythingIsStamped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clocks := make([]*skewed, 3)
		c := nodetest.Start(t, nodetest.Options{Configure: func(i int, cfg *node.Config) {
			clocks[i] = &skewed{}
			cfg.Clock = clocks[i].clock()
		}})
		c.WaitLeader()
		time.Sleep(15 * time.Second)
		leader := c.WaitLeader()
		w := newWorker(t, c, "w", "claims/x", 3*time.Second)
		term := leader.Node.View().Cluster().GetLeaderTerm()
		clocks[leader.Index].mono.Add(int64(time.Minute)) // no election: the others were paused as well
		if !w.renew() {
			t.Error("the lease was lost over a pause")
		}
		rec := leader.Node.View().Cluster()
		last := rec.Leaderships[len(rec.Leaderships)-1]
		if last.Term != term || !last.Resumed {
			t.Errorf("the newest leadership is %v, expected a resumed one in term %d", last, term)
		}
	})
}

func TestT27N12WallClocksThatDifferAndJumpDecideNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clocks := make([]*skewed, 3)
		c := nodetest.Start(t, nodetest.Options{Configure: func(i int, cfg *node.Config) {
			clocks[i] = &skewed{}
			clocks[i].wall.Store(int64(time.Duration(i-1) * time.Hour))
			cfg.Clock = clocks[i].clock()
		}})
		c.WaitLeader()
		w := newWorker(t, c, "w", "claims/x", 15*time.Second)
		lastT, lastWall := int64(0), int64(0)
		for round := range 12 {
			leader := c.WaitLeader()
			clocks[leader.Index].wall.Add(int64([]time.Duration{-time.Hour, 2 * time.Hour, -3 * time.Hour}[round%3]))
			if !w.renew() {
				t.Fatalf("round %d: the lease was lost", round)
			}
			v := leader.Node.View()
			if v.T() < lastT || v.Wall() < lastWall || v.T() > lastT+60_000 {
				t.Errorf("round %d: board time %d after %d, wall time %d after %d", round, v.T(), lastT, v.Wall(), lastWall)
			}
			lastT, lastWall = v.T(), v.Wall()
			time.Sleep(3 * time.Second)
			if round%4 == 3 {
				if err := leader.Node.StepDown(context.Background(), ""); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestP35BoardTimeNeverRunsBackwardsAndStandsStillWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last atomic.Int64
		c := nodetest.Start(t, nodetest.Options{Configure: func(i int, cfg *node.Config) {
			var mine int64
			cfg.Trace = func(r fsm.TraceRecord) {
				if r.T < mine {
					t.Errorf("node %d: board time %d after %d", i, r.T, mine)
				}
				mine = r.T
				last.Store(max(last.Load(), r.T))
			}
		}})
		w := newWorker(t, c, "w", "claims/x", time.Hour)
		for range 4 {
			old := c.WaitLeader()
			w.renew()
			c.Crash(old.Index)
			c.WaitLeader()
			w.renew()
			c.Restart(old.Index)
		}
		for i := range c.Members {
			c.Crash(i)
		}
		before := last.Load()
		time.Sleep(time.Hour)
		for i := range c.Members {
			c.Restart(i)
		}
		w.renew()
		if after := last.Load(); after-before > 5000 {
			t.Errorf("board time moved by %d ms while no node was up", after-before)
		}
	})
}

func TestHoursPassWithLeadersThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{Configure: func(_ int, cfg *node.Config) { cfg.Timing.Commit = 200 * time.Millisecond }})
		c.WaitLeader()
		live := newWorker(t, c, "live", "claims/live", time.Minute)
		dead := newWorker(t, c, "dead", "claims/dead", time.Minute)
		began, length := time.Now(), time.Hour
		if raceEnabled {
			length = 10 * time.Minute
		}
		for round := 0; time.Since(began) < length; round++ {
			time.Sleep(30 * time.Second)
			if !live.renew() {
				t.Fatalf("after %v the live holder lost its lease", time.Since(began))
			}
			if round%20 == 19 {
				old := c.WaitLeader()
				c.Crash(old.Index)
				c.WaitLeader()
				c.Restart(old.Index)
			}
		}
		if dead.held() {
			t.Error("the dead holder kept its lease")
		}
		c.WaitSame()
		if got := c.WaitLeader().Node.View().T(); got < length.Milliseconds()*5/6 {
			t.Errorf("board time is only %d ms after %v", got, length)
		}
	})
}
