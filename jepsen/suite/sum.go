package suite

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// Sum is what many runs say together: operations, faults, verdicts.
func Sum(outcomes []Outcome) string {
	ops, faults, verdicts := map[history.Outcome]int{}, map[string]int{}, map[check.Verdict]int{}
	for _, o := range outcomes {
		verdicts[o.Verdict]++
		for k, n := range o.Ops {
			ops[k] += n
		}
		for k, n := range o.Faults {
			faults[k] += n
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, faults[name]))
	}
	return fmt.Sprintf("%d runs: %d VALID, %d FAILED, %d INVALID, %d UNKNOWN; operations %d ok, %d fail, %d unknown; faults %s",
		len(outcomes), verdicts[check.VALID], verdicts[check.FAILED], verdicts[check.INVALID], verdicts[check.UNKNOWN],
		ops[history.OK], ops[history.Failed], ops[history.Info], strings.Join(parts, ", "))
}
