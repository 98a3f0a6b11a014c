package sim_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// With what a workload demands by itself, each must have met a new leader.
var overFailover = check.Demand{States: []check.State{check.LeaderChange}, BeforeFault: 50}

// spoilWork: copies of a run that was VALID are condemned by the checker named.
func spoilWork(t *testing.T, name string, seed uint64, spoils []spoilt) {
	t.Helper()
	var h *history.History
	synctest.Test(t, func(t *testing.T) { h = runWork(t, name, seed, killLeader) })
	h = reread(t, h)
	report(t, h, judge(h, overFailover))
	if t.Failed() {
		return
	}
	for _, m := range spoils {
		t.Run(m.name, func(t *testing.T) {
			c := copied(h)
			m.spoil(t, c)
			found := judge(c, overFailover)
			if !slices.ContainsFunc(found, func(f check.Finding) bool { return f.Checker == m.want && f.Class == check.Violation }) {
				t.Errorf("%s did not fire: %v", m.want, found)
			}
		})
	}
}

func TestOperationsLoseNothingWhenTheLeaderDies(t *testing.T) {
	spoilWork(t, "operations", 1, []spoilt{
		{"a node shows an older version at the end", "B1", func(t *testing.T, h *history.History) {
			op := lastOp(t, h, func(o *history.Op) bool { return o.Kind == history.Append && o.Outcome == history.OK })
			h.Finals = slices.DeleteFunc(h.Finals, func(f history.Final) bool {
				return f.Reader == h.Finals[0].Reader && f.Entry.GetKey() == op.Key && f.Entry.Version >= op.Result.Version
			})
		}},
		{"a node that joined got nothing", "B3", func(_ *testing.T, h *history.History) {
			h.Faults = append(h.Faults, history.Fault{Name: "add", Nemesis: "N13", Targets: []string{"n9"}, Start: h.Run.Ended / 2, Witness: "it is ready"})
			h.Run.Ended *= 10
		}},
	})
}

func TestAgentsGetTheirWorkDoneWhenTheLeaderDies(t *testing.T) {
	spoilWork(t, "soak", 1, []spoilt{
		{"a read is older than what its caller had been told", "H1", func(t *testing.T, h *history.History) {
			lastOp(t, h, func(o *history.Op) bool { return o.Args.AtLeast > 0 && o.Outcome == history.OK }).Result.Rev = 1
		}},
		{"a finding is lost", "A1", func(t *testing.T, h *history.History) {
			read := lastOp(t, h, func(o *history.Op) bool {
				return o.Kind == history.Dump && o.Outcome == history.OK && len(o.Result.Seen) == 1 && len(o.Result.Seen[0].Items) > 10
			})
			read.Result.Seen = []history.Seen{{Key: read.Key, Items: read.Result.Seen[0].Items[:1]}}
		}},
		{"a plan is read that was never written", "R1", func(t *testing.T, h *history.History) {
			lastOp(t, h, func(o *history.Op) bool { return o.Args.AtLeast > 0 && o.Outcome == history.OK }).Result.Value = `"none of it"`
		}},
	})
}
