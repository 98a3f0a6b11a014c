package check_test

import (
	"testing"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// TestASnapshotInstallIsOneFromAnotherNode: a node that starts on its own snapshot has shown
// nothing of what happens when one travels.
func TestASnapshotInstallIsOneFromAnotherNode(t *testing.T) {
	records, second := twoNodes()
	whole := installOf(records[len(records)-1], "n2", 2)
	for _, c := range []struct {
		name string
		h    *history.History
		want int
	}{
		{"none", &history.History{Applied: records}, 0},
		{"its own, at its start", &history.History{Applied: records, Install: []history.Installed{whole}}, 0},
		{"one of what it has not applied, in the middle of a life", jump(3), 1},
		{"one in a second life, of what the first did not reach",
			&history.History{Applied: records[:second+2], Install: []history.Installed{whole}}, 1},
		{"one older than every trace", &history.History{Applied: records, Install: []history.Installed{{Node: "n2", Life: 1}}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			order, found := check.Agree(c.h)
			fires(t, "", found)
			if got := check.Sometimes(c.h, order)[check.Installed]; got != c.want {
				t.Errorf("counted %d, want %d", got, c.want)
			}
		})
	}
}

func TestGraceIsUsedWhereALeaseOutlivesItsOwnEnd(t *testing.T) {
	for _, c := range []struct {
		name      string
		completed int64 // board time
		lead      bool
		want      int
	}{
		{"done in time", 22_000, true, 0},
		{"done after its end, within the grace of an election", 25_000, true, 1},
		{"nobody was elected", 22_900, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newTrace().lead(2).at(20_000).open("a", 1).post(1, "claims/i", 2).claim("a", 1, "claims/i", 1, 3000, 3)
			if c.lead {
				b.lead(3)
			}
			b.at(c.completed).complete("a", 2, "claims/i", 1, "x", done(4, 1, "r@1"))
			if got := check.Sometimes(&history.History{}, b.agreed(t))[check.Graced]; got != c.want {
				t.Errorf("counted %d, want %d", got, c.want)
			}
		})
	}
}

func TestAConflictThatOutlivedItsRetriesIsCounted(t *testing.T) {
	b := newTrace()
	report := func(r *boardpb.Result) {
		b.do("a", 1, &boardpb.Command{Op: &boardpb.Command_ReportConflict{ReportConflict: &boardpb.ReportConflict{Key: "k", Version: 3, Attempts: 4}}}, r)
	}
	h := &history.History{Run: history.Run{Board: theBoard}}
	if got := check.Sometimes(h, b.agreed(t))[check.FourConflicts]; got != 0 {
		t.Errorf("counted %d where there was none", got)
	}
	report(ok(7, 0))
	if got := check.Sometimes(h, b.agreed(t))[check.FourConflicts]; got != 1 {
		t.Errorf("counted %d, want 1", got)
	}
}

func TestAFeedResumedAcrossAFailoverHasALeadershipInItsGap(t *testing.T) {
	b := newTrace().lead(2).open("a", 1).post(1, "claims/i", 2).lead(3).post(2, "claims/j", 3).post(3, "claims/k", 4)
	event := func(rev uint64) history.Told {
		return history.Told{Watcher: "w", Board: theBoard, Event: &boardpb.Event{Rev: rev}}
	}
	cut := history.Told{Watcher: "w", Board: theBoard, Cut: "n1: reset", At: time.Second}
	for _, c := range []struct {
		name string
		feed []history.Told
		want int
	}{
		{"never cut", []history.Told{event(1), event(2), event(3)}, 0},
		{"cut before the failover", []history.Told{event(1), cut, event(2), event(3)}, 0},
		{"cut after the failover", []history.Told{event(1), event(2), event(3), cut, event(4)}, 0},
		{"cut at the failover", []history.Told{event(1), event(2), cut, event(3)}, 1},
		{"cut twice in one gap", []history.Told{event(1), cut, cut, event(4)}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &history.History{Run: history.Run{Board: theBoard}, Feed: c.feed}
			if got := check.Sometimes(h, b.agreed(t))[check.FeedFailover]; got != c.want {
				t.Errorf("counted %d, want %d", got, c.want)
			}
		})
	}
}
