package check_test

import (
	"slices"
	"testing"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

const theList = "list/0-1"

// listStory is the story every bad one departs from: loop a appends x, then y, whose answer is
// lost, then z; b appends u, is refused v, and both read; at the end everything is read twice.
type listStory struct {
	h       *history.History
	b       *traceOf
	applied []string // in this order
	final   map[string][]string
}

func sent(id uint64, client string, began, ended uint64, value string, outcome history.Outcome) history.Op {
	o := history.Op{ID: id, Client: client, Kind: history.Append, Key: theList, Began: began, Ended: ended,
		Invoke: time.Duration(began) * time.Second, Return: time.Duration(ended) * time.Second,
		Args: history.Args{Value: value}, Outcome: outcome}
	if client == "a" {
		o.Loop = "l-a"
	}
	if outcome == history.Failed {
		o.Result.Answer = "unavailable"
	}
	return o
}

func dumped(id uint64, client string, began, ended uint64, items ...string) history.Op {
	return history.Op{ID: id, Client: client, Kind: history.Dump, Key: theList, Began: began, Ended: ended, Outcome: history.OK,
		Invoke: time.Duration(began) * time.Second, Return: time.Duration(ended) * time.Second,
		Result: history.Result{Seen: []history.Seen{{Key: theList, Items: items}}}}
}

func newListStory() *listStory {
	s := &listStory{b: newTrace(), h: &history.History{Run: history.Run{Board: theBoard, Ended: time.Minute}}}
	s.h.Ops = []history.Op{
		dumped(1, "c", 1, 2),
		sent(2, "a", 3, 4, "x", history.OK),
		dumped(3, "c", 5, 6, "x"),
		sent(4, "a", 7, 8, "y", history.Info),
		sent(5, "b", 9, 10, "v", history.Failed),
		sent(6, "b", 11, 16, "u", history.OK),
		dumped(7, "c", 12, 13, "x", "y"),
		sent(8, "a", 14, 15, "z", history.OK),
		dumped(9, "c", 17, 18, "x", "y", "u", "z"),
	}
	s.applied = []string{"x", "y", "u", "z"}
	s.final = map[string][]string{"n1": {"x", "y", "u", "z"}, "n2": {"x", "y", "u", "z"}}
	return s
}

func (s *listStory) op(id uint64) *history.Op { return &s.h.Ops[id-1] }

func (s *listStory) shows(id uint64, items ...string) { s.op(id).Result.Seen[0].Items = items }

// all makes every read after an operation, those at the end, and A show the same.
func (s *listStory) all(items ...string) {
	s.shows(9, items...)
	s.applied = items
	s.final = map[string][]string{"n1": items, "n2": items}
}

func (s *listStory) judge(t *testing.T) (*check.AppendPlot, []check.Finding) {
	t.Helper()
	for i, value := range s.applied {
		s.b.do("", 0, &boardpb.Command{Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: theList, Value: []byte(value)}}},
			ok(uint64(i+1), uint64(i+1)))
	}
	for _, reader := range []string{"n1", "n2"} {
		for i, value := range s.final[reader] {
			s.h.Finals = append(s.h.Finals, history.Final{Reader: reader, Node: reader, Board: theBoard,
				Entry: &boardpb.Entry{Key: theList, Version: uint64(i + 1), Value: []byte(value)}})
		}
		s.h.Finals = append(s.h.Finals, history.Final{Reader: reader, Node: reader, Board: theBoard,
			Entry: &boardpb.Entry{Key: "another", Version: 1}})
	}
	return check.Appends(s.h, s.b.agreed(t))
}

// listStories are good and bad, each bad one with the rules that it breaks.
var listStories = []struct {
	name  string
	want  []string
	spoil func(s *listStory)
}{
	{"good: whole, in order, and the unknown one is there", nil, func(*listStory) {}},
	{"good: the unknown one never was", nil, func(s *listStory) { s.shows(7, "x"); s.all("x", "u", "z") }},
	{"good: of two that overlapped either may stand first", nil, func(s *listStory) { s.all("x", "y", "z", "u") }},
	{"good: a read that overlaps an append shows it already", nil, func(s *listStory) { s.shows(7, "x", "y", "u") }},
	{"good: elements of clients without a loop, the unknown one late", nil, func(s *listStory) {
		s.op(2).Loop, s.op(4).Loop, s.op(8).Loop = "", "", ""
		s.shows(7, "x")
		s.all("x", "u", "z", "y")
	}},

	{"A1: a stale read", []string{"A1"}, func(s *listStory) { s.shows(3) }},
	{"A1: acknowledged, and in no read", []string{"A1"}, func(s *listStory) { s.all("x", "y", "u") }},
	{"A1: acknowledged, and lost at the end only", []string{"A1", "A4", "A6"}, func(s *listStory) { s.final["n2"] = []string{"x", "y", "u"} }},
	{"A1: everything is gone at the end", []string{"A1", "A4", "A6"}, func(s *listStory) { delete(s.final, "n1") }},
	{"A2: there twice", []string{"A2"}, func(s *listStory) { s.all("x", "y", "u", "z", "u") }},
	{"A3: nobody sent it", []string{"A3"}, func(s *listStory) { s.all("x", "y", "u", "z", "ghost") }},
	{"A3: it was refused", []string{"A3"}, func(s *listStory) { s.all("x", "y", "u", "z", "v") }},
	{"A3: read before it was sent", []string{"A3", "A4"}, func(s *listStory) {
		s.op(6).Began = 14
		s.op(7).Result.Seen[0].Items = []string{"x", "y", "u"}
		s.op(8).Began = 11
		s.op(8).Ended = 12
		s.all("x", "y", "u", "z")
	}},
	{"A4: two reads show two orders", []string{"A4", "A6"}, func(s *listStory) { s.final["n2"] = []string{"x", "y", "z", "u"} }},
	{"A4: a read shows less than one before it", []string{"A4"}, func(s *listStory) {
		s.h.Ops = append(s.h.Ops, sent(10, "b", 19, 30, "w", history.OK), dumped(11, "c", 20, 21, "x", "y", "u", "z", "w"),
			dumped(12, "d", 22, 23, "x", "y", "u", "z"))
		s.applied = append(s.applied, "w")
		s.final["n1"], s.final["n2"] = s.applied, s.applied
	}},
	{"A4: an item is missing in the middle by its version", []string{"A4"}, func(s *listStory) {
		s.op(9).Result.Seen[0].Versions = []uint64{1, 2, 4, 5}
	}},
	{"A4: acknowledged before another was sent, and behind it", []string{"A4"}, func(s *listStory) {
		s.op(2).Loop, s.op(4).Loop, s.op(8).Loop = "", "", ""
		s.h.Ops = append(s.h.Ops, sent(10, "b", 19, 20, "w", history.OK))
		s.all("x", "y", "u", "w", "z")
		s.shows(9, "x", "y", "u")
		s.op(9).Began, s.op(9).Ended = 12, 18
	}},
	{"A5: a loop's elements in another order than it sent them", []string{"A5"}, func(s *listStory) {
		s.shows(7, "x")
		s.all("x", "u", "z", "y") // y was given up before z was sent
	}},
	{"A6: a node shows one more than was applied", []string{"A6"}, func(s *listStory) { s.applied = []string{"x", "u", "z"} }},
	{"invalid: an element was sent twice", []string{"G7"}, func(s *listStory) { s.op(6).Args.Value = "y"; s.all("x", "y", "z") }},
	{"invalid: nobody read at the end", []string{"G7"}, func(s *listStory) { s.final = nil }},
}

func TestTheAppendCheckerJudgesHandWrittenHistories(t *testing.T) {
	for _, c := range listStories {
		t.Run(c.name, func(t *testing.T) {
			s := newListStory()
			c.spoil(s)
			_, found := s.judge(t)
			if s.final == nil {
				s.h.Finals = nil
				_, found = check.Appends(s.h, s.b.agreed(t))
			}
			fired(t, c.want, found)
		})
	}
}

// fired asserts that these checkers, and no others, have something to say.
func fired(t *testing.T, want []string, found []check.Finding) {
	t.Helper()
	var names []string
	for _, f := range found {
		names = append(names, f.Checker)
	}
	slices.Sort(names)
	if names = slices.Compact(names); !slices.Equal(names, want) {
		t.Errorf("got %v, want %v: %v", names, want, found)
	}
}

func TestThePlotSaysWhereLostElementsStood(t *testing.T) {
	fates := func(final ...string) map[check.Fate]int {
		s := newListStory()
		s.h.Ops = append(s.h.Ops, sent(10, "d", 19, 20, "w", history.OK))
		s.final["n2"] = final
		plot, _ := s.judge(t)
		if len(plot.Readers) != 2 || len(plot.Lists) != 1 {
			t.Fatalf("got %+v", plot)
		}
		return plot.Fates
	}
	for _, c := range []struct {
		name  string
		final []string
		fate  check.Fate
		want  int
	}{
		{"x is gone, u to w are there", []string{"u", "z", "w"}, check.LostPrefix, 1},
		{"u and z are gone, x and w are there", []string{"x", "w"}, check.LostMiddle, 2},
		{"z and w are gone", []string{"x", "u"}, check.LostSuffix, 2},
		{"everything is gone", nil, check.LostSuffix, 4},
		{"u is there twice", []string{"x", "u", "u", "z", "w"}, check.Doubled, 1},
		{"v was refused and is there", []string{"x", "u", "z", "w", "v"}, check.Ghost, 1},
	} {
		if got := fates(c.final...); got[c.fate] != c.want {
			t.Errorf("%s: got %v, want %d × %s", c.name, got, c.want, c.fate)
		}
	}
}

func TestThePlotCountsStaleReadsAndMeasuresVisibility(t *testing.T) {
	s := newListStory()
	s.shows(3)
	s.shows(9, "x", "y", "u")
	plot, _ := s.judge(t)
	if plot.Stale != 2 || plot.Unread != 1 {
		t.Errorf("%d stale reads and %d elements that nobody read, want 2 and 1", plot.Stale, plot.Unread)
	}
	if want := []time.Duration{6 * time.Second, 7 * time.Second, 10 * time.Second}; !slices.Equal(plot.Visible, want) {
		t.Errorf("visible after %v, want %v", plot.Visible, want)
	}
	for _, e := range plot.Lists[0].Elements {
		if e.Value == "y" && (e.Acked != 0 || e.Visible != 13*time.Second || e.Fates[0] != check.UnknownKept) {
			t.Errorf("y is %+v", e)
		}
	}
}
