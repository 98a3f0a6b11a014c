package state

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	boardpb "raftboard/fsm/pb"
)

// TestAnEventLogIsAListWithAMovingStart compares with a plain slice, and the copies that
// Views hold with what they held when they were taken.
func TestAnEventLogIsAListWithAMovingStart(t *testing.T) {
	type copied struct {
		log  eventLog
		want []*boardpb.Event
	}
	rapid.Check(t, func(t *rapid.T) {
		var log eventLog
		var want []*boardpb.Event
		var copies []copied
		rev, sub := uint64(1), uint32(0)
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			for range rapid.IntRange(0, 300).Draw(t, "appends") {
				ev := &boardpb.Event{Rev: rev, Sub: sub}
				log.append(ev, Sum{rev, uint64(sub)})
				want = append(want, ev)
				if sub++; sub == 3 || rev%7 == 0 {
					rev, sub = rev+1+rev%3, 0
				}
			}
			copies = append(copies, copied{log, slices.Clone(want)})
			for range min(rapid.IntRange(0, 400).Draw(t, "drops"), len(want)) {
				ev, sum := log.dropFirst()
				if ev != want[0] || sum != (Sum{ev.Rev, uint64(ev.Sub)}) {
					t.Fatalf("dropped %v with %v, want %v", ev, sum, want[0])
				}
				want = want[1:]
			}
			copies = append(copies, copied{log, slices.Clone(want)})
		}
		for _, c := range copies {
			compareLog(t, &c.log, c.want)
		}
	})
}

func compareLog(t *rapid.T, log *eventLog, want []*boardpb.Event) {
	if log.len() != uint64(len(want)) {
		t.Fatalf("%d events, want %d", log.len(), len(want))
	}
	for i, ev := range want {
		if log.at(log.first+uint64(i)) != ev {
			t.Fatalf("event %d of %d is another one", i, len(want))
		}
	}
	if len(want) == 0 {
		if got := log.seekOr(1, 0); got != log.next {
			t.Fatalf("seek in an empty log: %d, want %d", got, log.next)
		}
		return
	}
	last := want[len(want)-1]
	for _, probe := range []*boardpb.Event{want[0], want[len(want)/2], last, {Rev: last.Rev, Sub: last.Sub + 1}, {}} {
		i := slices.IndexFunc(want, func(ev *boardpb.Event) bool { return !eventBefore(ev, probe) })
		if i < 0 {
			i = len(want)
		}
		if got := log.seekOr(probe.Rev, probe.Sub); got != log.first+uint64(i) {
			t.Fatalf("seek (%d,%d): event %d, want %d", probe.Rev, probe.Sub, got-log.first, i)
		}
	}
}
