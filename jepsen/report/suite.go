package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"raftboard/jepsen/check"
)

// SuiteData is what the page over many runs shows. Everything may be left out; the page says
// what is missing.
type SuiteData struct {
	Title   string // "matrix of 2026-03-01"; "" is "Fault tests"
	Version string // of what was tested
	Command string // that makes these runs again
	Began   time.Time
	Took    time.Duration // real time

	Workloads []string // the rows of the grid in their order; others that cells name follow
	Nemeses   []string // the columns likewise
	Legend    []string // what each column does
	Cells     []Cell
	Mutants   []Mutant
	Found     []Found  // the history of findings, the newest first
	NotTested []string // what these runs say nothing about
}

// Cell is one workload under one nemesis with one driver, all its runs together.
type Cell struct {
	Workload, Nemesis, Driver string
	Verdict                   check.Verdict // the worst of its runs; "" if there was none
	Runs                      int
	OK, Fail, Unknown         int    // operations
	Faults                    int    // with a witness
	Page                      string // link to the page of its worst run, relative to this page
	Witness                   string // the first finding of its worst run, if that is not VALID
	Again                     string // the command line of that run
	Why                       string // why there was no run
}

// Mutant is one planted bug and what became of it.
type Mutant struct {
	Name, Bug string
	Where     string        // the workload, nemesis and driver that must show it
	Expected  []string      // checkers of which one must fire
	Fired     []string      // those that did
	Caught    bool          // one of those expected did
	Runs      int           // until then; 0: it was not run
	Took      time.Duration // real time until then
	Seed      uint64
	Clean     check.Verdict // of the same seed without the bug; "" if that was not run
	NotUnder  string        // where it must not be caught, "" if nowhere
	NotThere  bool          // and there it was not
	Page      string        // link to the run that caught it
	Said      string        // by the checker, or why it was missed
	Open      string        // why it cannot be planted yet
}

// Found is one fault that these tests found.
type Found struct {
	When, What, How string // How: workload × nemesis
	Seed            uint64
	Commit, Command string
	Fixed           string // how, or that it is open
}

// suitePage is what the template shows.
type suitePage struct {
	SuiteData
	Verdict  check.Verdict
	Means    string
	Sums     []pair
	Columns  []string
	Rows     []gridRow
	Bad      []Cell
	Table    []mutantRow
	Mutation string
}

type gridRow struct {
	Workload string
	Fields   []gridField
}

// gridField has a cell per driver.
type gridField struct {
	Worst check.Verdict
	Cells []Cell
}

type mutantRow struct {
	Mutant
	State, Class string
}

// Suite writes the page over many runs.
func Suite(w io.Writer, s SuiteData) error {
	p := &suitePage{SuiteData: s, Verdict: worst(s.Cells)}
	p.Title = cmp.Or(s.Title, "Fault tests")
	p.Means = suiteMeaning(p.Verdict, s)
	p.Columns, p.Rows = grid(s)
	for _, c := range s.Cells {
		if c.Verdict != check.VALID && c.Verdict != "" {
			p.Bad = append(p.Bad, c)
		}
	}
	p.Sums = sums(s)
	caught, planted, open := 0, 0, 0
	for _, m := range s.Mutants {
		row := mutantRow{Mutant: m}
		row.State, row.Class = m.state()
		p.Table = append(p.Table, row)
		switch row.State {
		case "open":
			open++
		case "caught":
			caught++
			planted++
		default:
			planted++
		}
	}
	if len(s.Mutants) > 0 {
		p.Mutation = fmt.Sprintf("%d of %s caught by a checker that is named for it, on a seed that is clean without the bug. Open: %d.", caught, count(planted, "planted bug"), open)
	}
	return render(w, "suite.html", p)
}

// state is one word on a planted bug, and whether it is as it must be.
func (m Mutant) state() (word, class string) {
	switch {
	case m.Open != "":
		return "open", "soft"
	case m.Runs == 0:
		return "not run", "bad"
	case !m.Caught && len(m.Fired) > 0:
		return "by others only", "bad"
	case !m.Caught:
		return "missed", "bad"
	case m.Clean == "":
		return "caught, but not compared", "bad"
	case m.Clean != check.VALID:
		return "caught, but the seed is not clean", "bad"
	case m.NotUnder != "" && !m.NotThere:
		return "caught, also where it must not be", "bad"
	}
	return "caught", "okc"
}

// Expects, Fires: for the table.
func (m Mutant) Expects() string { return one(strings.Join(m.Expected, ", ")) }
func (m Mutant) Fires() string   { return one(cmp.Or(strings.Join(m.Fired, ", "), "none")) }
func (m Mutant) Seconds() string { return number(m.Took.Seconds()) + " s" }

func worst(cells []Cell) check.Verdict {
	rank := []check.Verdict{"", check.VALID, check.UNKNOWN, check.INVALID, check.FAILED}
	at := 0
	for _, c := range cells {
		at = max(at, slices.Index(rank, c.Verdict))
	}
	return rank[at]
}

func suiteMeaning(v check.Verdict, s SuiteData) string {
	ran, without := 0, 0
	for _, c := range s.Cells {
		if c.Verdict == "" {
			without++
		} else {
			ran++
		}
	}
	missing := ""
	if without > 0 {
		missing = fmt.Sprintf(" %s had no run; the grid says why.", count(without, "cell"))
	}
	switch v {
	case check.VALID:
		return fmt.Sprintf("No anomaly found in %s under these faults at these rates.", count(ran, "cell")) + missing
	case check.FAILED:
		return "A promise of the board was broken in at least one run." + missing
	case check.INVALID:
		return "At least one run proves nothing: what it was made for did not happen." + missing
	case check.UNKNOWN:
		return "At least one run could not be decided in time." + missing
	}
	return "No cell of the grid was run." + missing
}

// grid puts the cells into rows and columns, in the order asked for.
func grid(s SuiteData) (columns []string, rows []gridRow) {
	columns, workloads := slices.Clone(s.Nemeses), slices.Clone(s.Workloads)
	by := map[[2]string][]Cell{}
	for _, c := range s.Cells {
		if !slices.Contains(columns, c.Nemesis) {
			columns = append(columns, c.Nemesis)
		}
		if !slices.Contains(workloads, c.Workload) {
			workloads = append(workloads, c.Workload)
		}
		at := [2]string{c.Workload, c.Nemesis}
		by[at] = append(by[at], c)
	}
	for _, workload := range workloads {
		row := gridRow{Workload: one(workload)}
		for _, nemesis := range columns {
			cells := by[[2]string{workload, nemesis}]
			row.Fields = append(row.Fields, gridField{worst(cells), cells})
		}
		rows = append(rows, row)
	}
	return columns, rows
}

func sums(s SuiteData) (out []pair) {
	var runs, ok, fail, unknown, faults int
	verdicts := map[check.Verdict]int{}
	for _, c := range s.Cells {
		runs, ok, fail, unknown, faults = runs+c.Runs, ok+c.OK, fail+c.Fail, unknown+c.Unknown, faults+c.Faults
		if c.Verdict != "" {
			verdicts[c.Verdict]++
		}
	}
	var parts []string
	for _, v := range []check.Verdict{check.VALID, check.FAILED, check.INVALID, check.UNKNOWN} {
		parts = append(parts, fmt.Sprintf("%d %s", verdicts[v], v))
	}
	add := func(name, text string) {
		if text != "" {
			out = append(out, pair{name, one(text)})
		}
	}
	add("version", cmp.Or(s.Version, "not recorded"))
	add("cells", strings.Join(parts, ", ")+fmt.Sprintf(" of %d in the grid", len(s.Cells)))
	add("runs", thousands(runs))
	add("operations", fmt.Sprintf("%s ok, %s fail, %s unknown", thousands(ok), thousands(fail), thousands(unknown)))
	add("faults", thousands(faults)+" with a witness")
	if !s.Began.IsZero() {
		add("began", s.Began.UTC().Format("2006-01-02 15:04:05 MST"))
	}
	if s.Took > 0 {
		add("took", brief(s.Took))
	}
	return out
}
