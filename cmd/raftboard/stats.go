package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

func (a *app) statsCommand() *cobra.Command {
	return leaf(verb{use: "stats", short: "How the board is used: conflicts, reclaims, fence refusals, entries per namespace",
		examples: [2]string{`raftboard stats`, `raftboard stats -o json | jq .conflict_rate`},
		args:     cobra.NoArgs,
		run: func(ctx context.Context, _ []string) error {
			defer a.close()
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			s, read, err := b.Stats(ctx, a.reading())
			if err != nil {
				return refused(err)
			}
			o := statsObject(a.g.board, read.Rev, s)
			return a.out.Print(render.View{Object: o, Names: []string{a.g.board}, Table: statsTable(s, read.Rev)})
		}})
}

// conflictRate is conflicts among all attempts to set.
func conflictRate(s *wirepb.StatsAnswer) float64 {
	c := s.GetCounters()
	if all := c.GetSets() + c.GetConflicts(); all > 0 {
		return float64(c.GetConflicts()) / float64(all)
	}
	return 0
}

func parkedNow(s *wirepb.StatsAnswer) (n uint64) {
	for _, ns := range s.GetNamespaces() {
		n += ns.GetParked()
	}
	return n
}

func statsObject(board string, rev uint64, s *wirepb.StatsAnswer) render.Object {
	c := s.GetCounters()
	parked, list := parkedNow(s), []render.Object{}
	for i, ns := range s.GetNamespaces() {
		o := countsObject(ns)
		if all := s.GetSpaces(); i < len(all) {
			addUsage(&o, all[i])
		}
		list = append(list, o)
	}
	pairs := []render.Object{}
	for _, p := range s.GetReadPairs() {
		pairs = append(pairs, render.Obj("reader", p.GetReader(), "author", p.GetAuthor(), "reads", p.GetCount()))
	}
	conflicts := []render.Object{}
	for _, e := range s.GetPersistentConflicts() {
		conflicts = append(conflicts, eventObject(e))
	}
	return render.Obj("board", board, "rev", rev, "oldest_rev", s.GetOldestRev(), "keys", s.GetKeys(), "bytes",
		s.GetLiveBytes(),
		"loops_active", s.GetLoopsActive(), "sets", c.GetSets(), "appends", c.GetAppends(), "deletes", c.GetDeletes(),
		"conflicts", c.GetConflicts(), "conflict_rate", conflictRate(s), "persistent_conflicts", c.GetPersistentConflicts(),
		"claims", c.GetClaims(), "reclaims", c.GetReclaims(), "expiries", c.GetExpiries(), "late_renewals", c.GetLateRenewals(),
		"completes", c.GetCompletes(), "fence_rejections", c.GetFenceRejections(), "refusals", c.GetRefusals(),
		"notes_suppressed", c.GetNotesSuppressed(), "parked", parked, "parks", c.GetParks(), "namespaces", list,
		"cross_reads", c.GetCrossReads(), "reads_dropped", c.GetReadsDropped(), "read_pairs", pairs,
		"newest_persistent_conflicts", conflicts, "advice", append([]string{}, s.GetAdvice()...))
}

// addUsage adds how a namespace is used; what nothing is leased in has no lease.
func addUsage(o *render.Object, one *wirepb.SpaceStats) {
	u := one.GetUsage()
	o.AddSet("conflicts", u.GetConflicts())
	o.AddSet("reclaims", u.GetReclaims())
	o.AddSet("expiries", u.GetExpiries())
	o.AddSet("heard_afterwards", u.GetHeard())
	o.AddSet("fence_rejections", u.GetFenceRejections())
	o.AddSet("samples", one.GetSamples())
	o.AddSet("p95_ms", one.GetP95Ms())
	o.AddSet("default_lease_ms", one.GetLeaseMs())
}

func statsTable(s *wirepb.StatsAnswer, rev uint64) *render.Table {
	c := s.GetCounters()
	t := &render.Table{Columns: render.Cols("WHAT", "COUNT", "NOTE")}
	t.Row("rev", num(rev), fmt.Sprintf("oldest served %d", s.GetOldestRev()))
	t.Row("keys", num(s.GetKeys()), render.Bytes(s.GetLiveBytes()))
	t.Row("active loops", num(s.GetLoopsActive()))
	t.Row("accepted sets", num(c.GetSets()))
	t.Row("appends", num(c.GetAppends()))
	t.Row("conflicts", num(c.GetConflicts()), fmt.Sprintf("rate %.1f %% of sets; %d persistent", 100*conflictRate(s),
		c.GetPersistentConflicts()))
	t.Row("claims", num(c.GetClaims()), fmt.Sprintf("%d completed", c.GetCompletes()))
	t.Row("reclaims", num(c.GetReclaims()), reclaimNote(s))
	t.Row("fence rejections", num(c.GetFenceRejections()))
	t.Row("parked items", num(parkedNow(s)), fmt.Sprintf("%d times an item was tried out", c.GetParks()))
	t.Row("reads of others", num(c.GetCrossReads()), readsNote(c))
	for _, p := range s.GetReadPairs() {
		t.Row("reads by "+p.GetReader(), num(p.GetCount()), "of what "+p.GetAuthor()+" wrote")
	}
	for _, ns := range s.GetNamespaces() {
		note := ""
		if ns.GetReady()+ns.GetHeld()+ns.GetDelayed()+ns.GetParked()+ns.GetDone() > 0 {
			note = fmt.Sprintf("ready %d, held %d, delayed %d, parked %d, done %d", ns.GetReady(), ns.GetHeld(), ns.GetDelayed(),
				ns.GetParked(), ns.GetDone())
		}
		t.Row("entries "+ns.GetPattern(), num(ns.GetEntries()), note)
	}
	for _, one := range s.GetSpaces() {
		if one.GetLeaseMs() == 0 {
			continue
		}
		note := "too few items were completed to tell how long work takes"
		if one.GetSamples() > 0 {
			note = fmt.Sprintf("95 of 100 of %d items were done within %s", one.GetSamples(), render.Duration(one.GetP95Ms()))
		}
		t.Row("lease "+one.GetUsage().GetPattern(), render.Duration(one.GetLeaseMs()), note)
	}
	for _, e := range s.GetPersistentConflicts() {
		t.Rows = append(t.Rows, []render.Cell{{Text: "persistent conflict", Style: render.Warn}, {Text: "rev " + num(e.GetRev())},
			{Text: e.GetKey() + " by " + e.GetAuthor()}})
	}
	for _, advice := range s.GetAdvice() {
		t.Rows = append(t.Rows, []render.Cell{{Text: "advice", Style: render.Warn}, {}, {Text: advice}})
	}
	return t
}

// readsNote says how far the number of reads can be believed.
func readsNote(c *boardpb.Counters) string {
	if n := c.GetReadsDropped(); n > 0 {
		return fmt.Sprintf("and perhaps %d more: their receipts were lost", n)
	}
	return "up to a second ago"
}

// reclaimNote tells leases that are too short from workers that die: by whether the old holder was heard from.
func reclaimNote(s *wirepb.StatsAnswer) string {
	c := s.GetCounters()
	switch {
	case c.GetExpiries() == 0:
		return "no lease ran out"
	case c.GetLateRenewals() > 0:
		return fmt.Sprintf("%d leases ran out, %d holders were heard from afterwards: leases may be too short",
			c.GetExpiries(), c.GetLateRenewals())
	}
	return fmt.Sprintf("%d leases ran out, no holder was heard from afterwards: workers died", c.GetExpiries())
}
