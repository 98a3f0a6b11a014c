package check

import (
	"strings"
	"time"

	"raftboard/jepsen/history"
)

// Demanded is what a run must have met to be worth a verdict (G7), by its workload and its
// faults: the table workload × nemesis.
func Demanded(run history.Run) Demand {
	var d Demand
	switch run.Workload {
	case "register":
		d.Kinds = []history.Kind{history.Get, history.Set, history.Delete, history.Mutate}
		d.States = []State{Conflicted}
		if run.Time >= longEnough {
			d.States = append(d.States, FourConflicts)
		}
	case "append":
		d.Kinds = []history.Kind{history.Append, history.Dump}
	case "txn":
		d.Kinds = []history.Kind{history.Txn, history.Dump}
		d.States = []State{Conflicted}
	case "operations":
		d.Kinds = []history.Kind{history.Append, history.Dump, history.Post, history.ClaimNext, history.Partial, history.Complete}
		d.States = []State{Renewed}
	case "soak":
		d.Kinds = []history.Kind{history.Get, history.Set, history.Mutate, history.Append, history.Dump, history.Post, history.ClaimNext,
			history.Partial, history.Complete}
		d.States = append([]State{Renewed, HeardRead}, workStates(run, 160)...)
	case "lease":
		d.Kinds = []history.Kind{history.Claim, history.Guarded, history.Fenced, history.Renew, history.Release, history.Force}
		d.States = append([]State{Renewed, FencedWrite}, leaseStates(run)...)
	case "author": // I1 in its full form waits for credentials
		d.Kinds = []history.Kind{history.Set, history.Append, history.Get, history.View}
		d.States = []State{ForgeryRefused, Forwarded}
	case "work":
		d.Kinds = []history.Kind{history.Post, history.ClaimNext, history.Partial, history.Complete}
		d.States = append([]State{Renewed}, workStates(run, 80)...)
	case "retry":
		d.Kinds = []history.Kind{history.Append, history.Set, history.LoopClose}
		d.States = []State{Resent, Conflicted, Abandoned, BodyReused, AfterEnd}
	case "stale-reads":
		d.Kinds = []history.Kind{history.Set, history.Get, history.GetAtLeast, history.GetStale}
	case "feed":
		d.Kinds = []history.Kind{history.Append, history.Set, history.Txn, history.Compact}
		d.States = []State{FeedResumed, SaidCompacted, AboveHead}
	}
	for _, nemesis := range strings.Split(run.Nemesis, ",") {
		d.Faults = append(d.Faults, faultsOf(nemesis))
		d.States = append(d.States, statesOf(nemesis, run.Workload)...)
	}
	if run.Time > 0 {
		d.BeforeFault = max(int(float64(run.Rate)*Baseline(run.Time).Seconds()*leastOfRate), leastBefore)
	}
	return d
}

// longEnough is how long a run must be for what its clients do only now and then, and not
// while faults keep them from it.
const longEnough = 20 * time.Second

// leaseStates are what takes longer than the grace of the election before the run.
func leaseStates(run history.Run) []State {
	if run.Time < 30*time.Second || run.Nemesis != "none" {
		return nil
	}
	return []State{Reclaim}
}

// workStates are what workers do to themselves early in their lives: enough operations must
// have been made before the first fault for each to have come to that.
func workStates(run history.Run, enough float64) []State {
	if run.Time > 0 && float64(run.Rate)*Baseline(run.Time).Seconds() < enough {
		return nil
	}
	return []State{Reclaim, FencedWrite}
}

// leastOfRate is how much of the planned rate must have been reached before the first fault:
// enough that the faults meet work, little enough for a machine that others use as well.
const leastOfRate = 0.08

// leastBefore is how many must have succeeded by then at whatever rate.
const leastBefore = 4

// Baseline is how long a run of so much time goes on before its first fault.
func Baseline(lasts time.Duration) time.Duration { return min(lasts/5, 5*time.Second) }

// faultsOf lists the records of which a nemesis must have left at least one.
func faultsOf(nemesis string) []string {
	switch nemesis {
	case "none", "":
		return nil
	case "members":
		return []string{"transfer", "demote", "remove", "add"}
	case "upgrade":
		return []string{"switch"}
	}
	return []string{nemesis}
}

// statesOf lists what a run cannot have missed when its nemesis did what it is for.
func statesOf(nemesis, workload string) []State {
	switch {
	case nemesis == "compaction" && workload == "retry":
		return []State{Installed, ResentAcross}
	case nemesis == "compaction":
		return []State{Installed}
	case nemesis == "transfer":
		return []State{LeaderChange}
	case nemesis == "replay":
		return []State{Resent}
	}
	return nil
}
