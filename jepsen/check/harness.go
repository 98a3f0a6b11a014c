package check

import (
	"cmp"
	"slices"
	"time"

	"raftboard/jepsen/history"
)

const (
	// amiss is by how much a node's clock and that of the harness may differ: they may be two
	// readings of one clock by two processes, on a machine that has other things to do.
	amiss = 2 * time.Second
	// lateTrace is how much later than its answer a write may come to the next node:
	// the node that answered it may be the one whose clock is being moved.
	lateTrace = 10 * time.Second
	// mostTold is how many findings of one kind are told one by one.
	mostTold = 3
)

// Harness looks at the harness itself (M25), as far as a history can tell: that it recorded every
// operation which it made, and that its clock is the one by which the nodes applied them.
// A harness that breaks either can prove nothing.
func Harness(h *history.History, a *Order) []Finding {
	return slices.Concat(unrecorded(h, a), clockRunsBack(h), otherClock(h, a))
}

// unrecorded: operations are numbered from 1 on, and what was applied for one names it.
func unrecorded(h *history.History, a *Order) (found []Finding) {
	known := make(map[uint64]bool, len(h.Ops))
	last := uint64(0)
	for i := range h.Ops {
		known[h.Ops[i].ID] = true
		last = max(last, h.Ops[i].ID)
	}
	missing := map[uint64]bool{}
	miss := func(id uint64, format string, args ...any) {
		if known[id] || missing[id] {
			return
		}
		if missing[id] = true; len(missing) <= mostTold {
			found = append(found, invalid(format, args...))
		}
	}
	for i := range a.Records {
		if id := history.OpOf(a.Records[i].Command.GetCallId()); id > 0 {
			miss(id, "operation %d was applied at entry %d, and the harness has no record of it", id, a.Records[i].Index)
		}
	}
	for id := uint64(1); id <= last; id++ {
		miss(id, "the harness has no record of operation %d", id)
	}
	if len(missing) > mostTold {
		found = append(found, invalid("the harness has no record of %d operations", len(missing)))
	}
	return found
}

// clockRunsBack: beginnings and ends are counted, and what is counted later is no earlier.
func clockRunsBack(h *history.History) []Finding {
	type moment struct {
		count uint64
		at    time.Duration
		op    uint64
	}
	var moments []moment
	for i := range h.Ops {
		op := &h.Ops[i]
		if op.Began > 0 {
			moments = append(moments, moment{op.Began, op.Invoke, op.ID})
		}
		if op.Ended > 0 {
			moments = append(moments, moment{op.Ended, op.Return, op.ID})
		}
	}
	slices.SortFunc(moments, func(a, b moment) int { return cmp.Compare(a.count, b.count) })
	for i := 1; i < len(moments); i++ {
		if was, is := moments[i-1], moments[i]; is.at < was.at {
			return []Finding{invalid("the clock of the harness went back from %v to %v", was.at, is.at).of(was.op, is.op)}
		}
	}
	return nil
}

// otherClock: what was acknowledged was applied between the call and its answer, by the clock of
// some node. One node's clock may be moved on purpose, and a trace may be late; if more than half
// of all writes are not where they must be, the clock that is wrong is the harness's.
func otherClock(h *history.History, a *Order) []Finding {
	writes := map[uint64]*history.Op{}
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Outcome == history.OK && !op.Kind.Reads() && op.Ended > 0 && !op.Result.Replayed {
			writes[op.ID] = op
		}
	}
	timed, within := map[uint64]bool{}, map[uint64]bool{}
	for i := range h.Applied {
		r := &h.Applied[i]
		op := writes[history.OpOf(r.Command.GetCallId())]
		if op == nil || r.At == 0 || !r.OK() || r.Result.Rev != op.Result.Rev {
			continue
		}
		timed[op.ID] = true
		if r.At >= op.Invoke-amiss && r.At <= op.Return+lateTrace {
			within[op.ID] = true
		}
	}
	if 2*len(within) >= len(timed) {
		return nil
	}
	return []Finding{invalid("%d of %d acknowledged writes were applied at no time between call and answer: the harness has another clock than the nodes",
		len(timed)-len(within), len(timed))}
}
