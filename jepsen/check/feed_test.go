package check_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// fed is a short run and the feed that tells it: a posts, claims and is lost, b claims.
func fed() (*traceOf, []history.Told) {
	b := newTrace().lead(2).at(20_000).open("a", 1).open("b", 2).post(1, "claims/i", 3)
	b.claim("a", 1, "claims/i", 1, 3000, 4)
	b.at(24_000).claim("b", 1, "claims/i", 2, 3000, 6, expired("a", 1))
	events := []*boardpb.Event{
		{Rev: 1, Kind: boardpb.Kind_KIND_LOOP_OPEN, Author: "a", Loop: "l-a"},
		{Rev: 2, Kind: boardpb.Kind_KIND_LOOP_OPEN, Author: "b", Loop: "l-b"},
		{Rev: 3, Kind: boardpb.Kind_KIND_POST, CallId: "op-1", Key: "claims/i", Version: 1},
		{Rev: 4, Kind: boardpb.Kind_KIND_CLAIM, Author: "a", Loop: "l-a", Seq: 1, CallId: "op-201", Key: "claims/i", Generation: 1},
		{Rev: 5, Kind: boardpb.Kind_KIND_LEASE_EXPIRED, Key: "claims/i", Generation: 1, TMs: 24_000},
		{Rev: 6, Kind: boardpb.Kind_KIND_RECLAIM, Author: "b", Loop: "l-b", Seq: 1, CallId: "op-202", Key: "claims/i", Generation: 2},
	}
	var log []history.Told
	for _, e := range events {
		log = append(log, history.Told{Watcher: "w", Board: theBoard, Event: e})
	}
	return b, log
}

func TestTheFeedCheckerJudgesHandWrittenFeeds(t *testing.T) {
	mark := func(rev uint64) history.Told { return history.Told{Watcher: "w", Board: theBoard, Bookmark: rev} }
	for _, c := range []struct {
		name, want string
		spoil      func(log []history.Told) []history.Told
	}{
		{"good: exactly what was applied", "", func(l []history.Told) []history.Told { return l }},
		{"good: a bookmark behind what was told", "", func(l []history.Told) []history.Told { return slices.Insert(l, 3, mark(3)) }},
		{"F1: out of order", "F1 F3", func(l []history.Told) []history.Told { l[2], l[3] = l[3], l[2]; return l }},
		{"F2: told twice", "F2", func(l []history.Told) []history.Told { return slices.Insert(l, 3, l[2]) }},
		{"F3: a gap", "F3", func(l []history.Told) []history.Told { return slices.Delete(l, 2, 3) }},
		{"F4, F3: the beginning is missing", "F4 F3", func(l []history.Told) []history.Told { return l[1:] }},
		{"F3: another version", "F3", func(l []history.Told) []history.Told { l[2].Event.Version = 2; return l }},
		{"F5: told again after the bookmark", "F5", func(l []history.Told) []history.Told { return slices.Insert(l, 3, mark(4)) }},
		{"F5: bookmarks fall", "F5", func(l []history.Told) []history.Told { return append(l, mark(6), mark(5)) }},
		{"F7: an event of a command that was never applied", "F7", func(l []history.Told) []history.Told {
			ghost := proto.CloneOf(l[2].Event)
			ghost.Rev, ghost.Sub, ghost.CallId = 6, 1, "op-77"
			return append(l, history.Told{Watcher: "w", Board: theBoard, Event: ghost})
		}},
		{"F3: an expiry is not told", "F3", func(l []history.Told) []history.Told { l[4].Event.Kind = boardpb.Kind_KIND_LOOP_END; return l }},
		{"L3: an expiry before its time", "L3 F3", func(l []history.Told) []history.Told { l[4].Event.TMs = 22_000; return l }},
		{"F10: the end is never reached", "F10", func(l []history.Told) []history.Told { return l[:5] }},
		{"F10: the watch was ended", "F10", func(l []history.Told) []history.Told {
			return append(l, history.Told{Watcher: "w", Board: theBoard, Ended: "compacted"})
		}},
		{"invalid: nobody watched", "G7", func([]history.Told) []history.Told { return nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, log := fed()
			order := b.agreed(t)
			windows, found := check.Leases(order)
			if len(found) > 0 {
				t.Fatal(found)
			}
			h := &history.History{Run: history.Run{Board: theBoard}, Feed: c.spoil(log)}
			fires(t, c.want, check.Feed(h, order, windows))
		})
	}
}
