package board

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// DiffFilter says which keys are compared between which revs.
type DiffFilter struct {
	Pattern  string // "" is the whole board
	From, To uint64 // To 0 is the head
	Limit    uint32
	After    string
}

// Difference is one key that two revs hold differently. Before is nil if the key had no
// value then, and After may be a tombstone.
type Difference struct {
	Key                     string
	Before, After           *boardpb.Entry
	CountBefore, CountAfter uint64
}

// Diff returns the keys that hold something else at To than at From, in order, and the To it
// compared with: the next page names it, so that all pages are about the same two revs.
// next works as in List. It answers bad_request for revs out of order or above the head,
// compacted with the oldest rev that works, and what List answers.
func Diff(b *state.Board, f DiffFilter) (found []Difference, to uint64, next string, r *boardpb.Result) {
	if f.Pattern == "" {
		f.Pattern = "**"
	}
	p, r := readPattern(b, f.Pattern)
	if to = f.To; to == 0 {
		to = b.Rev()
	}
	switch {
	case r != nil:
	case to > b.Rev():
		r = revRefused("to_rev", to, b.Rev(), fmt.Sprintf("%d is above the head, %d", to, b.Rev()))
	case f.From > to:
		r = revRefused("from_rev", f.From, to, fmt.Sprintf("%d is above to_rev, %d", f.From, to))
	case f.After != "":
		r = checkAfter(state.CheckKey(f.After))
	}
	if r != nil {
		return nil, to, "", r
	}
	was, is := b.At(f.From), b.At(to)
	was.Keys("", func(string, *state.Key) bool { return false }) // what is forgotten may have been there
	page := newPage(f.Limit, listDefault, listMax)
	last, scanned := "", 0
	is.Keys(start(p, f.After), func(key string, now *state.Key) bool {
		if !strings.HasPrefix(key, p.Prefix()) {
			return false
		}
		var d Difference
		differs := false
		if p.Match(key) {
			d, differs = difference(b.Schema().Find(key), was.Key(key), now)
		}
		if scanned++; scanned > scanMost || differs && !page.fits(proto.Size(d.Before)+proto.Size(d.After)) {
			next = last
			return false
		}
		last = key
		if differs {
			d.Key = key
			found = append(found, d)
		}
		return true
	})
	for _, at := range []*state.Board{was, is} {
		if r := Reached(at); r != nil {
			return nil, to, "", r
		}
	}
	return found, to, next, nil
}

func revRefused(field string, got, limit uint64, why string) *boardpb.Result {
	return &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Field: field, Got: got, Limit: limit,
		Message: field + ": " + why, Hint: "from_rev is at most to_rev, and to_rev at most the head"}
}

// difference tells whether a key had another value than it has. A key that was deleted and
// written again in between has changed.
func difference(space *state.Space, was, now *state.Key) (Difference, bool) {
	d := Difference{After: now.Newest(), CountAfter: itemCount(space, now)}
	if was != nil && !was.Newest().Deleted {
		d.Before, d.CountBefore = was.Newest(), itemCount(space, was)
	}
	if d.Before == nil {
		return d, !d.After.Deleted
	}
	return d, d.Before.Version != d.After.Version
}
