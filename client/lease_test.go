package client_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

func claim(t testing.TB, ctx context.Context, l *client.Loop, key string, d time.Duration) *client.Lease {
	t.Helper()
	lease, res, err := l.Claim(ctx, key, client.ClaimOptions{Duration: d})
	if err != nil || lease == nil {
		t.Fatalf("claim %s: %v, %v", key, res, err)
	}
	return lease
}

func isLost(l *client.Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

// renewals counts the keepalives a node accepted after a moment, and what they let go.
func renewals(n *scripted) (rounds int, letGo []string) {
	for _, req := range n.seen() {
		if k := req.GetApply().GetCommand().GetLoopKeepalive(); k != nil {
			rounds++
			for _, ref := range k.LetGo {
				letGo = append(letGo, ref.Key)
			}
		}
	}
	return rounds, letGo
}

func TestT20LostIsSignalledByTheClientsOwnClockWithoutAnyServer(t *testing.T) {
	for name, away := range map[string]func(*scripted){
		"all nodes stop":                 func(n *scripted) { n.lis.cut(true) },
		"packets are dropped silently":   func(n *scripted) { n.lis.setSwallow(true) },
		"only renewals are not answered": func(n *scripted) { n.play(onlyClaims) },
		"every renewal is refused":       func(n *scripted) { n.play(func(c *call) *wirepb.SessionResponse { return unavailable(c, no) }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, "n1:1")
				n := s.nodes["n1:1"]
				var acked atomic.Pointer[time.Time]
				n.play(func(c *call) *wirepb.SessionResponse {
					if c.cmd.GetLoopKeepalive() != nil {
						now := time.Now()
						acked.Store(&now)
					}
					return c.routine()
				})
				c := s.client(client.Config{}, "n1:1")
				l := openLoop(t, c, client.LoopOptions{})
				work, done := context.WithCancel(context.Background())
				defer done()
				lease := claim(t, work, l, "claims/x", 6*time.Second)
				time.Sleep(7 * time.Second) // renewed by now
				if isLost(lease) || acked.Load() == nil {
					t.Fatalf("lost %v, acknowledged %v: want a renewed lease", isLost(lease), acked.Load())
				}
				away(n)
				<-lease.Lost()
				since := time.Since(*acked.Load())
				if since < 6*time.Second || since > 7*time.Second {
					t.Errorf("lost %v after the last acknowledged renewal, want 6 s to 7 s", since)
				}
				if context.Cause(lease.Context()) != client.ErrLost || work.Err() != nil {
					t.Errorf("the work's context: %v, the caller's: %v", context.Cause(lease.Context()), work.Err())
				}
				synctest.Wait()
				told := s.told()
				if len(told) != 1 || !told[0].OwnClock || told[0].Key != "claims/x" || told[0].Generation != 1 {
					t.Errorf("told %+v; want one ending, by the own clock", told)
				}
				n.lis.setSwallow(false)
				n.lis.cut(false)
				n.play((*call).routine)
				claim(t, work, l, "claims/y", 6*time.Second) // the process goes on
			})
		})
	}
}

// onlyClaims answers everything but renewals.
func onlyClaims(c *call) *wirepb.SessionResponse {
	if c.cmd.GetLoopKeepalive() != nil || c.cmd.GetHeartbeat() != nil {
		return nil
	}
	return c.routine()
}

func TestT21FailedRenewalsAreFollowedByOthersUntilTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1", "n2:1")
		var round atomic.Int32
		for _, n := range s.nodes {
			n.play(func(c *call) *wirepb.SessionResponse {
				if c.cmd.GetLoopKeepalive() == nil {
					return c.routine()
				}
				switch round.Add(1) {
				case 2:
					return nil // runs into its deadline
				case 4:
					return unavailable(c, no)
				case 5:
					return c.appliedBy(&boardpb.Result{Code: boardpb.Code_CODE_UNAVAILABLE, Proposed: perhaps, Message: "leadership lost"},
						&wirepb.Leader{NodeId: "id-n2:1", GrpcAddr: "n2:1", Term: 5})
				}
				return c.routine()
			})
		}
		c := s.client(client.Config{}, "n1:1", "n2:1")
		l := openLoop(t, c, client.LoopOptions{})
		lease := claim(t, context.Background(), l, "claims/x", 9*time.Second)
		time.Sleep(50 * time.Second)
		for _, n := range s.nodes { // longer than a whole round of renewals
			n.lis.cut(true)
		}
		time.Sleep(5 * time.Second)
		for _, n := range s.nodes {
			n.lis.cut(false)
		}
		time.Sleep(20 * time.Second)
		if isLost(lease) || lease.Generation() != 1 || lease.Context().Err() != nil {
			t.Errorf("lost %v, generation %d, context %v", isLost(lease), lease.Generation(), lease.Context().Err())
		}
		if got := round.Load(); got < 15 {
			t.Errorf("%d renewals in 75 s", got)
		}
		other := claim(t, context.Background(), openLoop(t, c, client.LoopOptions{}), "claims/y", 9*time.Second)
		time.Sleep(time.Minute)
		if isLost(other) {
			t.Error("a new loop in the same client lost its lease")
		}
	})
}

func TestT19RenewalEndsWithTheWork(t *testing.T) {
	ends := map[string]func(ctx context.Context, l *client.Loop, t *testing.T) *client.Lease{
		"the work function returns": func(ctx context.Context, l *client.Loop, t *testing.T) *client.Lease {
			ctx, done := context.WithCancel(ctx)
			defer done()
			return claim(t, ctx, l, "claims/x", 6*time.Second)
		},
		"it panics and is recovered above": func(ctx context.Context, l *client.Loop, t *testing.T) (lease *client.Lease) {
			defer func() { _ = recover() }()
			ctx, done := context.WithCancel(ctx)
			defer done()
			lease = claim(t, ctx, l, "claims/x", 6*time.Second)
			panic("the work failed")
		},
		"its context is cancelled": func(ctx context.Context, l *client.Loop, t *testing.T) *client.Lease {
			ctx, done := context.WithCancel(ctx)
			lease := claim(t, ctx, l, "claims/x", 6*time.Second)
			time.AfterFunc(10*time.Second, done)
			<-lease.Context().Done()
			return lease
		},
	}
	for name, work := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, "n1:1")
				l := openLoop(t, s.client(client.Config{}, "n1:1"), client.LoopOptions{})
				lease := work(context.Background(), l, t)
				synctest.Wait()
				if len(l.Leases()) != 0 {
					t.Errorf("%d leases are still cared for", len(l.Leases()))
				}
				time.Sleep(time.Second)
				if _, letGo := renewals(s.nodes["n1:1"]); len(letGo) != 1 || letGo[0] != "claims/x" {
					t.Errorf("let go of %v; want claims/x, told at once and once", letGo)
				}
				time.Sleep(12 * time.Second)
				if isLost(lease) || len(s.told()) != 0 {
					t.Errorf("a lease that was let go was called lost: %v", s.told())
				}
				claim(t, context.Background(), l, "claims/y", 6*time.Second) // the loop lives on
			})
		})
	}
}

func TestAGrantThatNobodyAwaitsIsReleasedAndNotRenewedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		n := s.nodes["n1:1"]
		var mu sync.Mutex
		var tries, floorAt []uint64
		released := make(chan *boardpb.Release, 1)
		n.play(func(c *call) *wirepb.SessionResponse {
			mu.Lock()
			defer mu.Unlock()
			if k := c.cmd.GetLoopKeepalive(); k != nil {
				floorAt = append(floorAt, k.Loops[0].Floor)
			}
			if r := c.cmd.GetRelease(); r != nil {
				released <- r
			}
			if c.cmd.GetClaim() == nil {
				return c.routine()
			}
			if tries = append(tries, c.cmd.Seq); len(tries) < 4 {
				return nil // granted, but the answer is lost
			}
			return c.applied(granted("claims/x", 3, 30_000))
		})
		l := openLoop(t, s.client(client.Config{}, "n1:1"), client.LoopOptions{TTL: 3 * time.Second})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, _, err := l.Claim(ctx, "claims/x", client.ClaimOptions{Duration: 30 * time.Second}); !errors.Is(err, client.ErrUnknown) {
			t.Fatalf("got %v, want unknown", err)
		}
		select {
		case r := <-released:
			if r.Key != "claims/x" || r.Generation != 3 {
				t.Errorf("released %v", r)
			}
		case <-time.After(time.Minute):
			t.Fatal("the grant was never released")
		}
		mu.Lock()
		defer mu.Unlock()
		for _, seq := range tries {
			if seq != tries[0] {
				t.Errorf("the claim was tried under the seqs %v; want one", tries)
				break
			}
		}
		for _, floor := range floorAt {
			if floor > tries[0] {
				t.Errorf("a keepalive carried floor %d above the claim's seq %d: it covers a grant nobody has", floor, tries[0])
			}
		}
	})
}

func TestAGrantAboveTheFloorIsRenewedByHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		stuck := make(chan struct{})
		var beats atomic.Int32
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			if c.cmd.GetAppend() != nil {
				<-stuck
			}
			if c.cmd.GetHeartbeat() != nil {
				beats.Add(1)
			}
			return c.routine()
		})
		l := openLoop(t, s.client(client.Config{}, "n1:1"), client.LoopOptions{})
		var wg sync.WaitGroup
		wg.Go(func() { // seq 1 gets no answer for a minute, so the floor stays below the claim
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			appendTo(ctx, l)
		})
		synctest.Wait()
		lease := claim(t, context.Background(), l, "claims/x", 6*time.Second)
		time.Sleep(40 * time.Second)
		if isLost(lease) || beats.Load() < 10 {
			t.Errorf("lost %v after %d heartbeats", isLost(lease), beats.Load())
		}
		close(stuck)
		wg.Wait()
		time.Sleep(10 * time.Second)
		before := beats.Load()
		time.Sleep(20 * time.Second)
		if got := beats.Load(); got != before || isLost(lease) {
			t.Errorf("%d heartbeats once the keepalive covers the lease, lost %v", got-before, isLost(lease))
		}
	})
}

func TestT26AnEndingIsToldOnceWhateverAnswerBringsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		ended := []*boardpb.Ended{{Key: "claims/m", Generation: 1, Cause: boardpb.EndedBy_ENDED_BY_TAKEOVER, TMs: 5, WallMs: 1_700_000_000_000}}
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			if c.read != nil {
				if c.read.Loop == "" {
					t.Error("the read does not name the loop")
				}
				return c.readAnswer(&wirepb.ReadResponse{Rev: 4, Ended: ended, Answer: &wirepb.ReadResponse_Get{Get: &wirepb.GetAnswer{}}})
			}
			return c.routine()
		})
		c := s.client(client.Config{}, "n1:1")
		l := openLoop(t, c, client.LoopOptions{})
		lease := claim(t, context.Background(), l, "claims/m", time.Minute)
		for range 3 {
			if _, _, err := c.Board("default").Get(context.Background(), "facts/other", client.ReadOptions{Loop: l}); err != nil {
				t.Fatal(err)
			}
		}
		told := s.told()
		if len(told) != 1 || told[0].Key != "claims/m" || told[0].Generation != 1 || told[0].Cause != boardpb.EndedBy_ENDED_BY_TAKEOVER ||
			told[0].OwnClock || told[0].Wall.UnixMilli() != 1_700_000_000_000 {
			t.Errorf("told %+v; want the takeover once, with its time", told)
		}
		if !isLost(lease) || lease.Ended().Cause != boardpb.EndedBy_ENDED_BY_TAKEOVER {
			t.Errorf("lost %v, ended %+v", isLost(lease), lease.Ended())
		}
	})
}

func TestAnEndingToldByTheOwnClockIsNotRepeatedWhenTheServerTellsItToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		n := s.nodes["n1:1"]
		l := openLoop(t, s.client(client.Config{}, "n1:1"), client.LoopOptions{TTL: time.Hour})
		lease := claim(t, context.Background(), l, "claims/m", 3*time.Second)
		n.play(func(c *call) *wirepb.SessionResponse { return unavailable(c, no) })
		<-lease.Lost()
		n.play(func(c *call) *wirepb.SessionResponse {
			resp := c.routine()
			resp.GetApplied().Result.Ended = []*boardpb.Ended{{Key: "claims/m", Generation: 1, Cause: boardpb.EndedBy_ENDED_BY_EXPIRED}}
			return resp
		})
		if _, err := appendTo(context.Background(), l); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the callback runs after the loss is signalled
		if told := s.told(); len(told) != 1 || !told[0].OwnClock {
			t.Errorf("told %+v; want one ending", told)
		}
	})
}

func TestARefusedWriteUnderALeaseEndsIt(t *testing.T) {
	for code, lost := range map[boardpb.Code]bool{
		boardpb.Code_CODE_STALE_LEASE: true, boardpb.Code_CODE_LEASE_EXPIRED: true, boardpb.Code_CODE_NO_LEASE: true,
		boardpb.Code_CODE_NOT_HOLDER: true, boardpb.Code_CODE_LOOP_ENDED: true, boardpb.Code_CODE_TOO_LARGE: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, "n1:1")
			s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
				if c.cmd.GetSet() != nil {
					return c.applied(&boardpb.Result{Code: code, Generation: 2, Holder: "w2"})
				}
				return c.routine()
			})
			l := openLoop(t, s.client(client.Config{}, "n1:1"), client.LoopOptions{})
			lease := claim(t, context.Background(), l, "claims/n", time.Minute)
			_, err := lease.Set(context.Background(), []byte(`1`), client.SetOptions{})
			var e *client.Error
			if !errors.As(err, &e) || e.Result.Code != code || e.Result.Holder != "w2" {
				t.Errorf("got %v, want %v with the holder", err, code)
			}
			if isLost(lease) != lost {
				t.Errorf("%v: lost %v, want %v", code, isLost(lease), lost)
			}
		})
	}
}

func TestAReplayedGrantCountsFromTheAnswerAndAReplayedWriteRenewsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			switch {
			case c.cmd.GetClaim() != nil && c.n == 2:
				return nil // granted at board time 1000, the answer lost
			case c.cmd.GetClaim() != nil:
				res := granted("claims/x", 1, 10_000)
				res.TMs, res.Replayed = 3000, true // asked again 2 s later
				return c.applied(res)
			case c.cmd.GetSet() != nil:
				return c.applied(&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Replayed: true})
			}
			return c.routine()
		})
		l := openLoop(t, s.client(client.Config{}, "n1:1"), client.LoopOptions{Manual: true, TTL: time.Hour})
		start := time.Now()
		lease := claim(t, context.Background(), l, "claims/x", 10*time.Second)
		if _, err := lease.Set(context.Background(), []byte(`1`), client.SetOptions{}); err != nil {
			t.Fatal(err)
		}
		<-lease.Lost()
		if d := time.Since(start); d > 10*time.Second+100*time.Millisecond {
			t.Errorf("held for %v from the first try on, though 10 s were granted", d)
		}
	})
}

func TestT75OneKeepaliveRenewsAllLoopsOfABoardWithAllTheirLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		c := s.client(client.Config{}, "n1:1")
		var leases []*client.Lease
		for range 100 {
			l := openLoop(t, c, client.LoopOptions{})
			for range 5 {
				leases = append(leases, claim(t, context.Background(), l, "claims/"+l.ID(), 20*time.Second))
			}
		}
		time.Sleep(5 * time.Second)
		before, _ := renewals(s.nodes["n1:1"])
		time.Sleep(3 * time.Minute)
		after, _ := renewals(s.nodes["n1:1"])
		if rounds := after - before; rounds < 20 || rounds > 30 {
			t.Errorf("%d renewals in 3 min for 100 loops; want one each third of 20 s", rounds)
		}
		for _, lease := range leases {
			if isLost(lease) {
				t.Fatalf("a lease was lost: %+v", lease.Ended())
			}
		}
	})
}

func TestALoopThatTheServerEndedLosesItsLeasesAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		var over atomic.Bool
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			resp := c.routine()
			if c.cmd.GetLoopKeepalive() != nil && over.Load() {
				resp.GetApplied().Result.Loops[0].Code = boardpb.Code_CODE_LOOP_ENDED
			}
			return resp
		})
		l := openLoop(t, s.client(client.Config{}, "n1:1"), client.LoopOptions{})
		lease := claim(t, context.Background(), l, "claims/x", 9*time.Second)
		over.Store(true)
		<-l.Ended()
		<-lease.Lost()
		if got := lease.Ended().Cause; got != boardpb.EndedBy_ENDED_BY_LOOP_CLOSED {
			t.Errorf("cause %v", got)
		}
		rounds, _ := renewals(s.nodes["n1:1"])
		time.Sleep(time.Minute)
		if again, _ := renewals(s.nodes["n1:1"]); again != rounds {
			t.Errorf("an ended loop was renewed %d times more", again-rounds)
		}
	})
}
