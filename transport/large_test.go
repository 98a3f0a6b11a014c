package transport_test

import (
	"fmt"
	"strings"
	"testing"

	boardpb "raftboard/fsm/pb"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// claimAll claims n items in one txn; each part of the answer brings its item's value.
func claimAll(loop string, n int) *boardpb.Command {
	txn := &boardpb.Txn{}
	for i := range n {
		txn.Ops = append(txn.Ops, &boardpb.TxnOp{Op: &boardpb.TxnOp_Claim{Claim: &boardpb.Claim{Key: fmt.Sprintf("claims/%d", i)}}})
	}
	return &boardpb.Command{Board: "default", Loop: loop, IdempotencyKey: "all", Op: &boardpb.Command_Txn{Txn: txn}}
}

func TestT57AnAnswerTooLargeToSendCostsItsCallAndNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		largeAnswer(t, "at the leader", as(t, c, "w1", c.Leader()))
	})
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		largeAnswer(t, "at a follower", as(t, c, "w1", c.Follower()))
	})
}

// largeAnswer asks for the values of 64 items of 64 KiB at once, over a session and over
// the unary double, with another call out at the same time.
func largeAnswer(t *testing.T, at string, w caller) {
	const n = 64
	for i := range n {
		w.ok(set(fmt.Sprintf("claims/%d", i), `"`+strings.Repeat("x", 65_534)+`"`))
	}
	loop := w.openLoop()
	s := openSession(t, w)
	s.send(1, 0, claimAll(loop, n))
	s.send(2, 0, set("results/w1/a", "1"))
	for range 2 {
		answer := s.next()
		if r := answer.GetApplied().GetResult(); r.GetOutcome() != boardpb.Outcome_OUTCOME_OK {
			t.Errorf("%s: call %d was applied, and its answer says %v, %s", at, answer.Id, r.GetOutcome(), r.GetMessage())
		}
	}
	again := claimAll(loop, n)
	again.IdempotencyKey = "again"
	answer, err := w.board.Apply(w.ctx, &wirepb.ApplyRequest{Command: again})
	r := answer.GetResult()
	if err != nil {
		r = detail(t, err)
	}
	if r.Outcome != boardpb.Outcome_OUTCOME_OK || err != nil && r.Code != boardpb.Code_CODE_TOO_LARGE {
		t.Errorf("%s: the unary call got %v, %v", at, r.Outcome, r.Code)
	}
	leases := w.read(&wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_Leases{Leases: &wirepb.LeasesQuery{}}})
	if got := len(leases.GetLeases().Leases); got != n {
		t.Errorf("%s: %d leases can be read back, want %d", at, got, n)
	}
}
