package check

import (
	"cmp"
	"slices"

	"raftboard/jepsen/history"
)

// Order is A: every command that was applied, once, in the order of the log.
type Order struct {
	Records []history.Applied
	calls   map[string][]int // by call_id
}

// ByCall lists the commands that an operation caused, in order.
func (o *Order) ByCall(id string) []*history.Applied {
	var out []*history.Applied
	for _, i := range o.calls[id] {
		out = append(out, &o.Records[i])
	}
	return out
}

type place struct {
	index    uint64
	position int
}

func placeOf(a *history.Applied) place { return place{a.Index, a.Position} }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.index, q.index), cmp.Compare(p.position, q.position))
}

type life struct {
	node string
	n    int
}

// Agree merges the traces into A. It finds (G1) an index that is not the same on two nodes,
// or in two lives of one, in term, command, result, board time or digest, and one that a
// life left out between its first and its last; (G2) a life that applied an entry twice or
// backwards. It knows of no snapshot installs: a life that jumped over entries is a finding.
func Agree(applied []history.Applied) (*Order, []Finding) {
	var found []Finding
	first := map[place]*history.Applied{}
	lives := map[life][]*history.Applied{}
	for i := range applied {
		a := &applied[i]
		l := life{a.Node, a.Life}
		if before := lives[l]; len(before) > 0 {
			if last := before[len(before)-1]; placeOf(a).compare(placeOf(last)) <= 0 {
				found = append(found, violation("G2", "node %s applied entry %d.%d after entry %d.%d in one life",
					a.Node, a.Index, a.Position, last.Index, last.Position).at(a.Index))
			}
		}
		lives[l] = append(lives[l], a)
		if seen := first[placeOf(a)]; seen == nil {
			first[placeOf(a)] = a
		} else if what := differs(seen, a); what != "" {
			found = append(found, violation("G1", "%s of command %d differs between node %s (life %d) and node %s (life %d)",
				what, a.Position, seen.Node, seen.Life, a.Node, a.Life).at(a.Index))
		}
	}
	order := &Order{calls: map[string][]int{}}
	for _, a := range first {
		order.Records = append(order.Records, *a)
	}
	slices.SortFunc(order.Records, func(a, b history.Applied) int { return placeOf(&a).compare(placeOf(&b)) })
	for i := range order.Records {
		if id := order.Records[i].Command.GetCallId(); id != "" {
			order.calls[id] = append(order.calls[id], i)
		}
	}
	return order, append(found, skipped(order, lives)...)
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

// skipped finds what a life left out between its ends.
func skipped(order *Order, lives map[life][]*history.Applied) (found []Finding) {
	for l, records := range lives {
		had := map[place]bool{}
		for _, a := range records {
			had[placeOf(a)] = true
		}
		from, to := placeOf(records[0]), placeOf(records[len(records)-1])
		for i := range order.Records {
			p := placeOf(&order.Records[i])
			if p.compare(from) > 0 && p.compare(to) < 0 && !had[p] {
				found = append(found, violation("G1", "node %s (life %d) left command %d.%d out",
					l.node, l.n, p.index, p.position).at(p.index))
			}
		}
	}
	return found
}
