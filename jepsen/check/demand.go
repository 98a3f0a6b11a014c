package check

import (
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
	case "work":
		d.Kinds = []history.Kind{history.Post, history.ClaimNext, history.Partial, history.Complete}
		d.States = []State{Renewed}
	}
	return d
}
