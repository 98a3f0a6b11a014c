package suite

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/report"
)

// The files of a run in its directory.
const (
	HistoryFile = "history.jsonl"
	PageFile    = "index.html"
	// ListAppendFile holds the transactions of the workload txn once more, for other checkers.
	ListAppendFile = "list-append.json"
)

// Outcome is what is left of a run when its history was judged.
type Outcome struct {
	Plan     Plan                    `json:"plan"`
	Verdict  check.Verdict           `json:"verdict"`
	Fired    []string                `json:"fired,omitempty"`    // checkers with a violation
	Findings []string                `json:"findings,omitempty"` // the first of each checker, the gravest before
	More     int                     `json:"more,omitempty"`     // findings beyond those
	Ops      map[history.Outcome]int `json:"ops"`
	Faults   map[string]int          `json:"faults"` // by name, those with a witness
	Met      map[check.State]int     `json:"met"`
	Figures  check.Figures           `json:"figures"`
	Entries  int                     `json:"entries"` // commands in the agreed order
	Ran      time.Duration           `json:"ran_ns"`  // on the clock of the run, which may be virtual
	Took     time.Duration           `json:"took_ns"` // real time, with starting and judging
	Dir      string                  `json:"dir,omitempty"`
	Story    string                  `json:"story,omitempty"` // of a violation
	Error    string                  `json:"error,omitempty"` // why there was no run
	Rerun    string                  `json:"rerun"`           // the command line that runs it again
}

const (
	mostFindings = 20
	mostOfOne    = 4 // of one checker
)

// Conclude sums a judged history up.
func Conclude(p Plan, h *history.History, j check.Judgement) Outcome {
	o := Outcome{Plan: p, Verdict: j.Verdict, Ops: map[history.Outcome]int{}, Faults: map[string]int{}, Met: j.Met,
		Ran: h.Run.Ended, Rerun: cmp.Or(h.Run.Rerun, p.Rerun())}
	o.Figures = j.Figures
	if j.Order != nil {
		o.Entries = len(j.Order.Records)
	}
	fired, told := map[string]bool{}, map[string]int{}
	for _, f := range j.Findings {
		if f.Class == check.Violation && !fired[f.Checker] {
			fired[f.Checker] = true
			o.Fired = append(o.Fired, f.Checker)
		}
		if told[f.Checker]++; told[f.Checker] <= mostOfOne && len(o.Findings) < mostFindings {
			o.Findings = append(o.Findings, f.String())
		} else {
			o.More++
		}
	}
	for _, op := range h.Ops {
		o.Ops[op.Outcome]++
	}
	for _, f := range h.Faults {
		if f.Witness != "" {
			o.Faults[f.Name]++
		}
	}
	if j.Verdict == check.FAILED {
		o.Story = report.Story(h, j)
	}
	return o
}

// Failure is the outcome of a plan that could not be run: it proves nothing.
func Failure(p Plan, err error) Outcome {
	return Outcome{Plan: p, Verdict: check.INVALID, Error: err.Error(), Rerun: p.Rerun()}
}

// Store writes the history and the page of a run into a directory that it makes.
func Store(dir string, h *history.History, j check.Judgement) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	err := create(filepath.Join(dir, HistoryFile), h.Write)
	if h.Run.Workload == "txn" {
		err = errors.Join(err, create(filepath.Join(dir, ListAppendFile), func(w io.Writer) error { return check.ExportListAppend(w, h) }))
	}
	return errors.Join(err, Page(dir, h, j))
}

// create makes a file of what write writes.
func create(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// Page writes the page of a run into its directory.
func Page(dir string, h *history.History, j check.Judgement) error {
	return create(filepath.Join(dir, PageFile), func(w io.Writer) error { return report.Run(w, h, j) })
}

// Load reads the history of a run's directory.
func Load(dir string) (*history.History, error) {
	raw, err := os.Open(filepath.Join(dir, HistoryFile))
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	return history.Read(raw)
}

// PlanOf is the plan that a history says it was made by.
func PlanOf(h *history.History) Plan {
	r := h.Run
	return Plan{Driver: r.Driver, Workload: r.Workload, Nemeses: strings.Split(r.Nemesis, ","), Nodes: len(r.Nodes),
		Time: r.Time, Rate: r.Rate, Seed: r.Seed, Mutant: r.Mutant}
}

// Line is the outcome in one line, for people.
func (o Outcome) Line() string {
	if o.Error != "" {
		return fmt.Sprintf("%-7s %s seed %d: %s", o.Verdict, o.Plan.Cell(), o.Plan.Seed, o.Error)
	}
	faults := 0
	for _, n := range o.Faults {
		faults += n
	}
	line := fmt.Sprintf("%-7s %s seed %d: %d ok, %d fail, %d unknown, %d faults, %s", o.Verdict, o.Plan.Cell(), o.Plan.Seed,
		o.Ops[history.OK], o.Ops[history.Failed], o.Ops[history.Info], faults, o.Took.Round(100*time.Millisecond))
	if f := o.Figures; f.Grants > 0 {
		line += "; "
		if f.Completed > 0 {
			line += fmt.Sprintf("%d of %d items done, ", f.Completed, f.Posted)
		}
		line += fmt.Sprintf("conflict rate %.3f, %d reclaims, %d refused late writes", f.ConflictRate, f.Reclaims, f.FenceRefusals)
	}
	return line
}

// Code is the exit code for a verdict: 0 VALID, 1 FAILED, 2 INVALID, 3 UNKNOWN.
func Code(v check.Verdict) int {
	switch v {
	case check.VALID:
		return 0
	case check.FAILED:
		return 1
	case check.UNKNOWN:
		return 3
	}
	return 2
}

// Worst is the verdict of several runs together.
func Worst(a, b check.Verdict) check.Verdict {
	rank := map[check.Verdict]int{check.FAILED: 3, check.INVALID: 2, check.UNKNOWN: 1}
	if rank[b] > rank[a] {
		return b
	}
	return a
}
