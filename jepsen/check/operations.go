package check

import (
	"maps"
	"slices"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

const (
	// catchUp is how long a new node may take until it has what the others had when it came.
	catchUp = 30 * time.Second
	// stirs is how long after its removal a node is looked at.
	stirs = 10 * time.Second
)

// Operations checks W9: what must hold while members come and go. B1: what was acknowledged is
// there at the end, through every node, those that joined too. B2: a node that was removed and
// stands for election raises nobody's term by more than one. B3: a node that was added soon
// has what the others had when it came. B4: an id that was dropped is never taken in again,
// and a node that lost its disk applies nothing until it has another id.
func Operations(h *history.History, a *Order) (found []Finding) {
	found = append(found, kept(h)...)
	for i := range h.Faults {
		switch f := &h.Faults[i]; {
		case f.Nemesis == "" || f.Error != "":
		case f.Name == "remove":
			found = append(found, disturbs(h, a, f)...)
		case f.Name == "add":
			found = append(found, catchesUp(h, f)...)
		case f.Name == "wipe":
			found = append(found, returns(h, a, f)...)
		}
	}
	return append(found, dropped(a)...)
}

// kept is B1. Nothing in this load is deleted, so a key is at the version of its last write.
func kept(h *history.History) (found []Finding) {
	readers := finalReaders(h)
	if len(readers) == 0 {
		return []Finding{invalid("nobody read the board at the end")}
	}
	for i := range h.Ops {
		op := &h.Ops[i]
		switch op.Kind {
		case history.Set, history.Append, history.Post, history.Partial, history.Mutate:
		default:
			continue
		}
		for _, reader := range readers {
			if newest := reader.newest(op.Key); op.Outcome == history.OK && newest < op.Result.Version {
				found = append(found, violation("B1", "%s of %s by %s was acknowledged as version %d; %s sees version %d at the end",
					op.Kind, op.Key, op.Client, op.Result.Version, reader.name, newest).of(op.ID))
			}
		}
	}
	return found
}

// disturbs is B2.
func disturbs(h *history.History, a *Order, f *history.Fault) (found []Finding) {
	until := calm(h, f, f.End+stirs)
	for _, name := range f.Targets {
		stood := slices.ContainsFunc(h.Roles, func(r history.Role) bool {
			return r.Node == name && r.At > f.End && r.At <= until && (r.Role == "candidate" || r.Role == "leader")
		})
		before, led := termAt(h, a, f.Start, name)
		after := before
		for _, r := range h.Roles {
			if r.Node != name && r.At > f.Start && r.At <= until {
				after = max(after, r.Term)
			}
		}
		allowed := before + 1
		if led {
			allowed++ // it handed over first
		}
		if stood && before > 0 && after > allowed {
			found = append(found, violation("B2", "%s was removed at %v in term %d and stood for election; by %v the others were in term %d",
				name, f.End, before, until, after))
		}
	}
	return found
}

// calm is until when nothing else but additions was done after a fault began.
func calm(h *history.History, f *history.Fault, most time.Duration) time.Duration {
	for i := range h.Faults {
		g := &h.Faults[i]
		if g.Nemesis != "" && g.Name != "add" && g.Name != "promote" && g.Start > f.Start {
			most = min(most, g.Start)
		}
	}
	return most
}

// termAt is the newest term that anybody had by a time, and whether a node led it.
func termAt(h *history.History, a *Order, at time.Duration, node string) (term uint64, led bool) {
	for _, r := range h.Roles {
		if r.At > at {
			continue
		}
		if r.Term > term {
			term, led = r.Term, false
		}
		led = led || r.Term == term && r.Role == "leader" && r.Node == node
	}
	for i := range a.Records {
		if r := &a.Records[i]; r.Command.GetLead() != nil && r.At <= at && r.Term > term {
			term, led = r.Term, false
		}
	}
	return term, led
}

// catchesUp is B3.
func catchesUp(h *history.History, f *history.Fault) (found []Finding) {
	var had uint64
	for i := range h.Applied {
		if r := &h.Applied[i]; r.At > 0 && r.At <= f.Start {
			had = max(had, r.Index)
		}
	}
	limit := f.Start + catchUp
	for i := range h.Faults { // whatever else was done to the cluster meanwhile excuses it
		if g := &h.Faults[i]; g != f && g.Nemesis != "" && g.Start <= limit && g.End > f.Start {
			limit = max(limit, g.End+catchUp)
		}
	}
	for _, name := range f.Targets {
		at, reached := reaches(h, name, had, f.Start)
		switch {
		case reached && at <= limit:
		case reached:
			found = append(found, violation("B3", "%s was added at %v and had entry %d only at %v", name, f.Start, had, at).at(had))
		case h.Run.Ended < limit:
			found = append(found, invalid("%s was added at %v and the run ended before it had to have entry %d", name, f.Start, had).at(had))
		default:
			found = append(found, violation("B3", "%s was added at %v and never had entry %d", name, f.Start, had).at(had))
		}
	}
	return found
}

// reaches is when a node had an entry, in a life that goes on after a time.
func reaches(h *history.History, name string, index uint64, from time.Duration) (first time.Duration, reached bool) {
	see := func(at time.Duration) {
		if at >= from && (!reached || at < first) {
			first, reached = at, true
		}
	}
	for i := range h.Applied {
		if r := &h.Applied[i]; r.Node == name && r.Index >= index {
			see(r.At)
		}
	}
	for _, s := range h.Install {
		if s.Node == name && s.Index >= index {
			see(s.At)
		}
	}
	return first, reached
}

// ids follows the cluster record: which node has which id, and which were dropped.
type ids struct {
	name  map[string]string
	known map[string]time.Duration // id → when its record was first applied
	gone  map[string]bool
}

func (x *ids) put(n *boardpb.Node, at time.Duration) {
	x.name[n.Id] = n.Name
	if _, had := x.known[n.Id]; !had {
		x.known[n.Id] = at
	}
}

func idsOf(a *Order, each func(x *ids, r *history.Applied)) *ids {
	x := &ids{name: map[string]string{}, known: map[string]time.Duration{}, gone: map[string]bool{}}
	for i := range a.Records {
		r := &a.Records[i]
		if !r.OK() {
			continue
		}
		if each != nil {
			each(x, r)
		}
		switch o := r.Command.Op.(type) {
		case *boardpb.Command_NodePut:
			x.put(o.NodePut.Node, r.At)
		case *boardpb.Command_NodeDrop:
			x.gone[o.NodeDrop.Id] = true
		}
	}
	return x
}

// dropped is the half of B4 that A alone shows.
func dropped(a *Order) (found []Finding) {
	idsOf(a, func(x *ids, r *history.Applied) {
		if n := r.Command.GetNodePut().GetNode(); n != nil && x.gone[n.Id] && !n.Removed {
			found = append(found, violation("B4", "node %s was taken in under the id %s, which had been dropped", n.Name, n.Id).at(r.Index))
		}
	})
	return found
}

// returns is the other half of B4.
func returns(h *history.History, a *Order, f *history.Fault) (found []Finding) {
	x := idsOf(a, nil)
	for _, name := range f.Targets {
		renamed := slices.ContainsFunc(slices.Collect(maps.Keys(x.known)), func(id string) bool {
			return x.name[id] == name && x.known[id] >= f.Start
		})
		life, index := firstAfter(h, name, f.Start)
		if life > 0 && !renamed {
			found = append(found, violation("B4", "%s lost its disk at %v, and applied entry %d in life %d without another id",
				name, f.Start, index, life).at(index))
		}
	}
	return found
}

// firstAfter is the first entry that a node applied, or had in a snapshot, in a life that
// began after a time; life 0: none did.
func firstAfter(h *history.History, name string, from time.Duration) (life int, index uint64) {
	old := 0
	for i := range h.Applied {
		if r := &h.Applied[i]; r.Node == name && r.At <= from {
			old = max(old, r.Life)
		}
	}
	for _, s := range h.Install {
		if s.Node == name && s.At <= from {
			old = max(old, s.Life)
		}
	}
	for i := range h.Applied {
		if r := &h.Applied[i]; r.Node == name && r.Life > old && (life == 0 || r.Life < life) {
			life, index = r.Life, r.Index
		}
	}
	for _, s := range h.Install {
		if s.Node == name && s.Life > old && (life == 0 || s.Life < life) {
			life, index = s.Life, s.Index
		}
	}
	return life, index
}
