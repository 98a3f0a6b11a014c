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
	q := newQueue(x, spaces, o.After)
	for range state.ClaimScan {
		space, key := q.pop()
		if key == "" {
			return nothing(x, o.Pattern, spaces, 0) // the whole queue was seen
		}
		if p.Match(key) {
			return grant(x, space, key, x.Lease(key), o.DurationMs)
		}
	}
	return nothing(x, o.Pattern, spaces, q.at)
}

func nothing(x *state.Txn, pattern string, spaces []*state.Space, next uint64) *boardpb.Result {
	counts := &boardpb.NamespaceCounts{Pattern: pattern}
	for _, space := range spaces {
		addCounts(counts, x.Counts(space))
	}
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_TIMEOUT, Key: pattern, Counts: counts, Next: next}
}

// queue is the queues of several namespaces as one, in the order of their positions,
// which are those of the board.
type queue struct {
	x      *state.Txn
	spaces []*state.Space
	pos    []uint64 // the next item of each; 0: none
	key    []string
	at     uint64 // of the item taken last
}

func newQueue(x *state.Txn, spaces []*state.Space, after uint64) *queue {
	q := &queue{x: x, spaces: spaces, pos: make([]uint64, len(spaces)), key: make([]string, len(spaces))}
	for i, s := range spaces {
		q.pos[i], q.key[i] = x.NextQueued(s, after)
	}
	return q
}

// pop takes the first item; an empty key says that there is none.
func (q *queue) pop() (*state.Space, string) {
	first := -1
	for i, pos := range q.pos {
		if pos > 0 && (first < 0 || pos < q.pos[first]) {
			first = i
		}
	}
	if first < 0 {
		return nil, ""
	}
	key := q.key[first]
	q.at = q.pos[first]
	q.pos[first], q.key[first] = q.x.NextQueued(q.spaces[first], q.at)
	return q.spaces[first], key
}

func addCounts(sum, c *boardpb.NamespaceCounts) {
	sum.Entries += c.Entries
	sum.Held += c.Held
	sum.Delayed += c.Delayed
	sum.Parked += c.Parked
	sum.Done += c.Done
	sum.Ready += c.Ready
}
