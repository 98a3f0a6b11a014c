package suite

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"raftboard/jepsen/history"
	"raftboard/jepsen/nemesis"
	"raftboard/jepsen/planted/table"
	"raftboard/jepsen/workload"
)

// The drivers.
const (
	Sim   = "sim"
	Netns = "netns"
)

// Plan is one run as somebody asks for it.
type Plan struct {
	Driver   string        `json:"driver"`
	Workload string        `json:"workload"`
	Nemeses  []string      `json:"nemeses"`
	Nodes    int           `json:"nodes"`
	Time     time.Duration `json:"time_ns"` // from the first operation to the heal
	Rate     int           `json:"rate"`    // operations per second of all clients
	Seed     uint64        `json:"seed"`
	Mutant   string        `json:"mutant,omitempty"`  // a planted bug
	Fault    string        `json:"fault,omitempty"`   // what every node does at named points, as FAULT says it
	Version  string        `json:"version,omitempty"` // of the source, for people
	Tagged   bool          `json:"tagged,omitempty"`  // nodes built with the tag "faults", also without a bug
}

// Complete fills in what was left open and says what cannot be run.
func (p Plan) Complete() (Plan, error) {
	p.Driver, p.Workload = cmp.Or(p.Driver, Sim), cmp.Or(p.Workload, "register")
	if len(p.Nemeses) == 0 {
		p.Nemeses = []string{"none"}
	}
	p.Nodes = cmp.Or(p.Nodes, 3)
	rate, lasts := 50, 10*time.Second
	if p.Driver == Netns {
		rate, lasts = 200, 60*time.Second
	}
	p.Rate, p.Time = cmp.Or(p.Rate, rate), cmp.Or(p.Time, lasts)
	_, err := workload.New(p.Workload)
	_, err2 := nemesis.ByName(p.Nemeses...)
	err = errors.Join(err, err2, table.CheckFault(p.Fault))
	if m, known := table.ByName(p.Mutant); p.Mutant != "" && !known {
		err = errors.Join(err, fmt.Errorf("no planted bug %q: see list bugs", p.Mutant))
	} else if m.Open != "" {
		err = errors.Join(err, fmt.Errorf("%s is not planted: %s", m.Name, m.Open))
	}
	switch {
	case p.Driver != Sim && p.Driver != Netns:
		err = errors.Join(err, fmt.Errorf("no driver %q: there are %s and %s", p.Driver, Sim, Netns))
	case len(p.Nemeses) > 1 && slices.Contains(p.Nemeses, "none"):
		err = errors.Join(err, fmt.Errorf("the nemesis none goes with no other, and %v are asked for", p.Nemeses))
	case len(slices.Compact(slices.Sorted(slices.Values(p.Nemeses)))) < len(p.Nemeses):
		err = errors.Join(err, fmt.Errorf("a nemesis is named twice: %v", p.Nemeses))
	case len(CannotDo(p.Driver, p.Nemeses)) > 0:
		err = errors.Join(err, fmt.Errorf("the driver %s cannot do %v: use --driver netns", p.Driver, CannotDo(p.Driver, p.Nemeses)))
	case p.Nodes != 3 && p.Nodes != 5:
		err = errors.Join(err, fmt.Errorf("%d nodes: a run has 3 or 5", p.Nodes))
	case p.Time < 5*time.Second || p.Time > 24*time.Hour:
		err = errors.Join(err, fmt.Errorf("a run of %v: at least 5s, at most 24h", p.Time))
	case p.Rate < 1 || p.Rate > 10_000:
		err = errors.Join(err, fmt.Errorf("%d operations a second: at least 1, at most 10,000", p.Rate))
	}
	return p, err
}

// CannotDo lists the nemeses that a driver does not have. In one process no single node can be
// starved of its core, or break at a point of its code without the others.
func CannotDo(driver string, nemeses []string) (missing []string) {
	if driver != Sim {
		return nil
	}
	for _, n := range nemeses {
		if n == "cpu" || n == "failpoint" {
			missing = append(missing, n)
		}
	}
	return missing
}

// Needs are what its cluster must be started with.
func (p Plan) Needs() (n nemesis.Needs) {
	kinds, err := nemesis.ByName(p.Nemeses...)
	if err != nil {
		return n
	}
	for _, k := range kinds {
		n = n.Or(k.Needs)
	}
	n.Tagged = n.Tagged || p.Tagged || p.Mutant != "" || p.Fault != ""
	return n
}

// Cell names workload and nemeses: "work × kill,pause".
func (p Plan) Cell() string { return p.Workload + " × " + strings.Join(p.Nemeses, ",") }

// Name is a file name for it. Plans that differ in what is run have different names; the
// version of the source is not part of it.
func (p Plan) Name() string {
	name := fmt.Sprintf("%s-%s-%s-%dx%d-%s-%d", p.Driver, p.Workload, strings.Join(p.Nemeses, "+"), p.Nodes, p.Rate, p.Time, p.Seed)
	if p.Mutant != "" {
		name += "-" + p.Mutant
	}
	if p.Fault != "" {
		name += "-" + strings.Map(plain, p.Fault)
	}
	if p.Tagged && p.Mutant == "" && p.Fault == "" {
		name += "-tagged"
	}
	return name
}

// plain keeps what any file name may hold.
func plain(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' {
		return r
	}
	return '-'
}

// Rerun is the command line that runs it again.
func (p Plan) Rerun() string {
	line := fmt.Sprintf("go run ./jepsen/cmd/faults run --driver %s --workload %s --nemesis %s --nodes %d --time %s --rate %d --seed %d",
		p.Driver, p.Workload, strings.Join(p.Nemeses, ","), p.Nodes, p.Time, p.Rate, p.Seed)
	if p.Mutant != "" {
		line += " --mutant " + p.Mutant
	}
	if p.Fault != "" {
		line += " --fault " + p.Fault
	}
	if p.Tagged && p.Mutant == "" && p.Fault == "" {
		line += " --tagged"
	}
	return line
}

// Describe is the plan as a history carries it.
func (p Plan) Describe() history.Run {
	nodes := make([]string, p.Nodes)
	for i := range nodes {
		nodes[i] = fmt.Sprintf("n%d", i+1)
	}
	return history.Run{Workload: p.Workload, Nemesis: strings.Join(p.Nemeses, ","), Driver: p.Driver, Board: Board,
		Nodes: nodes, Seed: p.Seed, Time: p.Time, Rate: p.Rate, Mutant: p.Mutant, Version: p.Version, Rerun: p.Rerun()}
}

// Board is the one that workloads work on.
const Board = "faults"

// hurts says whether a plan has a nemesis of one of these names.
func (p Plan) hurts(names ...string) bool {
	return slices.ContainsFunc(p.Nemeses, func(n string) bool { return slices.Contains(names, n) })
}
