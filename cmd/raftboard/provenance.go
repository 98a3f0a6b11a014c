package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// provenanceCommands are the verbs about where records come from, and what to do when one
// turns out wrong.
func (a *app) provenanceCommands() []*cobra.Command {
	return []*cobra.Command{a.traceCommand(), a.invalidateCommand(), a.whoReadCommand(), a.whyCommand()}
}

// citeFlag is of the writes that store a record.
func citeFlag(fs *pflag.FlagSet, cites *[]string) {
	fs.StringArrayVar(cites, "cite", nil, "what it rests on: a key, a version (facts/a@3), a grant (lease:claims/a#2); repeatable")
}

func (a *app) invalidateCommand() *cobra.Command {
	var reason string
	c := leaf(verb{use: "invalidate REF", short: "Mark a version of a key as wrong; what rests on it is marked too",
		long: "A ref is a key, or a version of it. The record stays readable; views hide it, and whatever cites it, directly or\n" +
			"through others, is shown with the mark. Its author, an orchestrator, a supervisor and an operator may.",
		examples: [2]string{`raftboard invalidate facts/api@3 --reason 'measured on the wrong host'`, `raftboard trace facts/api@3`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			r, err := a.apply(ctx, &boardpb.Command{Op: &boardpb.Command_Invalidate{Invalidate: &boardpb.Invalidate{Ref: args[0], Reason: reason}}})
			if err != nil {
				return err
			}
			a.warn("who has read it: raftboard who-read %s@%d", r.GetKey(), r.GetVersion())
			return a.printResult(r, fmt.Sprintf("invalidated %s@%d  rev %d", r.GetKey(), r.GetVersion(), r.GetRev()))
		}})
	c.Flags().StringVar(&reason, "reason", "", "why, for whoever rests on it")
	c.ValidArgsFunction = a.completeKeys
	return c
}

func (a *app) traceCommand() *cobra.Command {
	var limit, after uint32
	c := leaf(verb{use: "trace REF", short: "Where a record comes from, and what was built on it",
		examples: [2]string{`raftboard trace facts/api@3`, `raftboard trace draft -o json | jq '.rows[] | select(.cites_it)'`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			answer, read, err := b.Trace(ctx, args[0], limit, after, a.reading())
			if err != nil {
				return refused(err)
			}
			return a.printTrace(answer, read.Rev)
		}})
	c.Flags().Uint32Var(&limit, "limit", 200, "at most this many rows (200)")
	c.Flags().Uint32Var(&after, "after", 0, "continue behind so many rows")
	c.ValidArgsFunction = a.completeKeys
	return c
}

func (a *app) whoReadCommand() *cobra.Command {
	c := leaf(verb{use: "who-read REF", short: "Who was shown what others wrote in a record, the last reader first",
		long: "A ref is a key (any version), a version of it, or a lease (what its earlier holders left). The last 32 readers of\n" +
			"each record are kept. Receipts follow the reads by a second; what was lost of them on the whole board is said.",
		examples: [2]string{`raftboard who-read facts/api@3`, `raftboard who-read draft -o json | jq -r '.readers[].principal'`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			answer, read, err := b.WhoRead(ctx, args[0], a.reading())
			if err != nil {
				return refused(err)
			}
			return a.printReaders(answer, read.Rev)
		}})
	c.ValidArgsFunction = a.completeKeys
	return c
}

func (a *app) printReaders(w *wirepb.WhoReadAnswer, rev uint64) error {
	view := render.View{Lines: []render.Object{},
		Table: &render.Table{Columns: render.Cols("READER", "VERSIONS", "READS", "LAST", "NOTE", "+LOOP"), Empty: "nobody is known to have read it"}}
	for _, row := range w.GetReaders() {
		r, note := row.GetReader(), ""
		versions := num(r.GetHighestVersion())
		if r.GetLowestVersion() < r.GetHighestVersion() {
			versions = fmt.Sprintf("%d to %d", r.GetLowestVersion(), r.GetHighestVersion())
		}
		if row.GetPerhaps() {
			note = "older and newer ones; this one perhaps"
		}
		view.Table.Row(r.GetPrincipal(), versions, num(r.GetCount()), render.Time(r.GetWallMs()), note, r.GetLoop())
		view.Lines, view.Names = append(view.Lines, readerObject(row)), append(view.Names, r.GetPrincipal())
	}
	view.Object = render.Obj("rev", rev, "ref", w.GetRef(), "readers", view.Lines)
	view.Object.AddSet("forgotten", w.GetForgotten())
	view.Object.AddSet("dropped", w.GetDropped())
	if w.GetForgotten() > 0 {
		a.warn("readers that had to go for later ones: %d", w.GetForgotten())
	}
	if w.GetDropped() > 0 {
		a.warn("the receipts of %d reads of this board were lost: there may be other readers", w.GetDropped())
	}
	return a.out.Print(view)
}

func readerObject(row *wirepb.ReaderRow) render.Object {
	r := row.GetReader()
	o := render.Obj("principal", r.GetPrincipal())
	o.AddSet("loop", r.GetLoop())
	o.Add("lowest_version", r.GetLowestVersion())
	o.Add("highest_version", r.GetHighestVersion())
	o.Add("reads", r.GetCount())
	o.Add("time", render.Time(r.GetWallMs()))
	o.AddSet("perhaps", row.GetPerhaps())
	return o
}

func (a *app) printTrace(t *wirepb.TraceAnswer, rev uint64) error {
	e := t.GetEntry()
	view := render.View{Lines: []render.Object{},
		Table: &render.Table{Columns: render.Cols("WAY", "REF", "TIME", "AUTHOR", "STATE", "+REV", "+SOURCE")}}
	self := entryObject(e, false)
	addMark(&self, t.GetMark())
	view.Table.Row("this", fmt.Sprintf("%s@%d", e.GetKey(), e.GetVersion()), render.Time(e.GetWallMs()), e.GetAuthor(),
		markWord(t.GetMark()), num(e.GetRev()), e.GetSource())
	for _, row := range t.GetRows() {
		way := fmt.Sprintf("rests on (%d)", row.GetDistance())
		if row.GetCitesIt() {
			way = fmt.Sprintf("cited by (%d)", row.GetDistance())
		}
		o := render.Obj("ref", row.GetRef(), "cites_it", row.GetCitesIt(), "distance", row.GetDistance())
		state, e := "", row.GetEntry()
		if e == nil {
			state = "no longer kept"
			o.Add("gone", true)
		} else {
			o.Add("author", e.GetAuthor())
			o.Add("time", render.Time(e.GetWallMs()))
			o.Add("rev", e.GetRev())
			o.AddSet("source", e.GetSource())
		}
		if row.GetInvalidation() != nil {
			state = "invalidated"
			o.Add("invalidated", invalidationObject(row.GetInvalidation()))
		}
		view.Lines, view.Names = append(view.Lines, o), append(view.Names, row.GetRef())
		view.Table.Row(way, row.GetRef(), render.Time(e.GetWallMs()), e.GetAuthor(), state, num(e.GetRev()), e.GetSource())
	}
	readers := []render.Object{}
	for _, row := range t.GetReaders() {
		r := row.GetReader()
		state := fmt.Sprintf("reads %d", r.GetCount())
		if row.GetPerhaps() {
			state = "read it perhaps"
		}
		readers = append(readers, readerObject(row))
		view.Table.Row("read by", fmt.Sprintf("%s@%d", e.GetKey(), e.GetVersion()), render.Time(r.GetWallMs()), r.GetPrincipal(), state)
	}
	view.Object = render.Obj("rev", rev, "record", self, "rows", view.Lines, "readers", readers)
	view.Object.AddSet("next", t.GetNext())
	view.Object.AddSet("truncated", t.GetTruncated())
	if t.GetNext() > 0 {
		a.warn("more rows: --after %d", t.GetNext())
	}
	if t.GetTruncated() {
		a.warn("more is connected with it than is looked through")
	}
	return a.out.Print(view)
}

// addMark adds what a reader must know of a record.
func addMark(o *render.Object, m *boardpb.Mark) {
	if m.GetInvalidation() != nil {
		o.Add("invalidated", invalidationObject(m.GetInvalidation()))
	}
	if len(m.GetRestsOn()) > 0 {
		o.Add("rests_on_invalidated", m.GetRestsOn())
	}
	o.AddSet("rests_on_more", m.GetMore())
}

func invalidationObject(v *boardpb.Invalidation) render.Object {
	o := render.Obj("by", v.GetAuthor())
	o.AddSet("acting_for", v.GetActingFor())
	o.Add("time", render.Time(v.GetWallMs()))
	o.Add("rev", v.GetRev())
	o.AddSet("reason", v.GetReason())
	return o
}

// markWord says the same in a table.
func markWord(m *boardpb.Mark) string {
	switch {
	case m.GetInvalidation() != nil:
		return "invalidated"
	case len(m.GetRestsOn()) > 0:
		return "rests on invalidated"
	case m.GetMore():
		return "rests on more than was looked through"
	}
	return ""
}

// marksByRef makes a page's marks ready to look up.
func marksByRef(marks []*boardpb.Mark) map[string]*boardpb.Mark {
	out := make(map[string]*boardpb.Mark, len(marks))
	for _, m := range marks {
		out[m.GetRef()] = m
	}
	return out
}

func markOf(marks map[string]*boardpb.Mark, e *boardpb.Entry) *boardpb.Mark {
	return marks[fmt.Sprintf("kv:%s@%d", e.GetKey(), e.GetVersion())]
}

func (a *app) whyCommand() *cobra.Command {
	c := leaf(verb{use: "why KEY", short: "Who holds it, what it waits for, what waits for it, since when, and what ends that",
		long:     "KEY is a key, or phase:ID. Each row that hinders somebody has the command that ends it; who may run it, its help says.",
		examples: [2]string{`raftboard why claims/build`, `raftboard why phase:research -o json | jq -r '.rows[].command'`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			answer, read, err := b.Why(ctx, args[0], a.reading())
			if err != nil {
				return refused(err)
			}
			view := render.View{Lines: []render.Object{}, Names: []string{args[0]},
				Table: &render.Table{Columns: render.Cols("WHAT", "WHO", "ABOUT", "SINCE", "ENDS IN", "COMMAND")}}
			for _, r := range answer.GetRows() {
				o := render.Obj("what", r.GetWhat(), "who", r.GetWho(), "about", r.GetAbout(), "since", render.Time(r.GetSinceWallMs()))
				o.AddSet("ends_in_ms", r.GetEndsInMs())
				o.AddSet("command", r.GetCommand())
				view.Lines = append(view.Lines, o)
				ends := ""
				if r.GetEndsInMs() > 0 {
					ends = render.Duration(r.GetEndsInMs())
				}
				view.Table.Row(r.GetWhat(), r.GetWho(), r.GetAbout(), render.Time(r.GetSinceWallMs()), ends, r.GetCommand())
			}
			view.Object = render.Obj("rev", read.Rev, "key", args[0], "rows", view.Lines)
			return a.out.Print(view)
		}})
	c.ValidArgsFunction = a.completeKeys
	return c
}
