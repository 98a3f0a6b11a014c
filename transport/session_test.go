package transport_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/transport"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// sessionCaller speaks on one session stream, one answer at a time.
type sessionCaller struct {
	t      *testing.T
	stream wirepb.Board_SessionClient
	cancel context.CancelFunc
}

func openSession(t *testing.T, w caller) *sessionCaller {
	t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	t.Cleanup(cancel)
	stream, err := w.board.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &sessionCaller{t, stream, cancel}
}

func (s *sessionCaller) send(id uint64, timeout time.Duration, call any) {
	s.t.Helper()
	request := &wirepb.SessionRequest{Id: id, TimeoutMs: timeout.Milliseconds()}
	switch call := call.(type) {
	case *boardpb.Command:
		request.Call = &wirepb.SessionRequest_Apply{Apply: &wirepb.ApplyRequest{Command: call}}
	case *wirepb.ReadRequest:
		request.Call = &wirepb.SessionRequest_Read{Read: call}
	case *wirepb.Cancel:
		request.Call = &wirepb.SessionRequest_Cancel{Cancel: call}
	}
	if err := s.stream.Send(request); err != nil {
		s.t.Fatal(err)
	}
}

func (s *sessionCaller) next() *wirepb.SessionResponse {
	s.t.Helper()
	answer, err := s.stream.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	return answer
}

func (s *sessionCaller) apply(id uint64, cmd *boardpb.Command) *boardpb.Result {
	s.t.Helper()
	s.send(id, 0, cmd)
	answer := s.next()
	if answer.Id != id {
		s.t.Fatalf("the answer is for call %d, want %d", answer.Id, id)
	}
	return answer.GetApplied().GetResult()
}

func TestASessionCarriesManyCallsAndAnswersThemAsTheyAreDone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		follower := c.Follower()
		s := openSession(t, as(t, c, "w1", follower))
		const calls = 300
		for id := uint64(1); id <= calls; id++ {
			s.send(id, 0, add("facts/x", "1"))
		}
		stale := getQuery("facts/x")
		stale.Consistency = wirepb.Consistency_CONSISTENCY_STALE
		s.send(calls+1, 0, stale)
		answered := map[uint64]bool{}
		staleAt := 0
		for n := range calls + 1 {
			answer := s.next()
			if answered[answer.Id] {
				t.Fatalf("call %d was answered twice", answer.Id)
			}
			answered[answer.Id] = true
			if answer.Id == calls+1 {
				staleAt = n
			} else if r := answer.GetApplied().GetResult(); r.GetOutcome() != boardpb.Outcome_OUTCOME_OK {
				t.Fatalf("call %d: %v", answer.Id, r)
			}
		}
		if staleAt >= calls {
			t.Error("a read that needs nobody waited behind every write sent before it")
		}
		if n := len(as(t, c, "w1", follower).items("facts/x")); n != 50 { // the first page
			t.Errorf("the key has a first page of %d items", n)
		}
	})
}

func TestACallOfASessionEndsWithItsTimeoutOrItsCancel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		leader := c.Leader()
		s := openSession(t, as(t, c, "w1", leader))
		c.Isolate(leader)
		began := time.Now()
		s.send(1, 300*time.Millisecond, set("results/w1/a", "1"))
		if answer := s.next(); answer.Id != 1 || answer.GetApplied().GetResult().GetCode() != boardpb.Code_CODE_UNAVAILABLE {
			t.Errorf("got %v", answer)
		}
		if took := time.Since(began); took > 400*time.Millisecond {
			t.Errorf("a call of 300 ms took %v", took)
		}
		began = time.Now()
		s.send(2, 0, set("results/w1/a", "1"))
		s.send(2, 0, &wirepb.Cancel{})
		if answer := s.next(); answer.Id != 2 || answer.GetApplied().GetResult().GetCode() != boardpb.Code_CODE_UNAVAILABLE {
			t.Errorf("got %v", answer)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("a cancelled call took %v", took)
		}
	})
}

func TestASessionRefusesWhatItCannotCarryAndGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Nodes: 1, Configure: func(_ int, cfg *transport.Config) {
			cfg.Limits.InFlightPerSession = 2
		}})
		s := openSession(t, as(t, c, "w1", 0))
		if r := s.apply(0, set("results/w1/a", "1")); r.GetField() != "id" {
			t.Errorf("id 0: %v", r)
		}
		s.send(1, -time.Second, set("results/w1/a", "1"))
		if r := s.next().GetApplied().GetResult(); r.GetField() != "timeout_ms" {
			t.Errorf("a negative timeout: %v", r)
		}
		s.send(1, 0, nil)
		if r := s.next().GetApplied().GetResult(); r.GetField() != "call" {
			t.Errorf("no call: %v", r)
		}
		// A disk that stalls keeps two calls in flight; the third is turned away, a repeated id too.
		c.Members[0].Disk.Stall(time.Second)
		s.send(1, 0, set("results/w1/a", "1"))
		s.send(2, 0, set("results/w1/b", "1"))
		s.send(2, 0, set("results/w1/b", "1"))
		if answer := s.next(); answer.GetApplied().GetResult().GetField() != "id" {
			t.Errorf("an id in use: %v", answer)
		}
		s.send(3, 0, getQuery("results/w1/a"))
		if r := s.next().GetRead().GetFailure(); r.GetCode() != boardpb.Code_CODE_LIMIT_REQUESTS || r.Limit != 2 {
			t.Errorf("above the limit: %v", r)
		}
		for range 2 {
			if r := s.next().GetApplied().GetResult(); r.GetOutcome() != boardpb.Outcome_OUTCOME_OK {
				t.Errorf("a call in flight: %v", r)
			}
		}
		if r := s.apply(3, set("results/w1/c", "1")); r.GetOutcome() != boardpb.Outcome_OUTCOME_OK {
			t.Errorf("afterwards: %v", r)
		}
		if err := s.stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("a session that the client ended: %v", err)
		}
	})
}
