package client

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// Error is a refusal, or the news that a call got no answer. Result is what the server
// said (or what this client says in its place): the code, and with it what the caller
// needs to act. Outcomes (conflict, held, done, …) are never an Error: they are values.
type Error struct {
	Result *boardpb.Result
	cause  error // a context's end or a connection's failure, when there is one
}

// Error gives message and hint; nothing should ever compare this text.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(codeError(e.Result.Code).Error())
	if e.Result.Message != "" {
		b.WriteString(": ")
		b.WriteString(e.Result.Message)
	}
	if e.Result.Hint != "" {
		b.WriteString(" (")
		b.WriteString(e.Result.Hint)
		b.WriteString(")")
	}
	return b.String()
}

// Unwrap gives the end of the context or the failure of the connection behind it, or nil.
func (e *Error) Unwrap() error { return e.cause }

// Is makes errors.Is(err, ErrStaleLease) and its like work.
func (e *Error) Is(target error) bool {
	switch t := target.(type) {
	case codeError:
		return e.Result.Code == boardpb.Code(t)
	case proposedError:
		return e.Result.Code == boardpb.Code_CODE_UNAVAILABLE && e.Result.Proposed == boardpb.Proposed(t)
	}
	return false
}

// codeError is the sentinel of one code: the code itself, so that the list below is
// the only table there is.
type codeError boardpb.Code

func (c codeError) Error() string {
	return strings.ToLower(strings.TrimPrefix(boardpb.Code(c).String(), "CODE_"))
}

type proposedError boardpb.Proposed

func (p proposedError) Error() string {
	return "proposed: " + strings.ToLower(strings.TrimPrefix(boardpb.Proposed(p).String(), "PROPOSED_"))
}

// The sentinels for errors.Is, one per code (SPEC 1.4).
var (
	ErrBadRequest          error = codeError(boardpb.Code_CODE_BAD_REQUEST)
	ErrBadKey              error = codeError(boardpb.Code_CODE_BAD_KEY)
	ErrBadPath             error = codeError(boardpb.Code_CODE_BAD_PATH)
	ErrBadEncoding         error = codeError(boardpb.Code_CODE_BAD_ENCODING)
	ErrUndeclaredNamespace error = codeError(boardpb.Code_CODE_UNDECLARED_NAMESPACE)
	ErrNamespaceOverlap    error = codeError(boardpb.Code_CODE_NAMESPACE_OVERLAP)
	ErrWrongMode           error = codeError(boardpb.Code_CODE_WRONG_MODE)
	ErrWrongState          error = codeError(boardpb.Code_CODE_WRONG_STATE)
	ErrForbidden           error = codeError(boardpb.Code_CODE_FORBIDDEN)
	ErrNotFound            error = codeError(boardpb.Code_CODE_NOT_FOUND)
	ErrExists              error = codeError(boardpb.Code_CODE_EXISTS)
	ErrStaleLease          error = codeError(boardpb.Code_CODE_STALE_LEASE)
	ErrLeaseExpired        error = codeError(boardpb.Code_CODE_LEASE_EXPIRED)
	ErrNoLease             error = codeError(boardpb.Code_CODE_NO_LEASE)
	ErrNotHolder           error = codeError(boardpb.Code_CODE_NOT_HOLDER)
	ErrRateLimited         error = codeError(boardpb.Code_CODE_RATE_LIMITED)
	ErrStopping            error = codeError(boardpb.Code_CODE_STOPPING)
	ErrTooLarge            error = codeError(boardpb.Code_CODE_TOO_LARGE)
	ErrCompacted           error = codeError(boardpb.Code_CODE_COMPACTED)
	ErrExpiredRequest      error = codeError(boardpb.Code_CODE_EXPIRED_REQUEST)
	ErrRequestIDReused     error = codeError(boardpb.Code_CODE_REQUEST_ID_REUSED)
	ErrLoopEnded           error = codeError(boardpb.Code_CODE_LOOP_ENDED)
	ErrSlowReader          error = codeError(boardpb.Code_CODE_SLOW_READER)
	ErrReset               error = codeError(boardpb.Code_CODE_RESET)
	ErrUnauthenticated     error = codeError(boardpb.Code_CODE_UNAUTHENTICATED)
	ErrNotActive           error = codeError(boardpb.Code_CODE_NOT_ACTIVE)
	ErrUnavailable         error = codeError(boardpb.Code_CODE_UNAVAILABLE)
	ErrReadTimeout         error = codeError(boardpb.Code_CODE_READ_TIMEOUT)
	ErrInternal            error = codeError(boardpb.Code_CODE_INTERNAL)
	ErrNotInitialized      error = codeError(boardpb.Code_CODE_NOT_INITIALIZED)
	ErrLimitInFlight       error = codeError(boardpb.Code_CODE_LIMIT_IN_FLIGHT)
	ErrLimitKeys           error = codeError(boardpb.Code_CODE_LIMIT_IDEMPOTENCY_KEYS)
	ErrLimitLeases         error = codeError(boardpb.Code_CODE_LIMIT_LEASES)
	ErrLimitTxn            error = codeError(boardpb.Code_CODE_LIMIT_TXN)
	ErrLimitBoardBytes     error = codeError(boardpb.Code_CODE_LIMIT_BOARD_BYTES)
	ErrLimitBoards         error = codeError(boardpb.Code_CODE_LIMIT_BOARDS)
	ErrLimitLoops          error = codeError(boardpb.Code_CODE_LIMIT_LOOPS)
	ErrLimitNamespaces     error = codeError(boardpb.Code_CODE_LIMIT_NAMESPACES)
	ErrLimitRequests       error = codeError(boardpb.Code_CODE_LIMIT_REQUESTS)
	ErrLimitCites          error = codeError(boardpb.Code_CODE_LIMIT_CITES)
	ErrLimitSchema         error = codeError(boardpb.Code_CODE_LIMIT_SCHEMA)

	// ErrNotDone and ErrUnknown tell the two kinds of unavailable apart: never
	// proposed, so safe to repeat; or perhaps done, the answer lost.
	ErrNotDone error = proposedError(boardpb.Proposed_PROPOSED_NO)
	ErrUnknown error = proposedError(boardpb.Proposed_PROPOSED_UNKNOWN)

	// ErrClosed answers calls of a closed client.
	ErrClosed = errors.New("client is closed")
	// ErrLost is the cause of a lease's context when the lease was lost.
	ErrLost = errors.New("lease lost")
	// ErrWorkEnded is the cause of a lease's context when its work ended in order.
	ErrWorkEnded = errors.New("work under the lease ended")
)

// refusal turns a Result into what a caller gets: outcomes stay values.
func refusal(res *boardpb.Result) (*boardpb.Result, error) {
	if res.GetCode() != boardpb.Code_CODE_UNSPECIFIED {
		return nil, &Error{Result: res}
	}
	return res, nil
}

// CodeOf gives the code of an error of this package, or CODE_UNSPECIFIED.
func CodeOf(err error) boardpb.Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Result.Code
	}
	return boardpb.Code_CODE_UNSPECIFIED
}

// unanswered is the error of a call that got no result.
func unanswered(proposed boardpb.Proposed, cause error, format string, args ...any) *Error {
	hint := "nothing was done: safe to repeat"
	if proposed == boardpb.Proposed_PROPOSED_UNKNOWN {
		hint = "it may have been done: read before repeating under a new identity"
	}
	return &Error{cause: cause, Result: &boardpb.Result{
		Code:     boardpb.Code_CODE_UNAVAILABLE,
		Proposed: proposed,
		Message:  fmt.Sprintf(format, args...),
		Hint:     hint,
	}}
}

// domain is what our servers put into an ErrorInfo.
const domain = "raftboard"

// fromStatus reads the error of a unary call or a stream: the ErrorInfo names the
// code; without one (a proxy, a transport failure) the gRPC status has to do.
func fromStatus(err error) *Error {
	st, _ := status.FromError(err)
	res := &boardpb.Result{Message: st.Message(), Code: plainCode(st.Code())}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.Domain != domain {
				continue
			}
			if n, ok := boardpb.Code_value["CODE_"+d.Reason]; ok {
				res.Code = boardpb.Code(n)
			}
			res.Hint = d.Metadata["hint"]
			switch strings.ToLower(d.Metadata["proposed"]) {
			case "no":
				res.Proposed = boardpb.Proposed_PROPOSED_NO
			case "unknown":
				res.Proposed = boardpb.Proposed_PROPOSED_UNKNOWN
			}
		case *errdetails.RetryInfo:
			res.RetryAfterMs = d.GetRetryDelay().AsDuration().Milliseconds()
		case *boardpb.Result:
			res = d
		}
	}
	return &Error{Result: res, cause: err}
}

// leaderIn finds who leads in the error of a unary call, or nil.
func leaderIn(err error) *wirepb.Leader {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == domain && info.Metadata["leader_addr"] != "" {
			term, _ := strconv.ParseUint(info.Metadata["leader_term"], 10, 64)
			return &wirepb.Leader{NodeId: info.Metadata["leader"], GrpcAddr: info.Metadata["leader_addr"], Term: term}
		}
	}
	return nil
}

// plainCode is for statuses that carry no ErrorInfo of ours.
func plainCode(c codes.Code) boardpb.Code {
	switch c {
	case codes.InvalidArgument:
		return boardpb.Code_CODE_BAD_REQUEST
	case codes.NotFound:
		return boardpb.Code_CODE_NOT_FOUND
	case codes.AlreadyExists:
		return boardpb.Code_CODE_EXISTS
	case codes.PermissionDenied:
		return boardpb.Code_CODE_FORBIDDEN
	case codes.Unauthenticated:
		return boardpb.Code_CODE_UNAUTHENTICATED
	case codes.ResourceExhausted:
		return boardpb.Code_CODE_LIMIT_REQUESTS
	case codes.Internal, codes.DataLoss:
		return boardpb.Code_CODE_INTERNAL
	default:
		return boardpb.Code_CODE_UNAVAILABLE
	}
}
