package check_test

import (
	"slices"
	"testing"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// twoNodes is one trace as two nodes wrote it.
func twoNodes() (records []history.Applied, second int) {
	for _, node := range []string{"n1", "n2"} {
		b := newTrace()
		b.node = "n1"
		b.lead(2).at(1000).open("a", 1).post(1, "claims/i", 2).claim("a", 1, "claims/i", 1, 3000, 3).at(2000).keepalive("a", 2)
		for _, r := range b.records {
			r.Node = node
			records = append(records, r)
		}
	}
	return records, len(records) / 2
}

func TestNodesThatAppliedTheSameAgree(t *testing.T) {
	records, _ := twoNodes()
	order, found := check.Agree(records)
	fires(t, "", found)
	if len(order.Records) != 5 {
		t.Errorf("A has %d commands, want 5", len(order.Records))
	}
}

func TestADifferenceBetweenTwoNodesIsFound(t *testing.T) {
	for name, spoil := range map[string]func(*history.Applied){
		"term":       func(a *history.Applied) { a.Term++ },
		"command":    func(a *history.Applied) { a.CommandHash = "other" },
		"result":     func(a *history.Applied) { a.ResultHash = "other" },
		"digest":     func(a *history.Applied) { a.Digest = "other" },
		"board time": func(a *history.Applied) { a.T++ },
	} {
		t.Run(name, func(t *testing.T) {
			records, second := twoNodes()
			spoil(&records[second+2])
			_, found := check.Agree(records)
			fires(t, "G1", found)
		})
	}
}

func TestAnEntryThatOneNodeLeftOutIsFound(t *testing.T) {
	records, second := twoNodes()
	_, found := check.Agree(slices.Delete(records, second+2, second+3))
	fires(t, "G1", found)
}

func TestAnEntryAppliedTwiceInOneLifeIsFoundAndInTwoLivesIsFine(t *testing.T) {
	records, _ := twoNodes()
	again := records[len(records)-1]
	_, found := check.Agree(append(records, again))
	fires(t, "G2", found)
	again.Life++
	_, found = check.Agree(append(records, again))
	fires(t, "", found)
}
