package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// said is a command of a transcript and what it is to print.
type said struct {
	command string
	lines   []string // "…" stands for anything in a line, "(exit N)" at the end for a status that is not 0
}

// transcript reads the block of a text whose first line is a comment with this title.
func transcript(text, title string) (all []said) {
	_, text, _ = strings.Cut(text, "```console\n# "+title+"\n")
	text, _, _ = strings.Cut(text, "```")
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch command, is := strings.CutPrefix(line, "$ "); {
		case is:
			all = append(all, said{command: command})
		case strings.HasPrefix(line, "#") || line == "":
		case len(all) > 0:
			all[len(all)-1].lines = append(all[len(all)-1].lines, line)
		}
	}
	return all
}

// cmdTranscript runs the commands of a transcript in one shell and compares what each prints, to
// stdout and stderr, and its exit status: transcript FILE 'TITLE'.
func cmdTranscript(ts *testscript.TestScript, _ bool, args []string) {
	text, err := os.ReadFile(args[0])
	ts.Check(err)
	all := transcript(string(text), args[1])
	if len(all) == 0 {
		ts.Fatalf("%s has no transcript %q", args[0], args[1])
	}
	var script strings.Builder
	for i, s := range all {
		fmt.Fprintf(&script, "echo '--- %d'\n%s\ncode=$?; [ $code = 0 ] || echo \"(exit $code)\"\n", i, s.command)
	}
	cmd := exec.Command("sh", "-c", "exec 2>&1\n"+script.String())
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "RAFTBOARD_ENDPOINTS"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	out, err := cmd.Output()
	ts.Check(err)
	parts := strings.Split("\n"+string(out), "\n--- ")[1:]
	if len(parts) != len(all) {
		ts.Fatalf("%d commands ran, want %d:\n%s", len(parts), len(all), out)
	}
	for i, part := range parts {
		_, got, _ := strings.Cut(part, "\n")
		parts[i] = strings.TrimSuffix(got, "\n")
		ts.Logf("$ %s\n%s", all[i].command, parts[i])
	}
	for i, got := range parts {
		want := regexp.QuoteMeta(strings.Join(all[i].lines, "\n"))
		if !regexp.MustCompile("^" + strings.ReplaceAll(want, "…", ".*") + "$").MatchString(got) {
			ts.Fatalf("$ %s\nprints\n%s\nwant\n%s", all[i].command, got, strings.Join(all[i].lines, "\n"))
		}
	}
}
