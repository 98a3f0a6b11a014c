package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/sim"
	"raftboard/jepsen/suite"
)

// faults runs the command as a shell would.
func faults(args ...string) (status int, out, errs string) {
	var o, e bytes.Buffer
	status = realMain(args, &o, &e)
	return status, o.String(), e.String()
}

func TestACommandLineThatMakesNoSenseIsNoVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no such workload":          {[]string{"run", "--workload", "nonsense"}, "there are register"},
		"no such nemesis":           {[]string{"run", "--nemesis", "meteor"}, "there are none"},
		"no such driver":            {[]string{"run", "--driver", "cloud"}, "there are sim and netns"},
		"four nodes":                {[]string{"run", "--nodes", "4"}, "3 or 5"},
		"a run of no time":          {[]string{"run", "--time", "1s"}, "at least 5s"},
		"a fault sim does not have": {[]string{"run", "--nemesis", "cpu"}, "use --driver netns"},
		"no such column":            {[]string{"matrix", "--columns", "N99"}, "there are N0"},
		"no such row":               {[]string{"matrix", "--workloads", "nonsense"}, "there are register"},
		"a cell of the night":       {[]string{"matrix", "--workloads", "soak"}, "--nightly"},
		"no time at all":            {[]string{"run", "--time", "0"}, "--time 0s"},
		"no seeds":                  {[]string{"run", "--seeds", "0"}, "--seeds 0"},
		"less than no runs":         {[]string{"mutants", "--runs", "-1"}, "--runs -1"},
		"no rate":                   {[]string{"run", "--rate", "0"}, "--rate 0"},
		"an output nobody writes":   {[]string{"run", "-o", "yaml"}, "there are text and json"},
		"a bug nobody planted":      {[]string{"run", "--mutant", "M99"}, "see list bugs"},
		"a bug that is still open":  {[]string{"run", "--mutant", "M28"}, "credentials"},
		"a fault of no point":       {[]string{"run", "--fault", "nowhere:1:panic"}, "see list points"},
		"a fault without an hour":   {[]string{"run", "--fault", "log-write:eio"}, "NAME:WHEN:DO"},
		"a place without errors":    {[]string{"run", "--fault", "log-before:1:eio"}, "can only panic or sleep"},
		"a list of something else":  {[]string{"list", "moons"}, "moons"},
		"no such bug":               {[]string{"mutants", "M99"}, "M99"},
		"a directory without a run": {[]string{"analyze", t.TempDir()}, "holds no history.jsonl"},
	} {
		status, _, errs := faults(c.args...)
		if status != exitUsage || !strings.Contains(errs, c.says) {
			t.Errorf("%s: status %d, %q", name, status, errs)
		}
	}
}

func TestTheListNamesEveryWorkloadAndEveryNemesis(t *testing.T) {
	status, out, _ := faults("list")
	for _, word := range []string{"register", "append", "txn", "lease", "work", "retry", "feed", "stale-reads", "operations", "soak", "author",
		"partition", "bridge", "one-way", "flap", "slow", "replay", "kill", "pause", "power", "disk", "corrupt", "clock", "members",
		"compaction", "cpu", "failpoint"} {
		if !strings.Contains(out, "\n"+word) {
			t.Errorf("status %d: %s is not listed in\n%s", status, word, out)
		}
	}
	for what, word := range map[string]string{"checkers": "\nS1 ", "bugs": "\nM5 ", "points": "\nlog-write "} {
		if status, out, _ := faults("list", what); status != 0 || !strings.Contains(out, word) {
			t.Errorf("status %d: list %s lacks %q:\n%s", status, what, word, out)
		}
	}
	status, out, _ = faults("list", "-o", "json")
	if err := json.Unmarshal([]byte(out), &map[string]any{}); err != nil || status != 0 {
		t.Errorf("status %d, %v: %s", status, err, out)
	}
}

// recorded is a short run on virtual time.
func recorded(t *testing.T) *history.History {
	plan, err := suite.Plan{Workload: "register", Nemeses: []string{"kill"}, Seed: 3}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var h *history.History
	synctest.Test(t, func(t *testing.T) {
		log := history.NewLog(plan.Describe())
		run, err := sim.Open(log, sim.Options{Nodes: plan.Nodes, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer run.Close()
		if err := suite.Run(context.Background(), run, log, plan); err != nil {
			t.Fatal(err)
		}
		h = log.History()
	})
	return h
}

// store writes a history where analyze finds it.
func store(t *testing.T, h *history.History) (dir string) {
	dir = t.TempDir()
	file, err := os.Create(filepath.Join(dir, suite.HistoryFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := h.Write(file); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAVerdictIsRecomputedFromTheFilesAndIsTheExitStatus(t *testing.T) {
	h := recorded(t)
	read := func(o history.Op) bool {
		return o.Kind == history.Get && o.Outcome == history.OK && o.Result.Version > 2
	}
	for _, c := range []struct {
		name    string
		spoil   func(h *history.History)
		verdict check.Verdict
		status  int
		says    string
	}{
		{"as it was", func(*history.History) {}, check.VALID, 0, "no anomaly found under these faults at this rate"},
		{"a stale read", func(h *history.History) {
			for i := len(h.Ops) - 1; i >= 0; i-- {
				if read(h.Ops[i]) {
					h.Ops[i].Result.Version--
					return
				}
			}
		}, check.FAILED, 1, "again: go run ./jepsen/cmd/faults run --driver sim --workload register --nemesis kill"},
		{"a fault that nobody saw", func(h *history.History) { h.Faults[0].Witness = "" }, check.INVALID, 2, "nothing shows"},
		{"hardly any load", func(h *history.History) { h.Ops = h.Ops[:3] }, check.INVALID, 2, "before the first fault"},
	} {
		spoiled := *h
		spoiled.Ops, spoiled.Faults = append([]history.Op(nil), h.Ops...), append([]history.Fault(nil), h.Faults...)
		c.spoil(&spoiled)
		dir := store(t, &spoiled)
		status, out, errs := faults("analyze", dir)
		if status != c.status || !strings.HasPrefix(out, string(c.verdict)) || !strings.Contains(out, c.says) {
			t.Errorf("%s: status %d\n%s%s", c.name, status, out, errs)
		}
		if page, err := os.ReadFile(filepath.Join(dir, suite.PageFile)); err != nil || !bytes.Contains(page, []byte(c.verdict)) {
			t.Errorf("%s: the page does not say %s: %v", c.name, c.verdict, err)
		}
	}
}

// What a run that somebody ended still owed is no broken promise.
func TestARunThatIsInterruptedHasNoVerdict(t *testing.T) {
	plan, err := suite.Plan{Workload: "register", Nemeses: []string{"kill"}}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := history.NewLog(plan.Describe())
		run, err := sim.Open(log, sim.Options{Nodes: plan.Nodes, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer run.Close()
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(plan.Time/2, interrupt)
		if err := suite.Run(ctx, run, log, plan); !errors.Is(err, context.Canceled) {
			t.Errorf("the run ended with %v", err)
		}
	})
}

// sudo often has a PATH without go.
func TestWithoutGoItSaysThatGoIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	status, out, _ := faults("run", "--dir", t.TempDir())
	if status != suite.Code(check.INVALID) || !strings.Contains(out, "go is not in the PATH") {
		t.Errorf("status %d: %s", status, out)
	}
}

func TestWhatAnInterruptLeavesIsNamedOnlyIfThereIsAnything(t *testing.T) {
	dir := t.TempDir()
	if err := interruptedIn(dir); err != errInterrupted {
		t.Error(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := interruptedIn(dir); !errors.Is(err, errInterrupted) || !strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
}

func TestThePageOfASuiteNamesTheCommandThatWasGiven(t *testing.T) {
	f, c := &matrixFlags{}, matrixCommand()
	if err := c.ParseFlags([]string{"--workloads", "txn,register", "--columns", "N7", "--nightly", "--dir", "d", "-o", "json", "--seeds", "2"}); err != nil {
		t.Fatal(err)
	}
	f.driver = suite.Sim
	if got, want := f.command(c), "go run ./jepsen/cmd/faults matrix --driver sim --columns N7 --nightly --seeds 2 --workloads txn,register"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestSeveralRunsGiveTheWorstVerdict(t *testing.T) {
	for _, c := range []struct{ a, b, want check.Verdict }{
		{check.VALID, check.UNKNOWN, check.UNKNOWN}, {check.UNKNOWN, check.INVALID, check.INVALID},
		{check.INVALID, check.FAILED, check.FAILED}, {check.FAILED, check.VALID, check.FAILED},
	} {
		if got := suite.Worst(c.a, c.b); got != c.want {
			t.Errorf("%s and %s give %s", c.a, c.b, got)
		}
	}
	for v, want := range map[check.Verdict]int{check.VALID: 0, check.FAILED: 1, check.INVALID: 2, check.UNKNOWN: 3} {
		if got := suite.Code(v); got != want {
			t.Errorf("%s exits with %d", v, got)
		}
	}
}

func TestAPlanAndItsHistoryNameTheSameRun(t *testing.T) {
	plan, err := suite.Plan{Driver: suite.Netns, Workload: "work", Nemeses: []string{"kill", "pause"}, Time: 30 * time.Second, Seed: 9}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	run := plan.Describe()
	if got := suite.PlanOf(&history.History{Run: run}); got.Rerun() != plan.Rerun() || run.Rerun != plan.Rerun() {
		t.Errorf("planned %s\nread    %s\nwritten %s", plan.Rerun(), got.Rerun(), run.Rerun)
	}
}
