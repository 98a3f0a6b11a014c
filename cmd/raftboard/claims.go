package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"raftboard/client"
	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

type claimsFlags struct {
	mine, reclaimable, free, parked, done, watch bool
	holder                                       string
	expiring                                     time.Duration
	limit                                        uint32
}

func (a *app) claimsCommand() *cobra.Command {
	var f claimsFlags
	c := leaf(verb{use: "claims [PATTERN]", short: "Who holds what and for how long; leases that ran out are marked expired",
		examples: [2]string{`raftboard claims -w`, `raftboard claims 'claims/*' --expiring 30s`},
		args:     cobra.MaximumNArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			pattern := append(args, "")[0]
			for {
				if err := a.claims(ctx, b, pattern, f); err != nil || !f.watch {
					return err
				}
				if err := pause(ctx, time.Second); err != nil {
					return err
				}
			}
		}})
	c.Flags().BoolVar(&f.mine, "mine", false, "only yours")
	c.Flags().StringVar(&f.holder, "holder", "", "only those of this holder")
	c.Flags().DurationVar(&f.expiring, "expiring", 0, "only those that end within this time")
	c.Flags().BoolVar(&f.reclaimable, "reclaimable", false, "only those that ran out, longest ago first")
	c.Flags().BoolVar(&f.free, "free", false, "only free items")
	c.Flags().BoolVar(&f.parked, "parked", false, "only parked items")
	c.Flags().BoolVar(&f.done, "done", false, "only finished items")
	c.Flags().Uint32Var(&f.limit, "limit", 1000, "at most this many")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "again every second until interrupted")
	c.ValidArgsFunction = a.completeClaims
	return c
}

// queries turns the flags into what is asked: by default the held ones and those that ran out.
func (f *claimsFlags) queries(pattern, me string) []*wirepb.LeasesQuery {
	base := func(states ...boardpb.LeaseState) *wirepb.LeasesQuery {
		q := &wirepb.LeasesQuery{Pattern: pattern, Holder: f.holder, ExpiringWithinMs: f.expiring.Milliseconds(), States: states}
		if f.mine {
			q.Holder = me
		}
		return q
	}
	expired := base()
	expired.Reclaimable, expired.ExpiringWithinMs = true, 0
	switch {
	case f.reclaimable:
		return []*wirepb.LeasesQuery{expired}
	case f.free:
		return []*wirepb.LeasesQuery{base(boardpb.LeaseState_LEASE_STATE_FREE)}
	case f.parked:
		return []*wirepb.LeasesQuery{base(boardpb.LeaseState_LEASE_STATE_PARKED)}
	case f.done:
		return []*wirepb.LeasesQuery{base(boardpb.LeaseState_LEASE_STATE_DONE)}
	case f.mine, f.holder != "", f.expiring > 0:
		return []*wirepb.LeasesQuery{base(boardpb.LeaseState_LEASE_STATE_HELD)}
	}
	return []*wirepb.LeasesQuery{base(boardpb.LeaseState_LEASE_STATE_HELD),
		base(boardpb.LeaseState_LEASE_STATE_PARKED), expired}
}

func (a *app) claims(ctx context.Context, b *client.Board, pattern string, f claimsFlags) error {
	view := render.View{Lines: []render.Object{}, Table: &render.Table{Empty: "nothing is claimed",
		Columns: render.Cols("KEY", "HOLDER", "LOOP", "LEFT", "AGE", "GEN", "STATE", "NOTE")}}
	rev := uint64(0)
	for _, q := range f.queries(pattern, a.conn.as) {
		for q.After = ""; ; {
			q.Limit = min(f.limit-uint32(len(view.Lines)), 1000)
			if q.Limit == 0 {
				a.warn("more leases: a larger --limit shows them")
				break
			}
			answer, read, err := b.Leases(ctx, q, a.reading())
			if err != nil {
				return refused(err)
			}
			rev = max(rev, read.Rev)
			for _, row := range answer.GetLeases() {
				view.Lines = append(view.Lines, leaseObject(row))
				view.Names = append(view.Names, row.GetLease().GetKey())
				view.Table.Rows = append(view.Table.Rows, claimRow(row, read.TMs))
			}
			if q.After = answer.GetNext(); q.After == "" {
				break
			}
		}
	}
	view.Object = render.Obj("rev", rev, "claims", view.Lines)
	if f.watch && !a.out.Machine() && a.stdoutTerminal {
		fmt.Fprint(a.stdout, "\x1b[H\x1b[2J") // a screen of its own each second
	}
	return a.out.Print(view)
}

// claimRow is a lease as people see it. Red says what the word says.
func claimRow(row *wirepb.LeaseRow, now int64) []render.Cell {
	l := row.GetLease()
	word, left, note := render.Cell{Text: leaseWord(l)}, render.Cell{}, ""
	holder, loop, age := l.GetOwner(), l.GetLoop(), int64(0)
	switch word.Text {
	case "held":
		left.Text, age = render.Duration(row.GetExpiresInMs()), now-l.GetAcquiredTMs()
		if row.GetExpiresInMs() <= 0 {
			left, word = render.Cell{Text: "expired", Style: render.Bad}, render.Cell{Text: "expired", Style: render.Bad}
		} else if 4*row.GetExpiresInMs() < l.GetDurationMs() {
			left.Text, left.Style = left.Text+" !", render.Warn
		}
		switch n := row.GetMissedKeepalives(); n {
		case 0:
		case 1:
			note = "missed 1 keepalive"
		default:
			note = fmt.Sprintf("missed %d keepalives", n)
		}
	case "expired":
		word.Style, left = render.Bad, render.Cell{Text: "expired", Style: render.Bad}
		age = now - l.GetEndedTMs()
		if p := l.GetPrevious(); len(p) > 0 && holder == "" {
			holder, loop = p[0].GetOwner(), p[0].GetLoop()
		}
	case "parked":
		word.Style, note = render.Warn, l.GetReason()
	case "done":
		word.Style, note = render.Good, l.GetResultRef()
	}
	if note == "" && l.GetReason() != "" {
		note = l.GetReason()
	}
	ageText := ""
	if age > 0 || word.Text == "held" {
		ageText = render.Duration(max(age, 0))
	}
	return []render.Cell{{Text: l.GetKey()}, {Text: holder}, {Text: loop}, left, {Text: ageText},
		{Text: num(l.GetGeneration())}, word, {Text: note}}
}
