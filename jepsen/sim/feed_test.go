package sim_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// toldWhere is the place in the feed log of the last thing told that is so; a test without one
// fails.
func toldWhere(t *testing.T, h *history.History, is func(i int, w *history.Told) bool) int {
	t.Helper()
	for i := len(h.Feed) - 1; i >= 0; i-- {
		if is(i, &h.Feed[i]) {
			return i
		}
	}
	t.Fatal("nobody was told anything of the kind")
	return 0
}

// nextOf is the place of the next thing that the same watcher was told; -1 if there is none.
func nextOf(h *history.History, i int) int {
	for j := i + 1; j < len(h.Feed); j++ {
		if h.Feed[j].Watcher == h.Feed[i].Watcher {
			return j
		}
	}
	return -1
}

// midst is an event in the middle of a stream of a watcher: events of it come before and behind.
func midst(t *testing.T, h *history.History, watcher string, is func(e *boardpb.Event) bool) int {
	t.Helper()
	return toldWhere(t, h, func(i int, w *history.Told) bool {
		next := nextOf(h, i)
		was := slices.ContainsFunc(h.Feed[max(0, i-40):i], func(b history.Told) bool { return b.Watcher == watcher && b.Event != nil })
		return w.Watcher == watcher && w.Event != nil && was && next > 0 && h.Feed[next].Event != nil && is(w.Event)
	})
}

// alone is an event of a command that leaves one.
func alone(e *boardpb.Event) bool { return e.Kind == boardpb.Kind_KIND_SET }

// opening is the first event of a stream of a watcher that was not the first one.
func opening(t *testing.T, h *history.History, watcher string) int {
	t.Helper()
	return toldWhere(t, h, func(i int, w *history.Told) bool {
		before := i - 1
		for before >= 0 && h.Feed[before].Watcher != watcher {
			before--
		}
		next := nextOf(h, i)
		return w.Watcher == watcher && w.Event != nil && before > 0 && h.Feed[before].Opened > 1 && next > 0 && h.Feed[next].Event != nil
	})
}

func changed(e *boardpb.Event, change func(*boardpb.Event)) *boardpb.Event {
	e = proto.CloneOf(e)
	change(e)
	return e
}

// feedSpoilt is what bugs would have left in the feed logs of W7.
var feedSpoilt = []spoilt{
	{"two events change places", "F1", func(t *testing.T, h *history.History) {
		i := midst(t, h, "client-of-n1", alone)
		j := nextOf(h, i)
		h.Feed[i].Event, h.Feed[j].Event = h.Feed[j].Event, h.Feed[i].Event
	}},
	{"an event is told twice", "F2", func(t *testing.T, h *history.History) {
		i := midst(t, h, "client-of-n2", alone)
		h.Feed = slices.Insert(h.Feed, i, h.Feed[i])
	}},
	{"an event is left out", "F3", func(t *testing.T, h *history.History) {
		i := midst(t, h, "stream-of-n3", alone)
		h.Feed = slices.Delete(h.Feed, i, i+1)
	}},
	{"an event is left out for a watcher of some keys", "F3", func(t *testing.T, h *history.History) {
		i := midst(t, h, "picky", alone)
		h.Feed = slices.Delete(h.Feed, i, i+1)
	}},
	{"the end of a writer's loop is left out", "F3", func(t *testing.T, h *history.History) {
		i := toldWhere(t, h, func(_ int, w *history.Told) bool {
			return w.Watcher == "stream-of-n3" && w.Event.GetKind() == boardpb.Kind_KIND_LOOP_CLOSE
		})
		h.Feed = slices.Delete(h.Feed, i, i+1)
	}},
	{"the feed resumes one late", "F4", func(t *testing.T, h *history.History) {
		i := opening(t, h, "mover")
		rev := h.Feed[i].Event.Rev
		h.Feed = slices.DeleteFunc(h.Feed, func(w history.Told) bool { return w.Watcher == "mover" && w.Event.GetRev() == rev })
	}},
	{"the feed resumes one early", "F2", func(t *testing.T, h *history.History) {
		i := opening(t, h, "mover")
		was := toldWhere(t, h, func(j int, w *history.Told) bool { return j < i && w.Watcher == "mover" && w.Event != nil })
		h.Feed = slices.Insert(h.Feed, i, h.Feed[was])
	}},
	{"a bookmark comes too soon", "F5", func(t *testing.T, h *history.History) {
		i := midst(t, h, "stream-of-n1", alone)
		h.Feed = slices.Insert(h.Feed, i, history.Told{Watcher: "stream-of-n1", Board: h.Run.Board, Bookmark: h.Feed[i].Event.Rev})
	}},
	{"a rev is split", "F6", func(t *testing.T, h *history.History) {
		i := midst(t, h, "stream-of-n2", func(e *boardpb.Event) bool { return e.Sub == 1 })
		h.Feed = slices.Delete(h.Feed, i, i+1)
	}},
	{"a deposed leader's tail is told", "F7", func(t *testing.T, h *history.History) {
		i := midst(t, h, "tip", alone)
		h.Feed[i].Event = changed(h.Feed[i].Event, func(e *boardpb.Event) { e.CallId = "op-999999" })
	}},
	{"a start above the head is served", "F8", func(t *testing.T, h *history.History) {
		i := toldWhere(t, h, func(_ int, w *history.Told) bool { return w.Code == "bad_request" })
		h.Feed[i] = history.Told{Watcher: h.Feed[i].Watcher, Board: h.Run.Board, Opened: 100_000}
	}},
	{"what was compacted is skipped in silence", "F9", func(t *testing.T, h *history.History) {
		i := toldWhere(t, h, func(_ int, w *history.Told) bool { return w.Watcher == "pages-of-n1" && w.Code == "compacted" })
		h.Feed = slices.Delete(h.Feed, i, i+2) // the refusal, and the request behind it
	}},
	{"compacted, with another oldest rev", "F9", func(t *testing.T, h *history.History) {
		h.Feed[toldWhere(t, h, func(_ int, w *history.Told) bool { return w.Code == "compacted" })].Oldest++
	}},
	{"a watcher never comes to the end", "F10", func(t *testing.T, h *history.History) {
		goal := h.Feed[toldWhere(t, h, func(_ int, w *history.Told) bool { return w.Watcher == "client-of-n3" && w.Goal > 0 })].Goal
		h.Feed = slices.DeleteFunc(h.Feed, func(w history.Told) bool { return w.Watcher == "client-of-n3" && w.Event.GetRev() >= goal })
	}},
	{"a watcher is cut off for no reason that there is", "F11", func(t *testing.T, h *history.History) {
		h.Feed[toldWhere(t, h, func(_ int, w *history.Told) bool { return w.Cut != "" })].Code = "internal"
	}},
	{"one node tells another version", "F12", func(t *testing.T, h *history.History) {
		i := midst(t, h, "client-of-n1", alone)
		h.Feed[i].Event = changed(h.Feed[i].Event, func(e *boardpb.Event) { e.Version++ })
	}},
	{"a snapshot lacks a record", "F12", func(t *testing.T, h *history.History) {
		i := toldWhere(t, h, func(_ int, w *history.Told) bool { return w.Record != nil && w.Watcher == "client-snapshot" })
		h.Feed = slices.Delete(h.Feed, i, i+1)
	}},
	{"a snapshot shows what is not there yet", "F12", func(t *testing.T, h *history.History) {
		i := toldWhere(t, h, func(_ int, w *history.Told) bool { return w.Record != nil && w.Watcher == "prober" })
		r := *h.Feed[i].Record
		r.Version += 500
		h.Feed[i].Record = &r
	}},
}

func TestWatchersAreToldExactlyWhatHappenedWhenTheLeaderDies(t *testing.T) {
	testLoad(t, "feed", 2, 9*time.Second, feedSpoilt)
}
