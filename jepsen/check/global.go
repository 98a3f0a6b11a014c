package check

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"raftboard/jepsen/history"
)

const (
	// failover is how long a connected majority may take until operations succeed again, where
	// the run does not say: two rounds of elections at timeouts of a second (RAFT.md: 1.5 to 4.5
	// timeouts each), and the calls of a client to two endpoints that swallow them.
	failover = 15 * time.Second
	// answerable is how long an operation must have waited before its lack of an answer says
	// anything about the cluster: clients are given less time than that on purpose.
	answerable = 2 * time.Second
	// healedAnswers is how long an operation that began after the heal, when every node is
	// ready, may wait while nothing else that began after it is answered either.
	healedAnswers = 6 * time.Second
)

// Globals checks what every run is held to, whatever its workload. G4: at the end every member
// has one last index and one state; G5: nothing panicked, raced, leaked or ended by itself;
// G6: operations succeed while a majority is connected, and after the heal.
func Globals(h *history.History, a *Order) (found []Finding) {
	found = append(found, sameEnd(h, a)...)
	for _, n := range h.Notes {
		checker := "G5"
		if n.Kind == history.NoteStuck {
			checker = "G6"
		}
		found = append(found, violation(checker, "%s on %s at %v: %s", n.Kind, cmp.Or(n.Node, "the harness"), n.At.Round(time.Millisecond), n.Text))
	}
	return append(found, progress(h, a)...)
}

// end is where the newest life of a node stands.
type end struct {
	life
	index  uint64
	digest string
}

// sameEnd is G4. Nodes go on ticking until they are stopped, so the last entry that every one
// must have is the last one that is no tick. G1 has seen to it that they agree on it.
func sameEnd(h *history.History, a *Order) (found []Finding) {
	last := len(a.Records) - 1
	for last >= 0 && a.Records[last].Command.GetTick() != nil {
		last--
	}
	if last < 0 {
		return nil
	}
	ends := endsOf(h)
	for _, node := range members(h, a) {
		e, any := ends[node]
		switch {
		case !any:
			found = append(found, violation("G4", "node %s applied nothing", node))
		case e.index < a.Records[last].Index:
			found = append(found, violation("G4", "node %s ended (life %d) at entry %d, the others have entry %d",
				node, e.n, e.index, a.Records[last].Index).at(a.Records[last].Index))
		case e.digest != "" && e.digest != stateAt(a, e.index):
			found = append(found, violation("G4", "node %s ended (life %d) with another state than the others have at entry %d",
				node, e.n, e.index).at(e.index))
		}
	}
	return found
}

// stateAt is the digest of A at an index.
func stateAt(a *Order, index uint64) string {
	if i := a.behind(index); i > 0 {
		return a.Records[i-1].Digest
	}
	return ""
}

func endsOf(h *history.History) map[string]end {
	ends := map[string]end{}
	reach := func(l life, index uint64, digest string) {
		if e := ends[l.node]; l.n > e.n || l.n == e.n && index >= e.index {
			ends[l.node] = end{l, index, digest}
		}
	}
	for i := range h.Applied {
		a := &h.Applied[i]
		reach(life{a.Node, a.Life}, a.Index, a.Digest)
	}
	for _, s := range h.Install {
		reach(life{s.Node, s.Life}, s.Index, s.Digest)
	}
	return ends
}

// members are the nodes that are in the cluster at the end: those of the run and those that
// joined it, without those whose ids were dropped and are not back under another one.
func members(h *history.History, a *Order) []string {
	in, name := map[string]bool{}, map[string]string{}
	for _, node := range h.Run.Nodes {
		in[node] = node != ""
	}
	for i := range a.Records {
		switch r := &a.Records[i]; {
		case !r.OK():
		case r.Command.GetNodePut() != nil:
			n := r.Command.GetNodePut().Node
			name[n.Id] = n.Name
			in[n.Name] = !n.Removed
		case r.Command.GetNodeDrop() != nil:
			in[name[r.Command.GetNodeDrop().Id]] = false
		}
	}
	maps.DeleteFunc(in, func(node string, member bool) bool { return !member || node == "" })
	return slices.Sorted(maps.Keys(in))
}

// span is a stretch of a run.
type span struct{ from, to time.Duration }

func (s span) overlaps(f *history.Fault) bool { return f.Start < s.to && f.End > s.from }

// progress is G6.
func progress(h *history.History, a *Order) (found []Finding) {
	budget := cmp.Or(h.Run.Failover, failover)
	nodes := members(h, a)
	ops := answerablesOf(h, nodes)
	for _, s := range quiet(h, budget, len(nodes)) {
		if f, stuck := s.stuck(ops, budget); stuck {
			found = append(found, f)
		}
	}
	if h.Run.Healed == 0 {
		return found
	}
	if f, dead := deadAfter(h.Run.Healed, ops); dead {
		found = append(found, f)
	}
	for _, op := range ops {
		if op.Invoke >= h.Run.Healed+budget && !answered(op) && op.Return-op.Invoke >= answerable {
			found = append(found, violation("G6", "%s of %s got no answer in %v, %v after the heal: %s", op.Kind, op.Client,
				op.Return-op.Invoke, op.Invoke-h.Run.Healed, cmp.Or(op.Result.Error, "none")).of(op.ID))
		}
	}
	return found
}

// deadAfter: the cluster is whole again, an operation waited for long, and nothing that was
// asked after the heal had an answer by the end of its patience.
func deadAfter(healed time.Duration, ops []*history.Op) (Finding, bool) {
	var waited *history.Op
	first := time.Duration(math.MaxInt64) // answer
	for _, op := range ops {
		switch {
		case op.Invoke < healed:
		case answered(op):
			first = min(first, op.Return)
		case op.Return-op.Invoke >= healedAnswers && (waited == nil || op.Return < waited.Return):
			waited = op
		}
	}
	if waited == nil || first <= waited.Return {
		return Finding{}, false
	}
	return violation("G6", "nothing that was asked after the heal was answered: %s of %s waited for %v", waited.Kind, waited.Client,
		waited.Return-waited.Invoke).of(waited.ID), true
}

// quiet lists the stretches in which a majority was connected and no fault began or ended, as
// long as the budget or longer; the one after the heal is the last.
func quiet(h *history.History, budget time.Duration, nodes int) (out []span) {
	marks := []time.Duration{0, h.Run.Ended}
	if h.Run.Healed > 0 {
		marks = append(marks, h.Run.Healed)
	}
	for _, f := range h.Faults {
		if f.Nemesis != "" || f.Name == history.NoMajority {
			marks = append(marks, f.Start, f.End)
		}
	}
	slices.Sort(marks)
	for i := 1; i < len(marks); i++ {
		s := span{marks[i-1], marks[i]}
		if s.to-s.from >= budget && !slices.ContainsFunc(h.Faults, func(f history.Fault) bool { return s.overlaps(&f) && !harmless(&f, nodes) }) {
			out = append(out, s)
		}
	}
	return out
}

// harmless faults leave a majority of nodes that are well, and connected. What slows links,
// disks or processors down is none of these, nor is a change of the membership.
func harmless(f *history.Fault, nodes int) bool {
	switch f.Nemesis {
	case "", "N1", "N2":
		return f.Name != history.NoMajority
	case "N7", "N8":
		return f.Name != history.NoMajority && 2*len(f.Targets) < nodes
	}
	return false
}

// stuck: operations were asked for within the budget, and none had an answer by its end.
func (s span) stuck(ops []*history.Op, budget time.Duration) (Finding, bool) {
	until := s.from + budget
	waited := uint64(0)
	for _, op := range ops {
		switch {
		case answered(op) && op.Return > s.from && op.Return <= until:
			return Finding{}, false
		case !answered(op) && op.Invoke >= s.from && op.Invoke+answerable <= until && op.Return-op.Invoke >= answerable:
			waited = cmp.Or(waited, op.ID)
		}
	}
	if waited == 0 {
		return Finding{}, false
	}
	return violation("G6", "a majority was connected from %v to %v, and nothing was answered within %v", s.from, s.to, budget).of(waited), true
}

// answered says that the cluster decided an operation, one way or another.
func answered(op *history.Op) bool {
	return op.Outcome == history.OK || op.Outcome == history.Failed && op.Result.Answer != "" && op.Result.Answer != "unavailable"
}

// answerablesOf leaves out operations of clients that were themselves cut off or paused, those
// asked of a node that is no member any more, reads that need nobody but the node asked, and
// those that never returned, of which only the end of the run is known.
func answerablesOf(h *history.History, members []string) (out []*history.Op) {
	away := map[string][]span{}
	for _, f := range h.Faults {
		if f.Nemesis == "" {
			for _, client := range f.Targets {
				away[client] = append(away[client], span{f.Start, f.End})
			}
		}
	}
	for i := range h.Ops {
		op := &h.Ops[i]
		gone := slices.ContainsFunc(away[op.Client], func(s span) bool { return op.Invoke <= s.to && op.Return >= s.from })
		anywhere := op.Kind == history.GetStale || op.Kind == history.GetAtLeast // served without anybody else
		left := op.Asked != "" && len(members) > 0 && !slices.Contains(members, op.Asked)
		if op.Ended > 0 && !gone && !left && !anywhere {
			out = append(out, op)
		}
	}
	return out
}
