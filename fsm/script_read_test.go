package fsm

import (
	"fmt"
	"strings"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// read answers a "? VERB …" line from the newest View.
func (s *script) read(c *call) ([]string, error) {
	verb := c.word("read")
	name := c.opt("board")
	if name == "" {
		name = s.board
	}
	b := s.main.View().Board(name)
	if b == nil {
		return []string{"→ no such board"}, nil
	}
	b, refused := board.AsOf(b, c.number("at"))
	var lines []string
	if refused == nil {
		if lines, refused = s.readBoard(b, verb, c); b.Lack() > 0 {
			refused = board.Reached(b)
		}
	} else {
		c.words, c.opts = nil, nil
	}
	if refused != nil {
		lines = []string{"→ " + s.result(refused), "  " + s.names(refused.Message)}
	}
	return lines, c.done()
}

func (s *script) readBoard(b *state.Board, verb string, c *call) (lines []string, r *boardpb.Result) {
	limit := uint32(c.number("limit"))
	switch verb {
	case "get":
		e, count, lease, mode, refused := board.Get(b, c.word("key"))
		if refused != nil {
			return nil, refused
		}
		lines = append(lines, fmt.Sprintf("→ %s count=%d mode=%s", s.message(e.ProtoReflect()), count, board.ModeName(mode)))
		if lease != nil {
			lines = append(lines, "  lease "+s.message(lease.ProtoReflect()))
		}
		return lines, nil
	case "history":
		entries, more, oldest, refused := board.History(b, c.word("key"), limit, c.number("before"))
		for _, e := range entries {
			lines = append(lines, "→ "+s.message(e.ProtoReflect()))
		}
		return append(lines, fmt.Sprintf("→ %d versions, more=%v oldest=%d", len(entries), more, oldest)), refused
	case "list":
		items, next, refused := board.List(b, c.maybe(), limit, c.opt("after"))
		for _, it := range items {
			lines = append(lines, fmt.Sprintf("→ %s v%d count=%d by %s", it.Entry.Key, it.Entry.Version, it.Count, it.Entry.Author))
		}
		return append(lines, fmt.Sprintf("→ %d keys, next=%q", len(items), next)), refused
	case "dump":
		entries, leases, next, refused := board.Dump(b, c.maybe(), limit, c.opt("after"))
		for _, e := range entries {
			lines = append(lines, fmt.Sprintf("→ %s v%d %s", e.Key, e.Version, clipped(string(e.Value))))
		}
		for _, l := range leases {
			lines = append(lines, "→ lease "+s.message(l.ProtoReflect()))
		}
		return append(lines, fmt.Sprintf("→ next=%q", next)), refused
	case "trace":
		e, rows, next, truncated, refused := board.TraceOf(b, c.word("ref"), limit, uint32(c.number("after")))
		if refused != nil {
			return nil, refused
		}
		lines = append(lines, "→ "+s.message(e.ProtoReflect()))
		for _, row := range rows {
			lines = append(lines, fmt.Sprintf("→ %s cites_it=%v distance=%d by %s invalidated=%v", row.Ref, row.CitesIt, row.Distance,
				row.Entry.GetAuthor(), row.Invalidation != nil))
		}
		return append(lines, fmt.Sprintf("→ %d rows, next=%d truncated=%v", len(rows), next, truncated)), nil
	case "diff":
		f := board.DiffFilter{From: c.uint(c.word("from")), To: c.uint(c.word("to")), Pattern: c.maybe(), Limit: limit, After: c.opt("after")}
		found, to, next, refused := board.Diff(b, f)
		for _, d := range found {
			lines = append(lines, fmt.Sprintf("→ %s v%d → v%d (items %d → %d, deleted %v)", d.Key, d.Before.GetVersion(), d.After.Version,
				d.CountBefore, d.CountAfter, d.After.Deleted))
		}
		return append(lines, fmt.Sprintf("→ %d keys up to rev %d, next=%q", len(found), to, next)), refused
	case "under":
		items, next, refused := board.ListUnder(b, c.maybe(), limit, c.opt("after"))
		for _, it := range items {
			lines = append(lines, fmt.Sprintf("→ %s v%d count=%d by %s", it.Entry.Key, it.Entry.Version, it.Count, it.Entry.Author))
		}
		return append(lines, fmt.Sprintf("→ %d keys, next=%q", len(items), next)), refused
	case "content":
		q := board.ContentQuery{Ref: c.word("key"), FromLine: c.number("from_line"), ToLine: c.number("to_line"),
			FromByte: c.number("from_byte"), ToByte: c.number("to_byte"), LimitBytes: limit}
		found, refused := board.ContentOf(b, q)
		if refused != nil {
			return nil, board.Explain(refused)
		}
		return []string{fmt.Sprintf("→ %q items=%d bytes %d to %d (asked to %d) of %d, %d lines", found.Text, len(found.Entries),
			found.From, found.To, found.Wanted, found.Bytes, found.Lines)}, nil
	case "who_read":
		ref, rows, forgotten, refused := board.WhoRead(b, c.word("ref"))
		for _, row := range rows {
			lines = append(lines, fmt.Sprintf("→ %s perhaps=%v", s.message(row.Reader.ProtoReflect()), row.Perhaps))
		}
		return append(lines, fmt.Sprintf("→ %s: %d readers, forgotten=%d", ref, len(rows), forgotten)), refused
	case "leases", "reclaimable":
		return s.readLeases(b, verb, limit, c)
	case "since":
		return s.readSince(b, limit, c)
	}
	return s.readRest(b, verb, c)
}

func (s *script) readLeases(b *state.Board, verb string, limit uint32, c *call) (lines []string, r *boardpb.Result) {
	f := board.LeaseFilter{Pattern: c.maybe(), Holder: c.opt("holder"), Reclaimable: verb == "reclaimable", Limit: limit, After: c.opt("after")}
	if within := c.opt("within"); within != "" {
		f.ExpiringWithinMs = c.ms(within)
	}
	for _, name := range strings.FieldsFunc(c.opt("states"), func(r rune) bool { return r == ',' }) {
		f.States = append(f.States, boardpb.LeaseState(boardpb.LeaseState_value["LEASE_STATE_"+strings.ToUpper(name)]))
	}
	rows, next, refused := board.Leases(b, f)
	for _, row := range rows {
		text := fmt.Sprintf("→ %s %s g%d %s", row.Lease.Key, board.StateName(row.Lease.State), row.Lease.Generation, row.Lease.Owner)
		if row.ExpiresT != 0 {
			text += fmt.Sprintf(" until %s, %s left, missed=%d", clock(row.ExpiresT), span(row.ExpiresIn), row.Missed)
		}
		lines = append(lines, text)
	}
	return append(lines, fmt.Sprintf("→ %d leases, next=%q", len(rows), next)), refused
}

func (s *script) readSince(b *state.Board, limit uint32, c *call) (lines []string, r *boardpb.Result) {
	after := board.Cursor{Rev: c.uint(c.word("rev")), Sub: uint32(c.number("sub")), Whole: c.flag("whole")}
	f := board.EventFilter{ExcludeAuthor: c.opt("not"), To: c.opt("to"), Limit: limit}
	for _, name := range strings.FieldsFunc(c.opt("kinds"), func(r rune) bool { return r == ',' }) {
		f.Kinds = append(f.Kinds, boardpb.Kind(boardpb.Kind_value["KIND_"+strings.ToUpper(name)]))
	}
	if p := c.opt("patterns"); p != "" {
		f.Patterns = strings.Split(p, ",")
	}
	events, more, last, refused := board.Since(b, after, f)
	for _, ev := range events {
		lines = append(lines, "→ "+s.event(ev))
	}
	return append(lines, fmt.Sprintf("→ %d events, more=%v last_rev=%d", len(events), more, last)), refused
}

func (s *script) readRest(b *state.Board, verb string, c *call) (lines []string, r *boardpb.Result) {
	switch verb {
	case "match":
		_, unmatched, refused := board.NewMatcher(b, c.words)
		c.words = nil
		return []string{fmt.Sprintf("→ unmatched=%q", unmatched)}, refused
	case "stats":
		n := board.Stats(b)
		lines = append(lines, fmt.Sprintf("→ keys=%d loops_active=%d oldest_rev=%d %s", n.Keys, n.LoopsActive, n.OldestRev, s.message(n.Counters.ProtoReflect())))
		for _, ns := range n.Namespaces {
			if text := s.message(ns.ProtoReflect()); strings.Contains(text, " ") {
				lines = append(lines, "→ "+text)
			}
		}
		for _, one := range n.Spaces {
			if text := s.message(one.Usage.ProtoReflect()); strings.Contains(text, " ") {
				lines = append(lines, fmt.Sprintf("→ usage %s samples=%d p95=%s lease=%s", text, one.Samples, span(one.P95Ms), span(one.LeaseMs)))
			}
		}
		for _, ev := range n.PersistentConflicts {
			lines = append(lines, "→ "+s.event(ev))
		}
		for _, a := range n.Advice {
			lines = append(lines, "→ "+a)
		}
		return lines, nil
	case "board":
		return []string{fmt.Sprintf("→ rev=%d incarnation=%q implicit=%v keys=%d namespaces=%d", b.Rev(), s.names(b.Incarnation()), b.Implicit(),
			b.Head().Keys, len(b.Settings().Namespaces))}, nil
	case "loop":
		l, leases, _, refused := board.LoopByID(b, s.loopID(c.word("loop")), 0, "")
		if refused != nil {
			return nil, refused
		}
		lines = append(lines, "→ "+s.message(l.ProtoReflect()))
		for _, lease := range leases {
			lines = append(lines, "→ "+s.message(lease.ProtoReflect()))
		}
		return lines, nil
	case "ended":
		id := c.word("loop")
		name, _, _ := strings.Cut(id, "/")
		for _, e := range board.EndedFor(b, s.loopID(id), s.actors[name].GetPrincipal()) {
			lines = append(lines, "→ "+s.message(e.ProtoReflect()))
		}
		return append(lines, "→ end"), nil
	case "wall":
		return []string{"→ wall+" + span(b.Wall()-scriptWall-scriptZero) + " " + clock(b.T())}, nil
	}
	if strings.HasPrefix(verb, "phase") || verb == "conflicts" || verb == "detect" {
		return s.readPhases(b, verb, c)
	}
	c.fail("no read %q", verb)
	return nil, nil
}
