package exitcode

import (
	"context"
	"errors"
	"fmt"

	boardpb "raftboard/fsm/pb"
)

// The statuses. There is no common standard, so these are stable and listed.
const (
	OK           = 0
	Other        = 1
	Usage        = 2   // flags, environment, addresses
	NotFound     = 3   //
	State        = 4   // the state is not what you assumed: conflict, held, stale lease …
	Unavailable  = 5   // no node, no leader, deadline
	Forbidden    = 6   // unauthenticated, forbidden
	Unacceptable = 7   // can't be accepted as written: malformed, too large, wrong mode
	Limit        = 8   // a limit or a rate
	Timeout      = 124 // a wait is over; as timeout(1) has it
	Interrupted  = 130 // as a shell has it after SIGINT
)

// Error is an error with a status of its own.
type Error struct {
	Status int
	Msg    string
	Hint   string // one line: a command that helps
}

func (e *Error) Error() string { return e.Msg }

// Refused is an answer of the board that is not ok: an outcome or a refusal.
type Refused struct{ Result *boardpb.Result }

func (e *Refused) Error() string {
	return fmt.Sprintf("%s: %s", Word(e.Result), e.Result.GetMessage())
}

// Silent ends the process with a status and no words: they were said already, or a child's
// status is passed on.
type Silent struct{ Status int }

func (e *Silent) Error() string { return fmt.Sprintf("exit status %d", e.Status) }

// Usagef is a mistake in how the command was called.
func Usagef(hint, format string, args ...any) error {
	return &Error{Status: Usage, Msg: fmt.Sprintf(format, args...), Hint: hint}
}

// From gives the status of an error: 0 only for nil.
func From(err error) int {
	var silent *Silent
	var own *Error
	var refused *Refused
	switch {
	case err == nil:
		return OK
	case errors.As(err, &silent):
		return silent.Status
	case errors.As(err, &refused):
		return OfResult(refused.Result)
	case errors.As(err, &own):
		return own.Status
	case errors.Is(err, context.DeadlineExceeded):
		return Unavailable
	case errors.Is(err, context.Canceled):
		return Interrupted
	}
	return Other
}

// Explain gives the lines for stderr: what happened, and at most one hint.
func Explain(err error) (line, hint string) {
	var silent *Silent
	var own *Error
	var refused *Refused
	switch {
	case err == nil || errors.As(err, &silent):
		return "", ""
	case errors.As(err, &refused):
		return refused.Error(), refused.Result.GetHint()
	case errors.As(err, &own):
		return "error: " + err.Error(), own.Hint
	case errors.Is(err, context.Canceled):
		return "interrupted", ""
	case errors.Is(err, context.DeadlineExceeded):
		return "unavailable: no answer within the time given by --timeout", "raftboard status"
	}
	return "error: " + err.Error(), ""
}

// OfResult gives the status of an answer.
func OfResult(r *boardpb.Result) int {
	if r.GetCode() != boardpb.Code_CODE_UNSPECIFIED {
		return OfCode(r.GetCode())
	}
	return OfOutcome(r.GetOutcome())
}

// OfOutcome gives the status of an outcome.
func OfOutcome(o boardpb.Outcome) int {
	switch o {
	case boardpb.Outcome_OUTCOME_OK:
		return OK
	case boardpb.Outcome_OUTCOME_TIMEOUT:
		return Timeout
	case boardpb.Outcome_OUTCOME_UNSPECIFIED:
		return Other
	}
	return State
}

// OfCode gives the status of an error code (the table of gRPC status and command line).
func OfCode(c boardpb.Code) int {
	switch c {
	case boardpb.Code_CODE_NOT_FOUND:
		return NotFound
	case boardpb.Code_CODE_EXISTS, boardpb.Code_CODE_STALE_LEASE, boardpb.Code_CODE_LEASE_EXPIRED,
		boardpb.Code_CODE_NO_LEASE, boardpb.Code_CODE_NOT_HOLDER, boardpb.Code_CODE_WRONG_STATE,
		boardpb.Code_CODE_NOT_INITIALIZED, boardpb.Code_CODE_LOOP_ENDED:
		return State
	case boardpb.Code_CODE_UNAVAILABLE, boardpb.Code_CODE_READ_TIMEOUT:
		return Unavailable
	case boardpb.Code_CODE_UNAUTHENTICATED, boardpb.Code_CODE_FORBIDDEN:
		return Forbidden
	case boardpb.Code_CODE_BAD_REQUEST, boardpb.Code_CODE_BAD_KEY, boardpb.Code_CODE_BAD_PATH,
		boardpb.Code_CODE_BAD_ENCODING, boardpb.Code_CODE_NAMESPACE_OVERLAP,
		boardpb.Code_CODE_REQUEST_ID_REUSED, boardpb.Code_CODE_UNDECLARED_NAMESPACE,
		boardpb.Code_CODE_WRONG_MODE, boardpb.Code_CODE_TOO_LARGE, boardpb.Code_CODE_LIMIT_SCHEMA:
		return Unacceptable
	case boardpb.Code_CODE_RATE_LIMITED, boardpb.Code_CODE_LIMIT_IN_FLIGHT,
		boardpb.Code_CODE_LIMIT_IDEMPOTENCY_KEYS, boardpb.Code_CODE_LIMIT_LEASES,
		boardpb.Code_CODE_LIMIT_TXN, boardpb.Code_CODE_LIMIT_BOARD_BYTES,
		boardpb.Code_CODE_LIMIT_BOARDS, boardpb.Code_CODE_LIMIT_LOOPS,
		boardpb.Code_CODE_LIMIT_NAMESPACES, boardpb.Code_CODE_LIMIT_REQUESTS,
		boardpb.Code_CODE_LIMIT_CITES:
		return Limit
	case boardpb.Code_CODE_UNSPECIFIED, boardpb.Code_CODE_STOPPING, boardpb.Code_CODE_COMPACTED,
		boardpb.Code_CODE_EXPIRED_REQUEST, boardpb.Code_CODE_SLOW_READER, boardpb.Code_CODE_RESET,
		boardpb.Code_CODE_NOT_ACTIVE, boardpb.Code_CODE_INTERNAL:
		return Other
	}
	return Other
}
