package board

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// LeaseFilter says which lease records are wanted.
type LeaseFilter struct {
	Pattern          string // "" is every leased namespace
	Holder           string // a principal: who holds it, or who finished it
	Reclaimable      bool   // free because a lease expired, the oldest expiry first
	States           []boardpb.LeaseState
	ExpiringWithinMs int64 // held, with at most so much time left
	Limit            uint32
	After            string
}

// LeaseRow is one lease as a reader is shown it.
type LeaseRow struct {
	Lease     *boardpb.Lease
	ExpiresT  int64  // of a held lease, in board time
	ExpiresIn int64  // time left at the board time of the View, never negative
	Missed    uint32 // renewals that were due since the last one, at three per duration
}

// Leases returns lease records, held ones unless other states are asked for, in the order
// of their keys; reclaimable ones in the order in which they expired. next works as in
// List. It answers bad_request, undeclared_namespace, or wrong_mode for a pattern that
// meets no leased namespace.
func Leases(b *state.Board, f LeaseFilter) (rows []LeaseRow, next string, r *boardpb.Result) {
	want, r := newLeaseQuery(b, f)
	if r != nil {
		return nil, "", r
	}
	if f.Reclaimable {
		return reclaimable(b, want, f)
	}
	page := newPage(f.Limit, listDefault, listMax)
	last, scanned := "", 0
	b.Leases(start(want.pattern, f.After), func(key string, l *boardpb.Lease) bool {
		if !strings.HasPrefix(key, want.pattern.Prefix()) {
			return false
		}
		row, match := want.row(l)
		if scanned++; scanned > scanMost || match && !page.fits(proto.Size(l)) {
			next = last
			return false
		}
		last = key
		if match {
			rows = append(rows, row)
		}
		return true
	})
	return rows, next, nil
}

// reclaimable sorts all that match, since the order of expiry is not that of the keys.
// Its cursor is the times and the key of the last row: "1500.1200@claims/x".
func reclaimable(b *state.Board, want leaseQuery, f LeaseFilter) (rows []LeaseRow, next string, r *boardpb.Result) {
	after, r := parseReclaimAfter(f.After)
	if r != nil {
		return nil, "", r
	}
	var found []*boardpb.Lease
	b.Leases(want.pattern.Prefix(), func(key string, l *boardpb.Lease) bool {
		if !strings.HasPrefix(key, want.pattern.Prefix()) {
			return false
		}
		if _, match := want.row(l); match && (f.After == "" || expiredEarlier(after, l) < 0) {
			found = append(found, l)
		}
		return true
	})
	slices.SortFunc(found, expiredEarlier)
	page := newPage(f.Limit, listDefault, listMax)
	for i, l := range found {
		if !page.fits(proto.Size(l)) {
			last := found[i-1]
			return rows, fmt.Sprintf("%d.%d@%s", last.EndedTMs, last.ExpiresTMs, last.Key), nil
		}
		rows = append(rows, LeaseRow{Lease: l})
	}
	return rows, "", nil
}

// expiredEarlier orders by when expiry was applied; what one advance of time ended goes
// by when it was due.
func expiredEarlier(a, b *boardpb.Lease) int {
	return cmp.Or(cmp.Compare(a.EndedTMs, b.EndedTMs), cmp.Compare(a.ExpiresTMs, b.ExpiresTMs), strings.Compare(a.Key, b.Key))
}

func parseReclaimAfter(after string) (*boardpb.Lease, *boardpb.Result) {
	if after == "" {
		return nil, nil
	}
	times, key, _ := strings.Cut(after, "@")
	ended, due, _ := strings.Cut(times, ".")
	endedT, err1 := strconv.ParseInt(ended, 10, 64)
	dueT, err2 := strconv.ParseInt(due, 10, 64)
	if err1 != nil || err2 != nil || state.CheckKey(key) != "" {
		return nil, checkAfter("it is none that an answer gave")
	}
	return &boardpb.Lease{EndedTMs: endedT, ExpiresTMs: dueT, Key: key}, nil
}

// leaseQuery is a filter that was checked.
type leaseQuery struct {
	b       *state.Board
	pattern state.Pattern
	f       LeaseFilter
}

func newLeaseQuery(b *state.Board, f LeaseFilter) (leaseQuery, *boardpb.Result) {
	q := leaseQuery{b: b, f: f}
	text := f.Pattern
	if text == "" {
		text = "**"
	}
	p, r := readPattern(b, text)
	if r != nil {
		return q, r
	}
	q.pattern = p
	leased := slices.ContainsFunc(b.Schema().Meets(p), func(s *state.Space) bool { return s.Mode == boardpb.Mode_MODE_LEASED })
	switch {
	case !leased && f.Pattern != "":
		return q, Explain(&boardpb.Result{Code: boardpb.Code_CODE_WRONG_MODE, Key: text, Namespace: text,
			Field: "in no leased namespace"})
	case f.ExpiringWithinMs < 0:
		return q, bad("expiring_within_ms", "%d ms; at least 0", f.ExpiringWithinMs)
	case f.Reclaimable && (len(f.States) > 0 || f.ExpiringWithinMs > 0):
		return q, bad("reclaimable", "it asks for free leases by itself; give neither states nor expiring_within_ms with it")
	}
	for i, s := range f.States {
		if _, known := boardpb.LeaseState_name[int32(s)]; !known || s == boardpb.LeaseState_LEASE_STATE_UNSPECIFIED {
			return q, bad(fmt.Sprintf("states/%d", i), "%d is no state of a lease", s)
		}
	}
	if f.After != "" && !f.Reclaimable {
		return q, checkAfter(state.CheckKey(f.After))
	}
	return q, nil
}

// row tells whether a lease is wanted, and how it is shown.
func (q *leaseQuery) row(l *boardpb.Lease) (LeaseRow, bool) {
	switch {
	case q.f.Holder != "" && l.Owner != q.f.Holder, !q.pattern.Match(l.Key):
		return LeaseRow{}, false
	case q.f.Reclaimable:
		return LeaseRow{Lease: l}, l.State == free && l.EndedBy == boardpb.EndedBy_ENDED_BY_EXPIRED
	case len(q.f.States) == 0 && l.State != held, len(q.f.States) > 0 && !slices.Contains(q.f.States, l.State):
		return LeaseRow{}, false
	}
	row := LeaseRow{Lease: shown(q.b, l)}
	if l.State == held {
		t := q.b.T()
		row.ExpiresT = row.Lease.ExpiresTMs
		row.ExpiresIn = max(0, row.ExpiresT-t)
		row.Missed = uint32(max(0, t-row.Lease.HeartbeatTMs) / max(1, l.DurationMs/3))
	}
	return row, q.f.ExpiringWithinMs == 0 || l.State == held && row.ExpiresIn <= q.f.ExpiringWithinMs
}

// shown is a lease record as every read gives it (TRIALS T-24): the expiry and the
// heartbeat of a held one are those its loop's keepalives reach.
func shown(b *state.Board, l *boardpb.Lease) *boardpb.Lease {
	if l == nil || l.State != held || b.Past() {
		return l // no loop was asked then, and what it renewed is not kept
	}
	loop := b.Loop(l.Loop)
	expires := EffectiveExpiry(l, loop)
	if expires == l.ExpiresTMs {
		return l
	}
	out := state.CloneLease(l)
	out.ExpiresTMs = expires
	out.HeartbeatTMs = max(l.HeartbeatTMs, loop.RenewedTMs)
	return out
}

// LoopByID returns a loop and a page of the leases it holds, in the order of their keys;
// next works as in List. It answers not_found for a loop that never was, or that ended more
// than an hour ago.
func LoopByID(b *state.Board, id string, limit uint32, after string) (
	loop *boardpb.Loop, leases []*boardpb.Lease, next string, r *boardpb.Result) {
	if loop = b.Loop(id); id == "" || loop == nil {
		return nil, nil, "", Explain(&boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Field: "loop", Loop: clip(id)})
	}
	from := ""
	if after != "" {
		if r := checkAfter(state.CheckKey(after)); r != nil {
			return nil, nil, "", r
		}
		from = after + "\x00"
	}
	if loop.Holds == 0 {
		return loop, nil, "", nil
	}
	page := newPage(limit, state.MaxLeases, state.MaxLeases)
	last, scanned := "", 0
	b.Leases(from, func(key string, l *boardpb.Lease) bool {
		match := l.State == held && l.Loop == id
		if scanned++; scanned > scanMost || match && !page.fits(proto.Size(l)) {
			next = last
			return false
		}
		last = key
		if match {
			leases = append(leases, shown(b, l))
		}
		return from != "" || len(leases) < int(loop.Holds)
	})
	return loop, leases, next, nil
}

// EndedFor returns the leases of a principal's loop that ended without its doing and of
// which no command's answer has told it for good (SPEC LS-20).
func EndedFor(b *state.Board, loop, principal string) []*boardpb.Ended {
	if loop == "" {
		return nil
	}
	l := b.Loop(loop)
	if l == nil || l.Principal != principal {
		return nil
	}
	return l.Untold
}
