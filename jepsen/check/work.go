package check

import (
	"slices"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// item is what A and the clients say of one posted item.
type item struct {
	key        string
	posted     bool
	completes  []*history.Applied // accepted, since the last reopening
	late       []*history.Applied // refused because the lease was lost
	acked      []uint64           // operations that were told "ok"
	ackedAt    time.Duration
	windows    []*Window
	claimSaid  map[uint64][]string // generation → what the next claim told of its partial work
	claimIndex map[uint64]uint64
}

// Work checks W5 on the whole history. Q1: an item is completed at most once, and every
// acknowledged completion stands. Q3: a posted item is never lost, nor is what its workers
// stored. L9: nobody who works and renews loses an item. Q4: one result, and all readers agree on it. Q5: a late complete stores nothing,
// and its successor's stands. Q6: all items are done within the bound after the heal.
func Work(h *history.History, a *Order, windows []*Window) (found []Finding) {
	items := collect(h, a, windows)
	var keys []string
	for key := range items {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		it := items[key]
		found = append(found, it.once()...)
		found = append(found, it.handedOn()...)
		found = append(found, it.lateOnes(h)...)
		found = append(found, it.inTime(h)...)
	}
	found = append(found, faithful(h, windows)...)
	return append(found, finals(h, items, keys)...)
}

// faithful is L9: a lease that its holder was told of runs out only if the holder crashed or
// was paused, gave the item up in a call that was not done or whose answer was lost (its client
// lets the lease run out then), or may have been kept from renewing it by something that no
// leadership and so no grace follows.
func faithful(h *history.History, windows []*Window) (found []Finding) {
	absent, granted, givenUp := map[string]bool{}, map[uint64]*history.Op{}, map[leaseName]bool{}
	for _, f := range h.Faults {
		if f.Nemesis == "" { // what a workload does to its own clients
			for _, client := range f.Targets {
				absent[client] = true
			}
		}
	}
	for i := range h.Ops {
		switch op := &h.Ops[i]; {
		case op.Kind == history.ClaimNext && op.Outcome == history.OK:
			granted[op.ID] = op
		case op.Kind == history.Fail && op.Outcome != history.OK:
			givenUp[leaseName{op.Key, op.Args.Generation}] = true
		}
	}
	for _, w := range windows {
		op := granted[w.Op]
		if w.Board == h.Run.Board && w.Cause == causeExpired && op != nil && !absent[op.Client] &&
			!givenUp[leaseName{w.Key, w.Generation}] && !hampered(h, op.Invoke, w.Ended) {
			found = append(found, violation("L9", "%s worked on %s and renewed it, and generation %d ran out at %d",
				op.Client, w.Key, w.Generation, w.To).of(w.Op))
		}
	}
	return found
}

// hampered: a fault in this stretch may have kept a client from a leader that went on without
// it, so that its lease could end although it did all it could.
func hampered(h *history.History, from, to time.Duration) bool {
	return slices.ContainsFunc(h.Faults, func(f history.Fault) bool {
		switch f.Nemesis {
		case "N3", "N4", "N5", "N6", "N9", "N11", "N15", "N16":
			return f.End >= from && (to == 0 || f.Start <= to)
		}
		return false
	})
}

func collect(h *history.History, a *Order, windows []*Window) map[string]*item {
	items := map[string]*item{}
	get := func(key string) *item {
		if items[key] == nil {
			items[key] = &item{key: key, claimSaid: map[uint64][]string{}, claimIndex: map[uint64]uint64{}}
		}
		return items[key]
	}
	posts := map[string]bool{}
	for _, op := range h.Ops {
		switch {
		case op.Kind == history.Post:
			posts[op.CallID()] = true
			if op.Outcome == history.OK {
				get(op.Key).posted = true // even if A knows nothing of it: that is the point
			}
		case op.Kind == history.Complete && op.Outcome == history.OK:
			it := get(op.Key)
			it.acked, it.ackedAt = append(it.acked, op.ID), max(it.ackedAt, op.Return)
		}
	}
	for i := range a.Records {
		r := &a.Records[i]
		if r.Command.Board != h.Run.Board {
			continue
		}
		switch o := r.Command.Op.(type) {
		case *boardpb.Command_Set:
			if r.OK() && posts[r.Command.CallId] {
				get(o.Set.Key).posted = true
			}
		case *boardpb.Command_Complete:
			it := get(o.Complete.Key)
			if r.OK() {
				it.completes = append(it.completes, r)
			} else if lost(r.Result) {
				it.late = append(it.late, r)
			}
		case *boardpb.Command_Reopen:
			if r.OK() {
				get(o.Reopen.Key).completes = nil
			}
		case *boardpb.Command_Claim, *boardpb.Command_ClaimNext:
			if r.OK() && r.Result.Key != "" && !r.Result.Renewed {
				get(r.Result.Key).claimed(r)
			}
		}
	}
	for _, w := range windows {
		if w.Board == h.Run.Board {
			it := get(w.Key)
			it.windows = append(it.windows, w)
		}
	}
	return items
}

func lost(r *boardpb.Result) bool {
	return !r.Replayed && (r.Code == boardpb.Code_CODE_STALE_LEASE || r.Code == boardpb.Code_CODE_LEASE_EXPIRED)
}

func (it *item) claimed(r *history.Applied) {
	for _, p := range r.Result.Previous {
		if it.claimIndex[p.Generation] == 0 {
			it.claimSaid[p.Generation], it.claimIndex[p.Generation] = p.PartialRefs, r.Index
		}
	}
}

func (it *item) once() (found []Finding) {
	if len(it.completes) > 1 {
		found = append(found, violation("Q1", "item %s was completed %d times, first at entry %d",
			it.key, len(it.completes), it.completes[0].Index).at(it.completes[1].Index))
	}
	if len(it.acked) > 0 && len(it.completes) != 1 {
		found = append(found, violation("Q1", "item %s: %d completions were acknowledged, %d stand",
			it.key, len(it.acked), len(it.completes)).of(it.acked...))
	}
	if len(it.completes) > 0 && !it.posted {
		found = append(found, violation("Q3", "item %s was completed, and nobody posted it", it.key).at(it.completes[0].Index))
	}
	return found
}

// handedOn is the half of Q3 that concerns partial work: the next claimant is told of it.
func (it *item) handedOn() (found []Finding) {
	for _, w := range it.windows {
		index := it.claimIndex[w.Generation]
		if index == 0 {
			continue // nobody claimed it afterwards
		}
		for _, ref := range w.partial {
			if !slices.Contains(it.claimSaid[w.Generation], ref) {
				found = append(found, violation("Q3", "what %s stored under generation %d of %s (%s) was not told to the next claimant",
					w.Owner, w.Generation, it.key, ref).at(index))
			}
		}
	}
	return found
}

func (it *item) lateOnes(h *history.History) (found []Finding) {
	for _, r := range it.late {
		o := r.Command.GetComplete()
		for _, c := range it.completes {
			if c.Command.GetComplete().Generation <= o.Generation {
				found = append(found, violation("Q5", "the late complete of %s under generation %d was refused, and generation %d stands",
					it.key, o.Generation, c.Command.GetComplete().Generation).at(r.Index))
			}
		}
		for _, f := range h.Finals {
			if f.Entry != nil && len(o.Result) > 0 && string(f.Entry.Value) == string(o.Result) {
				found = append(found, violation("Q5", "the late complete of %s under generation %d was refused, and its result is at %s",
					it.key, o.Generation, f.Entry.Key).at(r.Index))
			}
		}
	}
	return found
}

func (it *item) inTime(h *history.History) (found []Finding) {
	if !it.posted {
		return nil
	}
	limit := h.Run.Healed + h.Run.Bound
	switch {
	case len(it.completes) == 0 && h.Run.Ended < limit:
		found = append(found, invalid("item %s is not done, and the run ended before its bound", it.key))
	case len(it.completes) == 0:
		found = append(found, violation("Q6", "item %s was not done within %v after the heal", it.key, h.Run.Bound))
	case it.ackedAt > limit:
		found = append(found, violation("Q6", "item %s was done %v after the heal, the bound is %v",
			it.key, it.ackedAt-h.Run.Healed, h.Run.Bound).of(it.acked...))
	}
	return found
}

// finals checks Q3 and Q4 on what the board held at the end.
func finals(h *history.History, items map[string]*item, keys []string) (found []Finding) {
	readers := map[string]*final{}
	var names []string
	for _, f := range h.Finals {
		r := readers[f.Reader]
		if r == nil {
			r = &final{reader: f.Reader, entries: map[string]*boardpb.Entry{}, leases: map[string]*boardpb.Lease{}}
			readers[f.Reader], names = r, append(names, f.Reader)
		}
		if f.Entry != nil {
			r.entries[f.Entry.Key] = f.Entry
		}
		if f.Lease != nil {
			r.leases[f.Lease.Key] = f.Lease
		}
	}
	if len(names) == 0 {
		return []Finding{invalid("nobody read the board at the end")}
	}
	for _, name := range names {
		for _, key := range keys {
			if items[key].posted {
				found = append(found, readers[name].has(items[key])...)
			}
		}
		found = append(found, readers[name].kept(h)...)
	}
	return found
}

// final is the board as one reader saw it at the end.
type final struct {
	reader  string
	entries map[string]*boardpb.Entry
	leases  map[string]*boardpb.Lease
}

func (f *final) has(it *item) []Finding {
	if f.entries[it.key] == nil {
		return []Finding{violation("Q3", "%s does not see the posted item %s", f.reader, it.key)}
	}
	if len(it.completes) != 1 {
		return nil
	}
	done := it.completes[0]
	o, l := done.Command.GetComplete(), f.leases[it.key]
	if l.GetState() != boardpb.LeaseState_LEASE_STATE_DONE || l.GetResultRef() != done.Result.ResultRef {
		return []Finding{violation("Q4", "%s sees %s as %v with result %q; it was completed with %q",
			f.reader, it.key, l.GetState(), l.GetResultRef(), done.Result.ResultRef).at(done.Index)}
	}
	at := o.ResultsKey
	if at == "" {
		at = it.key
	}
	if o.Result == nil {
		return nil
	}
	if e := f.entries[at]; e == nil || e.Version == done.Result.Version && string(e.Value) != string(o.Result) {
		return []Finding{violation("Q4", "%s does not see the result of %s at %s", f.reader, it.key, at).at(done.Index)}
	}
	return nil
}

// kept: an acknowledged piece of partial work is still there.
func (f *final) kept(h *history.History) (found []Finding) {
	for _, op := range h.Ops {
		if op.Kind != history.Partial || op.Outcome != history.OK {
			continue
		}
		if e := f.entries[op.Key]; e == nil || e.Version == op.Result.Version && string(e.Value) != op.Args.Value {
			found = append(found, violation("Q3", "%s does not see the partial work at %s", f.reader, op.Key).of(op.ID))
		}
	}
	return found
}
