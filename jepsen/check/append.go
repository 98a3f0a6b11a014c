package check

import (
	"cmp"
	"math"
	"slices"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// listRead is one read of one list.
type listRead struct {
	op           uint64 // 0: at the end
	who          string
	began, ended uint64
	returned     time.Duration
	items        []string
	gap          bool // the versions are not 1, 2, 3 …
}

// list is what clients and A say of one append-only key.
type list struct {
	key     string
	sent    map[string]*history.Op
	order   []*history.Op // by when they were sent
	reads   []listRead    // by when they began; those at the end are last
	applied []string      // A projected on the key
}

// Appends checks W2. A1: an acknowledged element is in every read that began later. A2: it is
// there once. A3: nothing is there that was refused, or that nobody had sent. A4: of two reads
// one is a prefix of the other, lists do not shrink, versions count the items, and what was
// acknowledged before another one was sent stands before it. A5: elements of one loop, which
// sends one at a time, are in the order in which it sent them, whatever it was told. A6: what
// every node shows at the end is A projected on the key.
func Appends(h *history.History, a *Order) (*AppendPlot, []Finding) {
	lists, readers, found := listsOf(h, a)
	plot := &AppendPlot{Readers: readers, Fates: map[Fate]int{}}
	for _, l := range lists {
		found = append(found, l.judge()...)
		found = append(found, l.asApplied()...)
		plot.add(l)
	}
	slices.Sort(plot.Visible)
	return plot, found
}

func listsOf(h *history.History, a *Order) (lists []*list, readers []string, found []Finding) {
	byKey := map[string]*list{}
	get := func(key string) *list {
		if byKey[key] == nil {
			byKey[key] = &list{key: key, sent: map[string]*history.Op{}}
		}
		return byKey[key]
	}
	for i := range h.Ops {
		switch op := &h.Ops[i]; {
		case op.Kind == history.Append:
			l := get(op.Key)
			if twin := l.sent[op.Args.Value]; twin != nil {
				found = append(found, invalid("the element %s was sent to %s twice: what a read saw cannot be told",
					op.Args.Value, op.Key).of(twin.ID, op.ID))
			}
			l.sent[op.Args.Value] = op
			l.order = append(l.order, op)
		case op.Kind == history.Dump && op.Outcome == history.OK:
			for _, s := range op.Result.Seen {
				l := get(s.Key)
				l.reads = append(l.reads, listRead{op.ID, op.Client, op.Began, op.Ended, op.Return, s.Items, s.Versions != nil})
			}
		}
	}
	for i := range a.Records {
		r := &a.Records[i]
		for _, o := range appendsOf(r, h.Run.Board) {
			l := get(o.Key)
			l.applied = append(l.applied, string(o.Value))
		}
	}
	for _, l := range byKey {
		lists = append(lists, l)
	}
	slices.SortFunc(lists, func(a, b *list) int { // list/0-2 before list/0-10
		return cmp.Or(cmp.Compare(len(a.key), len(b.key)), cmp.Compare(a.key, b.key))
	})
	readers = atTheEnd(h, byKey)
	if len(readers) == 0 {
		found = append(found, invalid("nobody read the board at the end"))
	}
	return lists, readers, found
}

// appendsOf lists the appends that a record did, alone or in a txn.
func appendsOf(r *history.Applied, board string) (out []*boardpb.Append) {
	switch {
	case r.Command.Board != board || !r.OK():
	case r.Command.GetAppend() != nil:
		out = append(out, r.Command.GetAppend())
	case r.Command.GetTxn() != nil:
		for _, o := range r.Command.GetTxn().Ops {
			if o.GetAppend() != nil {
				out = append(out, o.GetAppend())
			}
		}
	}
	return out
}

// atTheEnd gives every list one more read by everybody who read the board at the end.
func atTheEnd(h *history.History, lists map[string]*list) (readers []string) {
	for _, reader := range finalReaders(h) {
		readers = append(readers, reader.name)
		for key, l := range lists {
			r := listRead{who: reader.name, began: math.MaxUint64, ended: math.MaxUint64, returned: h.Run.Ended}
			if seen := reader.keys[key]; seen != nil {
				r.items, r.gap = seen.Items, !isCount(seen.Versions)
			}
			l.reads = append(l.reads, r)
		}
	}
	return readers
}

// judge checks a list against what clients know of it.
func (l *list) judge() (found []Finding) {
	for i := range l.reads {
		found = append(found, l.justified(&l.reads[i])...)
		found = append(found, l.complete(&l.reads[i])...)
	}
	longest := l.longest()
	for i := range l.reads {
		r := &l.reads[i]
		if n := firstDifference(r.items, longest); n < len(r.items) {
			found = append(found, violation("A4", "%s of %s shows %s as item %d, another read shows %s",
				r.name(), l.key, r.items[n], n+1, longest[n]).of(r.ops()...))
		}
	}
	found = append(found, l.shrinking()...)
	return append(found, l.inOrder(longest)...)
}

func (r *listRead) name() string {
	if r.op == 0 {
		return "the final read by " + r.who
	}
	return "a read by " + r.who
}

func (r *listRead) ops() []uint64 {
	if r.op == 0 {
		return nil
	}
	return []uint64{r.op}
}

// justified is A2 and A3, and A4 for versions.
func (l *list) justified(r *listRead) (found []Finding) {
	say := func(checker, format string, args ...any) {
		found = append(found, violation(checker, format, args...).of(r.ops()...))
	}
	seen := map[string]bool{}
	for _, item := range r.items {
		op := l.sent[item]
		switch {
		case seen[item]:
			say("A2", "%s of %s shows %s twice", r.name(), l.key, item)
		case op == nil:
			say("A3", "%s of %s shows %s, which nobody ever sent", r.name(), l.key, item)
		case op.Outcome == history.Failed:
			say("A3", "%s of %s shows %s, which was answered %s", r.name(), l.key, item, op.Result.Answer)
		case op.Began > r.ended:
			say("A3", "%s of %s shows %s, which was sent later (operation %d)", r.name(), l.key, item, op.ID)
		}
		seen[item] = true
	}
	if r.gap {
		say("A4", "%s of %s shows items whose versions are not 1, 2, 3 …", r.name(), l.key)
	}
	return found
}

// missing lists what was acknowledged before a read began and is not in it.
func (l *list) missing(r *listRead) (missing []*history.Op) {
	has := map[string]bool{}
	for _, item := range r.items {
		has[item] = true
	}
	for _, op := range l.order {
		if op.Outcome == history.OK && op.Ended < r.began && !has[op.Args.Value] {
			missing = append(missing, op)
		}
	}
	return missing
}

// complete is A1.
func (l *list) complete(r *listRead) []Finding {
	missing := l.missing(r)
	if len(missing) == 0 {
		return nil
	}
	first := missing[0]
	return []Finding{violation("A1", "%s of %s misses %d acknowledged elements, the first one %s (operation %d)",
		r.name(), l.key, len(missing), first.Args.Value, first.ID).of(first.ID).of(r.ops()...)}
}

func (l *list) longest() (items []string) {
	for _, r := range l.reads {
		if len(r.items) > len(items) {
			items = r.items
		}
	}
	return items
}

func firstDifference(a, b []string) int {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// shrinking: a read that began after another one ended shows at least as much.
func (l *list) shrinking() (found []Finding) {
	byEnd := slices.Clone(l.reads)
	slices.SortStableFunc(byEnd, func(a, b listRead) int { return cmp.Compare(a.ended, b.ended) })
	next, most := 0, listRead{}
	for _, r := range l.reads { // by when they began
		for next < len(byEnd) && byEnd[next].ended < r.began {
			if len(byEnd[next].items) > len(most.items) {
				most = byEnd[next]
			}
			next++
		}
		if len(r.items) < len(most.items) {
			found = append(found, violation("A4", "%s of %s shows %d items, an earlier one by %s showed %d",
				r.name(), l.key, len(r.items), most.who, len(most.items)).of(most.ops()...).of(r.ops()...))
		}
	}
	return found
}

// inOrder is A5, and A4 for the order of what was acknowledged.
func (l *list) inOrder(items []string) (found []Finding) {
	var latest *history.Op
	last := map[string]*history.Op{} // by loop
	for _, item := range items {
		op := l.sent[item]
		if op == nil {
			continue
		}
		if was := last[op.Loop]; was != nil && op.Loop != "" && op.Began < was.Began && op.Ended > 0 && op.Ended < was.Began {
			found = append(found, violation("A5", "%s shows %s before %s, and loop %s sent them the other way round",
				l.key, was.Args.Value, item, op.Loop).of(op.ID, was.ID))
		}
		last[op.Loop] = op
		if latest != nil && op.Outcome == history.OK && op.Ended < latest.Began {
			found = append(found, violation("A4", "%s shows %s before %s, which had been acknowledged before that was sent",
				l.key, latest.Args.Value, item).of(op.ID, latest.ID))
		}
		if latest == nil || op.Began > latest.Began {
			latest = op
		}
	}
	return found
}

// asApplied is A6.
func (l *list) asApplied() (found []Finding) {
	for i := range l.reads {
		r := &l.reads[i]
		if r.op != 0 || slices.Equal(r.items, l.applied) {
			continue
		}
		n := firstDifference(r.items, l.applied)
		found = append(found, violation("A6", "%s of %s shows %d items, %d were applied; they differ from item %d on",
			r.name(), l.key, len(r.items), len(l.applied), n+1))
	}
	return found
}
