package check

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

const (
	// unavailableWithin is how long a node may take to say that it is unavailable (SPEC F-9: 5 s),
	// and to be heard.
	unavailableWithin = 6 * time.Second
	// cutWithin is how long it may take to cut a node off, or to undo that: until the first, and
	// from the second on, a node may be in touch with the others though the record says it is not.
	cutWithin    = 2 * time.Second
	oldLeaderFor = 5 * time.Second // how long after a change a former leader is hunted
)

// The states that only W8 is made for.
const (
	Hunted        State = "read at a former leader" // within 5 s after another one leads
	WithoutAnyone State = "unavailable without a majority"
)

// hunts counts them.
func hunts(h *history.History, a *Order, n map[State]int) {
	names := map[string]string{}
	for i := range a.Records {
		if node := a.Records[i].Command.GetNodePut().GetNode(); node != nil {
			names[node.Id] = node.Name
		}
	}
	leader := ""
	for i := range a.Records {
		r := &a.Records[i]
		lead := r.Command.GetLead()
		if lead == nil || lead.Resumed {
			continue
		}
		was := leader
		if leader = names[lead.NodeId]; was == "" || was == leader || r.At == 0 {
			continue
		}
		for _, op := range h.Ops {
			if op.Kind.Reads() && op.Asked == was && op.Invoke >= r.At && op.Invoke <= r.At+oldLeaderFor {
				n[Hunted]++
			}
		}
	}
	for _, op := range h.Ops {
		if op.Result.Answer == "unavailable" && slices.ContainsFunc(h.Faults, func(f history.Fault) bool {
			return f.Name == history.NoMajority && op.Invoke <= f.End && op.Return >= f.Start
		}) {
			n[WithoutAnyone]++
		}
	}
}

// Stale checks W8, in time that grows with the history only. H1: a default read shows at least
// the greatest count that was acknowledged, or shown by a default read, before it began. H2: a
// read at_least a rev shows that rev or a later one; every read is truthful: what it shows is
// what A says the key held at the rev that it names; through one client revs never fall. H3:
// without a majority, writes and default reads are answered unavailable within a bound, and
// nothing else, also by a single node that is cut off.
func Stale(h *history.History, a *Order) []Finding {
	found := newest(h)
	found = append(found, truthful(h, a)...)
	found = append(found, floors(h)...)
	return append(found, withoutMajority(h)...)
}

// newest is H1.
func newest(h *history.History) (found []Finding) {
	var done, reads []*history.Op
	for i := range h.Ops {
		op := &h.Ops[i]
		if op.Outcome != history.OK {
			continue
		}
		if op.Kind == history.Get {
			reads = append(reads, op)
		}
		if op.Kind == history.Get || op.Kind == history.Set {
			done = append(done, op)
		}
	}
	slices.SortFunc(done, func(a, b *history.Op) int { return cmp.Compare(a.Ended, b.Ended) })
	slices.SortFunc(reads, func(a, b *history.Op) int { return cmp.Compare(a.Began, b.Began) })
	greatest := map[string]*history.Op{} // by key, of what had ended
	next := 0
	for _, read := range reads {
		for ; next < len(done) && done[next].Ended < read.Began; next++ {
			if was := greatest[done[next].Key]; was == nil || done[next].Result.Version > was.Result.Version {
				greatest[done[next].Key] = done[next]
			}
		}
		if was := greatest[read.Key]; was != nil && read.Result.Version < was.Result.Version {
			found = append(found, violation("H1", "%s showed %d of %s %v after a %s of %d had ended", cmp.Or(read.Asked, read.Answered),
				read.Result.Version, read.Key, read.Invoke-was.Return, was.Kind, was.Result.Version).of(was.ID, read.ID))
		}
	}
	return found
}

// counted is what a key held from a rev on.
type counted struct {
	rev, version uint64
	value        string
}

// truthful is the half of H2 that A knows: what was shown is what there was at the rev named.
func truthful(h *history.History, a *Order) (found []Finding) {
	keys := map[string][]counted{}
	var last uint64
	for i := range a.Records {
		r := &a.Records[i]
		if r.Command.Board != h.Run.Board {
			continue
		}
		last = max(last, r.Result.Rev)
		if set, ok := r.Command.Op.(*boardpb.Command_Set); ok && r.OK() {
			keys[set.Set.Key] = append(keys[set.Set.Key], counted{r.Result.Rev, r.Result.Version, string(set.Set.Value)})
		}
	}
	for i := range h.Ops {
		op := &h.Ops[i]
		if !op.Kind.Reads() || op.Kind == history.Dump || op.Outcome != history.OK || op.Result.Rev == 0 {
			continue // who is told that there is no such key is not told a rev
		}
		at, _ := slices.BinarySearchFunc(keys[op.Key], op.Result.Rev, func(c counted, rev uint64) int {
			if c.rev <= rev {
				return -1
			}
			return 1
		})
		var held counted
		if at > 0 {
			held = keys[op.Key][at-1]
		}
		where := cmp.Or(op.Asked, op.Answered)
		switch {
		case op.Kind == history.GetAtLeast && op.Result.Rev < op.Args.AtLeast:
			found = append(found, violation("H2", "%s was asked for rev %d or later, and showed rev %d", where, op.Args.AtLeast, op.Result.Rev).of(op.ID))
		case op.Result.Rev > last:
			found = append(found, violation("H2", "%s named rev %d; the last one is %d", where, op.Result.Rev, last).of(op.ID))
		case held.version != op.Result.Version || held.value != op.Result.Value:
			found = append(found, violation("H2", "%s showed version %d of %s, %s, as of rev %d; at that rev it held version %d, %s", where,
				op.Result.Version, op.Key, strconv.Quote(op.Result.Value), op.Result.Rev, held.version, strconv.Quote(held.value)).of(op.ID))
		}
	}
	return found
}

// floors is the other half of H2: through one client, whichever nodes it asks, no answer shows
// less than an earlier one. Who asks a node by itself is promised nothing of the kind.
func floors(h *history.History) (found []Finding) {
	floor := map[string]*history.Op{}
	for i := range h.Ops {
		op := &h.Ops[i]
		if op.Asked != "" || op.Outcome != history.OK || op.Result.Rev == 0 || op.Result.Replayed {
			continue
		}
		was := floor[op.Client]
		if was != nil && op.Kind.Reads() && op.Result.Rev < was.Result.Rev {
			found = append(found, violation("H2", "%s was shown rev %d by %s, and rev %d before", op.Client, op.Result.Rev,
				op.Answered, was.Result.Rev).of(was.ID, op.ID))
		}
		if was == nil || op.Result.Rev > was.Result.Rev {
			floor[op.Client] = op
		}
	}
	return found
}

// deserted is a stretch in which a node had no majority.
type deserted struct {
	record, sure span     // as it was recorded; and in which there was none for certain
	nodes        []string // nil: no node had one
}

// of says whether a node was without a majority.
func (d *deserted) of(node string) bool { return d.nodes == nil || slices.Contains(d.nodes, node) }

// desertedIn lists them. A record of NoMajority is exact. One of N1 names the nodes that were cut
// off from all others, fewer than half of them or each from each; it begins before the cut is
// made, and ends when that was undone.
func desertedIn(h *history.History) (all []deserted) {
	for _, f := range h.Faults {
		whole := span{f.Start, f.End}
		switch {
		case f.Name == history.NoMajority:
			all = append(all, deserted{whole, whole, nil})
		case f.Nemesis == "N1":
			all = append(all, deserted{whole, span{f.Start + cutWithin, f.End - cutWithin}, f.Targets})
		}
	}
	return all
}

// withoutMajority is H3. Of operations that lie within a time without a majority none may be
// decided; one that was asked of a node which nothing else befell is answered within the bound.
// A node that was cut off from the others by itself has no majority either.
func withoutMajority(h *history.History) (found []Finding) {
	late := map[uint64]bool{}
	for _, d := range desertedIn(h) {
		for i := range h.Ops {
			op := &h.Ops[i]
			if op.Kind.Reads() && op.Kind != history.Get || op.Ended == 0 || op.Invoke > d.record.to || op.Return < d.record.from || !d.of(op.Asked) {
				continue
			}
			if op.Invoke >= d.sure.from && op.Return <= d.sure.to && answered(op) {
				found = append(found, violation("H3", "a %s was answered %s at %v, and %s had a majority from %v to %v", op.Kind,
					op.Result.Answer, op.Return, nobody(d.nodes), d.sure.from, d.sure.to).of(op.ID))
			}
			if took := op.Return - op.Invoke; op.Asked != "" && took > unavailableWithin && !befell(h, op) && !late[op.ID] {
				late[op.ID] = true
				found = append(found, violation("H3", "%s took %v to answer a %s without a majority, the bound is %v: %s", op.Asked,
					took, op.Kind, unavailableWithin, cmp.Or(op.Result.Answer, op.Result.Error, "no answer")).of(op.ID))
			}
		}
	}
	return found
}

func nobody(nodes []string) string {
	if nodes == nil {
		return "no node"
	}
	return "none of " + strings.Join(nodes, ", ")
}

// befell says that something else than the loss of the other nodes happened to the node asked
// while an operation was out, or to its client.
func befell(h *history.History, op *history.Op) bool {
	return slices.ContainsFunc(h.Faults, func(f history.Fault) bool {
		hurt := slices.Contains(f.Targets, op.Asked) || slices.Contains(f.Targets, op.Client)
		apart := f.Name == history.NoMajority || f.Nemesis == "N1"
		return hurt && !apart && op.Invoke <= f.End && op.Return >= f.Start
	})
}
