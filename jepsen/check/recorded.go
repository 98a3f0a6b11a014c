package check

import (
	"slices"
	"strings"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// planNames are the nemeses of a plan. They are said once more here: a checker knows histories only.
func planNames() []string {
	return strings.Fields("none partition bridge one-way flap slow replay kill pause power disk corrupt clock members transfer wipe " +
		"upgrade compaction cpu failpoint")
}

// Recorded looks at whether a history is the record of a whole run (G7): it says what was planned
// and kept to it, nodes told what raft made of them and what state each entry left, clients were
// still served after the heal, and every member was read at the end. What members showed then is
// what was applied (G4).
func Recorded(h *history.History, a *Order) (found []Finding) {
	found = append(planned(h), served(h)...)
	if len(h.Roles) == 0 {
		found = append(found, invalid("no node said what raft made of it"))
	}
	found = append(found, undigested(h)...)
	if h.Run.Rerun != "" {
		found = append(found, leftOut(h, a)...)
	}
	return append(found, readAtTheEnd(h, a)...)
}

// planned judges what the history says of its run. One that names no command that made it
// followed no plan: it is a test's own.
func planned(h *history.History) (found []Finding) {
	r := &h.Run
	if r.Rerun == "" {
		return nil
	}
	names := strings.Split(r.Nemesis, ",")
	for _, name := range names {
		if !slices.Contains(planNames(), name) {
			found = append(found, invalid("the history says that it was made under %q, which is no nemesis", name))
		}
	}
	hurt := func(f history.Fault) bool { // behind the heal every run lets all nodes begin another life
		return f.Nemesis != "" && f.Nemesis != "N0" && f.Start < r.Healed
	}
	if i := slices.IndexFunc(h.Faults, hurt); i >= 0 && !slices.ContainsFunc(names, func(n string) bool { return n != "none" }) {
		found = append(found, invalid("the history says that nothing was done to the cluster, and holds the fault %s of %v", h.Faults[i].Name, h.Faults[i].Targets))
	}
	if r.Time <= 0 || r.Rate <= 0 || len(r.Nodes) == 0 {
		found = append(found, invalid("the history does not say what was planned: %v at %d operations a second on %d nodes", r.Time, r.Rate, len(r.Nodes)))
	}
	if r.Healed <= 0 || r.Healed < r.Time || r.Ended < r.Healed || r.Bound <= 0 {
		found = append(found, invalid("a run of %v cannot have been healed at %v and over at %v", r.Time, r.Healed, r.Ended))
	}
	return found
}

// served: clients go on for a while after the heal, so that it is seen whether the cluster serves
// them. Without a success then, the load had ended before, or the record had.
func served(h *history.History) []Finding {
	if slices.ContainsFunc(h.Ops, func(op history.Op) bool { return op.Outcome == history.OK && op.Invoke >= h.Run.Healed }) {
		return nil
	}
	return []Finding{invalid("nothing that began after the heal succeeded")}
}

// undigested: without the digest behind each entry nothing shows that nodes have one state.
func undigested(h *history.History) []Finding {
	last := map[life]*history.Applied{}
	for i := range h.Applied {
		r := &h.Applied[i]
		l := life{r.Node, r.Life}
		if was := last[l]; was != nil && was.Index != r.Index && was.Digest == "" { // a life may end within an entry
			return []Finding{invalid("node %s (life %d) did not say what state entry %d left", l.node, l.n, was.Index).at(was.Index)}
		}
		last[l] = r
	}
	return nil
}

// version is what A holds of one version of a key.
type version struct {
	rev   uint64
	value string
}

// readAtTheEnd is the part of G4 that clients can see. What a key holds is told by A as far as sets,
// appends and deletes made it; of others it is only seen that there was a reader.
func readAtTheEnd(h *history.History, a *Order) (found []Finding) {
	readers := map[string]finalReader{}
	for _, r := range finalReaders(h) {
		readers[r.name] = r
	}
	keys, newest := contents(h.Run.Board, a)
	for _, node := range members(h, a) {
		reader := history.FinalReader(node)
		shown, any := readers[reader]
		if !any {
			found = append(found, invalid("nobody read the board through %s at the end", node))
			continue
		}
		var wrong []Finding
		for key, versions := range keys {
			seen := shown.keys[key]
			if seen == nil {
				seen = &history.Seen{}
			}
			for i, v := range seen.Versions {
				if is, known := versions[v]; !known {
					wrong = append(wrong, violation("G4", "%s sees version %d of %s, which nobody wrote", reader, v, key))
				} else if is.rev != seen.Revs[i] || is.value != seen.Items[i] {
					wrong = append(wrong, violation("G4", "%s sees %q as version %d of %s (rev %d), applied was %q (rev %d)",
						reader, history.Text([]byte(seen.Items[i])), v, key, seen.Revs[i], history.Text([]byte(is.value)), is.rev))
				}
			}
			if v := newest[key]; v > 0 && !slices.Contains(seen.Versions, v) {
				wrong = append(wrong, violation("G4", "%s does not see version %d of %s, the newest one", reader, v, key))
			}
		}
		slices.SortFunc(wrong, func(a, b Finding) int { return strings.Compare(a.What, b.What) })
		found = append(found, wrong[:min(len(wrong), mostTold)]...)
	}
	return found
}

// contents are the versions that sets and appends wrote of each key, and the newest of those that
// were not deleted since. A key that something else may write is left out.
func contents(board string, a *Order) (keys map[string]map[uint64]version, newest map[string]uint64) {
	keys, newest = map[string]map[uint64]version{}, map[string]uint64{}
	others := map[string]bool{}
	write := func(key string, value []byte, v, rev uint64) {
		if keys[key] == nil {
			keys[key] = map[uint64]version{}
		}
		keys[key][v], newest[key] = version{rev, string(value)}, v
	}
	for i := range a.Records {
		r := &a.Records[i]
		if r.Command.Board != board || !r.OK() {
			continue
		}
		ops, results := []any{plainOp(r.Command)}, []*boardpb.Result{r.Result}
		if txn := r.Command.GetTxn(); txn != nil {
			ops, results = nil, r.Result.Results
			for _, o := range txn.Ops {
				ops = append(ops, txnOp(o))
			}
		}
		for n, op := range ops[:min(len(ops), len(results))] {
			switch o := op.(type) {
			case *boardpb.Set:
				write(results[n].Key, o.Value, results[n].Version, r.Result.Rev)
			case *boardpb.Append:
				write(results[n].Key, o.Value, results[n].Version, r.Result.Rev)
			case *boardpb.Delete:
				delete(newest, o.Key)
			}
		}
		if c := r.Command.GetComplete(); c != nil {
			others[c.Key], others[c.ResultsKey] = true, true
		}
	}
	for key := range others {
		delete(keys, key)
	}
	return keys, newest
}
