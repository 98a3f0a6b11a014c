package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	boardpb "raftboard/fsm/pb"
)

var flagWord = regexp.MustCompile(`--[a-z][a-z-]*[a-z]`)

// flagNames are those of every command, with dashes.
func flagNames(root *cobra.Command) map[string]bool {
	names := map[string]bool{"--help": true, "--version": true}
	add := func(f *pflag.Flag) { names["--"+f.Name] = true }
	root.PersistentFlags().VisitAll(add)
	for _, c := range leaves(root) {
		c.Flags().VisitAll(add)
	}
	return names
}

func TestEveryFlagThatAnyTextNamesExists(t *testing.T) {
	known := flagNames(testApp().root())
	seen := 0
	for _, dir := range []string{".", "demo", "exitcode", "../../client", "../../node", "../../transport", "../../fsm", "../../fsm/board"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tree, err := parser.ParseFile(token.NewFileSet(), file, src, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				text, is := n.(*ast.BasicLit)
				if !is || text.Kind != token.STRING {
					return true
				}
				for _, flag := range flagWord.FindAllString(text.Value, -1) {
					seen++
					if !known[flag] {
						t.Errorf("%s: %s names %s, which no command has", file, text.Value, flag)
					}
				}
				return true
			})
		}
	}
	if seen < 50 {
		t.Errorf("only %d flags were found in texts: is the search right?", seen)
	}
}

// Names of the protocol's fields say nothing to whoever types commands.
func TestHintsOfTheCommandLineNameNoFieldsOfTheProtocol(t *testing.T) {
	field := regexp.MustCompile(`\b[a-z]+_[a-z_]+\b`)
	answers := []*boardpb.Result{{Outcome: boardpb.Outcome_OUTCOME_CONFLICT, Key: "draft", Version: 3},
		{Outcome: boardpb.Outcome_OUTCOME_CONFLICT, Key: "draft"}, {Outcome: boardpb.Outcome_OUTCOME_HELD, Key: "claims/a"},
		{Outcome: boardpb.Outcome_OUTCOME_DONE, Key: "claims/a"}}
	for _, name := range []string{"if_version", "duration_ms", "ttl_ms", "retry_after_ms", "generation"} {
		answers = append(answers, &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Field: name, Hint: name})
	}
	for _, code := range []boardpb.Code{boardpb.Code_CODE_NO_LEASE, boardpb.Code_CODE_STALE_LEASE, boardpb.Code_CODE_LEASE_EXPIRED,
		boardpb.Code_CODE_NOT_HOLDER, boardpb.Code_CODE_LOOP_ENDED, boardpb.Code_CODE_BAD_ENCODING, boardpb.Code_CODE_WRONG_MODE,
		boardpb.Code_CODE_LIMIT_IDEMPOTENCY_KEYS, boardpb.Code_CODE_UNAVAILABLE} {
		answers = append(answers, &boardpb.Result{Code: code, Key: "claims/a", Hint: "if_version"},
			&boardpb.Result{Code: code, Key: "claims/a", YourGeneration: 2, Proposed: boardpb.Proposed_PROPOSED_UNKNOWN})
	}
	for _, r := range answers {
		said := inWords(r)
		if said.GetHint() == "" || field.MatchString(said.GetHint()) {
			t.Errorf("%v %v: the hint is %q", r.GetCode(), r.GetOutcome(), said.GetHint())
		}
	}
}

func TestWhatWasNotFoundIsLookedForWhereItsKindIsListed(t *testing.T) {
	for want, r := range map[string]*boardpb.Result{
		"raftboard loop open":  {Loop: "l-1"},
		"raftboard board list": {Field: "board apollo"},
		"raftboard node list":  {Field: "node n9"},
		"raftboard list":       {Key: "facts/a", Hint: "raftboard list"},
	} {
		r.Code = boardpb.Code_CODE_NOT_FOUND
		if got := inWords(r).GetHint(); !strings.Contains(got, want) {
			t.Errorf("%v: the hint is %q, want %q", r, got, want)
		}
	}
}
