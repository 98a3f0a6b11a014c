package transport_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/transport"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

func TestOldStreamsAreAskedToOpenAnewBeforeTheirConnectionIsCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Nodes: 1})
		w := as(t, c, "w1", 0)
		time.Sleep(25 * time.Minute) // the connection is older than the streams
		rev := w.ok(add("facts/x", "1")).Rev
		s, f := openSession(t, w), watch(w, fromRev(1, "**"))
		f.events(1)
		began := time.Now()
		cut, _ := f.end()
		if took := time.Since(began); cut.GetCode() != boardpb.Code_CODE_UNAVAILABLE || cut.Rev != rev+1 || took > 31*time.Minute {
			t.Errorf("the watch ended after %v with %v", took, cut)
		}
		if g := s.next().GetGoodbye(); g == nil || time.Since(began) > 31*time.Minute {
			t.Errorf("the session was told %v after %v", g, time.Since(began))
		}
		s.stream.CloseSend()
		if _, err := s.stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the session ended with %v", err)
		}
	})
}

func TestAnHourOfForwardingLoseNoCommandToTheAgeOfAConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Configure: func(_ int, cfg *transport.Config) {
			cfg.Timing.Commit = time.Second // an hour of a quiet cluster is cheaper so
		}})
		w := as(t, c, "w1", c.Follower())
		began := time.Now()
		for n := 1; time.Since(began) < 70*time.Minute; n++ {
			if r := w.ok(add("facts/x", "1")); r.Version != uint64(n) {
				t.Fatalf("write %d became version %d", n, r.Version)
			}
			time.Sleep(25 * time.Second)
		}
	})
}

func TestAWatchNeverSplitsARev(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Nodes: 1})
		w := as(t, c, "w1", 0)
		value := []byte(`"` + strings.Repeat("v", 15<<10) + `"`) // 64 of them are more than a message holds otherwise
		for n := range 4 {
			txn := &boardpb.Txn{}
			for i := range 64 {
				txn.Ops = append(txn.Ops, &boardpb.TxnOp{Op: &boardpb.TxnOp_Set{Set: &boardpb.Set{
					Key: fmt.Sprintf("results/w1/%d/%d", n, i), Value: value}}})
			}
			w.ok(&boardpb.Command{Board: "default", Op: &boardpb.Command_Txn{Txn: txn}})
		}
		request := fromRev(1, "**")
		request.IncludeValues = true
		f := watch(w, request)
		for rev := uint64(1); rev <= 4; {
			m := f.next().GetEvents()
			if m == nil {
				t.Fatal("something else than events")
			}
			perRev := map[uint64]int{}
			for _, e := range m.Events {
				perRev[e.Event.Rev]++
				if len(e.Entry.GetValue()) != len(value) {
					t.Fatalf("an event shows %d bytes", len(e.Entry.GetValue()))
				}
			}
			for range perRev {
				if perRev[rev] != 64 {
					t.Fatalf("rev %d came with %d of 64 events in one message", rev, perRev[rev])
				}
				rev++
			}
		}
	})
}

func TestCallsAboveTheLimitOfANodeAreTurnedAwayAndCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Nodes: 1, Configure: limitInFlight(3)})
		w := as(t, c, "w1", 0)
		c.Members[0].Disk.Stall(time.Second)
		var answers []<-chan *boardpb.Result
		for n := range 5 {
			answers = append(answers, lateAnswer(w, w.ctx, set(fmt.Sprintf("results/w1/%d", n), "1")))
		}
		done, turnedAway := 0, 0
		for _, a := range answers {
			switch r := <-a; {
			case r.Outcome == boardpb.Outcome_OUTCOME_OK:
				done++
			case r.Code == boardpb.Code_CODE_LIMIT_REQUESTS && r.Limit == 3 && r.Proposed == boardpb.Proposed_PROPOSED_NO && r.RetryAfterMs > 0:
				turnedAway++
			default:
				t.Errorf("got %v", r)
			}
		}
		if done != 3 || turnedAway != 2 {
			t.Errorf("%d done and %d turned away", done, turnedAway)
		}
		status, err := wirepb.NewClusterClient(c.Conn("client", 0)).Status(w.ctx, &wirepb.StatusRequest{Local: true})
		if err != nil || status.Nodes[0].AdmissionRefused != 2 {
			t.Errorf("status counts %v, %v", status.GetNodes(), err)
		}
	})
}
