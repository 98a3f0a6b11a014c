package report_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/report"
)

// Whatever a run may have met, and whichever rule it broke, the page says in words what that is.
func TestThePageExplainsEveryStateAndEveryCode(t *testing.T) {
	files, err := filepath.Glob("../check/*.go")
	if err != nil {
		t.Fatal(err)
	}
	j := check.Judgement{Verdict: check.FAILED, Met: map[check.State]int{}}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`State = "([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
			j.Met[check.State(m[1])] = 1
		}
	}
	if len(j.Met) < 20 {
		t.Fatalf("only %d states were found", len(j.Met))
	}
	j.Findings = []check.Finding{{Checker: "S1", Class: check.Violation, What: "twice"}}
	var b bytes.Buffer
	if err := report.Run(&b, &history.History{}, j); err != nil {
		t.Fatal(err)
	}
	_, states, _ := strings.Cut(b.String(), `id="states"`)
	states, _, _ = strings.Cut(states, "<h2")
	for row := range strings.SplitSeq(states, "<tr>") {
		if strings.Contains(row, `<td class="soft"></td>`) {
			t.Errorf("a state without words: %s", row)
		}
	}
	if !strings.Contains(b.String(), check.RuleOf("S1")) {
		t.Error("the page does not say what S1 demands")
	}
}
