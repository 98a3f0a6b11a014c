package exitcode_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"raftboard/cmd/raftboard/exitcode"
	boardpb "raftboard/fsm/pb"
)

// statusOfCode repeats the published table, so that a change of the code shows here.
func statusOfCode() map[string]int {
	table := map[int]string{
		3: "not_found",
		4: "exists stale_lease lease_expired no_lease not_holder wrong_state not_initialized loop_ended",
		5: "unavailable read_timeout",
		6: "unauthenticated forbidden",
		7: "bad_request bad_key bad_path bad_encoding namespace_overlap request_id_reused " +
			"undeclared_namespace wrong_mode too_large limit_schema",
		8: "rate_limited limit_in_flight limit_idempotency_keys limit_leases limit_txn limit_board_bytes " +
			"limit_boards limit_loops limit_namespaces limit_requests limit_cites",
		1: "unspecified stopping expired_request slow_reader compacted reset not_active internal",
	}
	out := map[string]int{}
	for status, words := range table {
		for _, word := range strings.Fields(words) {
			out[word] = status
		}
	}
	return out
}

func TestEveryCodeHasItsPublishedStatus(t *testing.T) {
	want := statusOfCode()
	for number, name := range boardpb.Code_name {
		word := exitcode.EnumWord(name, "CODE_")
		status, listed := want[word]
		if !listed {
			t.Errorf("code %s is missing in the table of this test", word)
			continue
		}
		if got := exitcode.OfCode(boardpb.Code(number)); got != status {
			t.Errorf("code %s: status %d, want %d", word, got, status)
		}
	}
}

func TestOutcomesAreZeroOrFourOrTimeout(t *testing.T) {
	for number := range boardpb.Outcome_name {
		o := boardpb.Outcome(number)
		want := 4
		switch o {
		case boardpb.Outcome_OUTCOME_OK:
			want = 0
		case boardpb.Outcome_OUTCOME_TIMEOUT:
			want = 124
		case boardpb.Outcome_OUTCOME_UNSPECIFIED:
			want = 1
		}
		if got := exitcode.OfOutcome(o); got != want {
			t.Errorf("outcome %s: status %d, want %d", o, got, want)
		}
	}
}

func TestErrorsSpeakForThemselves(t *testing.T) {
	held := &exitcode.Refused{Result: &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_HELD, Message: "by w2", Hint: "wait"}}
	cases := []struct {
		err    error
		status int
		line   string
		hint   string
	}{
		{nil, 0, "", ""},
		{errors.New("boom"), 1, "error: boom", ""},
		{exitcode.Usagef("try this", "bad flag %q", "x"), 2, `error: bad flag "x"`, "try this"},
		{fmt.Errorf("set: %w", held), 4, "held: by w2", "wait"},
		{context.DeadlineExceeded, 5, "unavailable: no answer within the time given by --timeout", "raftboard status"},
		{context.Canceled, 130, "interrupted", ""},
		{&exitcode.Silent{Status: 17}, 17, "", ""},
	}
	for _, c := range cases {
		line, hint := exitcode.Explain(c.err)
		if got := exitcode.From(c.err); got != c.status || line != c.line || hint != c.hint {
			t.Errorf("%v: got %d %q %q, want %d %q %q", c.err, got, line, hint, c.status, c.line, c.hint)
		}
	}
}
