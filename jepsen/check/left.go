package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"raftboard/jepsen/history"
)

const (
	// mostBound is how long after the heal a plan may leave everything to be done.
	mostBound = 5 * time.Minute
	// leastUnderFaults is the part of the planned rate that must have been reached between the
	// first fault and the heal.
	leastUnderFaults = 0.01
)

// leftOut looks for what a whole run records and this history does not hold: a harness, or a file,
// that loses some of it leaves checkers without anything to object to.
func leftOut(h *history.History, a *Order) (found []Finding) {
	found = append(unplanned(&h.Run), uncounted(h)...)
	found = append(found, improbable(h)...)
	found = append(found, idle(h)...)
	found = append(found, untold(h, a)...)
	found = append(found, unwatched(h)...)
	found = append(found, unbelieved(h)...)
	return append(found, leasesAtTheEnd(h, a)...)
}

// unplanned: what a history says of its plan is what the command says that runs it again.
func unplanned(r *history.Run) (found []Finding) {
	words := strings.Fields(r.Rerun)
	for _, said := range [][2]string{
		{"driver", r.Driver}, {"workload", r.Workload}, {"nemesis", r.Nemesis}, {"nodes", fmt.Sprint(len(r.Nodes))},
		{"time", r.Time.String()}, {"rate", fmt.Sprint(r.Rate)}, {"seed", fmt.Sprint(r.Seed)}, {"mutant", r.Mutant},
	} {
		if at := slices.Index(words, "--"+said[0]); at >= 0 && at+1 < len(words) && words[at+1] != said[1] {
			found = append(found, invalid("the history says %q of its %s, and its command %q", said[1], said[0], words[at+1]))
		}
	}
	if r.Failover > failover || r.Bound > mostBound {
		found = append(found, invalid("the history gives %v to an election and %v to what is left after the heal: no plan does", r.Failover, r.Bound))
	}
	return found
}

// uncounted: beginnings, ends and what was written outside share one count, which leaves nothing
// out and tells nothing twice.
func uncounted(h *history.History) []Finding {
	seen, last := map[uint64]bool{}, uint64(0)
	twice := uint64(0)
	count := func(n uint64) {
		if seen[n] {
			twice = n
		}
		seen[n], last = true, max(last, n)
	}
	for i := range h.Ops {
		count(h.Ops[i].Began)
		if h.Ops[i].Ended > 0 {
			count(h.Ops[i].Ended)
		}
	}
	for i := range h.Outside {
		count(h.Outside[i].Place)
	}
	switch missing := last - uint64(len(seen)); {
	case twice > 0:
		return []Finding{invalid("the harness counted two things as number %d", twice)}
	case missing > 0:
		return []Finding{invalid("the harness has no record of %d of the %d things that it counted", missing, last)}
	}
	return nil
}

// improbable: operations and faults that cannot have gone as it is written.
func improbable(h *history.History) []Finding {
	for i := range h.Ops {
		op := &h.Ops[i]
		switch op.Outcome {
		case history.OK, history.Failed:
			if op.Ended == 0 {
				return []Finding{invalid("operation %d was answered and never returned", op.ID).of(op.ID)}
			}
		case history.Info:
		default:
			return []Finding{invalid("operation %d ended as %q, which is no outcome", op.ID, op.Outcome).of(op.ID)}
		}
	}
	for i := range h.Faults {
		switch f := &h.Faults[i]; {
		case f.End < f.Start || f.End > h.Run.Ended:
			return []Finding{invalid("the fault %s of %v lasted from %v to %v, in a run that was over at %v", f.Name, f.Targets, f.Start, f.End, h.Run.Ended)}
		case f.Witness != "" && f.Error != "":
			return []Finding{invalid("the fault %s of %v was seen (%s) and could not be done: %s", f.Name, f.Targets, f.Witness, f.Error)}
		}
	}
	return nil
}

// idle: faults that meet no work hurt nobody, and nor do checkers object to what nobody was told.
func idle(h *history.History) (found []Finding) {
	first, hurt := firstFault(h)
	var before, unknown, during int
	for i := range h.Ops {
		op := &h.Ops[i]
		switch {
		case op.Return < first && op.Ended > 0 && op.Outcome == history.Info:
			unknown++
		case op.Return < first:
			before++
		case op.Outcome == history.OK && op.Invoke < h.Run.Healed:
			during++
		}
	}
	if hurt && unknown > before {
		found = append(found, invalid("before the first fault %d operations ended unknown, and %d had an answer", unknown, before))
	}
	least := max(1, int(float64(h.Run.Rate)*(h.Run.Healed-first).Seconds()*leastUnderFaults))
	if hurt && first < h.Run.Healed && h.Run.Nemesis != "none" && during < least {
		found = append(found, invalid("%d operations succeeded between the first fault and the heal, want %d", during, least))
	}
	return found
}

// untold: every node that founded the cluster told of its first life, every member what raft made
// of it, and when it did what.
func untold(h *history.History, a *Order) (found []Finding) {
	born, roles, timed := map[string]bool{}, map[string]bool{}, 0
	for i := range h.Applied {
		r := &h.Applied[i]
		born[r.Node] = born[r.Node] || r.Life == 1
		if r.At != 0 {
			timed++
		}
	}
	for _, r := range h.Roles {
		roles[r.Node] = true
	}
	for _, node := range h.Run.Nodes {
		if !born[node] {
			found = append(found, invalid("node %s told nothing of its first life", node))
		}
	}
	for _, node := range members(h, a) {
		if len(roles) > 0 && !roles[node] {
			found = append(found, invalid("node %s did not say what raft made of it", node))
		}
	}
	if 2*timed < len(h.Applied) {
		found = append(found, invalid("nodes said of %d of %d commands when they applied them", timed, len(h.Applied)))
	}
	return found
}

// unwatched: under these workloads one watcher began at each node, and the whole feed was read
// page by page at the end.
func unwatched(h *history.History) (found []Finding) {
	if !slices.Contains([]string{"lease", "work", "operations", "soak", "author"}, h.Run.Workload) {
		return nil
	}
	heard := map[string]bool{}
	for i := range h.Feed {
		heard[h.Feed[i].Watcher] = true
	}
	want := []string{"pages"}
	for i := range h.Run.Nodes {
		want = append(want, fmt.Sprintf("watcher-%d", i+1))
	}
	for _, w := range want {
		if !heard[w] {
			found = append(found, invalid("nothing is recorded of what %s was told of the feed", w))
		}
	}
	return found
}

// unbelieved: whoever is told of a grant believes in it.
func unbelieved(h *history.History) []Finding {
	if h.Run.Workload != "lease" {
		return nil
	}
	type name struct {
		client, key string
		generation  uint64
	}
	believed, missing := map[name]bool{}, []uint64(nil)
	for i := range h.Beliefs {
		b := &h.Beliefs[i]
		believed[name{b.Client, b.Key, b.Generation}] = true
	}
	for i := range h.Ops {
		op := &h.Ops[i]
		if op.Kind == history.Claim && op.Outcome == history.OK && !believed[name{op.Client, op.Key, op.Result.Generation}] {
			missing = append(missing, op.ID)
		}
	}
	if missing == nil {
		return nil
	}
	return []Finding{invalid("nothing is recorded of what %d clients made of their leases", len(missing)).of(missing[:min(len(missing), mostTold)]...)}
}

// leasesAtTheEnd: what readers show of leases at one rev is the same through every node (G4). A reader
// who shows none where there were some was cut short.
func leasesAtTheEnd(h *history.History, a *Order) (found []Finding) {
	type at struct {
		rev uint64
		key string
	}
	shown, readers := map[at]map[uint64]int{}, map[uint64]map[string]bool{}
	some := map[string]bool{}
	for _, f := range h.Finals {
		if readers[f.Rev] == nil {
			readers[f.Rev] = map[string]bool{}
		}
		readers[f.Rev][f.Reader] = true
		if f.Lease == nil {
			continue
		}
		some[f.Reader] = true
		k := at{f.Rev, f.Lease.Key}
		if shown[k] == nil {
			shown[k] = map[uint64]int{}
		}
		shown[k][f.Lease.Generation]++
	}
	for k, generations := range shown {
		n := 0
		for _, times := range generations {
			n += times
		}
		if len(generations) > 1 || n != len(readers[k.rev]) {
			found = append(found, violation("G4", "%d readers at rev %d do not see the same lease of %s", len(readers[k.rev]), k.rev, k.key))
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.What, b.What) })
	found = found[:min(len(found), mostTold)]
	if windows, _ := Leases(a); !slices.ContainsFunc(windows, func(w *Window) bool { return w.Board == h.Run.Board }) {
		return found
	}
	for _, node := range members(h, a) {
		if reader := history.FinalReader(node); !some[reader] {
			found = append(found, invalid("leases were granted, and %s was shown none", reader))
		}
	}
	return found
}
