package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

const (
	no      = boardpb.Proposed_PROPOSED_NO
	perhaps = boardpb.Proposed_PROPOSED_UNKNOWN
)

func appendTo(ctx context.Context, l *client.Loop) (*boardpb.Result, error) {
	return l.Append(ctx, "facts/x", []byte(`1`), client.AppendOptions{})
}

func TestT34ALostAnswerIsAskedForAgainUnderTheSameIdentityAtAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1", "n2:1")
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			if c.cmd.GetAppend() != nil {
				c.node.lis.cut(true) // it took the command, and then the node was gone
				return nil
			}
			return c.routine()
		})
		s.nodes["n2:1"].play(func(c *call) *wirepb.SessionResponse {
			return c.applied(&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Version: 7, Replayed: true})
		})
		l := openLoop(t, s.client(client.Config{}, "n1:1", "n2:1"), client.LoopOptions{})
		start := time.Now()
		res, err := appendTo(context.Background(), l)
		if err != nil || res.Version != 7 || !res.Replayed {
			t.Fatalf("got %v, %v; want the first answer, version 7, replayed", res, err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("the retry took %v", d)
		}
		first, second := lastAppend(s.nodes["n1:1"]), lastAppend(s.nodes["n2:1"])
		if first.Seq != second.Seq || first.Loop != second.Loop || first.Seq == 0 {
			t.Errorf("sent as %s/%d, repeated as %s/%d: want one identity", first.Loop, first.Seq, second.Loop, second.Seq)
		}
	})
}

func lastAppend(n *scripted) *boardpb.Command {
	var last *boardpb.Command
	for _, req := range n.seen() {
		if cmd := req.GetApply().GetCommand(); cmd.GetAppend() != nil {
			last = cmd
		}
	}
	return last
}

func TestT36AnAnswerIsBelievedByIdentityAndNotByComparingValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		first := true
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			if c.cmd.GetSet() == nil {
				return c.routine()
			}
			if first {
				first = false
				return unavailable(c, perhaps)
			}
			return c.applied(&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_CONFLICT, Version: 4, Value: []byte(`"same"`), Author: "w2"})
		})
		l := openLoop(t, s.client(client.Config{}, "n1:1"), client.LoopOptions{})
		res, err := l.Set(context.Background(), "draft", []byte(`"same"`), client.SetOptions{IfVersion: 3})
		if err != nil || res.Outcome != boardpb.Outcome_OUTCOME_CONFLICT || res.Version != 4 || res.Author != "w2" {
			t.Fatalf("got %v, %v; want the conflict with w2's version 4, though the bytes are equal", res, err)
		}
	})
}

func TestACommandWithoutAnIdentityIsNotRepeatedAfterALostAnswerAndOneWithAKeyIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse { return unavailable(c, perhaps) })
		c := s.client(client.Config{}, "n1:1")
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		bare := &boardpb.Command{Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/x", Value: []byte(`1`)}}}
		if err := c.DoBare(ctx, bare); !errors.Is(err, client.ErrUnknown) {
			t.Errorf("without identity: %v, want unknown", err)
		}
		if got := len(s.nodes["n1:1"].seen()); got != 1 {
			t.Errorf("a command without identity was sent %d times", got)
		}
		_, err := c.Board("default").Set(ctx, "draft", []byte(`1`), client.SetOptions{})
		if !errors.Is(err, client.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("with a key: %v; want unknown, because of the deadline", err)
		}
		keys := map[string]bool{}
		tries := s.nodes["n1:1"].seen()[1:]
		for _, req := range tries {
			keys[req.GetApply().GetCommand().GetIdempotencyKey()] = true
		}
		if len(keys) != 1 || keys[""] || len(tries) < 3 {
			t.Errorf("%d tries under the keys %v; want several under one key", len(tries), keys)
		}
	})
}

func TestTheClientGoesToTheLeaderThatAnAnswerNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1", "n2:1")
		leader := &wirepb.Leader{NodeId: "id-n2:1", GrpcAddr: "n2:1", Term: 4}
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			return c.appliedBy(&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Version: 1}, leader)
		})
		s.nodes["n2:1"].play((*call).routine)
		c := s.client(client.Config{}, "n1:1") // n2 is not among the endpoints
		b := c.Board("default")
		for range 5 {
			if _, err := b.Append(context.Background(), "facts/x", []byte(`1`), client.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if n1, n2 := len(s.nodes["n1:1"].seen()), len(s.nodes["n2:1"].seen()); n1 != 1 || n2 != 4 {
			t.Errorf("n1 got %d calls, n2 %d; want 1 and 4", n1, n2)
		}
	})
}

func TestT74ANodeThatSwallowsPacketsAndOneWithoutALeaderCostATryAndNotTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1", "n2:1", "n3:1", "n4:1", "n5:1")
		s.nodes["n1:1"].lis.setSwallow(true)
		s.nodes["n2:1"].play(func(c *call) *wirepb.SessionResponse { return unavailable(c, no) })
		s.nodes["n3:1"].lis.cut(true)
		s.nodes["n4:1"].play((*call).routine)
		s.nodes["n4:1"].watch = mute
		s.nodes["n5:1"].play((*call).routine)
		ctx := context.Background()
		steps := map[string]func(c *client.Client) error{
			"set": func(c *client.Client) error {
				_, err := c.Board("default").Set(ctx, "draft", []byte(`1`), client.SetOptions{})
				return err
			},
			"get": func(c *client.Client) error {
				_, _, err := c.Board("default").Get(ctx, "draft", client.ReadOptions{})
				return err
			},
			"watch": func(c *client.Client) error {
				_, err := c.Board("default").Watch(ctx, client.WatchOptions{Patterns: []string{"**"}})
				return err
			},
			"claim": func(c *client.Client) error {
				l, err := c.Board("default").OpenLoop(ctx, client.LoopOptions{})
				if err != nil {
					return err
				}
				_, _, err = l.Claim(ctx, "claims/x", client.ClaimOptions{Duration: time.Minute})
				return err
			},
		}
		for name, step := range steps {
			c := s.client(client.Config{}, "n1:1", "n2:1", "n3:1", "n4:1", "n5:1")
			start := time.Now()
			if err := step(c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if d := time.Since(start); d >= 5*time.Second {
				t.Errorf("%s took %v; want less than 5 s", name, d)
			}
			c.Close()
		}
	})
}

// mute confirms a watch and then says nothing.
func mute(_ *wirepb.WatchRequest, stream watchStream) error {
	if err := stream.Send(opened(1)); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func TestT74WithoutAMajorityAnywhereACallIsUnavailableWithinFiveSecondsAndNamesEachCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1", "n2:1")
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse { return unavailable(c, no) })
		s.nodes["n2:1"].lis.cut(true)
		c := s.client(client.Config{}, "n1:1", "n2:1", "n9:1")
		start := time.Now()
		_, err := c.Board("default").Set(context.Background(), "draft", []byte(`1`), client.SetOptions{})
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("it took %v", d)
		}
		if !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, client.ErrNotDone) || errors.Is(err, client.ErrUnknown) {
			t.Errorf("got %v; want unavailable, not done", err)
		}
		for _, want := range []string{"n1:1: no leader", "n2:1:", "connection refused", "n9:1:", "no such host"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error %q does not name %q", err, want)
			}
		}
	})
}

func TestASlowNodeIsAskedAgainWithMoreTimeAndACallNeverOutlivesItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse { return nil })
		c := s.client(client.Config{}, "n1:1")
		for _, limit := range []time.Duration{100 * time.Millisecond, time.Second, 20 * time.Second} {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			start := time.Now()
			_, err := c.Board("default").Set(ctx, "draft", []byte(`1`), client.SetOptions{})
			cancel()
			if d := time.Since(start); d > limit || !errors.Is(err, client.ErrUnknown) {
				t.Errorf("with %v left: %v after %v; want unknown in time", limit, err, d)
			}
		}
		for _, req := range s.nodes["n1:1"].seen() {
			if req.TimeoutMs <= 0 || req.TimeoutMs > 10_000 {
				t.Errorf("a try was given %d ms", req.TimeoutMs)
			}
		}
	})
}

func TestCallsThatWereQueuedWhenTheSessionEndedAreNotDoneAndTheOthersUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse { return nil })
		l := openLoop(t, func() *client.Client {
			s.nodes["n1:1"].play((*call).routine)
			return s.client(client.Config{}, "n1:1")
		}(), client.LoopOptions{Manual: true})
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			c.node.lis.cut(true)
			return nil
		})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := appendTo(ctx, l); !errors.Is(err, client.ErrUnknown) {
			t.Errorf("sent and cut: got %v, want unknown", err)
		}
		if _, err := appendTo(ctx, l); !errors.Is(err, client.ErrNotDone) {
			t.Errorf("never sent: got %v, want not done", err)
		}
	})
}

func TestAfterGoodbyePendingCallsAreAnsweredAndNewOnesGoElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1", "n2:1")
		s.nodes["n2:1"].play((*call).routine)
		release := make(chan struct{})
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			if c.cmd.GetAppend() == nil {
				return c.routine()
			}
			if c.cmd.Seq == 1 {
				<-release
				return c.applied(&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Version: 11})
			}
			c.more(&wirepb.SessionResponse{Answer: &wirepb.SessionResponse_Goodbye{Goodbye: &wirepb.Goodbye{Reason: "draining"}}})
			return c.routine()
		})
		l := openLoop(t, s.client(client.Config{}, "n1:1", "n2:1"), client.LoopOptions{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if res, err := appendTo(context.Background(), l); err != nil || res.Version != 11 {
				t.Errorf("the pending call: %v, %v; want its answer", res, err)
			}
		})
		synctest.Wait()
		if _, err := appendTo(context.Background(), l); err != nil { // brings the goodbye about
			t.Fatal(err)
		}
		before := len(s.nodes["n1:1"].seen())
		for range 3 {
			if _, err := appendTo(context.Background(), l); err != nil {
				t.Errorf("after goodbye: %v", err)
			}
		}
		if got := len(s.nodes["n1:1"].seen()); got != before {
			t.Errorf("the draining node got %d new calls", got-before)
		}
		close(release)
		wg.Wait()
		synctest.Wait()
		if got := s.nodes["n1:1"].open.Load(); got != 0 {
			t.Errorf("%d sessions are open at the draining node after the last answer", got)
		}
	})
}

func TestA257thCallOfALoopWaitsAndAPoolTakesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		release := make(chan struct{})
		var inFlight, most atomic.Int32
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			if c.cmd.GetAppend() == nil {
				return c.routine()
			}
			if c.cmd.Seq >= c.cmd.Floor+256 {
				t.Errorf("seq %d sent with floor %d", c.cmd.Seq, c.cmd.Floor)
			}
			most.Store(max(most.Load(), inFlight.Add(1)))
			<-release
			inFlight.Add(-1)
			return c.routine()
		})
		c := s.client(client.Config{}, "n1:1")
		pool, err := c.Board("default").OpenPool(background(t), 3, client.LoopOptions{})
		if err != nil {
			t.Fatal(err)
		}
		loop := openLoop(t, c, client.LoopOptions{Manual: true})
		var wg sync.WaitGroup
		burst := func(n int, pick func() *client.Loop) {
			for range n {
				l := pick()
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
					defer cancel()
					if _, err := appendTo(ctx, l); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
		}
		burst(300, func() *client.Loop { return loop })
		if got := most.Load(); got != 256 {
			t.Errorf("%d calls of one loop in flight, want 256", got)
		}
		close(release)
		wg.Wait()

		release = make(chan struct{})
		most.Store(0)
		burst(600, func() *client.Loop {
			l, err := pool.Loop(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			return l
		})
		if got := most.Load(); got != 600 {
			t.Errorf("%d calls of a pool in flight, want 600", got)
		}
		close(release)
		wg.Wait()
	})
}

func TestAnAbandonedCallRaisesTheFloorPastItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		var mu sync.Mutex
		var floors []uint64
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			if k := c.cmd.GetLoopKeepalive(); k != nil {
				mu.Lock()
				floors = append(floors, k.Loops[0].Floor)
				mu.Unlock()
			}
			if c.cmd.GetAppend() != nil {
				return nil
			}
			return c.routine()
		})
		l := openLoop(t, s.client(client.Config{}, "n1:1"), client.LoopOptions{TTL: time.Hour})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := appendTo(ctx, l); !errors.Is(err, client.ErrUnknown) {
			t.Fatalf("got %v, want unknown", err)
		}
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		if len(floors) == 0 || floors[len(floors)-1] != 2 {
			t.Errorf("the server was told the floors %v; want 2 at once, not in a third of the ttl", floors)
		}
	})
}

func TestReadsNeverGoBackwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			rev := uint64(3) // this node lags
			if c.read.GetConsistency() != client.Stale {
				rev = max(9, c.read.GetAtLeastRev())
			}
			return c.readAnswer(&wirepb.ReadResponse{Rev: rev, Answer: &wirepb.ReadResponse_Get{Get: &wirepb.GetAnswer{}}})
		})
		b := s.client(client.Config{}, "n1:1").Board("default")
		ctx := context.Background()
		for _, opts := range []client.ReadOptions{{}, {Consistency: client.Stale}, {Consistency: client.AtLeast, AtLeast: 4}} {
			_, at, err := b.Get(ctx, "draft", opts)
			if err != nil || at.Rev < 9 {
				t.Errorf("%v: rev %d, %v; want 9 or more, as seen before", opts.Consistency, at.Rev, err)
			}
		}
	})
}

func TestAResetIsSaidAndNeverFollowedInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		current := "a"
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			if got := c.cmd.GetIncarnation(); got != "" && got != current {
				return c.applied(&boardpb.Result{Code: boardpb.Code_CODE_RESET, Incarnation: current})
			}
			return c.applied(&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Incarnation: current, Rev: 5})
		})
		c := s.client(client.Config{}, "n1:1")
		set := func(b *client.Board) error {
			_, err := b.Set(context.Background(), "draft", []byte(`1`), client.SetOptions{IfVersion: 2})
			return err
		}
		b := c.Board("default")
		if err := set(b); err != nil {
			t.Fatal(err)
		}
		current = "b"
		for range 2 {
			if err := set(b); !errors.Is(err, client.ErrReset) {
				t.Errorf("the old handle: %v; want reset, each time", err)
			}
		}
		if err := set(c.Board("default")); err != nil {
			t.Errorf("a new handle: %v", err)
		}
	})
}

func TestARefusedSessionEndsTheCallAtOnceAndASilentlyClosedOneDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1", "n2:1")
		st, err := status.New(codes.Unauthenticated, "no name was stated").WithDetails(
			&errdetails.ErrorInfo{Reason: "UNAUTHENTICATED", Domain: "raftboard", Metadata: map[string]string{"hint": "state one"}})
		if err != nil {
			t.Fatal(err)
		}
		s.nodes["n1:1"].refuse = st.Err()
		c := s.client(client.Config{}, "n1:1", "n2:1")
		start := time.Now()
		_, err = c.Board("default").Set(context.Background(), "draft", []byte(`1`), client.SetOptions{})
		if !errors.Is(err, client.ErrUnauthenticated) || !strings.Contains(err.Error(), "state one") || time.Since(start) > time.Second {
			t.Errorf("got %v after %v; want unauthenticated with its hint, at once", err, time.Since(start))
		}
		s.nodes["n1:1"].refuse = status.Error(codes.Unavailable, "too many sessions")
		if _, err := c.Board("default").Set(context.Background(), "draft", []byte(`1`), client.SetOptions{}); err != nil {
			t.Errorf("the other node would have taken it: %v", err)
		}
	})
}
