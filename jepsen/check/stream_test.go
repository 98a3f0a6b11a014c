package check_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// followed is a run with a transaction, a compaction and a deleted key, and its whole feed.
func followed() (*traceOf, []*boardpb.Event) {
	b := newTrace().lead(2).at(20_000).open("a", 1)
	item := func(seq uint64, key string, rev, version uint64) {
		r := ok(rev, version)
		r.Key = key
		b.do("a", seq, &boardpb.Command{Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: key}}}, r)
	}
	item(1, "feed/x", 2, 1)
	set, del := ok(3, 1), ok(7, 2)
	set.Key, del.Key = "cells/c", "cells/c"
	b.do("a", 2, &boardpb.Command{Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "cells/c"}}}, set)
	b.do("a", 3, &boardpb.Command{Op: &boardpb.Command_Txn{Txn: &boardpb.Txn{Ops: []*boardpb.TxnOp{
		{Op: &boardpb.TxnOp_Append{Append: &boardpb.Append{Key: "feed/x"}}},
		{Op: &boardpb.TxnOp_Append{Append: &boardpb.Append{Key: "feed/y"}}},
	}}}}, &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Rev: 4, Results: []*boardpb.Result{
		{Key: "feed/x", Version: 2}, {Key: "feed/y", Version: 1}}})
	item(4, "feed/x", 5, 3)
	b.raw(&boardpb.Command{Op: &boardpb.Command_BoardCompact{BoardCompact: &boardpb.BoardCompact{Name: theBoard, BeforeRev: 3}}},
		&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Rev: 6, OldestRev: 3})
	b.do("a", 5, &boardpb.Command{Op: &boardpb.Command_Delete{Delete: &boardpb.Delete{Key: "cells/c", IfVersion: 1}}}, del)
	item(6, "feed/x", 8, 4)
	event := func(rev uint64, sub uint32, kind boardpb.Kind, seq uint64, key string, version uint64) *boardpb.Event {
		return &boardpb.Event{Rev: rev, Sub: sub, Kind: kind, Author: "a", Loop: "l-a", Seq: seq, Key: key, Version: version, Surface: boardpb.Surface_SURFACE_KV}
	}
	return b, []*boardpb.Event{
		{Rev: 1, Kind: boardpb.Kind_KIND_LOOP_OPEN, Author: "a", Loop: "l-a", Surface: boardpb.Surface_SURFACE_LOOP},
		event(2, 0, boardpb.Kind_KIND_APPEND, 1, "feed/x", 1), event(3, 0, boardpb.Kind_KIND_SET, 2, "cells/c", 1),
		event(4, 0, boardpb.Kind_KIND_APPEND, 3, "feed/x", 2), event(4, 1, boardpb.Kind_KIND_APPEND, 3, "feed/y", 1),
		event(5, 0, boardpb.Kind_KIND_APPEND, 4, "feed/x", 3),
		{Rev: 6, Kind: boardpb.Kind_KIND_COMPACTION, OldestRev: 3, Surface: boardpb.Surface_SURFACE_BOARD},
		event(7, 0, boardpb.Kind_KIND_DELETE, 5, "cells/c", 2), event(8, 0, boardpb.Kind_KIND_APPEND, 6, "feed/x", 4),
	}
}

// feedLog writes what a watcher is told.
type feedLog struct {
	watcher string
	told    []history.Told
	events  []*boardpb.Event
	batch   int
}

func (f *feedLog) add(t history.Told) *feedLog {
	t.Watcher, t.Board = f.watcher, theBoard
	f.told = append(f.told, t)
	return f
}

func (f *feedLog) asks(mode string, from uint64, patterns ...string) *feedLog {
	if len(patterns) == 0 {
		patterns = []string{"**"}
	}
	return f.add(history.Told{Asked: &history.Asked{Node: "n1", Mode: mode, From: from, Patterns: patterns}})
}

// hears tells the events numbered, in one message each rev.
func (f *feedLog) hears(numbers ...int) *feedLog {
	for i, n := range numbers {
		if i == 0 || f.events[n].Rev != f.events[numbers[i-1]].Rev {
			f.batch++
		}
		f.add(history.Told{Event: f.events[n], Batch: f.batch})
	}
	return f
}

func (f *feedLog) cut(code string, resume, oldest uint64) *feedLog {
	return f.add(history.Told{Cut: "cut", Code: code, Resume: resume, Oldest: oldest})
}

func (f *feedLog) shows(key string, version, rev uint64) *feedLog {
	return f.add(history.Told{Record: &history.Record{Key: key, Version: version, Rev: rev}})
}

func TestTheFeedCheckerJudgesHandWrittenStreams(t *testing.T) {
	snapshot := func(f *feedLog) *feedLog {
		f.asks("snapshot", 0).add(history.Told{Opened: 6})
		return f.shows("cells/c", 1, 3).shows("feed/x", 1, 2).shows("feed/x", 2, 4).shows("feed/x", 3, 5).shows("feed/y", 1, 4)
	}
	seam := func(f *feedLog) *feedLog { return f.add(history.Told{Seam: 5}) }
	goal := history.Told{Goal: 8}
	for _, c := range []struct {
		name, want string
		log        func(f *feedLog)
	}{
		{"good: from the middle", "", func(f *feedLog) { f.asks("from", 4).hears(3, 4, 5, 6, 7, 8).add(goal) }},
		{"good: some keys only", "", func(f *feedLog) { f.asks("from", 1, "feed/*").hears(1, 3, 4, 5, 8).add(goal) }},
		{"good: one key only", "", func(f *feedLog) { f.asks("from", 1, "feed/y").hears(4).add(history.Told{Bookmark: 8}).add(goal) }},
		{"good: a stream behind another", "", func(f *feedLog) { f.asks("from", 2).hears(1, 2).asks("from", 4).hears(3, 4, 5) }},
		{"good: from now on", "", func(f *feedLog) { f.asks("now", 0).add(history.Told{Opened: 7}).hears(7, 8) }},
		{"good: a snapshot and what follows", "", func(f *feedLog) { seam(snapshot(f)).hears(6, 7, 8).add(goal) }},
		{"good: a start above the head is refused", "", func(f *feedLog) { f.asks("from", 1000).cut("bad_request", 0, 0) }},
		{"good: compacted, with the oldest rev", "", func(f *feedLog) { f.asks("from", 1).cut("compacted", 1, 3).asks("from", 3).hears(2, 3, 4) }},
		{"good: a slow reader hears where to go on", "", func(f *feedLog) { f.asks("from", 2).hears(1, 2).cut("slow_reader", 4, 0).asks("from", 4).hears(3, 4) }},
		{"good: a node that stops", "", func(f *feedLog) { f.asks("from", 2).hears(1).cut("unavailable", 3, 0) }},
		{"F3: an event of a txn is left out", "F6", func(f *feedLog) { f.asks("from", 2).hears(1, 2, 3, 5) }},
		{"F3: a rev is left out", "F3", func(f *feedLog) { f.asks("from", 3).hears(2, 5) }},
		{"F3: a key is left out", "F3", func(f *feedLog) { f.asks("from", 3, "feed/*").hears(3, 4, 8) }},
		{"F3: a key that nobody asked for", "F3", func(f *feedLog) { f.asks("from", 3, "feed/*").hears(2, 3, 4) }},
		{"F3: nothing told, and a bookmark", "F4 F3", func(f *feedLog) { f.asks("from", 8).add(history.Told{Bookmark: 8}) }},
		{"F4, F3: one late", "F4 F3", func(f *feedLog) { f.asks("from", 4).hears(5) }},
		{"F4, F2: one early", "F4 F2", func(f *feedLog) { f.asks("from", 3).hears(2).asks("from", 4).hears(2, 3, 4) }},
		{"F4: from before the start", "F4", func(f *feedLog) { f.asks("from", 4).hears(2, 3, 4) }},
		{"F5: a bookmark above what was told", "F5", func(f *feedLog) { f.asks("from", 4).hears(3, 4).add(history.Told{Bookmark: 5}).hears(5) }},
		{"F6: a rev in two messages", "F6", func(f *feedLog) { f.asks("from", 4).hears(3).hears(4) }},
		{"F6: a stream ends within a rev", "F6", func(f *feedLog) { f.asks("from", 4).hears(3).cut("unavailable", 4, 0) }},
		{"F8: a start above the head is served", "F8", func(f *feedLog) { f.asks("from", 1000).add(history.Told{Opened: 1000}) }},
		{"F8: a rev that was acknowledged is refused", "F8", func(f *feedLog) {
			f.add(history.Told{Asked: &history.Asked{Node: "n1", Mode: "from", From: 5, Known: 4, Patterns: []string{"**"}}}).cut("bad_request", 0, 0)
		}},
		{"F9: what was compacted is skipped", "F4 F9", func(f *feedLog) { f.asks("from", 1).hears(2, 3, 4) }},
		{"F9: compacted, with another oldest rev", "F9", func(f *feedLog) { f.asks("from", 1).cut("compacted", 1, 5) }},
		{"F9: compacted, and it is not", "F9", func(f *feedLog) { f.asks("from", 4).cut("compacted", 4, 3) }},
		{"F10: not told in time", "F10", func(f *feedLog) { f.asks("from", 4).hears(3, 4, 5, 6).add(goal) }},
		{"F11: cut off without a place to go on", "F11", func(f *feedLog) { f.asks("from", 4).hears(3, 4).cut("slow_reader", 0, 0) }},
		{"F11: cut off, and told to go on too late", "F11", func(f *feedLog) { f.asks("from", 4).hears(3, 4).cut("slow_reader", 6, 0) }},
		{"F11: cut off for no reason known", "F11", func(f *feedLog) { f.asks("from", 4).hears(3, 4).cut("internal", 5, 0) }},
		{"F12: two nodes tell two events", "F12", func(f *feedLog) {
			other := proto.CloneOf(f.events[3])
			other.Version = 7
			f.asks("from", 4).add(history.Told{Event: other}).hears(4)
		}},
		{"F12: a snapshot without a record", "F12", func(f *feedLog) {
			snapshot(f)
			f.told = slices.Delete(f.told, 3, 4)
			seam(f).hears(6)
		}},
		{"F12: a snapshot with an old version", "F12", func(f *feedLog) { seam(snapshot(f).shows("cells/c", 0, 1)).hears(6) }},
		{"F12: an event of the snapshot again", "F12", func(f *feedLog) { seam(snapshot(f)).hears(5, 6) }},
		{"F12: an event within the snapshot", "F12", func(f *feedLog) { seam(snapshot(f).hears(6)) }},
		{"F4, F3: a gap behind the snapshot", "F4 F3", func(f *feedLog) { seam(snapshot(f)).hears(7) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, events := followed()
			all := &feedLog{watcher: "all", events: events}
			all.asks("from", 1).hears(0, 1, 2, 3, 4, 5, 6, 7, 8).add(goal)
			f := &feedLog{watcher: "w", events: events}
			c.log(f)
			order := b.agreed(t)
			h := &history.History{Run: history.Run{Board: theBoard}, Feed: append(all.told, f.told...)}
			fires(t, c.want, check.Feed(h, order, nil))
		})
	}
}

// A transaction that was answered for some of its operations only is for T1 to tell, and a
// checker that breaks over it tells nothing.
func TestATransactionWithTooFewAnswersDoesNotBreakTheFeedChecker(t *testing.T) {
	b, events := followed()
	for i := range b.records {
		if r := b.records[i].Result; len(r.Results) > 0 {
			r.Results = r.Results[:1]
		}
	}
	f := &feedLog{watcher: "w", events: events}
	f.asks("snapshot", 0).shows("cells/c", 1, 3).shows("feed/x", 1, 2).shows("feed/x", 2, 4).shows("feed/x", 3, 5).add(history.Told{Seam: 5})
	h := &history.History{Run: history.Run{Board: theBoard}, Feed: f.told}
	fires(t, "", check.Feed(h, b.agreed(t), nil))
}
