package exitcode

import (
	"strings"

	boardpb "raftboard/fsm/pb"
)

// Word names an answer as people and scripts read it: "ok", "conflict", "stale_lease".
func Word(r *boardpb.Result) string {
	if r.GetCode() != boardpb.Code_CODE_UNSPECIFIED {
		return EnumWord(r.GetCode().String(), "CODE_")
	}
	return EnumWord(r.GetOutcome().String(), "OUTCOME_")
}

// EnumWord turns a name of the protocol into the word people see: "LEASE_STATE_HELD" is "held".
func EnumWord(name, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(name, prefix))
}
