package check

import (
	"cmp"
	"maps"
	"slices"

	"raftboard/jepsen/history"
)

// Order is A: every command that was applied, once, in the order of the log.
type Order struct {
	Records []history.Applied
	calls   map[string][]int // by call_id
	leases  *account         // once they were judged
}

// ByCall lists the commands that an operation caused, in order.
func (o *Order) ByCall(id string) []*history.Applied {
	var out []*history.Applied
	for _, i := range o.calls[id] {
		out = append(out, &o.Records[i])
	}
	return out
}

// behind is the place in A of the first command of an entry above index.
func (o *Order) behind(index uint64) int {
	i, _ := slices.BinarySearchFunc(o.Records, index, func(r history.Applied, index uint64) int {
		if r.Index <= index {
			return -1
		}
		return 1
	})
	return i
}

type place struct {
	index    uint64
	position int
}

func placeOf(a *history.Applied) place { return place{a.Index, a.Position} }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.index, q.index), cmp.Compare(p.position, q.position))
}

// life is one life of a node.
type life struct {
	node string
	n    int
}

func (l life) compare(m life) int { return cmp.Or(cmp.Compare(l.node, m.node), cmp.Compare(l.n, m.n)) }

// Agree merges the traces of all lives into A. G1: an index is the same everywhere, in term,
// command, result, board time and digest; a life leaves nothing out but what a snapshot that
// it installed covers, and that snapshot is the state of A at its index. G2: within a life
// the applied index never falls or repeats, except to a snapshot, and a life begins where the
// log does or behind a snapshot; a term has one leader, and terms fall neither along the log
// nor, as told by raft, within a life. It takes time in proportion to the traces.
func Agree(h *history.History) (*Order, []Finding) {
	first, found := merged(h.Applied)
	order := inOneOrder(first)
	found = append(found, alongTheLog(order)...)
	walks, more := walked(h, order)
	found = append(found, more...)
	found = append(found, snapshots(h, order, walks)...)
	return order, append(found, leaders(h, order)...)
}

// mostDiffering is how many differences of one life are told one by one: states that differ
// once do so ever after.
const mostDiffering = 3

// merged takes each command from the first trace that has it, and compares the others with it.
func merged(applied []history.Applied) (first map[place]*history.Applied, found []Finding) {
	first = make(map[place]*history.Applied, len(applied)/2+1)
	differing := map[life]int{}
	for i := range applied {
		a := &applied[i]
		seen := first[placeOf(a)]
		if seen == nil {
			first[placeOf(a)] = a
			continue
		}
		what := differs(seen, a)
		if what == "" {
			continue
		}
		l := life{a.Node, a.Life}
		if differing[l]++; differing[l] <= mostDiffering {
			found = append(found, violation("G1", "%s of command %d differs between node %s (life %d) and node %s (life %d)",
				what, a.Position, seen.Node, seen.Life, a.Node, a.Life).at(a.Index))
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(a.Index, b.Index) })
	for _, l := range slices.SortedFunc(maps.Keys(differing), life.compare) {
		if n := differing[l]; n > mostDiffering {
			found = append(found, violation("G1", "%d commands of node %s (life %d) differ from others', the first of them as told", n, l.node, l.n))
		}
	}
	return first, found
}

func inOneOrder(first map[place]*history.Applied) *Order {
	sorted := make([]*history.Applied, 0, len(first))
	for _, a := range first {
		sorted = append(sorted, a)
	}
	slices.SortFunc(sorted, func(a, b *history.Applied) int { return placeOf(a).compare(placeOf(b)) })
	order := &Order{Records: make([]history.Applied, 0, len(sorted)), calls: map[string][]int{}}
	for i, a := range sorted {
		order.Records = append(order.Records, *a)
		if id := a.Command.GetCallId(); id != "" {
			order.calls[id] = append(order.calls[id], i)
		}
	}
	return order
}

func differs(a, b *history.Applied) string {
	switch {
	case a.Term != b.Term:
		return "the term"
	case a.CommandHash != b.CommandHash:
		return "the command"
	case a.ResultHash != b.ResultHash:
		return "the result"
	case a.T != b.T:
		return "board time"
	case a.Digest != b.Digest:
		return "the digest"
	}
	return ""
}

// alongTheLog is what A alone shows to be wrong.
func alongTheLog(order *Order) (found []Finding) {
	for i := 1; i < len(order.Records); i++ {
		if was, is := &order.Records[i-1], &order.Records[i]; is.Term < was.Term {
			found = append(found, violation("G2", "term %d follows term %d in the log", is.Term, was.Term).at(is.Index))
		}
	}
	return found
}
