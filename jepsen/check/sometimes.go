package check

import (
	"maps"
	"slices"
	"strings"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// State is something that a run must have met for its silence to mean anything.
type State string

// The states. Demanded says which of them a run needs.
const (
	LeaderChange   State = "leader change"        // after the first operation and before the last
	Resumed        State = "stall resumed"        // the same leader opened its leadership again
	Reclaim        State = "reclaim"              // a grant that followed an expiry
	Unparked       State = "unparked"             // an item that had been tried out
	FencedWrite    State = "fenced write refused" // from a holder that was one no more
	Resent         State = "dedupe hit"
	InfoApplied    State = "info that was applied"
	InfoNotApplied State = "info that was not applied"
	Conflicted     State = "conflict"
	FeedResumed    State = "feed resumed"
	FeedFailover   State = "feed resumed across a failover"
	Renewed        State = "keepalive"
	Installed      State = "snapshot install"      // of a state that the node had not reached by itself
	HeardRead      State = "read of what was told" // by somebody who had heard of it in the feed
	ForgeryRefused State = "forgery refused"
	Forwarded      State = "forwarded"                    // a write that another node than the leader answered
	Graced         State = "grace used"                   // a lease lived on only because there had been an election
	FourConflicts  State = "conflict four times in a row" // and it was reported
)

// Sometimes counts how often a run met each state.
func Sometimes(h *history.History, a *Order) map[State]int {
	n := map[State]int{}
	began := false
	for i := range a.Records {
		r := &a.Records[i]
		began = began || history.OpOf(r.Command.GetCallId()) != 0
		switch {
		case r.Command.GetLead() != nil && !r.Command.GetLead().Resumed && began && worked(a.Records[i+1:]):
			n[LeaderChange]++
		case r.Command.GetLead().GetResumed():
			n[Resumed]++
		case r.Command.Board != h.Run.Board:
		case r.Result.Replayed:
			n[Resent]++
		case r.Command.GetUnpark() != nil && r.OK():
			n[Unparked]++
		case lost(r.Result):
			n[FencedWrite]++
		case r.Result.Outcome == boardpb.Outcome_OUTCOME_CONFLICT:
			n[Conflicted]++
		case r.Command.GetReportConflict() != nil && r.OK():
			n[FourConflicts]++
		case r.Command.GetLoopKeepalive() != nil && r.OK():
			n[Renewed]++
		case (r.Command.GetClaim() != nil || r.Command.GetClaimNext() != nil) && r.OK() && !r.Result.Renewed:
			if p := r.Result.Previous; len(p) > 0 && p[0].EndedBy == boardpb.EndedBy_ENDED_BY_EXPIRED {
				n[Reclaim]++
			}
		}
	}
	for _, op := range h.Ops {
		countOp(n, &op)
		if op.Outcome != history.Info || op.Kind.Reads() {
			continue
		}
		if slices.ContainsFunc(a.ByCall(op.CallID()), (*history.Applied).OK) {
			n[InfoApplied]++
		} else {
			n[InfoNotApplied]++
		}
	}
	for _, t := range h.Feed {
		if t.Cut != "" {
			n[FeedResumed]++
		}
	}
	repeats(h, a, n)
	refusals(h, n)
	hunts(h, a, n)
	n[FeedFailover], n[Installed], n[Graced] = overFailover(h, a), installed(h, a), graced(a)
	maps.DeleteFunc(n, func(_ State, count int) bool { return count == 0 })
	return n
}

// countOp counts what an operation alone shows.
func countOp(n map[State]int, op *history.Op) {
	if heard(op) {
		n[HeardRead]++
	}
	if op.Kind == history.Forged && op.Outcome == history.Failed {
		n[ForgeryRefused]++
	}
	if op.Outcome == history.OK && op.Answered != "" && op.Result.Leader != "" && op.Answered != op.Result.Leader {
		n[Forwarded]++
	}
}

// installed counts snapshots that gave a node what it had not applied itself: from another
// node, and not its own at its start.
func installed(h *history.History, a *Order) (count int) {
	if len(h.Install) == 0 {
		return 0
	}
	type own struct {
		node string
		at   place
	}
	earliest := map[own]int{} // the first life in which a node applied a command
	for i := range h.Applied {
		r := &h.Applied[i]
		o := own{r.Node, placeOf(r)}
		if was := earliest[o]; was == 0 || r.Life < was {
			earliest[o] = r.Life
		}
	}
	for _, s := range h.Install {
		behind := a.behind(s.Index)
		if behind == 0 {
			continue
		}
		if was := earliest[own{s.Node, placeOf(&a.Records[behind-1])}]; was == 0 || was > s.Life {
			count++
		}
	}
	return count
}

func graced(a *Order) (count int) {
	windows, _ := Leases(a)
	for _, w := range windows {
		if w.Graced {
			count++
		}
	}
	return count
}

// overFailover counts streams that were cut and went on behind the last event they had told,
// where a new leader had begun between that event and the next.
func overFailover(h *history.History, a *Order) (count int) {
	var leads []uint64 // the newest rev of the board when each leadership began
	var head uint64
	for i := range a.Records {
		r := &a.Records[i]
		if lead := r.Command.GetLead(); lead != nil && !lead.Resumed {
			leads = append(leads, head)
		} else if r.Command.Board == h.Run.Board {
			head = max(head, r.Result.Rev)
		}
	}
	last, cut := map[string]uint64{}, map[string]bool{}
	for _, t := range h.Feed {
		cut[t.Watcher] = cut[t.Watcher] || t.Cut != ""
		if t.Event == nil {
			continue
		}
		was, is := last[t.Watcher], t.Event.Rev
		if cut[t.Watcher] && was > 0 && slices.ContainsFunc(leads, func(rev uint64) bool { return was <= rev && rev < is }) {
			count++
		}
		last[t.Watcher], cut[t.Watcher] = is, false
	}
	return count
}

func worked(rest []history.Applied) bool {
	return slices.ContainsFunc(rest, func(r history.Applied) bool { return history.OpOf(r.Command.GetCallId()) != 0 && r.OK() })
}

// Demand is what a run needs to be worth a verdict (G7).
type Demand struct {
	States      []State
	Kinds       []history.Kind // each must have succeeded
	BeforeFault int            // operations that succeeded before the first fault
	Faults      [][]string     // of each of these, one must have been done
}

// Valid checks G7: what the run was made for happened, and every fault has its witness.
func Valid(h *history.History, a *Order, d Demand) (found []Finding) {
	met := Sometimes(h, a)
	for _, s := range d.States {
		if met[s] == 0 {
			found = append(found, invalid("the run met no %s", s))
		}
	}
	succeeded, before := map[history.Kind]int{}, 0
	first, hurt := firstFault(h)
	for _, op := range h.Ops {
		if op.Outcome != history.OK {
			continue
		}
		succeeded[op.Kind]++
		if hurt && op.Return < first {
			before++
		}
	}
	for _, k := range d.Kinds {
		if succeeded[k] == 0 {
			found = append(found, invalid("no %s succeeded", k))
		}
	}
	if before < d.BeforeFault {
		found = append(found, invalid("%d operations succeeded before the first fault, want %d", before, d.BeforeFault))
	}
	done := map[string]bool{}
	for _, f := range h.Faults {
		late := h.Run.Healed > 0 && f.Start > h.Run.Healed // after the work, which it cannot have hurt
		done[f.Name] = done[f.Name] || f.Witness != "" && f.Nemesis != "" && !late
		if f.Witness == "" {
			why := ""
			if f.Error != "" {
				why = ": " + f.Error
			}
			found = append(found, invalid("nothing shows that the fault %s of %s happened%s", f.Name, strings.Join(f.Targets, ", "), why))
		}
	}
	for _, names := range d.Faults {
		if len(names) > 0 && !slices.ContainsFunc(names, func(n string) bool { return done[n] }) {
			found = append(found, invalid("no fault of %v was done", names))
		}
	}
	return append(found, overlapping(h)...)
}

// firstFault is when the first thing was done to the cluster; what a workload does to its own
// clients is not.
func firstFault(h *history.History) (first time.Duration, any bool) {
	for _, f := range h.Faults {
		if f.Nemesis != "" && (!any || f.Start < first) {
			first, any = f.Start, true
		}
	}
	return first, any
}

// overlapping: a client of a workload does one thing at a time; two at once would be a fault
// of the harness.
func overlapping(h *history.History) (found []Finding) {
	last := map[string]history.Op{}
	for _, op := range h.Ops {
		if was, any := last[op.Client]; any && (was.Ended == 0 || was.Ended > op.Began) {
			found = append(found, invalid("client %s began operation %d before %d returned", op.Client, op.ID, was.ID))
		}
		last[op.Client] = op
	}
	return found
}
