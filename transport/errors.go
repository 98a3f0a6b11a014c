package transport

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// errorDomain is the domain of every ErrorInfo this server sends.
const errorDomain = "raftboard"

// grpcCode is the one table from codes to gRPC (DESIGN §11, ECOSYSTEM §3). A code it does
// not know is codes.Unknown; a test walks the enum and finds none.
func grpcCode(code boardpb.Code) codes.Code {
	switch code {
	case boardpb.Code_CODE_NOT_FOUND:
		return codes.NotFound
	case boardpb.Code_CODE_EXISTS:
		return codes.AlreadyExists
	case boardpb.Code_CODE_STALE_LEASE, boardpb.Code_CODE_LEASE_EXPIRED, boardpb.Code_CODE_NO_LEASE,
		boardpb.Code_CODE_NOT_HOLDER, boardpb.Code_CODE_WRONG_STATE, boardpb.Code_CODE_NOT_INITIALIZED,
		boardpb.Code_CODE_UNDECLARED_NAMESPACE, boardpb.Code_CODE_WRONG_MODE, boardpb.Code_CODE_STOPPING,
		boardpb.Code_CODE_EXPIRED_REQUEST, boardpb.Code_CODE_LOOP_ENDED, boardpb.Code_CODE_NOT_ACTIVE:
		return codes.FailedPrecondition
	case boardpb.Code_CODE_BAD_REQUEST, boardpb.Code_CODE_BAD_KEY, boardpb.Code_CODE_BAD_PATH,
		boardpb.Code_CODE_BAD_ENCODING, boardpb.Code_CODE_NAMESPACE_OVERLAP,
		boardpb.Code_CODE_REQUEST_ID_REUSED, boardpb.Code_CODE_TOO_LARGE, boardpb.Code_CODE_LIMIT_SCHEMA:
		return codes.InvalidArgument
	case boardpb.Code_CODE_RATE_LIMITED, boardpb.Code_CODE_LIMIT_IN_FLIGHT,
		boardpb.Code_CODE_LIMIT_IDEMPOTENCY_KEYS, boardpb.Code_CODE_LIMIT_LEASES,
		boardpb.Code_CODE_LIMIT_TXN, boardpb.Code_CODE_LIMIT_BOARD_BYTES, boardpb.Code_CODE_LIMIT_BOARDS,
		boardpb.Code_CODE_LIMIT_LOOPS, boardpb.Code_CODE_LIMIT_NAMESPACES, boardpb.Code_CODE_LIMIT_REQUESTS,
		boardpb.Code_CODE_LIMIT_CITES:
		return codes.ResourceExhausted
	case boardpb.Code_CODE_SLOW_READER:
		return codes.Aborted
	case boardpb.Code_CODE_COMPACTED, boardpb.Code_CODE_RESET:
		return codes.OutOfRange
	case boardpb.Code_CODE_UNAVAILABLE:
		return codes.Unavailable
	case boardpb.Code_CODE_READ_TIMEOUT:
		return codes.DeadlineExceeded
	case boardpb.Code_CODE_UNAUTHENTICATED:
		return codes.Unauthenticated
	case boardpb.Code_CODE_FORBIDDEN:
		return codes.PermissionDenied
	case boardpb.Code_CODE_INTERNAL:
		return codes.Internal
	}
	return codes.Unknown
}

// statusOf turns a refusal into the error of a unary call: the gRPC code of the table,
// exactly one ErrorInfo, what else fits, and last the Result itself, so that a client
// loses nothing by calling the unary double. An outcome, and nil, are no error.
func statusOf(r *boardpb.Result, leader *wirepb.Leader) error {
	if r.GetCode() == boardpb.Code_CODE_UNSPECIFIED {
		return nil
	}
	message := r.Message
	if message == "" {
		message = reasonOf(r.Code)
	}
	st := status.New(grpcCode(r.Code), message)
	with, err := st.WithDetails(detailsOf(r, leader)...)
	if err != nil { // only a detail that cannot be encoded; the plain status still says what happened
		return st.Err()
	}
	return with.Err()
}

// resultFromError finds the Result in the error of a unary call; nil if there is none.
func resultFromError(err error) *boardpb.Result {
	for _, d := range status.Convert(err).Details() {
		if r, ok := d.(*boardpb.Result); ok {
			return r
		}
	}
	return nil
}

// reasonOf is the name of a code in an ErrorInfo: UPPER_SNAKE, without the enum's prefix.
func reasonOf(code boardpb.Code) string {
	return strings.TrimPrefix(code.String(), "CODE_")
}

func detailsOf(r *boardpb.Result, leader *wirepb.Leader) []protoadapt.MessageV1 {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{
		Reason: reasonOf(r.Code), Domain: errorDomain, Metadata: metadataOf(r, leader),
	}}
	if r.RetryAfterMs > 0 {
		after := time.Duration(r.RetryAfterMs) * time.Millisecond
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	}
	switch grpcCode(r.Code) {
	case codes.InvalidArgument:
		if r.Field != "" {
			details = append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
				{Field: r.Field, Description: r.Message},
			}})
		}
	case codes.NotFound:
		details = append(details, &errdetails.ResourceInfo{ResourceType: "raftboard", ResourceName: r.Key})
	case codes.ResourceExhausted:
		details = append(details, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{
			{Subject: reasonOf(r.Code), Description: fmt.Sprintf("limit %d, got %d", r.Limit, r.Got)},
		}})
	}
	return append(details, protoadapt.MessageV1Of(r))
}

// metadataOf lists what a caller needs to act, as text. It never carries what another
// agent wrote (SPEC F-16): no value and no reason of a failure.
func metadataOf(r *boardpb.Result, leader *wirepb.Leader) map[string]string {
	m := map[string]string{}
	text := func(name, value string) {
		if value != "" {
			m[name] = value
		}
	}
	number := func(name string, value uint64) {
		if value != 0 {
			m[name] = strconv.FormatUint(value, 10)
		}
	}
	text("hint", r.Hint)
	text("field", r.Field)
	text("key", r.Key)
	text("namespace", r.Namespace)
	text("author", r.Author)
	text("holder", r.Holder)
	text("loop", r.Loop)
	text("incarnation", r.Incarnation)
	number("rev", r.Rev)
	number("version", r.Version)
	number("generation", r.Generation)
	number("your_version", r.YourVersion)
	number("your_generation", r.YourGeneration)
	number("got", r.Got)
	number("limit", r.Limit)
	number("oldest_rev", r.OldestRev)
	number("expires_in_ms", uint64(max(r.ExpiresInMs, 0)))
	number("retry_after_ms", uint64(max(r.RetryAfterMs, 0)))
	switch r.Proposed {
	case boardpb.Proposed_PROPOSED_NO:
		m["proposed"] = "no"
	case boardpb.Proposed_PROPOSED_UNKNOWN:
		m["proposed"] = "unknown"
	}
	text("leader", leader.GetNodeId())
	text("leader_addr", leader.GetGrpcAddr())
	number("leader_term", leader.GetTerm())
	return m
}

// refuse makes a refusal decided before the log.
func refuse(code boardpb.Code, message, hint string) *boardpb.Result {
	return &boardpb.Result{Code: code, Message: message, Hint: hint}
}

// badField makes a bad_request that names the field.
func badField(field, message, hint string) *boardpb.Result {
	r := refuse(boardpb.Code_CODE_BAD_REQUEST, message, hint)
	r.Field = field
	return r
}

// notDone answers a command that was certainly not proposed: safe to repeat anywhere.
func notDone(message, hint string) *boardpb.Result {
	r := refuse(boardpb.Code_CODE_UNAVAILABLE, message, hint)
	r.Proposed, r.RetryAfterMs = boardpb.Proposed_PROPOSED_NO, retryAfterMs
	return r
}

// unknown answers a command that may or may not take effect: to be repeated only under
// the same identity.
func unknown(message string) *boardpb.Result {
	r := refuse(boardpb.Code_CODE_UNAVAILABLE, message,
		"repeat it with the same loop and seq, or the same idempotency key: it takes effect once")
	r.Proposed, r.RetryAfterMs = boardpb.Proposed_PROPOSED_UNKNOWN, retryAfterMs
	return r
}
