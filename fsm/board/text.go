package board

import (
	"fmt"
	"strings"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// Explain fills in what a Result says in words, from its fields alone: a remembered
// result has no words, and must say the same when it is given again. Texts to others
// never hold what an agent wrote (SPEC F-16): keys, names and numbers only.
func Explain(r *boardpb.Result) *boardpb.Result {
	if r.Message != "" || r.Outcome == boardpb.Outcome_OUTCOME_OK {
		return r
	}
	if r.Code != boardpb.Code_CODE_UNSPECIFIED {
		r.Message, r.Hint = explainCode(r)
	} else {
		r.Message, r.Hint = explainOutcome(r)
	}
	if n := len(r.InTheWay); n > 0 {
		r.Message += fmt.Sprintf("; nothing was claimed, %d in the way: %s", n, strings.Join(r.InTheWay[:min(n, namedInText)], ", "))
	}
	return r
}

// namedInText bounds the keys that a text names; the answer has them all.
const namedInText = 8

func explainOutcome(r *boardpb.Result) (message, hint string) {
	switch r.Outcome {
	case boardpb.Outcome_OUTCOME_CONFLICT:
		return explainConflict(r)
	case boardpb.Outcome_OUTCOME_ESCALATED:
		return explainEscalated(r)
	case boardpb.Outcome_OUTCOME_HELD:
		return fmt.Sprintf("%s is held by %s (generation %d, %s left)", r.Key, r.Holder, r.Generation, span(r.ExpiresInMs)),
			"take other work with claim_next, or try again when the time is up"
	case boardpb.Outcome_OUTCOME_DONE:
		return fmt.Sprintf("%s is done, by %s (generation %d)", r.Key, r.Holder, r.Generation),
			"take other work; an orchestrator may reopen it"
	case boardpb.Outcome_OUTCOME_NOT_READY:
		if len(r.Missing) > 0 || r.Field == FieldDependencies || r.Field == FieldExpected {
			return explainMissing(r)
		}
		if r.Field == fieldParked {
			return fmt.Sprintf("%s is parked: it was tried as often as its namespace allows", r.Key),
				"take other work; an orchestrator, supervisor or operator may unpark it"
		}
		return fmt.Sprintf("%s may be claimed again in %s", r.Key, span(r.RetryAfterMs)), "take other work, or try again then"
	case boardpb.Outcome_OUTCOME_TIMEOUT:
		c := r.Counts
		if c == nil { // given again: the counts of then are not kept
			return "nothing to claim", "try again later; items that expire, fail or are released come back"
		}
		return fmt.Sprintf("nothing to claim: %d held, %d delayed, %d parked, %d done", c.GetHeld(), c.GetDelayed(), c.GetParked(), c.GetDone()),
			"try again later; items that expire, fail or are released come back"
	}
	return "", ""
}

func explainConflict(r *boardpb.Result) (message, hint string) {
	if _, phase := state.PhaseOf(r.Key); phase {
		return explainOverlap(r)
	}
	guard := ""
	if r.FailedGuard != nil {
		guard = fmt.Sprintf("guard %d: ", *r.FailedGuard)
	}
	switch {
	case r.Field == fieldExists:
		message = fmt.Sprintf("%s%s does not exist. Re-read and reconcile", guard, r.Key)
	case r.Field == fieldAbsent:
		message = fmt.Sprintf("%s%s exists, at version %d (by %s). Re-read and reconcile", guard, r.Key, r.Version, r.Author)
	case r.Version == 0:
		message = fmt.Sprintf("%s%s does not exist, you named version %d. Re-read and reconcile", guard, r.Key, r.YourVersion)
	case r.Field == fieldDeleted:
		message = fmt.Sprintf("%s%s was deleted at version %d (by %s), you named %d. Re-read and reconcile", guard, r.Key, r.Version, r.Author, r.YourVersion)
	case r.YourVersion == 0 && r.FailedGuard == nil:
		message = fmt.Sprintf("%s exists at version %d (by %s), and no version was named. Re-read and reconcile", r.Key, r.Version, r.Author)
	default:
		message = fmt.Sprintf("%s%s is at version %d (by %s), you named %d. Re-read and reconcile", guard, r.Key, r.Version, r.Author, r.YourVersion)
	}
	return message, fmt.Sprintf("read it, merge, and write again with if_version %d", r.Version)
}

// The cases of a conflict, in Result.Field.
const (
	fieldDeleted = "deleted"
	fieldExists  = "exists"
	fieldAbsent  = "absent"
)

// fieldParked is the case of `not_ready` that no time ends.
const fieldParked = "parked"

// The cases of `forbidden`, in Result.Field.
const (
	fieldOwner  = "owner"
	fieldWriter = "writer"
	fieldLoop   = "loop"
	fieldOnce   = "once"
	fieldLine   = "one_line"
	fieldAuthor = "author"
)

func explainCode(r *boardpb.Result) (message, hint string) {
	switch r.Code {
	case boardpb.Code_CODE_STALE_LEASE:
		return fmt.Sprintf("stale lease generation %d of %s: it was claimed again or taken away, the generation is now %d", r.YourGeneration, r.Key, r.Generation),
			"stop this work; keep what you found as a result with for_claim"
	case boardpb.Code_CODE_LEASE_EXPIRED:
		return fmt.Sprintf("the lease of %s (generation %d) expired; nobody has claimed it since", r.Key, r.Generation),
			"claim it again: you get the next generation, and `previous` names your partial work"
	case boardpb.Code_CODE_NO_LEASE:
		if r.YourGeneration == 0 {
			return fmt.Sprintf("%s is written under a lease, and no generation was named", r.Key), "claim it, and name the generation you get"
		}
		return fmt.Sprintf("generation %d of %s has ended; nobody holds it", r.YourGeneration, r.Key), "claim it again, unless it is done"
	case boardpb.Code_CODE_NOT_HOLDER:
		return fmt.Sprintf("generation %d of %s is held by %s, in another loop than yours", r.Generation, r.Key, r.Holder),
			"only the loop that claimed it may write; takeover ends another loop of your own name"
	case boardpb.Code_CODE_FORBIDDEN:
		return explainForbidden(r)
	case boardpb.Code_CODE_UNDECLARED_NAMESPACE:
		return fmt.Sprintf("%s matches no declared namespace", r.Key), "see the table: raftboard schema"
	case boardpb.Code_CODE_WRONG_MODE:
		return fmt.Sprintf("namespace %s does not take this operation: it is %s", r.Namespace, r.Field), "retrying can never succeed; see: raftboard schema"
	case boardpb.Code_CODE_LIMIT_SCHEMA:
		return explainSchema(r)
	case boardpb.Code_CODE_WRONG_STATE:
		if _, phase := state.PhaseOf(r.Key); phase {
			return explainPhaseState(r)
		}
		return fmt.Sprintf("%s is %s, which does not allow this", r.Key, r.Field), "look at it first: raftboard claims"
	case boardpb.Code_CODE_TOO_LARGE:
		return fmt.Sprintf("a value of %d bytes, the limit is %d (setting max_value_bytes)", r.Got, r.Limit), "store a reference, or raise the setting: raftboard board settings"
	case boardpb.Code_CODE_RESET:
		return fmt.Sprintf("this board is another incarnation (%s): what you know of its numbers does not hold", r.Incarnation), "start again from a fresh read or a watch from a snapshot"
	case boardpb.Code_CODE_BAD_REQUEST:
		if r.Field == fieldGeneration {
			return fmt.Sprintf("generation %d of %s was never granted; the newest is %d", r.YourGeneration, r.Key, r.Generation), "name the generation that claim answered"
		}
		if r.Field == fieldLine {
			return fmt.Sprintf("%s takes one line for each item, and the value has a line break", r.Key), "say it on one line, or append one item for each line"
		}
		return fmt.Sprintf("%s: not taken here", r.Field), "see the table: raftboard schema"
	}
	return explainIdentity(r)
}

const fieldGeneration = "generation"

func explainForbidden(r *boardpb.Result) (message, hint string) {
	switch r.Field {
	case fieldOwner:
		return fmt.Sprintf("%s is owned by %s", r.Key, r.Holder), "write below your own name"
	case fieldWriter:
		return fmt.Sprintf("%s is written only by %s", r.Key, r.Holder), "ask that writer, or post a finding"
	case fieldLoop:
		return "that loop belongs to another principal", "open a loop of your own"
	case fieldAuthor:
		return fmt.Sprintf("%s was written by %s: its author, an orchestrator, a supervisor or an operator may invalidate it", r.Key, r.Holder),
			"write a finding of your own that cites it and says why"
	case fieldOnce:
		return fmt.Sprintf("%s is written once", r.Key), "an operator may delete it"
	}
	return fmt.Sprintf("this needs the role %s", r.Field), "ask someone who has it"
}

// explainIdentity covers what is refused before or beside the operation itself.
func explainIdentity(r *boardpb.Result) (message, hint string) {
	switch r.Code {
	case boardpb.Code_CODE_NOT_FOUND:
		return fmt.Sprintf("%s was not found", firstOfAll(r.Key, r.Loop, r.Field, "it")), "raftboard list shows what is there"
	case boardpb.Code_CODE_EXISTS:
		return fmt.Sprintf("%s exists already", firstOfAll(r.Key, r.Field, "it")), "choose another name"
	case boardpb.Code_CODE_EXPIRED_REQUEST:
		return fmt.Sprintf("this request (seq %d) is below the floor %d of its loop: it is never run", r.Got, r.Limit), "take a new seq"
	case boardpb.Code_CODE_REQUEST_ID_REUSED:
		return "this identity was used for another request", "a new request takes a new seq or key"
	case boardpb.Code_CODE_LOOP_ENDED:
		return fmt.Sprintf("loop %s has ended: the command was not run and never will be", r.Loop), "open a new loop"
	case boardpb.Code_CODE_LIMIT_IN_FLIGHT:
		return fmt.Sprintf("seq %d is too far ahead: at most %d above the floor", r.Got, r.Limit), "wait for answers, or use another loop"
	case boardpb.Code_CODE_LIMIT_IDEMPOTENCY_KEYS:
		return fmt.Sprintf("%d idempotency keys within the hour, at most %d", r.Got, r.Limit), "use a loop, or wait"
	case boardpb.Code_CODE_LIMIT_LEASES:
		return fmt.Sprintf("the loop holds %d leases, at most %d", r.Got, r.Limit), "finish some, or open another loop"
	case boardpb.Code_CODE_LIMIT_BOARD_BYTES:
		return fmt.Sprintf("the board is full: %d bytes, at most %d", r.Got, r.Limit), "delete what nobody needs, or raise max_board_bytes; deletes always pass"
	case boardpb.Code_CODE_COMPACTED:
		return explainCompacted(r)
	case boardpb.Code_CODE_STOPPING:
		return fmt.Sprintf("board %s was closed at rev %d: it can be read, and takes no writes", r.Field, r.Limit),
			"go on in a copy: raftboard board fork " + r.Field + " NEWNAME"
	case boardpb.Code_CODE_LIMIT_BOARDS, boardpb.Code_CODE_LIMIT_LOOPS, boardpb.Code_CODE_LIMIT_TXN, boardpb.Code_CODE_LIMIT_NAMESPACES,
		boardpb.Code_CODE_LIMIT_CITES:
		return fmt.Sprintf("%s: %d, at most %d", CodeName(r.Code), r.Got, r.Limit), "use fewer"
	case boardpb.Code_CODE_INTERNAL:
		return "the command failed inside the state machine; nothing was changed", "report it with the log of a node"
	}
	return CodeName(r.Code), ""
}

// CodeName is a code as it is written in answers: "stale_lease".
func CodeName(c boardpb.Code) string {
	return strings.ToLower(strings.TrimPrefix(c.String(), "CODE_"))
}

// ModeName is a mode as it is written in tables: "append".
func ModeName(m boardpb.Mode) string {
	return strings.ToLower(strings.TrimPrefix(m.String(), "MODE_"))
}

// span writes milliseconds as a person reads them.
func span(ms int64) string {
	switch {
	case ms < 1000:
		return fmt.Sprintf("%d ms", max(ms, 0))
	case ms < 60_000:
		return fmt.Sprintf("%.1f s", float64(ms)/1000)
	}
	return fmt.Sprintf("%dm%02ds", ms/60_000, ms%60_000/1000)
}

// EndName is how a lease ended as it is written in answers: "expired".
func EndName(e boardpb.EndedBy) string {
	return strings.ToLower(strings.TrimPrefix(e.String(), "ENDED_BY_"))
}

// StateName is a lease's state as it is written in answers: "held".
func StateName(s boardpb.LeaseState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "LEASE_STATE_"))
}
