package board

import (
	"fmt"
	"slices"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

const (
	eventsDefault, eventsMax = 200, 1000
	patternsMost             = 64
	eventsScan               = 20_000 // events looked at for one page
)

// Cursor is a place in a feed: behind event (Rev, Sub), or behind all of Rev if Whole.
// The zero Cursor is the beginning.
type Cursor struct {
	Rev   uint64
	Sub   uint32
	Whole bool
}

// EventFilter says which events are wanted; what is empty does not restrict.
type EventFilter struct {
	Kinds         []boardpb.Kind
	Patterns      []string // of keys; only "**" matches events without one
	ExcludeAuthor string
	To            string // whom an event is addressed to: a role or a principal
	Limit         uint32
}

// Since returns the events behind a cursor, in order, none left out and none twice (SPEC
// F-25). lastRev is how far the answer reaches: if more is false, the board's rev; else
// the rev of the last event, behind which the caller goes on, or a later one if what
// follows that event up to there did not match: then (lastRev, whole) goes on.
//
// It answers compacted with the oldest rev still served if something that the filter
// asks for may have been given up behind the cursor: notes only count if notes are asked
// for. A cursor above the board's rev, or a bad pattern, is bad_request.
func Since(b *state.Board, after Cursor, f EventFilter) (events []*boardpb.Event, more bool, lastRev uint64, r *boardpb.Result) {
	want, r := NewEventQuery(b, f)
	if r != nil {
		return nil, false, 0, r
	}
	if after.Rev > b.Rev() {
		return nil, false, 0, &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Field: "after_rev", Got: after.Rev, Limit: b.Rev(),
			Message: fmt.Sprintf("after_rev: %d is above the board's rev %d", after.Rev, b.Rev()),
			Hint:    "a cursor comes from an earlier answer of this board"}
	}
	rev, sub := after.Rev, after.Sub+1
	if after.Rev == 0 || after.Whole || sub == 0 { // behind the last sub there can be
		rev, sub = after.Rev+1, 0
	}
	page := newPage(f.Limit, eventsDefault, eventsMax)
	scanned := 0
	oldest := b.Events(rev, sub, want.notes, func(ev *boardpb.Event) bool {
		scanned++
		switch {
		case scanned > eventsScan && ev.Rev > lastRev:
			more = true // lastRev was seen to its end
		case !want.Match(ev):
			lastRev = ev.Rev
		case !page.fits(0):
			more = true
			if n := len(events); n > 0 {
				lastRev = events[n-1].Rev
			}
		default:
			events, lastRev = append(events, ev), ev.Rev
		}
		return !more
	})
	if rev < oldest {
		return nil, false, 0, compacted(rev, oldest)
	}
	if !more {
		lastRev = b.Rev()
	}
	return events, more, lastRev, nil
}

func compacted(from, oldest uint64) *boardpb.Result {
	return &boardpb.Result{Code: boardpb.Code_CODE_COMPACTED, OldestRev: oldest, Got: from,
		Message: fmt.Sprintf("the feed begins at rev %d, you asked for what is behind rev %d", oldest, from-1),
		Hint:    "take a fresh snapshot (watch with snapshot), or go on from the oldest rev and know that events are missing"}
}

// EventQuery is a filter that was checked against a board. Pages of events and watches
// choose by the same one.
type EventQuery struct {
	f         EventFilter
	matcher   *Matcher // nil: any key
	unmatched []string
	notes     bool
}

// NewEventQuery checks a filter. It answers bad_request for an unknown kind and as
// NewMatcher for patterns; without any, every event is meant.
func NewEventQuery(b *state.Board, f EventFilter) (*EventQuery, *boardpb.Result) {
	q := &EventQuery{f: f, notes: len(f.Kinds) == 0}
	for i, k := range f.Kinds {
		if _, known := boardpb.Kind_name[int32(k)]; !known || k == boardpb.Kind_KIND_UNSPECIFIED {
			return nil, bad(fmt.Sprintf("kinds/%d", i), "%d is no kind of event", k)
		}
		q.notes = q.notes || state.IsNote(k)
	}
	if len(f.Patterns) > 0 {
		var r *boardpb.Result
		if q.matcher, q.unmatched, r = NewMatcher(b, f.Patterns); r != nil {
			return nil, r
		}
	}
	return q, nil
}

// Notes tells whether notes are among the kinds asked for.
func (q *EventQuery) Notes() bool { return q.notes }

// Unmatched lists the patterns that no declared namespace can ever meet.
func (q *EventQuery) Unmatched() []string { return q.unmatched }

// OldestRev is the oldest rev from which the feed still has all that is asked for.
func (q *EventQuery) OldestRev(b *state.Board) uint64 {
	return b.Events(b.Rev()+1, 0, q.notes, func(*boardpb.Event) bool { return false })
}

// MatchKey tells whether a key is among those asked for.
func (q *EventQuery) MatchKey(key string) bool { return q.matcher == nil || q.matcher.Match(key) }

// Match tells whether an event is wanted.
func (q *EventQuery) Match(ev *boardpb.Event) bool {
	switch {
	case len(q.f.Kinds) > 0 && !slices.Contains(q.f.Kinds, ev.Kind):
		return false
	case q.f.ExcludeAuthor != "" && ev.Author == q.f.ExcludeAuthor:
		return false
	case q.f.To != "" && ev.To != q.f.To:
		return false
	}
	return q.matcher == nil || q.matcher.MatchEvent(ev)
}

// Matcher tells which keys any of some patterns matches.
type Matcher struct {
	patterns []state.Pattern
	all      bool
}

// NewMatcher compiles the patterns of a watch before anything is subscribed to (TRIALS
// T-54). It answers bad_request for none, for too many, and for a bad one. Patterns that
// no declared namespace can ever meet are good, and listed, so that a watcher is told.
func NewMatcher(b *state.Board, patterns []string) (m *Matcher, unmatched []string, r *boardpb.Result) {
	if n := len(patterns); n == 0 || n > patternsMost {
		r := bad("patterns", "%d of them; 1 to %d", n, patternsMost)
		r.Hint = `"**" is everything`
		return nil, nil, r
	}
	m = &Matcher{}
	for i, text := range patterns {
		p, r := parsePattern(fmt.Sprintf("patterns/%d", i), text)
		if r != nil {
			return nil, nil, r
		}
		m.patterns = append(m.patterns, p)
		m.all = m.all || text == "**"
		if len(b.Schema().Meets(p)) == 0 {
			unmatched = append(unmatched, text)
		}
	}
	return m, unmatched, nil
}

// Match tells whether a key is matched.
func (m *Matcher) Match(key string) bool {
	return m.all || slices.ContainsFunc(m.patterns, func(p state.Pattern) bool { return p.Match(key) })
}

// MatchEvent tells whether an event is matched. What is about no key, such as a loop or
// the board itself, is so by "**" only.
func (m *Matcher) MatchEvent(ev *boardpb.Event) bool {
	switch ev.Surface {
	case boardpb.Surface_SURFACE_KV, boardpb.Surface_SURFACE_LEASE:
		return m.all || ev.Key != "" && m.Match(ev.Key)
	}
	return m.all
}
