package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// leaves lists every command that does something.
func leaves(cmd *cobra.Command) []*cobra.Command {
	if !cmd.HasSubCommands() {
		return []*cobra.Command{cmd}
	}
	var out []*cobra.Command
	for _, c := range cmd.Commands() {
		out = append(out, leaves(c)...)
	}
	return out
}

func testApp() *app {
	a := newApp()
	a.stdin, a.stdout, a.stderr = strings.NewReader(""), &strings.Builder{}, &strings.Builder{}
	return a
}

func TestEveryHelpFitsAScreenAndHasTwoExamples(t *testing.T) {
	a := testApp()
	root := a.root()
	if n := strings.Count(rootHelp(root), "\n"); n >= 40 {
		t.Errorf("raftboard --help has %d lines", n)
	}
	for _, c := range leaves(root) {
		if c.Hidden || c.Name() == "no-help" {
			continue
		}
		var out strings.Builder
		c.SetOut(&out)
		c.InitDefaultHelpFlag()
		help(c, nil)
		if n := strings.Count(out.String(), "\n"); n >= 40 {
			t.Errorf("%s --help has %d lines", c.CommandPath(), n)
		}
		examples := strings.Split(c.Example, "\n")
		if len(examples) != 2 || strings.TrimSpace(examples[0]) == strings.TrimSpace(examples[1]) {
			t.Errorf("%s has no two examples: %q", c.CommandPath(), c.Example)
		}
		for _, e := range examples {
			if !strings.Contains(e, "raftboard") {
				t.Errorf("%s: the example %q does not show the command", c.CommandPath(), e)
			}
		}
		if c.Run != nil || c.RunE == nil {
			t.Errorf("%s must have RunE only", c.CommandPath())
		}
	}
}

func TestTheReferenceIsFresh(t *testing.T) {
	want := reference(testApp().root())
	got, err := os.ReadFile("REFERENCE.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("REFERENCE.md is not what the commands say: go run ./cmd/raftboard docs > cmd/raftboard/REFERENCE.md")
	}
}

func TestTheReferenceShowsEveryExampleAsCode(t *testing.T) {
	got := reference(testApp().root())
	for _, c := range leaves(testApp().root()) {
		if c.Hidden || c.Name() == "no-help" {
			continue
		}
		for _, line := range strings.Split(c.Example, "\n") {
			if code := "\n    " + strings.TrimSpace(line) + "\n"; !strings.Contains(got, code) {
				t.Errorf("%s: %q is not indented as code", c.CommandPath(), line)
			}
		}
	}
}

// lines calls every verb that speaks to a node; the walk below finds one that is missing.
func lines() map[string]string {
	return map[string]string{
		"get": "get facts/a", "diff": "diff", "set": "set draft 1", "append": "append facts/a 1", "delete": "delete draft", "history": "history draft",
		"list": "list", "txn": "txn -", "post": "post claims/a 1", "watch": "watch", "dump": "dump", "view": "view --subscribe facts/*", "agent-prompt": "agent-prompt", "tool": "tool bb_list {}",
		"trace": "trace facts/a", "who-read": "who-read facts/a", "why": "why facts/a", "invalidate": "invalidate facts/a", "stats": "stats", "schema": "schema",
		"claim": "claim claims/a", "heartbeat": "heartbeat claims/a --gen 1", "release": "release claims/a --gen 1",
		"complete": "complete claims/a --gen 1", "fail": "fail claims/a --gen 1", "claims": "claims", "reopen": "reopen claims/a", "unpark": "unpark claims/a",
		"loop open": "loop open", "loop close": "loop close l-1", "loop keepalive": "loop keepalive l-1",
		"phase define": "phase define p", "phase list": "phase list", "phase read": "phase read p", "phase lock": "phase lock p --loop l-1",
		"phase renew": "phase renew p --gen 1 --loop l-1", "phase unlock": "phase unlock p --gen 1 --loop l-1",
		"phase write": "phase write p {} --read 0", "phase complete": "phase complete p", "phase reopen": "phase reopen p",
		"phase detect": "phase detect p", "phase resolve": "phase resolve p {} --read 0 --strategy local", "phase conflicts": "phase conflicts",
		"phase settle": "phase settle c-1 --keep",
		"run":          "run --claim claims/a -- true", "status": "status",
		"board create": "board create x", "board list": "board list", "board describe": "board describe", "board settings": "board settings",
		"board compact": "board compact --before 1 --yes", "board delete": "board delete x --yes",
		"board fork": "board fork x y", "board close": "board close x --to x.jsonl --yes", "board snapshot": "board snapshot x --to x.jsonl",
		"node list": "node list", "node add": "node add n", "node remove": "node remove n --yes", "node promote": "node promote n",
		"node demote": "node demote n", "node step-down": "node step-down", "node settings": "node settings grace=1s",
		"snapshot save": "snapshot save s.snap",
	}
}

// offline verbs need no node.
func offline(name string) bool {
	switch name {
	case "serve", "dev", "demo", "demo-node", "demo-worker", "version", "completion", "docs", "snapshot inspect", "board replay", "no-help":
		return true
	}
	return false
}

// T-88: without a reachable node every verb says so, soon, with address and fix, and leaves nothing behind.
func TestT88EveryVerbSaysThatNoNodeIsReachableAndWritesNothing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	calls := lines()
	base := t.TempDir()
	dirs := []string{filepath.Join(base, "a"), filepath.Join(base, "b", "deep"), filepath.Join(base, "c")}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, c := range leaves(testApp().root()) {
		name := strings.TrimPrefix(c.CommandPath(), "raftboard ")
		if offline(name) {
			continue
		}
		line, known := calls[name]
		if !known {
			t.Errorf("no call of %q in this test", name)
			continue
		}
		dir := dirs[n%len(dirs)]
		n++
		began := time.Now()
		stdout, stderr, status := raftboard(t, dir, []string{"RAFTBOARD_ENDPOINTS=" + addr}, strings.Fields(line)...)
		if name == "txn" { // its input is looked at first
			if status != 7 {
				t.Errorf("txn of nothing: status %d, %s", status, stderr)
			}
			continue
		}
		if status != 5 || !strings.Contains(stderr, addr+": connection refused") || !strings.Contains(stderr,
			"\nhint: ") || stdout != "" {
			t.Errorf("%s: status %d, stdout %q, stderr %q", line, status, stdout, stderr)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %v", line, took)
		}
	}
	for _, dir := range dirs {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s holds %v (%v)", dir, left, err)
		}
	}
}

// T-73: each address is named with its own cause.
func TestT73EveryEndpointIsNamedWithItsCause(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, stderr, status := raftboard(t, t.TempDir(), nil, "list", "--endpoints", addr+",no-such-host.invalid:8970")
	if status != 5 || !strings.Contains(stderr, addr+": connection refused") || !strings.Contains(stderr,
		"no-such-host.invalid:8970: ") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// A port on which somebody listens who is no node: no success, and an answer within a bound (4 s on an idle machine).
func TestT73AListenerThatIsNoNodeIsNoNode(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			c.Close()
		}
	}()
	began := time.Now()
	_, stderr, status := raftboard(t, t.TempDir(), nil, "get", "facts/a", "--endpoints", l.Addr().String())
	if status != 5 || !strings.Contains(stderr, l.Addr().String()) || time.Since(began) > 9*time.Second {
		t.Errorf("status %d after %v: %s", status, time.Since(began), stderr)
	}
}

func TestUserNamesAreFoldedToTheGrammar(t *testing.T) {
	for in, want := range map[string]string{"jane": "jane", `CORP\Jane.Doe`: "jane-doe", "_www": "www", "1-x": "x",
		"Ärger": "rger", "0": "",
		strings.Repeat("x", 60): strings.Repeat("x", 48)} {
		if got := foldName(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestLineDiffKeepsTheCommonLines(t *testing.T) {
	got := strings.Join(lineDiff([]string{"a", "b", "c"}, []string{"a", "x", "c", "d"}), "|")
	if got != " a|-b|+x| c|+d" {
		t.Errorf("got %s", got)
	}
}

func TestPatternsMatchBySegments(t *testing.T) {
	for _, c := range []struct {
		pattern, key string
		want         bool
	}{{"facts/*", "facts/a", true}, {"facts/*", "facts/a/b", false}, {"results/*/**", "results/w/x/y",
		true}, {"results/*/**", "results/w", false},
		{"plan", "plan", true}, {"plan", "plan/x", false}} {
		if got := matches(c.pattern, c.key); got != c.want {
			t.Errorf("%s and %s: %v", c.pattern, c.key, got)
		}
	}
}
