package suite

import (
	"slices"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/planted/table"
)

// Caught is what became of one planted bug.
type Caught struct {
	Mutant  table.Mutant  `json:"mutant"`
	By      []string      `json:"by"`       // the checkers that fired
	Caught  bool          `json:"caught"`   // one of those named for it did
	Runs    int           `json:"runs"`     // until then
	Took    time.Duration `json:"took_ns"`  // real time until then
	Seed    uint64        `json:"seed"`     // of the run that caught it
	Clean   bool          `json:"clean"`    // the same seed without the bug is VALID
	NotHere bool          `json:"not_here"` // and where it must not be caught it was not; true if nothing is named
	Dir     string        `json:"dir"`      // of the run that caught it
	Said    string        `json:"said"`     // the first finding, or why there is none
}

// OK says that the bug did what the table says: caught by the checker named for it, on a seed
// that is clean without it, and not caught where it must not be.
func (c Caught) OK() bool { return c.Mutant.Open != "" || c.Caught && c.Clean && c.NotHere }

// Catches says whether an outcome is the one that a bug must have.
func Catches(m table.Mutant, o Outcome) bool {
	return o.Verdict == check.FAILED && slices.ContainsFunc(o.Fired, func(f string) bool { return slices.Contains(m.Fires, f) })
}

// MutantPlan is the run that must catch a bug: the nth of those that may.
func MutantPlan(m table.Mutant, n int, seed uint64) Plan {
	p := Plan{Driver: m.Driver, Workload: m.Workloads[n%len(m.Workloads)], Nemeses: m.Nemeses, Mutant: m.Name,
		Fault: m.Fault, Tagged: true, Seed: seed + uint64(n)}
	if p.Driver == Netns {
		p.Time = 20 * time.Second
	}
	if m.Seconds > 0 {
		p.Time = time.Duration(m.Seconds) * time.Second
	}
	return p
}

// Without is the same run with nothing planted.
func (p Plan) Without() Plan {
	p.Mutant, p.Fault = "", ""
	return p
}
