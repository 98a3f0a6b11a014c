package check_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"raftboard/jepsen/check"
	"raftboard/jepsen/planted/table"
)

// A code that a finding or a planted bug may carry has a line that says what it demands.
func TestEveryCodeSaysWhatItDemands(t *testing.T) {
	rules := map[string]bool{}
	for _, r := range check.Rules() {
		if r.Wants == "" || rules[r.Code] {
			t.Errorf("%s is there twice, or without words", r.Code)
		}
		rules[r.Code] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile(`"([A-MO-Z][1-9][0-9]*)"`) // N1 and so on are nemeses, G0 is a kind of cycle
	for _, name := range files {
		if matched, _ := filepath.Match("*_test.go", name); matched {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range code.FindAllStringSubmatch(string(text), -1) {
			if !rules[m[1]] {
				t.Errorf("%s: nobody says what %s demands", name, m[1])
			}
		}
	}
	for _, m := range table.Mutants() {
		for _, fires := range m.Fires {
			if m.Open == "" && !rules[fires] {
				t.Errorf("%s is caught by %s, and nobody says what that demands", m.Name, fires)
			}
		}
	}
}
