package check

import (
	"raftboard/jepsen/history"
)

// walk is how one life went through A.
type walk struct {
	life
	at       int         // the place in A of what it applied last; -1: nothing
	installs map[int]int // place in A behind an installed snapshot → how often
}

// walks is how all lives went through A. joined tells of each place in A whether some life
// applied it right after the place before: otherwise nobody's trace shows that there is
// nothing between them.
type walks struct {
	joined []bool
	lives  []*walk
}

// walked follows each life through A.
func walked(h *history.History, order *Order) (*walks, []Finding) {
	w := &walks{joined: make([]bool, len(order.Records)+1)}
	w.joined[0] = true
	at := make(map[place]int, len(order.Records))
	for i := range order.Records {
		at[placeOf(&order.Records[i])] = i
	}
	byLife := map[life]*walk{}
	of := func(node string, n int) *walk {
		l := life{node, n}
		if byLife[l] == nil {
			byLife[l] = &walk{life: l, at: -1, installs: map[int]int{}}
			w.lives = append(w.lives, byLife[l])
		}
		return byLife[l]
	}
	for _, s := range h.Install {
		of(s.Node, s.Life).installs[order.behind(s.Index)]++
	}
	var found []Finding
	for i := range h.Applied {
		a := &h.Applied[i]
		l := of(a.Node, a.Life)
		to := at[placeOf(a)]
		if f, wrong := l.step(order, to); wrong {
			found = append(found, f.at(a.Index))
		}
		if to == l.at+1 && l.at >= 0 {
			w.joined[to] = true
		}
		l.at = to
	}
	return w, found
}

// step says what is wrong with going on at a place of A. Nothing is, if it is the next one, or
// the first one behind a snapshot that this life installed and that was not used so far.
func (l *walk) step(order *Order, to int) (Finding, bool) {
	if to == l.at+1 {
		return Finding{}, false
	}
	if l.installs[to] > 0 {
		l.installs[to]--
		return Finding{}, false
	}
	is := placeOf(&order.Records[to])
	if l.at < 0 {
		return violation("G2", "node %s (life %d) began at command %d.%d, behind no snapshot", l.node, l.n, is.index, is.position), true
	}
	was := placeOf(&order.Records[l.at])
	if to <= l.at {
		return violation("G2", "node %s (life %d) applied command %d.%d after command %d.%d",
			l.node, l.n, is.index, is.position, was.index, was.position), true
	}
	missed := placeOf(&order.Records[l.at+1])
	return violation("G1", "node %s (life %d) left out %d commands, command %d.%d first: it went from %d.%d to %d.%d",
		l.node, l.n, to-l.at-1, missed.index, missed.position, was.index, was.position, is.index, is.position), true
}

// snapshots compares each installed snapshot with A. Where no trace shows what A holds at its
// index, the comparison would mean nothing: that makes a run invalid.
func snapshots(h *history.History, order *Order, w *walks) (found []Finding) {
	for _, s := range h.Install {
		next := order.behind(s.Index)
		if next == 0 || s.Digest == "" {
			continue // it is older than every trace
		}
		last := &order.Records[next-1]
		var what string
		switch {
		case s.Digest != last.Digest:
			what = "the digest"
		case s.T != last.T:
			what = "board time"
		case s.Term < last.Term:
			what = "the term"
		default:
			continue
		}
		if last.Digest == "" || s.Index > last.Index && (next == len(order.Records) || !w.joined[next]) {
			found = append(found, invalid("node %s (life %d) installed a snapshot at entry %d, and no trace shows what led to it",
				s.Node, s.Life, s.Index).at(s.Index))
			continue
		}
		found = append(found, violation("G1", "%s in the snapshot at entry %d that node %s (life %d) installed differs from what node %s (life %d) had there",
			what, s.Index, s.Node, s.Life, last.Node, last.Life).at(s.Index))
	}
	return found
}

// leaders finds a term with two leaders, as Lead commands and raft itself tell it, and terms
// that fall within a life.
func leaders(h *history.History, order *Order) (found []Finding) {
	names, ids := map[string]string{}, map[uint64]string{}
	for i := range order.Records {
		r := &order.Records[i]
		if n := r.Command.GetNodePut().GetNode(); n != nil {
			names[n.Id] = n.Name
		}
		lead := r.Command.GetLead()
		if lead == nil || !r.OK() {
			continue
		}
		if was := ids[r.Term]; was != "" && was != lead.NodeId {
			found = append(found, violation("G2", "term %d was led by node %s and by node %s", r.Term, was, lead.NodeId).at(r.Index))
		}
		ids[r.Term] = lead.NodeId
	}
	return append(found, roles(h, ids, names)...)
}

// roles compares what raft told of itself with the leaders that are in the log.
func roles(h *history.History, ids map[uint64]string, names map[string]string) (found []Finding) {
	led, reached := map[uint64]life{}, map[life]uint64{}
	for _, r := range h.Roles {
		l := life{r.Node, r.Life}
		if r.Term < reached[l] {
			found = append(found, violation("G2", "node %s (life %d) fell from term %d to term %d", r.Node, r.Life, reached[l], r.Term))
		}
		reached[l] = max(reached[l], r.Term)
		if r.Role != "leader" {
			continue
		}
		if was, known := led[r.Term]; known && was != l {
			found = append(found, violation("G2", "term %d was led by node %s (life %d) and by node %s (life %d)",
				r.Term, was.node, was.n, r.Node, r.Life))
		}
		led[r.Term] = l
		if id := ids[r.Term]; names[id] != "" && names[id] != r.Node {
			found = append(found, violation("G2", "node %s led in term %d, and the log names node %s", r.Node, r.Term, names[id]))
		}
	}
	return found
}
