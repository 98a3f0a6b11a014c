package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	boardpb "raftboard/fsm/pb"
)

// NotDone says that a command was definitely not proposed: it may be repeated anywhere.
// Reads that could not be answered end with it too.
type NotDone struct {
	Why        string
	Hint       string        // one line: what to do next; may be empty
	LeaderID   string        // whom to ask instead; empty when unknown
	Term       uint64        // the term in which that leader was seen
	RetryAfter time.Duration // 0: the caller's own backoff
	Cause      error         // what the library or the context said, for errors.Is; may be nil
}

func (e *NotDone) Error() string { return "not done: " + e.Why }

func (e *NotDone) Unwrap() error { return e.Cause }

// Result is the message that travels to clients.
func (e *NotDone) Result() *boardpb.Result {
	return &boardpb.Result{
		Code: boardpb.Code_CODE_UNAVAILABLE, Proposed: boardpb.Proposed_PROPOSED_NO,
		Message: e.Why, Hint: e.Hint, RetryAfterMs: e.RetryAfter.Milliseconds(),
	}
}

// Unknown says that a command was proposed and its answer is lost: it may or may not take
// effect. Only a repeat under the same identity resolves it.
type Unknown struct {
	Why   string
	Cause error
}

func (e *Unknown) Error() string { return "unknown: " + e.Why }

func (e *Unknown) Unwrap() error { return e.Cause }

// Result is the message that travels to clients.
func (e *Unknown) Result() *boardpb.Result {
	return &boardpb.Result{
		Code: boardpb.Code_CODE_UNAVAILABLE, Proposed: boardpb.Proposed_PROPOSED_UNKNOWN,
		Message: e.Why, Hint: "repeat the command under the same identity: it takes effect once",
	}
}

// ReadTimeout says that a revision was not applied here within the time of an at-least read.
type ReadTimeout struct {
	Board         string
	Wanted, Shown uint64
}

func (e *ReadTimeout) Error() string {
	return fmt.Sprintf("board %q is at rev %d here; rev %d did not arrive in time", e.Board, e.Shown, e.Wanted)
}

// Result is the message that travels to clients.
func (e *ReadTimeout) Result() *boardpb.Result {
	return &boardpb.Result{
		Code: boardpb.Code_CODE_READ_TIMEOUT, Proposed: boardpb.Proposed_PROPOSED_NO, Rev: e.Shown,
		Message: e.Error(), Hint: "read again, or read linearizable",
	}
}

// definite is a constant: the errors of the library that are answered before an entry exists. With
// BatchApplyCh off, ErrEnqueueTimeout is one of them (RAFT P10).
var definite = []struct {
	err error
	why string
}{
	{raft.ErrNotLeader, "this node does not lead"},
	{raft.ErrEnqueueTimeout, "the leader did not take the command in time; its disk may be stalled"},
	{raft.ErrLeadershipTransferInProgress, "leadership is being handed over"},
	{raft.ErrNotVoter, "this node is not a voter"},
	{raft.ErrUnsupportedProtocol, "the Raft protocol version does not allow it"},
}

// classify turns an error of the Raft library into one of the two outcomes. What is not
// known to be definite is unknown: lost leadership, a shutdown, a failed store, an abandoned
// future, a restore (RAFT P9).
func classify(err error) error {
	for _, d := range definite {
		if errors.Is(err, d.err) {
			return &NotDone{Why: d.why, Cause: err}
		}
	}
	return &Unknown{Why: "proposed, but its answer was lost: " + err.Error(), Cause: err}
}
