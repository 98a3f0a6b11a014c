package suite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/suite"
)

// The readme shows the record of findings as suite.Record has it.
func TestTheReadmeShowsTheRecord(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range suite.Record() {
		by := f.How
		if f.Seed > 0 {
			by += fmt.Sprintf(", seed %d", f.Seed)
		}
		row := fmt.Sprintf("| %s | %s | %s, in %s | `%s` |", by, f.What, f.Fixed, f.Commit, f.Command)
		if !strings.Contains(string(text), row+"\n") {
			t.Errorf("jepsen/README.md lacks this row:\n%s", row)
		}
	}
	if rows := strings.Count(string(text), " | `go test "); rows != len(suite.Record()) {
		t.Errorf("jepsen/README.md has %d rows of findings, and the record %d", rows, len(suite.Record()))
	}
}

func outcome(workload, nemesis, version string, v check.Verdict) suite.Outcome {
	return suite.Outcome{Verdict: v, Ops: map[history.Outcome]int{history.OK: 7},
		Plan: suite.Plan{Driver: suite.Sim, Workload: workload, Nemeses: []string{nemesis}, Nodes: 3, Seed: 1, Version: version}}
}

// A run that was made again with another version of the source counts no more; two runs of one
// version both do, and a cell of a full run that has no run is said to have none.
func TestASuiteShowsTheNewestVersionOfARunAndWhatWasNotRun(t *testing.T) {
	dir := t.TempDir()
	for _, part := range [][]suite.Outcome{
		{outcome("append", "kill", "v1", check.FAILED), outcome("append", "pause", "v1", check.VALID)},
		{outcome("append", "kill", "v2", check.VALID), outcome("register", "kill", "v2", check.VALID)},
		{outcome("register", "kill", "v2", check.INVALID)},
	} {
		if err := suite.Keep(dir, "again", part, nil); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, suite.PageFile))
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	full := 0
	for _, c := range suite.Grid() {
		if c.Full {
			full++
		}
	}
	worst := outcome("register", "kill", "v2", check.INVALID)
	for _, want := range []string{"v1, v2", worst.Plan.Rerun(), "2 VALID, 0 FAILED, 1 INVALID, 0 UNKNOWN", "28 ok", "sim cannot do it",
		fmt.Sprintf("of %d in the grid", full)} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestAPlanThatCannotBeMeantIsRefused(t *testing.T) {
	for _, nemeses := range [][]string{{"none", "kill"}, {"kill", "pause", "kill"}, {""}, {"kil"}} {
		if p, err := (suite.Plan{Nemeses: nemeses}).Complete(); err == nil {
			t.Errorf("%v became %v", nemeses, p)
		}
	}
	if _, err := (suite.Plan{Nemeses: []string{"kill", "pause"}}).Complete(); err != nil {
		t.Error(err)
	}
}
