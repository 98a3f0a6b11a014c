package check

import (
	"slices"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// Feed checks what watchers of everything from rev 1 were told. F1: in order; F2: nothing
// twice; F3: no gap, and exactly what A did; F6: no rev is split; F5: nothing at or below a
// bookmark afterwards, and bookmarks never fall; F7: nothing that A does not have; F10: the
// end is reached. L3: a lease is said to expire exactly when its window ended.
func Feed(h *history.History, a *Order, windows []*Window) (found []Finding) {
	byWatcher := map[string][]history.Told{}
	var names []string
	for _, t := range h.Feed {
		if t.Board != h.Run.Board {
			continue
		}
		if byWatcher[t.Watcher] == nil {
			names = append(names, t.Watcher)
		}
		byWatcher[t.Watcher] = append(byWatcher[t.Watcher], t)
	}
	if len(names) == 0 {
		return []Finding{invalid("nobody watched the feed")}
	}
	want := newExpected(h.Run.Board, a, windows)
	for _, name := range names {
		events, f := inOrder(name, byWatcher[name])
		found = append(found, f...)
		found = append(found, want.compare(name, events)...)
	}
	return found
}

// inOrder checks what needs the feed alone.
func inOrder(watcher string, log []history.Told) (events []*boardpb.Event, found []Finding) {
	var rev, bookmark uint64
	var sub uint32
	for _, t := range log {
		if t.Ended != "" {
			found = append(found, violation("F10", "watcher %s was ended: %s", watcher, t.Ended))
		}
		if t.Bookmark > 0 && t.Bookmark < bookmark {
			found = append(found, violation("F5", "watcher %s: bookmark %d after %d", watcher, t.Bookmark, bookmark))
		}
		bookmark = max(bookmark, t.Bookmark)
		e := t.Event
		if e == nil {
			continue
		}
		switch {
		case e.Rev == rev && e.Sub == sub && len(events) > 0:
			found = append(found, violation("F2", "watcher %s was told %d.%d twice", watcher, e.Rev, e.Sub))
			continue
		case e.Rev < rev || e.Rev == rev && e.Sub < sub:
			found = append(found, violation("F1", "watcher %s was told %d.%d after %d.%d", watcher, e.Rev, e.Sub, rev, sub))
			continue
		case e.Rev == rev && e.Sub != sub+1, e.Rev == rev+1 && e.Sub != 0, e.Rev > rev+1:
			found = append(found, violation("F3", "watcher %s was told %d.%d next to %d.%d", watcher, e.Rev, e.Sub, rev, sub))
		}
		if e.Rev <= bookmark {
			found = append(found, violation("F5", "watcher %s was told rev %d after the bookmark %d", watcher, e.Rev, bookmark))
		}
		rev, sub = e.Rev, e.Sub
		events = append(events, e)
	}
	return events, found
}

// expected is what A says a feed holds.
type expected struct {
	byRev   map[uint64][]*history.Applied
	must    []*history.Applied // each of these has its event
	expired map[leaseName]int64
	last    uint64
}

type leaseName struct {
	key        string
	generation uint64
}

func newExpected(board string, a *Order, windows []*Window) *expected {
	x := &expected{byRev: map[uint64][]*history.Applied{}, expired: map[leaseName]int64{}}
	for i := range a.Records {
		r := &a.Records[i]
		if r.Command.Board != board || r.Result.Replayed {
			continue
		}
		x.byRev[r.Result.Rev] = append(x.byRev[r.Result.Rev], r)
		x.last = max(x.last, r.Result.Rev)
		if r.OK() && kinds(r) != nil {
			x.must = append(x.must, r)
		}
	}
	for _, w := range windows {
		if w.Board == board && w.Cause == causeExpired {
			x.expired[leaseName{w.Key, w.Generation}] = w.To
		}
	}
	return x
}

// kinds lists which kind of event an accepted command leaves; nil if it leaves none.
func kinds(r *history.Applied) []boardpb.Kind {
	switch r.Command.Op.(type) {
	case *boardpb.Command_Set:
		return []boardpb.Kind{boardpb.Kind_KIND_SET, boardpb.Kind_KIND_POST}
	case *boardpb.Command_Append:
		return []boardpb.Kind{boardpb.Kind_KIND_APPEND, boardpb.Kind_KIND_POST}
	case *boardpb.Command_Delete:
		return []boardpb.Kind{boardpb.Kind_KIND_DELETE}
	case *boardpb.Command_ReportConflict:
		return []boardpb.Kind{boardpb.Kind_KIND_PERSISTENT_CONFLICT}
	case *boardpb.Command_Claim, *boardpb.Command_ClaimNext:
		if !r.Result.Renewed {
			return []boardpb.Kind{boardpb.Kind_KIND_CLAIM, boardpb.Kind_KIND_RECLAIM}
		}
	case *boardpb.Command_Complete:
		return []boardpb.Kind{boardpb.Kind_KIND_COMPLETE}
	case *boardpb.Command_Fail:
		return []boardpb.Kind{boardpb.Kind_KIND_FAIL}
	case *boardpb.Command_Release:
		return []boardpb.Kind{boardpb.Kind_KIND_RELEASE}
	case *boardpb.Command_Reopen:
		return []boardpb.Kind{boardpb.Kind_KIND_REOPEN}
	case *boardpb.Command_ForceRelease:
		return []boardpb.Kind{boardpb.Kind_KIND_FORCE_RELEASE}
	case *boardpb.Command_LoopOpen:
		if !r.Result.Renewed {
			return []boardpb.Kind{boardpb.Kind_KIND_LOOP_OPEN}
		}
	}
	return nil
}

// ofTime events are not from the command that made time pass.
func ofTime(k boardpb.Kind) bool {
	switch k {
	case boardpb.Kind_KIND_LEASE_EXPIRED, boardpb.Kind_KIND_LOOP_END, boardpb.Kind_KIND_BOARD_CREATE,
		boardpb.Kind_KIND_BOARD_SET, boardpb.Kind_KIND_COMPACTION:
		return true
	}
	return false
}

func (x *expected) compare(watcher string, events []*boardpb.Event) (found []Finding) {
	byRev := map[uint64][]*boardpb.Event{}
	gone := map[leaseName]bool{}
	for _, e := range events {
		byRev[e.Rev] = append(byRev[e.Rev], e)
		if e.Kind == boardpb.Kind_KIND_LEASE_EXPIRED {
			found = append(found, x.expiry(watcher, e, gone)...)
		}
		if !ofTime(e.Kind) && !slices.ContainsFunc(x.byRev[e.Rev], func(r *history.Applied) bool { return caused(r, e) }) {
			found = append(found, violation("F7", "watcher %s was told of a %v of %s at rev %d that was never applied", watcher, e.Kind, e.Key, e.Rev))
		}
	}
	for _, r := range x.must {
		if !slices.ContainsFunc(byRev[r.Result.Rev], func(e *boardpb.Event) bool { return caused(r, e) && isMain(r, e) }) {
			found = append(found, violation("F3", "watcher %s was not told of the %T at rev %d", watcher, r.Command.Op, r.Result.Rev).at(r.Index))
		}
	}
	for name := range x.expired {
		if !gone[name] {
			found = append(found, violation("F3", "watcher %s was not told that generation %d of %s expired", watcher, name.generation, name.key))
		}
	}
	if n := len(events); x.last > 0 && (n == 0 || events[n-1].Rev < x.last) {
		found = append(found, violation("F10", "watcher %s never heard of rev %d, the last one", watcher, x.last))
	}
	return found
}

func (x *expected) expiry(watcher string, e *boardpb.Event, gone map[leaseName]bool) []Finding {
	name := leaseName{e.Key, e.Generation}
	switch t, ended := x.expired[name]; {
	case gone[name]:
		return []Finding{violation("L3", "watcher %s was told twice that generation %d of %s expired", watcher, e.Generation, e.Key)}
	case !ended:
		return []Finding{violation("L3", "watcher %s was told that generation %d of %s expired at %d, and it did not", watcher, e.Generation, e.Key, e.TMs)}
	case t != e.TMs:
		return []Finding{violation("L3", "watcher %s was told that generation %d of %s expired at %d; its window ended at %d", watcher, e.Generation, e.Key, e.TMs, t)}
	}
	gone[name] = true
	return nil
}

// caused: the event names the command as its author's.
func caused(r *history.Applied, e *boardpb.Event) bool {
	c, loop := r.Command, r.Command.Loop
	if c.GetLoopOpen() != nil {
		loop = r.Result.Loop // the event is of the new loop
	}
	return e.Author == c.Actor.GetPrincipal() && e.Loop == loop && e.Seq == c.Seq && e.CallId == c.CallId
}

// isMain: it is the event the command is about, and not one beside it.
func isMain(r *history.Applied, e *boardpb.Event) bool {
	if !slices.Contains(kinds(r), e.Kind) {
		return false
	}
	switch r.Command.Op.(type) {
	case *boardpb.Command_LoopOpen:
		return e.Loop == r.Result.Loop
	case *boardpb.Command_Set, *boardpb.Command_Append, *boardpb.Command_Delete:
		return e.Key == r.Result.Key && e.Version == r.Result.Version
	case *boardpb.Command_ReportConflict:
		return e.Key == r.Result.Key
	}
	return e.Key == r.Result.Key && e.Generation == r.Result.Generation
}
