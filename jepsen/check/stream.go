package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// mostMissing bounds what is said of one stream: after that many holes another one is no news.
const mostMissing = 5

// stream is what a watcher was told between one request and the next.
type stream struct {
	watcher string
	asked   history.Asked
	log     []history.Told

	opened, seam uint64
	live         bool                    // while it is gone through: the seam is past
	events       map[spot]*boardpb.Event // those that came in order
	revs         map[uint64]bool         // of them
	first, last  spot                    // of them
	upTo         uint64                  // by an event or a bookmark the stream said that nothing is missing up to here
	goal         uint64
	stop         *history.Told // why it ended, if that was said
}

// streamsOf takes the feed logs apart. A watcher that never asked was told of everything from
// rev 1, and its client went from node to node by itself.
func streamsOf(h *history.History) (streams []*stream) {
	open := map[string]*stream{}
	for _, t := range h.Feed {
		if t.Board != h.Run.Board {
			continue
		}
		s := open[t.Watcher]
		if s == nil || t.Asked != nil {
			s = &stream{watcher: t.Watcher, asked: history.Asked{Mode: "from", From: 1, Patterns: []string{"**"}},
				events: map[spot]*boardpb.Event{}, revs: map[uint64]bool{}}
			if t.Asked != nil {
				s.asked = *t.Asked
			}
			open[t.Watcher] = s
			streams = append(streams, s)
		}
		s.log = append(s.log, t)
		s.opened, s.seam, s.goal = max(s.opened, t.Opened), max(s.seam, t.Seam), max(s.goal, t.Goal)
		if t.Ended != "" || t.Code != "" {
			s.stop = &s.log[len(s.log)-1]
		}
	}
	return streams
}

// byItself says that the client went on elsewhere when a node was lost, within this stream.
func (s *stream) byItself() bool { return s.asked.Node == "" }

// whole says that everything was asked for.
func (s *stream) whole() bool { return slices.Contains(s.asked.Patterns, "**") }

// from is the first rev that the stream owes events of; 0 while nobody knows.
func (s *stream) from() uint64 {
	switch s.asked.Mode {
	case "now":
		return s.opened
	case "snapshot":
		if s.seam > 0 {
			return s.seam + 1
		}
		return 0
	}
	return max(s.asked.From, 1)
}

// wants says whether an event matches the patterns. What is about no key is so by "**" alone.
func (s *stream) wants(e *boardpb.Event) bool {
	kv := e.Surface == boardpb.Surface_SURFACE_KV || e.Surface == boardpb.Surface_SURFACE_LEASE
	return s.whole() || kv && s.wantsKey(e.Key)
}

func (s *stream) wantsKey(key string) bool {
	return s.whole() || slices.ContainsFunc(s.asked.Patterns, func(p string) bool { return matches(p, key) })
}

// matches knows the patterns that workloads use: a key, or all keys one segment below a prefix.
func matches(pattern, key string) bool {
	prefix, star := strings.CutSuffix(pattern, "/*")
	if !star {
		return pattern == key
	}
	rest, below := strings.CutPrefix(key, prefix+"/")
	return below && rest != "" && !strings.Contains(rest, "/")
}

// inOrder goes through a stream message by message. before is what this watcher was told in
// earlier streams; it is told more of it.
func (x *expected) inOrder(s *stream, before map[spot]bool) (found []Finding) {
	var bookmark uint64
	batch := 0
	for i := range s.log {
		t := &s.log[i]
		if t.Bookmark > 0 && t.Bookmark < bookmark {
			found = append(found, violation("F5", "watcher %s: bookmark %d after %d", s.watcher, t.Bookmark, bookmark))
		}
		bookmark = max(bookmark, t.Bookmark)
		s.live = s.live || t.Seam > 0
		s.upTo = max(s.upTo, t.Bookmark)
		if t.Event == nil {
			continue
		}
		e, p := t.Event, spotOf(t.Event)
		f, next := x.place(s, e, before[p])
		found = append(found, f...)
		if !next {
			continue
		}
		if e.Rev <= bookmark {
			found = append(found, violation("F5", "watcher %s was told rev %d after the bookmark %d", s.watcher, e.Rev, bookmark))
		}
		if e.Rev == s.last.rev && batch > 0 && t.Batch > 0 && t.Batch != batch && len(s.events) > 0 {
			found = append(found, violation("F6", "watcher %s was told rev %d in two messages", s.watcher, e.Rev))
		}
		batch = t.Batch
		if len(s.events) == 0 {
			s.first = p
		}
		s.events[p], s.revs[p.rev], s.last, before[p] = e, true, p, true
		s.upTo = max(s.upTo, e.Rev)
	}
	return found
}

// place says what is wrong with telling an event now. next: it stands behind the one before.
func (x *expected) place(s *stream, e *boardpb.Event, told bool) (found []Finding, next bool) {
	p, from, begun := spotOf(e), s.from(), len(s.events) > 0
	switch {
	case begun && p == s.last:
		return []Finding{violation("F2", "watcher %s was told %d.%d twice", s.watcher, p.rev, p.sub)}, false
	case begun && p.before(s.last):
		return []Finding{violation("F1", "watcher %s was told %d.%d after %d.%d", s.watcher, p.rev, p.sub, s.last.rev, s.last.sub)}, false
	case s.asked.Mode == "snapshot" && !s.live:
		return []Finding{violation("F12", "watcher %s was told rev %d within a snapshot", s.watcher, p.rev)}, false
	case p.rev < from && s.asked.Mode == "snapshot":
		return []Finding{violation("F12", "watcher %s was told rev %d behind a snapshot that shows rev %d", s.watcher, p.rev, s.seam)}, false
	case p.rev < from:
		found = append(found, violation("F4", "watcher %s asked for rev %d and above, and was told rev %d", s.watcher, from, p.rev))
		if told {
			found = append(found, violation("F2", "watcher %s was told %d.%d twice", s.watcher, p.rev, p.sub))
		}
		return found, true
	case !s.wants(e):
		found = append(found, violation("F3", "watcher %s was told of %s at rev %d, and asked for %v", s.watcher, e.Key, p.rev, s.asked.Patterns))
	}
	if !s.whole() || from == 0 {
		return found, true
	}
	was := spot{from - 1, 0}
	if begun {
		was = s.last
	}
	follows := p.rev == was.rev && p.sub == was.sub+1 || p.rev == was.rev+1 && p.sub == 0
	if !follows && !x.knows(s, was, p) { // what is known to be there is missed by exact
		if !begun {
			found = append(found, violation("F4", "watcher %s asked for rev %d and above, and was told %d.%d first", s.watcher, from, p.rev, p.sub))
		}
		found = append(found, x.missing(s, p.rev-1, "was told %d.%d next to %d.%d", p.rev, p.sub, was.rev, was.sub))
	}
	return found, true
}

// knows says that there is something between two places: somebody was told of it, or a command
// left it.
func (x *expected) knows(s *stream, after, before spot) bool {
	return slices.ContainsFunc(x.between(after.rev, before.rev), func(p spot) bool { return after.before(p) && p.before(before) }) ||
		slices.ContainsFunc(x.must, func(m must) bool {
			rev := m.by.Result.Rev
			return after.rev < rev && rev < before.rev && rev >= s.from()
		})
}

// exact compares a stream with what A, and all that was told, say it owes from its start to
// where it got.
func (x *expected) exact(s *stream) (found []Finding) {
	from := s.from()
	if from == 0 || s.upTo < from {
		return nil
	}
	holes, late := 0, false
	hole := func(rev uint64, f Finding, at spot) {
		if holes++; holes > mostMissing {
			return
		}
		if !late && (len(s.events) == 0 || at.before(s.first)) {
			late = true
			found = append(found, violation("F4", "watcher %s asked for rev %d and above, and was not told rev %d first", s.watcher, from, rev))
		}
		found = append(found, f)
	}
	for _, p := range x.between(from, s.upTo) {
		e := x.told[p]
		if s.events[p] != nil || !s.wants(e) || s.byItself() && p.rev == s.last.rev && s.goal == 0 && s.last.before(p) {
			continue // of a rev that the harness stopped reading in the middle of
		}
		if s.revs[p.rev] {
			hole(p.rev, violation("F6", "watcher %s was told of rev %d, and not of %d.%d", s.watcher, p.rev, p.rev, p.sub), p)
			continue
		}
		hole(p.rev, x.missing(s, p.rev, "was not told of %d.%d, a %s of %q", p.rev, p.sub, kindWord(e.Kind), e.Key), p)
	}
	for i := range x.must {
		m := &x.must[i]
		rev := m.by.Result.Rev
		if rev < from || rev > s.upTo || !(m.key != "" && s.wantsKey(m.key) || s.whole()) || s.byItself() && rev == s.last.rev && s.goal == 0 {
			continue
		}
		if !x.anywhere(s.events, m) && !x.anywhere(x.told, m) {
			hole(rev, x.missing(s, rev, "was not told of the %T at rev %d", m.by.Command.Op, rev).at(m.by.Index), spot{rev, 0})
		}
	}
	return append(found, x.endings(s)...)
}

// anywhere says that what a command leaves is among some events.
func (x *expected) anywhere(events map[spot]*boardpb.Event, m *must) bool {
	for sub := uint32(0); ; sub++ {
		p := spot{m.by.Result.Rev, sub}
		if e := events[p]; e != nil && m.is(e) {
			return true
		} else if e == nil && x.told[p] == nil {
			return false
		}
	}
}

// endings checks what a stream said of leases that ended by themselves, and of items that were
// parked then: each once, at its time, and none beside them.
func (x *expected) endings(s *stream) []Finding {
	return append(x.toldOnce(s, boardpb.Kind_KIND_LEASE_EXPIRED, "L3", "expired", x.expired),
		x.toldOnce(s, boardpb.Kind_KIND_PARK, "Q7", "was parked", x.parked)...)
}

func (x *expected) toldOnce(s *stream, kind boardpb.Kind, checker, what string, want map[leaseName]int64) (found []Finding) {
	gone := map[leaseName]bool{}
	for _, p := range x.between(s.first.rev, s.last.rev) {
		e := s.events[p]
		if e.GetKind() != kind {
			continue
		}
		name := leaseName{e.Key, e.Generation}
		switch t, ended := want[name]; {
		case gone[name]:
			found = append(found, violation(checker, "watcher %s was told twice that generation %d of %s %s", s.watcher, e.Generation, e.Key, what))
		case !ended:
			found = append(found, violation(checker, "watcher %s was told that generation %d of %s %s at %d, and it did not", s.watcher, e.Generation, e.Key, what, e.TMs))
		case t != e.TMs:
			found = append(found, violation(checker, "watcher %s was told that generation %d of %s %s at %d; its window ended at %d", s.watcher, e.Generation, e.Key, what, e.TMs, t))
		default:
			gone[name] = true
		}
	}
	if !s.whole() || s.from() != 1 || s.upTo < x.last {
		return found
	}
	for _, name := range slices.SortedFunc(maps.Keys(want), leaseName.compare) {
		if !gone[name] {
			found = append(found, violation("F3", "watcher %s was not told that generation %d of %s %s", s.watcher, name.generation, name.key, what))
		}
	}
	return found
}

// atTheEnd judges where a stream got, and why it ended.
func (x *expected) atTheEnd(s *stream) (found []Finding) {
	say := func(checker, format string, args ...any) {
		found = append(found, violation(checker, "watcher %s %s", s.watcher, fmt.Sprintf(format, args...)))
	}
	next := max(s.upTo+1, s.from()) // the lowest rev that it was not told of
	last := !x.goals && (s.byItself() || s.asked.Mode == "pages") && s.asked.Mode != "snapshot"
	switch {
	case s.goal > s.upTo:
		say("F10", "got to rev %d, and rev %d was to be reached by then", s.upTo, s.goal)
	case last && s.upTo < x.last && x.last > 0 && (s.stop == nil || s.stop.Code != "compacted"):
		say("F10", "never heard of rev %d, the last one", x.last)
	}
	if s.opened > x.head+1 {
		say("F8", "asked for rev %d and was given a stream from rev %d; the board is at rev %d", s.asked.From, s.opened, x.head)
	}
	if s.stop == nil {
		return found
	}
	switch t := s.stop; t.Code {
	case "compacted":
		switch {
		case !slices.Contains(x.oldest, t.Oldest):
			say("F9", "was told that what is below rev %d was compacted away, and it was not", t.Oldest)
		case next >= t.Oldest:
			say("F9", "was told that rev %d is compacted, and the oldest one is %d", next, t.Oldest)
		}
	case "bad_request":
		if s.asked.Mode != "from" || s.asked.From <= s.asked.Known+1 {
			say("F8", "asked for rev %d and was refused, and rev %d had been acknowledged", s.asked.From, s.asked.Known)
		}
	case "slow_reader":
		if s.byItself() {
			break // its client goes on behind what it was told
		}
		switch {
		case t.Resume == 0:
			say("F11", "was cut off, and not told where to go on")
		case t.Resume > next && slices.ContainsFunc(x.between(next, t.Resume-1), func(p spot) bool { return s.wants(x.told[p]) }):
			say("F11", "was told to go on from rev %d, and has heard of nothing from rev %d on", t.Resume, next)
		}
	case "unavailable", "read_timeout", "limit_requests", "":
		if t.Ended != "" {
			say("F10", "was ended: %s", t.Ended)
		}
	default:
		say("F11", "was cut off with %s: %s%s", t.Code, t.Cut, t.Ended)
	}
	return found
}

// kindWord is the kind of an event as the command line of the product shows it.
func kindWord(k boardpb.Kind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "KIND_"))
}
