package board

import (
	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// The bounds of a trace: rows of a page, and how many records are looked through each way.
const (
	traceMost     = 200
	traceLookMost = 10_000
)

// TraceRow is one record that another cites or is cited by, directly or through others.
type TraceRow struct {
	Ref          string
	CitesIt      bool // it cites the record; else the record cites it
	Distance     uint32
	Entry        *boardpb.Entry // without its value; nil: no longer kept
	Invalidation *boardpb.Invalidation
}

// TraceOf says where a record comes from and what came of it (SPEC F-30): first what it cites,
// then what cites it, each nearest first. A ref without a version is the current one. next
// is the number of rows to skip for the page behind, or 0; truncated says that there is more
// than is looked through. It answers bad_request, not_found, or compacted.
func TraceOf(b *state.Board, text string, limit, after uint32) (
	e *boardpb.Entry, rows []TraceRow, next uint32, truncated bool, r *boardpb.Result) {
	ref, r := parseRef("ref", text)
	if r == nil && ref.Kind != state.RefKey {
		r = bad("ref", "name a version of a key; raftboard claims shows who holds a lease")
	}
	if r != nil {
		return nil, nil, 0, false, r
	}
	if e, r = entryOf(b, ref); r != nil {
		return nil, nil, 0, false, r
	}
	down, cut := around(b, state.EntryRef(e), false, func(ref string, each func(string) bool) {
		for _, cited := range b.CitesOf(ref) {
			if !each(cited) {
				return
			}
		}
	})
	up, cut2 := around(b, state.EntryRef(e), true, func(ref string, each func(string) bool) {
		b.CitedBy(ref, each)
	})
	all := append(down, up...)
	page := newPage(limit, traceMost, traceMost)
	for i := int(after); i < len(all); i++ {
		row := all[i]
		row.Entry, row.Invalidation = WithoutValue(b.EntryByRef(row.Ref)), b.Invalidation(row.Ref)
		if !page.fits(proto.Size(row.Entry)) {
			return WithoutValue(e), rows, uint32(i), cut || cut2, nil
		}
		rows = append(rows, row)
	}
	return WithoutValue(e), rows, 0, cut || cut2, nil
}

// around walks citations one way, nearest first, each record once.
func around(b *state.Board, from string, citesIt bool, neighbours func(ref string, each func(string) bool)) (rows []TraceRow, truncated bool) {
	seen := map[string]bool{from: true}
	level := []string{from}
	for distance := uint32(1); len(level) > 0 && !truncated; distance++ {
		var nextLevel []string
		for _, ref := range level {
			neighbours(ref, func(to string) bool {
				if seen[to] {
					return true
				}
				if truncated = len(rows) == traceLookMost; truncated {
					return false
				}
				seen[to] = true
				nextLevel = append(nextLevel, to)
				rows = append(rows, TraceRow{Ref: to, CitesIt: citesIt, Distance: distance})
				return true
			})
			if truncated {
				break
			}
		}
		level = nextLevel
	}
	return rows, truncated
}

// entryOf is the version of a key that a ref means, or why it cannot be shown.
func entryOf(b *state.Board, ref state.Ref) (*boardpb.Entry, *boardpb.Result) {
	if _, r := readSpace(b, ref.Key); r != nil {
		return nil, r
	}
	k := b.Key(ref.Key)
	if k == nil {
		return nil, missing(b, ref.Key, nil, nil)
	}
	e := k.Newest()
	if ref.Number > 0 {
		e = k.Version(ref.Number)
	}
	oldest := k.Versions()[0].Version
	switch {
	case e == nil && ref.Number < oldest:
		return nil, tooOld(ref, oldest)
	case e == nil:
		return nil, Explain(&boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Key: ref.String(), Version: k.Newest().Version})
	case e.Deleted:
		return nil, missing(b, ref.Key, k, nil)
	}
	return e, nil
}

// WithoutValue is a version without what it says, or nil.
func WithoutValue(e *boardpb.Entry) *boardpb.Entry {
	if e == nil {
		return nil
	}
	return &boardpb.Entry{Key: e.Key, Version: e.Version, Author: e.Author, ActingFor: e.ActingFor, Loop: e.Loop, TMs: e.TMs,
		WallMs: e.WallMs, Rev: e.Rev, Source: e.Source, Generation: e.Generation, Late: e.Late, ForClaim: e.ForClaim, Cites: e.Cites,
		Summary: e.Summary}
}
