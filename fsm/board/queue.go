package board

import (
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// ClaimNext grants the first matching item of the queue, in the order in which items
// became claimable (SPEC LS-15): picking and granting are one operation.
func ClaimNext(x *state.Txn, o *boardpb.ClaimNext) *boardpb.Result {
	p, _ := state.ParsePattern(o.Pattern) // checked before
	var spaces []*state.Space
	met := x.Schema().Meets(p)
	for _, s := range met {
		if s.Mode == boardpb.Mode_MODE_LEASED {
			spaces = append(spaces, s)
		}
	}
	switch {
	case len(met) == 0:
		return &boardpb.Result{Code: boardpb.Code_CODE_UNDECLARED_NAMESPACE, Key: o.Pattern}
	case len(spaces) == 0:
		return wrongMode(met[0], o.Pattern)
	}
	var counts boardpb.NamespaceCounts
	scanned, next := 0, uint64(0)
	for _, space := range spaces {
		found := ""
		x.Queue(space, o.After, func(pos uint64, key string) bool {
			if scanned == state.ClaimScan {
				return false
			}
			scanned++
			next = pos
			if p.Match(key) {
				found = key
			}
			return found == ""
		})
		if found != "" {
			return grant(x, space, found, x.Lease(found), o.DurationMs)
		}
		addCounts(&counts, x.Counts(space))
	}
	if scanned < state.ClaimScan {
		next = 0 // the whole queue was seen
	}
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_TIMEOUT, Key: o.Pattern, Counts: &counts, Next: next}
}

func addCounts(sum, c *boardpb.NamespaceCounts) {
	sum.Entries += c.Entries
	sum.Held += c.Held
	sum.Delayed += c.Delayed
	sum.Parked += c.Parked
	sum.Done += c.Done
	sum.Ready += c.Ready
}
