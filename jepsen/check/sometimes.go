package check

import (
	"slices"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// State is something that a run must have met for its silence to mean anything.
type State string

// The states. Which of them a cell of the matrix needs is said where it is run.
const (
	LeaderChange   State = "leader change"        // after the first operation and before the last
	Resumed        State = "stall resumed"        // the same leader opened its leadership again
	Reclaim        State = "reclaim"              // a grant that followed an expiry
	FencedWrite    State = "fenced write refused" // from a holder that was one no more
	Resent         State = "dedupe hit"
	InfoApplied    State = "info that was applied"
	InfoNotApplied State = "info that was not applied"
	Conflicted     State = "conflict"
	FeedResumed    State = "feed resumed"
	Renewed        State = "keepalive"
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
		case lost(r.Result):
			n[FencedWrite]++
		case r.Result.Outcome == boardpb.Outcome_OUTCOME_CONFLICT:
			n[Conflicted]++
		case r.Command.GetLoopKeepalive() != nil && r.OK():
			n[Renewed]++
		case (r.Command.GetClaim() != nil || r.Command.GetClaimNext() != nil) && r.OK() && !r.Result.Renewed:
			if p := r.Result.Previous; len(p) > 0 && p[0].EndedBy == boardpb.EndedBy_ENDED_BY_EXPIRED {
				n[Reclaim]++
			}
		}
	}
	for _, op := range h.Ops {
		if op.Outcome != history.Info || op.Kind == history.Get {
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
	return n
}

func worked(rest []history.Applied) bool {
	return slices.ContainsFunc(rest, func(r history.Applied) bool { return history.OpOf(r.Command.GetCallId()) != 0 && r.OK() })
}

// Demand is what a run needs to be worth a verdict (G7).
type Demand struct {
	States      []State
	Kinds       []history.Kind // each must have succeeded
	BeforeFault int            // operations that succeeded before the first fault
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
	for _, op := range h.Ops {
		if op.Outcome != history.OK {
			continue
		}
		succeeded[op.Kind]++
		if len(h.Faults) > 0 && op.Return < firstFault(h) {
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
	for _, f := range h.Faults {
		if f.Witness == "" {
			found = append(found, invalid("nothing shows that the fault %s of %v happened", f.Name, f.Targets))
		}
	}
	return append(found, overlapping(h)...)
}

func firstFault(h *history.History) (first time.Duration) {
	for i, f := range h.Faults {
		if i == 0 || f.Start < first {
			first = f.Start
		}
	}
	return first
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
