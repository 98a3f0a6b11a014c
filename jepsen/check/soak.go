package check

import (
	"raftboard/jepsen/history"
)

// Heard checks default reads of callers who had been told of an event. H1: what was told was
// committed before the read began, so the read shows its rev, or a newer one.
func Heard(ops []history.Op) (found []Finding) {
	for _, op := range ops {
		if heard(&op) && op.Result.Rev < op.Args.AtLeast {
			found = append(found, violation("H1", "%s had been told of rev %d, and its read of %s showed rev %d",
				op.Client, op.Args.AtLeast, op.Key, op.Result.Rev).of(op.ID))
		}
	}
	return found
}

// heard is a default read of what its caller had been told of.
func heard(op *history.Op) bool {
	return op.Kind == history.Get && op.Outcome == history.OK && op.Args.AtLeast > 0
}
