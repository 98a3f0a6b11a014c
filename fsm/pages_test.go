package fsm

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// checkPages reads lists in pages of any size: together they are the whole, in order,
// nothing twice and nothing left out.
func checkPages(t *rapid.T, b *state.Board) {
	limit := uint32(rapid.IntRange(1, 4).Draw(t, "limit"))
	pattern := rapid.SampledFrom([]string{"**", "claims/*", "facts/*", "*/*", "results/**", "claims/b"}).Draw(t, "pattern")
	same := func(what string, whole, paged []string) {
		if !slices.Equal(whole, paged) {
			t.Fatalf("%s of %s in pages of %d: got %v, want %v", what, pattern, limit, paged, whole)
		}
	}
	same("list", collect(t, func(after string) ([]string, string, *boardpb.Result) { return listPage(b, pattern, 0, after) }),
		collect(t, func(after string) ([]string, string, *boardpb.Result) { return listPage(b, pattern, limit, after) }))
	// A page of a dump has leases beside entries, so the two are compared one by one.
	wholeEntries, wholeLeases := collectDump(t, b, pattern, 0)
	entries, leases := collectDump(t, b, pattern, limit)
	same("dump", wholeEntries, entries)
	same("leases of dump", wholeLeases, leases)
	every := []boardpb.LeaseState{boardpb.LeaseState_LEASE_STATE_FREE, boardpb.LeaseState_LEASE_STATE_HELD, boardpb.LeaseState_LEASE_STATE_DONE}
	for _, f := range []board.LeaseFilter{{States: every}, {}, {Reclaimable: true}, {Holder: "w1"}} {
		small := f
		small.Limit = limit
		same(fmt.Sprintf("leases %+v", f), collect(t, func(after string) ([]string, string, *boardpb.Result) { return leasePage(b, f, after) }),
			collect(t, func(after string) ([]string, string, *boardpb.Result) { return leasePage(b, small, after) }))
	}
	same("events", events(t, b, 0), events(t, b, limit))
}

func collect(t *rapid.T, page func(after string) ([]string, string, *boardpb.Result)) (all []string) {
	for after, n := "", 0; ; n++ {
		some, next, r := page(after)
		if r != nil || n > 10_000 {
			t.Fatalf("behind %q: %v", after, r)
		}
		if all = append(all, some...); next == "" {
			return all
		}
		after = next
	}
}

func listPage(b *state.Board, pattern string, limit uint32, after string) (out []string, next string, r *boardpb.Result) {
	items, next, r := board.List(b, pattern, limit, after)
	for _, it := range items {
		out = append(out, fmt.Sprintf("%s@%d×%d", it.Entry.Key, it.Entry.Version, it.Count))
	}
	return out, next, r
}

func collectDump(t *rapid.T, b *state.Board, pattern string, limit uint32) (entries, leases []string) {
	entries = collect(t, func(after string) (out []string, _ string, _ *boardpb.Result) {
		es, ls, next, r := board.Dump(b, pattern, limit, after)
		for _, e := range es {
			out = append(out, fmt.Sprintf("%s@%d", e.Key, e.Version))
		}
		for _, l := range ls {
			leases = append(leases, l.Key)
		}
		if limit > 0 && len(es) > int(limit) {
			t.Fatalf("a page of %d entries, at most %d", len(es), limit)
		}
		return out, next, r
	})
	return entries, leases
}

func leasePage(b *state.Board, f board.LeaseFilter, after string) (out []string, next string, r *boardpb.Result) {
	f.After = after
	rows, next, r := board.Leases(b, f)
	for _, row := range rows {
		out = append(out, row.Lease.Key)
	}
	return out, next, r
}

func events(t *rapid.T, b *state.Board, limit uint32) (out []string) {
	for at := (board.Cursor{}); ; {
		evs, more, last, r := board.Since(b, at, board.EventFilter{Limit: limit})
		if r != nil {
			t.Fatal(r)
		}
		for _, ev := range evs {
			out = append(out, fmt.Sprintf("%d.%d", ev.Rev, ev.Sub))
			at = board.Cursor{Rev: ev.Rev, Sub: ev.Sub}
		}
		if !more {
			return out
		}
		if len(evs) == 0 {
			at = board.Cursor{Rev: last, Whole: true}
		}
	}
}

// A page looks at a bounded number of keys and events. Where nothing matches it says how
// far it came, and the reader goes on from there.
func TestWideSearchesEndAPageAndGoOn(t *testing.T) {
	s := state.New()
	schema, _ := state.CompileSchema(state.DefaultSettings().Namespaces)
	s.CreateBoard("b", "inc", state.DefaultSettings(), schema)
	const keys = 120_000
	for n := range keys {
		if n%1000 == 0 {
			s.Begin(uint64(n/1000+1), 1, uint64(n/1000+1))
		}
		x := s.BeginTxn("b", on("w1", "", 0, appendOf("", "")))
		key := fmt.Sprintf("facts/%06d-no", n)
		if n%40_000 == 39_999 {
			key = fmt.Sprintf("facts/%06d-yes", n)
		}
		x.PutEntry(&boardpb.Entry{Key: key, Value: []byte("1")}, true)
		x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_APPEND, Surface: boardpb.Surface_SURFACE_KV, Key: key})
		x.Commit()
	}
	b := s.Publish(nil).Board("b")
	var found []string
	answers := 0
	for after, more := "", true; more; more = after != "" {
		items, next, r := board.List(b, "facts/*-yes", 0, after)
		if r != nil {
			t.Fatal(r)
		}
		for _, it := range items {
			found = append(found, it.Entry.Key)
		}
		answers++
		after = next
	}
	if len(found) != 3 || answers < 3 || answers > 4 {
		t.Errorf("list found %v in %d answers", found, answers)
	}
	found, answers = nil, 0
	from := board.Cursor{Rev: b.OldestRev() - 1, Whole: true}
	for more := true; more; answers++ {
		evs, goOn, last, r := board.Since(b, from, board.EventFilter{Patterns: []string{"facts/*-yes"}})
		if r != nil {
			t.Fatal(r)
		}
		for _, ev := range evs {
			found = append(found, ev.Key)
		}
		if goOn && last <= from.Rev {
			t.Fatalf("no progress at rev %d", last)
		}
		from, more = board.Cursor{Rev: last, Whole: true}, goOn
	}
	if len(found) < 2 || answers < 5 || from.Rev != b.Rev() {
		t.Errorf("since found %v in %d answers up to rev %d", found, answers, from.Rev)
	}
}
