package report_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/report"
)

func suite(t *testing.T, s report.SuiteData) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Suite(&b, s); err != nil {
		t.Fatal(err)
	}
	sound(t, b.String())
	return b.String()
}

func cells(worst check.Verdict) report.SuiteData {
	return report.SuiteData{Version: "v1", Workloads: []string{"register", "work"}, Nemeses: []string{"N7", "N8"}, Cells: []report.Cell{
		{Workload: "register", Nemesis: "N7", Driver: "sim", Verdict: check.VALID, Runs: 20, OK: 12_345, Fail: 6, Unknown: 7, Faults: 40, Page: "sim-register-kill-1/index.html"},
		{Workload: "register", Nemesis: "N7", Driver: "netns", Verdict: worst, Runs: 1, Witness: "R1: key a"},
		{Workload: "work", Nemesis: "N8", Driver: "sim", Why: "the budget was spent"},
		{Workload: "later", Nemesis: "N99", Driver: "sim", Verdict: check.VALID, Runs: 1},
	}, NotTested: []string{"Byzantine nodes"}}
}

func TestTheGridShowsEveryCellAndTheWorstOfThem(t *testing.T) {
	text := suite(t, cells(check.FAILED))
	for _, want := range []string{`<span class="verdict FAILED">FAILED</span> Fault tests`, `<th>N7</th><th>N8</th><th>N99</th>`, `class="cell v-FAILED"`, `<a href="sim-register-kill-1/index.html">VALID</a>`,
		`<span class="okc">12 345</span> <span class="failc">6</span> <span class="infoc">7</span>`, "12 345 ok, 6 fail, 7 unknown", "the budget was spent", "1 cell had no run", "2 VALID, 1 FAILED", "R1: key a", "Byzantine nodes", ">later</th>", "22"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	text = suite(t, cells(check.VALID))
	if !strings.Contains(text, "No anomaly found in 3 cells under these faults at these rates. 1 cell had no run") || strings.Contains(strings.ToLower(text), "correct") {
		t.Error("a suite without a finding is called something else")
	}
	if text = suite(t, cells(check.INVALID)); !strings.Contains(text, `verdict INVALID`) || strings.Contains(text, "No anomaly found in") {
		t.Error("a run that proves nothing is called a pass")
	}
}

func TestAPlantedBugIsCaughtOnlyByWhoIsNamedAndOnACleanSeed(t *testing.T) {
	good := report.Mutant{Name: "M5", Bug: "dedupe skipped", Where: "retry × N3b", Expected: []string{"S1", "A2"}, Fired: []string{"S1"}, Caught: true, Runs: 2, Took: 1500 * time.Millisecond, Clean: check.VALID}
	for state, change := range map[string]func(*report.Mutant){
		">caught<":                               func(*report.Mutant) {},
		">missed<":                               func(m *report.Mutant) { m.Caught, m.Fired = false, nil },
		">by others only<":                       func(m *report.Mutant) { m.Caught, m.Fired = false, []string{"G1"} },
		">caught, but not compared<":             func(m *report.Mutant) { m.Clean = "" },
		">caught, but the seed is not clean<":    func(m *report.Mutant) { m.Clean = check.INVALID },
		">caught, also where it must not be<":    func(m *report.Mutant) { m.NotUnder = "N7" },
		">open<":                                 func(m *report.Mutant) { m.Open = "views come later" },
		">not run<":                              func(m *report.Mutant) { m.Runs, m.Caught = 0, false },
		"must not be caught under N7":            func(m *report.Mutant) { m.NotUnder, m.NotThere = "N7", true },
		"open: views come later":                 func(m *report.Mutant) { m.Open = "views come later" },
		"1 of 1 planted bug caught by a checker": func(*report.Mutant) {},
		"0 of 1 planted bug caught by a checker": func(m *report.Mutant) { m.Clean = check.FAILED },
		`<td>S1, A2</td>` + "\n" + `<td>S1</td>`: func(*report.Mutant) {},
		`<td class="n">1.5 s</td>`:               func(*report.Mutant) {},
	} {
		m := good
		change(&m)
		if text := suite(t, report.SuiteData{Mutants: []report.Mutant{m}}); !strings.Contains(text, state) {
			t.Errorf("%+v: the page does not say %q", m, state)
		}
	}
}

func TestAnEmptySuiteSaysWhatIsMissing(t *testing.T) {
	text := suite(t, report.SuiteData{})
	for _, want := range []string{"No cell of the grid was run.", "No planted bug was run.", "No finding is recorded here.", "nobody wrote down what was not"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func TestForeignTextStaysTextOnThePageOfASuite(t *testing.T) {
	for _, x := range append(evil(), "javascript:alert(1)") {
		text := suite(t, report.SuiteData{Title: x, Version: x, Command: x, Workloads: []string{x}, Nemeses: []string{x},
			Cells:   []report.Cell{{Workload: x, Nemesis: x, Driver: x, Verdict: check.FAILED, Runs: 1, Page: "a/" + x, Witness: x}, {Workload: x, Nemesis: "N", Why: x}},
			Mutants: []report.Mutant{{Name: x, Bug: x, Where: x, Expected: []string{x}, Fired: []string{x}, Runs: 1, NotUnder: x, Said: x, Page: "b/" + x}, {Open: x}},
			Found:   []report.Found{{When: x, What: x, How: x, Commit: x, Command: x, Fixed: x}}, NotTested: []string{x}})
		for _, bad := range []string{"<script>", "<img", "<iframe", "\x1b", "\u202e", "\x07"} {
			if strings.Contains(text, bad) {
				t.Errorf("%q reaches the page as %q", x, bad)
			}
		}
	}
	text := suite(t, report.SuiteData{Cells: []report.Cell{{Workload: "w", Nemesis: "n", Verdict: check.VALID, Page: "index.html"}}})
	if !strings.Contains(text, `href="index.html"`) {
		t.Error("a link is lost")
	}
}
