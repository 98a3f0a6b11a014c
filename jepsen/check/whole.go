package check

import (
	"time"

	"raftboard/jepsen/history"
)

// patience bounds the searches of one verdict in real time.
const patience = 30 * time.Second

// Judgement is everything that is to be said about a run.
type Judgement struct {
	Verdict  Verdict
	Findings []Finding // the gravest first
	Order    *Order
	Windows  []*Window
	Met      map[State]int
	Appends  *AppendPlot    // of W2
	Holders  *HolderFigures // of W4
	Figures  Figures
}

// evidence is a history with what every checker builds on.
type evidence struct {
	*history.History
	order   *Order
	windows []*Window
	decided []history.Op // operations, their unknown outcomes cut by A where A can be trusted
	appends *AppendPlot
	holders *HolderFigures
}

// Whole judges a history by every rule that applies to its workload. It reads nothing but the
// history, so a verdict can be had again from the files of a run.
func Whole(h *history.History) Judgement {
	e := &evidence{History: h, decided: h.Ops}
	var found []Finding
	e.order, found = Agree(h)
	if len(found) == 0 {
		found = replayed(&h.Run, e.order)
	}
	windows, more := Leases(e.order)
	e.windows = windows
	found = append(found, more...)
	found = append(found, Answers(h.Ops, e.order)...)
	if trusted(found) {
		e.decided = Cut(h.Ops, e.order)
	}
	found = append(found, e.ofWorkload()...)
	found = append(found, Globals(h, e.order)...)
	found = append(found, Valid(h, e.order, Demanded(h.Run))...)
	found = append(found, Harness(h, e.order)...)
	found = append(found, Recorded(h, e.order)...)
	return Judgement{Verdict: Judge(found), Findings: gravestFirst(found), Order: e.order, Windows: windows,
		Met: Sometimes(h, e.order), Appends: e.appends, Holders: e.holders, Figures: FiguresOf(h, e.order)}
}

// ofWorkload runs the checkers that only one kind of load can be judged by.
func (e *evidence) ofWorkload() []Finding {
	switch e.Run.Workload {
	case "register":
		return Registers(e.decided, patience)
	case "append":
		return e.lists()
	case "txn":
		return Transactions(e.History, e.order)
	case "lease":
		return e.lease()
	case "work":
		return e.work()
	case "operations":
		return e.operations()
	case "soak":
		return e.soak()
	case "author":
		return e.author()
	case "retry":
		return Retry(e.History, e.order)
	case "stale-reads":
		return Stale(e.History, e.order)
	case "feed":
		return Feed(e.History, e.order, e.windows)
	}
	return []Finding{invalid("no checker knows the workload %q", e.Run.Workload)}
}

func gravestFirst(found []Finding) []Finding {
	var sorted []Finding
	for class := Violation; class <= Undecided; class++ {
		for _, f := range found {
			if f.Class == class {
				sorted = append(sorted, f)
			}
		}
	}
	return sorted
}
