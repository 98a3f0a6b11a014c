package workload

import (
	"context"
	"errors"
	"testing"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// The difference between fail and info is what the whole judgement stands on: a fail that
// was done is a lie of the system, an info that was done is ordinary life.
func TestOnlyWhatIsProvedNotDoneIsAFail(t *testing.T) {
	refused := func(code boardpb.Code, p boardpb.Proposed) error {
		return &client.Error{Result: &boardpb.Result{Code: code, Proposed: p}}
	}
	unavailable := boardpb.Code_CODE_UNAVAILABLE
	for _, c := range []struct {
		name   string
		res    *boardpb.Result
		err    error
		want   history.Outcome
		answer string
	}{
		{"ok", &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Version: 2}, nil, history.OK, "ok"},
		{"conflict", &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_CONFLICT, Version: 2}, nil, history.Failed, "conflict"},
		{"refused", nil, refused(boardpb.Code_CODE_STALE_LEASE, 0), history.Failed, "stale_lease"},
		{"not done", nil, refused(unavailable, boardpb.Proposed_PROPOSED_NO), history.Failed, "unavailable"},
		{"unknown", nil, refused(unavailable, boardpb.Proposed_PROPOSED_UNKNOWN), history.Info, "unavailable"},
		{"unavailable that does not say which", nil, refused(unavailable, 0), history.Info, "unavailable"},
		{"an error of no server", nil, context.DeadlineExceeded, history.Info, ""},
		{"a closed client", nil, client.ErrClosed, history.Info, ""},
		{"anything else", nil, errors.New("?"), history.Info, ""},
	} {
		op := &history.Op{Key: "k"}
		settle(op, c.res, c.err)
		if op.Outcome != c.want || op.Result.Answer != c.answer {
			t.Errorf("%s: got %q %q, want %q %q", c.name, op.Outcome, op.Result.Answer, c.want, c.answer)
		}
	}
}
