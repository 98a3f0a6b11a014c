package main

import (
	"context"

	"github.com/spf13/cobra"

	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
	wirepb "raftboard/transport/pb"
)

func (a *app) diffCommand() *cobra.Command {
	q := &wirepb.DiffQuery{}
	c := leaf(verb{use: "diff [PATTERN]", short: "Keys that came, went or changed between two revs",
		long: "Without --to-rev it compares with what is there now. What is no longer kept is refused as compacted, with the\n" +
			"oldest rev that works.",
		examples: [2]string{`raftboard diff --from-rev 40`, `raftboard diff 'results/**' --from-rev 40 --to-rev 90 -o json`},
		args:     cobra.MaximumNArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			if len(args) == 1 {
				q.Pattern = args[0]
			}
			if q.Limit == 0 {
				return exitcode.Usagef("--limit 200", "--limit must be above zero")
			}
			return a.diff(ctx, q)
		}})
	c.Flags().Uint64Var(&q.FromRev, "from-rev", 0, "the earlier rev; 0 is before the first commit")
	c.Flags().Uint64Var(&q.ToRev, "to-rev", 0, "the later rev; 0 is now")
	c.Flags().Uint32Var(&q.Limit, "limit", 200, "at most this many keys")
	c.Flags().StringVar(&q.After, "after", "", "continue behind this key; give --to-rev then")
	c.ValidArgsFunction = a.completeKeys
	return c
}

// diff reads as many pages as the limit needs, all about the same two revs.
func (a *app) diff(ctx context.Context, q *wirepb.DiffQuery) error {
	b, err := a.board(ctx)
	if err != nil {
		return err
	}
	most := int(q.Limit)
	view := render.View{Lines: []render.Object{}, Table: &render.Table{Empty: "nothing differs",
		Columns: render.Cols("CHANGE", "KEY", "FROM", "TO", "REV", "TIME", "AUTHOR", "VALUE")}}
	for {
		answer, _, err := b.Diff(ctx, q, a.reading())
		if err != nil {
			return refused(err)
		}
		for _, it := range answer.GetItems() {
			view.Lines, view.Names = append(view.Lines, diffObject(it)), append(view.Names, it.GetKey())
			after, from := it.GetAfter(), ""
			if v := it.GetBefore().GetVersion(); v > 0 {
				from = num(v)
			}
			view.Table.Row(changeWord(it), it.GetKey(), from, num(after.GetVersion()), num(after.GetRev()),
				render.Time(after.GetWallMs()), after.GetAuthor(), string(after.GetValue()))
		}
		q.ToRev, q.After = answer.GetToRev(), answer.GetNext()
		q.Limit = uint32(most - len(view.Lines))
		if q.After == "" || q.Limit == 0 {
			break
		}
	}
	view.Object = render.Obj("from_rev", q.FromRev, "to_rev", q.ToRev, "keys", view.Lines)
	if q.After != "" {
		view.Object.Add("next", q.After)
		a.warn("more keys: --to-rev %d --after %s, or a larger --limit", q.ToRev, q.After)
	}
	return a.out.Print(view)
}

func changeWord(it *wirepb.DiffItem) string {
	return exitcode.EnumWord(it.GetChange().String(), "CHANGE_")
}

func diffObject(it *wirepb.DiffItem) render.Object {
	o := render.Obj("key", it.GetKey(), "change", changeWord(it))
	if it.GetBefore() != nil {
		o.Add("before", entryObject(it.GetBefore(), true))
	}
	o.Add("after", entryObject(it.GetAfter(), true))
	o.AddSet("count_before", it.GetCountBefore())
	o.AddSet("count_after", it.GetCountAfter())
	return o
}
