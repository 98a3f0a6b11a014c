package main

import (
	"fmt"
	"path"
	"strings"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// inWords gives an answer of the board the hint of the command line: the board's own speaks
// to callers of its protocol and names their fields, this one names commands and flags. What
// has no entry here keeps its hint.
func inWords(r *boardpb.Result) *boardpb.Result {
	hint := hintOf(r)
	if hint == "" || hint == r.GetHint() {
		return r
	}
	r = proto.CloneOf(r)
	r.Hint = hint
	return r
}

func hintOf(r *boardpb.Result) string {
	key := r.GetKey()
	if id, phase := state.PhaseOf(key); phase {
		return phaseHint(r, id)
	}
	switch r.GetOutcome() {
	case boardpb.Outcome_OUTCOME_CONFLICT:
		return conflictHint(r)
	case boardpb.Outcome_OUTCOME_HELD:
		return fmt.Sprintf("take other work: raftboard claim --next '%s'; or try again when the time is up", besides(key))
	case boardpb.Outcome_OUTCOME_NOT_READY:
		if r.GetRetryAfterMs() == 0 && r.GetField() == "parked" {
			return "take other work; whoever runs this may make it claimable again: raftboard unpark " + key
		}
	case boardpb.Outcome_OUTCOME_DONE:
		return "take other work; an orchestrator may make it claimable again: raftboard reopen " + key
	}
	switch r.GetCode() {
	case boardpb.Code_CODE_NOT_FOUND:
		return notFoundHint(r)
	case boardpb.Code_CODE_NO_LEASE:
		if r.GetYourGeneration() == 0 {
			return fmt.Sprintf("raftboard claim %s; then name --gen and --loop as it prints them", key)
		}
		return fmt.Sprintf("raftboard claims %s shows its state; unless it is done: raftboard claim %s", key, key)
	case boardpb.Code_CODE_STALE_LEASE:
		return fmt.Sprintf("stop this work; what you found can be kept: raftboard append … --for-claim %s --for-claim-gen %d",
			key, r.GetYourGeneration())
	case boardpb.Code_CODE_LEASE_EXPIRED:
		return fmt.Sprintf("raftboard claim %s takes it again, with the next generation", key)
	case boardpb.Code_CODE_NOT_HOLDER:
		return fmt.Sprintf("raftboard claims %s shows the loop that holds it: name it with --loop; or claim it with --takeover", key)
	case boardpb.Code_CODE_LOOP_ENDED:
		return "raftboard loop open, and claim again"
	case boardpb.Code_CODE_FORBIDDEN:
		if r.GetField() == "owner" {
			return "write below your own name, or state the owner's with --as " + r.GetHolder()
		}
	case boardpb.Code_CODE_BAD_ENCODING:
		return "a value is one JSON document; --text stores plain text as a JSON string"
	case boardpb.Code_CODE_WRONG_MODE:
		return "raftboard schema shows what each namespace takes: append, set, or post and claim"
	case boardpb.Code_CODE_LIMIT_IDEMPOTENCY_KEYS:
		return "name a loop with --loop (raftboard loop open), or wait"
	case boardpb.Code_CODE_BAD_REQUEST:
		return fieldHint(r)
	case boardpb.Code_CODE_UNAVAILABLE:
		if r.GetProposed() == boardpb.Proposed_PROPOSED_UNKNOWN {
			return "it may have been done: look before you repeat it; raftboard status shows how the cluster is"
		}
		return "nothing was done, so it is safe to repeat; raftboard status shows how the cluster is"
	}
	return ""
}

// conflictHint leaves the guards of a txn alone: their input has the fields of the protocol.
func conflictHint(r *boardpb.Result) string {
	switch {
	case r.FailedGuard != nil || r.FailedOp != nil:
		return ""
	case r.GetVersion() == 0:
		return "it does not exist: leave --if-version out to create it"
	}
	return fmt.Sprintf("raftboard get %s, merge, and write again with --if-version %d", r.GetKey(), r.GetVersion())
}

// notFoundHint says where a thing of this kind would be seen.
func notFoundHint(r *boardpb.Result) string {
	kind, _, _ := strings.Cut(r.GetField(), " ")
	switch {
	case r.GetLoop() != "" && r.GetKey() == "":
		return "raftboard loop open opens a loop; raftboard claims shows those that hold something"
	case kind == "board" || strings.HasPrefix(r.GetMessage(), "board "):
		return "raftboard board list"
	case kind == "node":
		return "raftboard node list"
	}
	return ""
}

// fieldHint names the flag of a field that was refused.
func fieldHint(r *boardpb.Result) string {
	switch r.GetField() {
	case "if_version":
		return "--if-version N names the version you read; raftboard get KEY -o json shows it"
	case "duration_ms":
		return fmt.Sprintf("a lease lasts at most %dh: --ttl, and --extend of heartbeat", state.MaxLeaseMs/3_600_000)
	case "ttl_ms":
		return fmt.Sprintf("a loop may be silent for at most %dh: --ttl", state.MaxLoopTTLMs/3_600_000)
	case "retry_after_ms":
		return fmt.Sprintf("--retry-after 0s to %dh", state.MaxLeaseMs/3_600_000)
	case "generation":
		return "--gen takes the generation that claim printed; raftboard claims shows it"
	}
	return ""
}

// besides is the pattern of a key's siblings.
func besides(key string) string {
	dir := path.Dir(key)
	if dir == "." {
		return "PATTERN"
	}
	return dir + "/*"
}

// phaseHint is hintOf for a phase, which claim and get do not know.
func phaseHint(r *boardpb.Result, id string) string {
	switch r.GetOutcome() {
	case boardpb.Outcome_OUTCOME_CONFLICT:
		return fmt.Sprintf("raftboard phase read %s, merge, and write again with --read %d", id, r.GetVersion())
	case boardpb.Outcome_OUTCOME_HELD:
		return "raftboard phase list shows who holds it; try again when the time is up"
	}
	switch r.GetCode() {
	case boardpb.Code_CODE_NOT_FOUND:
		return "raftboard phase list shows those there are"
	case boardpb.Code_CODE_NO_LEASE, boardpb.Code_CODE_STALE_LEASE, boardpb.Code_CODE_LEASE_EXPIRED, boardpb.Code_CODE_NOT_HOLDER:
		return fmt.Sprintf("raftboard phase lock %s takes its lock again, if it is free", id)
	}
	return ""
}
