package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// report is what these tests read of the demo's JSON.
type report struct {
	Items          int      `json:"items"`
	Completed      int      `json:"completed"`
	CompletedTwice int      `json:"completed_twice"`
	Lost           int      `json:"lost"`
	FencedWrites   int      `json:"fenced_writes"`
	Reclaims       int      `json:"reclaims"`
	LeaderChanges  int      `json:"leader_changes"`
	LongestPauseMS *int64   `json:"longest_pause_ms"`
	ConflictRate   *float64 `json:"conflict_rate"`
	WritesPerS     float64  `json:"writes_per_s"`
	TotalsMatch    bool     `json:"totals_match"`
}

func runDemo(t *testing.T, args ...string) (r report, stderr string, status int) {
	t.Helper()
	temp := t.TempDir()
	stdout, stderr, status := raftboard(t, temp, []string{"TMPDIR=" + temp}, append([]string{"demo", "-o", "json"},
		args...)...)
	line, _, _ := strings.Cut(stdout, "\n")
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		t.Fatalf("%v: stdout %q, stderr %s", err, stdout, stderr)
	}
	left, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("the demo left %v behind", left)
	}
	return r, stderr, status
}

// T-18 on real processes: a worker is stopped past its lease, and its late write is refused.
func TestT18TheDemoLosesNothingAndDoesNothingTwiceWhileThingsBreak(t *testing.T) {
	t.Parallel()
	r, stderr, status := runDemo(t)
	if status != 0 {
		t.Fatalf("exit status %d: %+v\n%s", status, r, stderr)
	}
	if r.Items < 40 || r.Completed != r.Items || r.CompletedTwice != 0 || r.Lost != 0 || !r.TotalsMatch {
		t.Errorf("%+v", r)
	}
	if r.FencedWrites < 1 || r.Reclaims < 1 || r.LeaderChanges < 1 || r.WritesPerS <= 0 || r.LongestPauseMS == nil || r.ConflictRate == nil {
		t.Errorf("%+v", r)
	}
	for _, what := range []string{"killed; it led term", "killed while it held", "paused while it held",
		"started again", "refused: "} {
		if !strings.Contains(stderr, what) {
			t.Errorf("nothing on stderr says %q:\n%s", what, stderr)
		}
	}
}

func TestTheDemoFailsWhenAnItemIsCompletedTwice(t *testing.T) {
	t.Parallel()
	r, stderr, status := runDemo(t, "--inject", "double")
	if status != 1 || r.CompletedTwice != 1 || r.Lost != 0 || !strings.Contains(stderr, "was completed 2 times") {
		t.Errorf("exit status %d: %+v\n%s", status, r, stderr)
	}
}

func TestTheDemoFailsWhenAnAcknowledgedCompletionIsLost(t *testing.T) {
	t.Parallel()
	r, stderr, status := runDemo(t, "--inject", "loss")
	if status != 1 || r.Lost != 1 || r.CompletedTwice != 0 || !strings.Contains(stderr, "is not in the feed") {
		t.Errorf("exit status %d: %+v\n%s", status, r, stderr)
	}
}

// An interrupt in the middle of a pause: the stopped worker, too, is gone when the demo has ended.
func TestAnInterruptedDemoLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	b := launch(t, "demo")
	b.says("paused while it held")
	b.signal(syscall.SIGINT)
	if status := b.ends(); status != 130 {
		t.Errorf("exit status %d, want 130", status)
	}
	if left, err := os.ReadDir(b.cmd.Dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v behind (%v)", left, err)
	}
	calls, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range calls {
		if line, err := os.ReadFile(path); err == nil && strings.Contains(string(line), b.cmd.Dir) {
			t.Errorf("%s still runs: %q", path, line)
		}
	}
}
