package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftboard/client"
	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// readCommands are the verbs that only look.
func (a *app) readCommands() []*cobra.Command {
	return []*cobra.Command{a.getCommand(), a.historyCommand(), a.listCommand(), a.watchCommand(), a.dumpCommand(),
		a.diffCommand()}
}

type getFlags struct {
	raw, meta, watch bool
	atRev            uint64
}

func (a *app) getCommand() *cobra.Command {
	var f getFlags
	c := leaf(verb{use: "get KEY…", short: "Read the newest version of keys",
		examples: [2]string{`raftboard get plan/current --raw | jq .goal`, `raftboard get draft -o json`},
		args:     cobra.MinimumNArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			if f.raw && f.meta {
				return exitcode.Usagef("leave out one of them", "--raw and --meta exclude each other")
			}
			if f.watch && f.atRev > 0 {
				return exitcode.Usagef("leave out one of them", "--watch shows what comes, --at-rev what was")
			}
			return a.get(ctx, args, f)
		}})
	c.Flags().BoolVar(&f.raw, "raw", false, "the value alone, byte for byte")
	c.Flags().BoolVar(&f.meta, "meta", false, "everything but the value")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on with every later version until interrupted")
	atRevFlag(c, &f.atRev)
	c.ValidArgsFunction = a.completeKeys
	return c
}

// get reads keys one by one; the first refusal is reported after the rest has been printed.
func (a *app) get(ctx context.Context, keys []string, f getFlags) error {
	b, err := a.board(ctx)
	if err != nil {
		return err
	}
	var first error
	shown := uint64(0)
	view := render.View{Table: &render.Table{Columns: render.Cols("KEY", "VERSION", "REV", "TIME", "AUTHOR", "+BYTES",
		"+SOURCE", "VALUE")}}
	for _, key := range keys {
		answer, read, err := b.Get(ctx, key, a.readingAt(f.atRev))
		if err != nil {
			if first == nil {
				first = refused(err)
			}
			continue
		}
		e := answer.GetEntry()
		if shown == 0 {
			shown = read.Rev // later keys may show more: a version twice is better than one that is missing
		}
		if f.raw {
			if err := a.raw(e.GetValue(), f.watch); err != nil {
				return err
			}
			continue
		}
		o := entryObject(e, !f.meta)
		if answer.GetMode() == boardpb.Mode_MODE_APPEND {
			o.Add("count", answer.GetCount())
		}
		if answer.GetLease() != nil {
			o.Add("lease", leaseObject(&wirepb.LeaseRow{Lease: answer.GetLease()}))
		}
		o.Add("mode", modeWord(answer.GetMode()))
		addMark(&o, answer.GetMark())
		if word := markWord(answer.GetMark()); word != "" && !f.raw {
			a.warn("%s@%d: %s; see raftboard trace %s@%d", e.GetKey(), e.GetVersion(), word, e.GetKey(), e.GetVersion())
		}
		view.Lines = append(view.Lines, o)
		view.Names = append(view.Names, e.GetKey())
		value := string(e.GetValue())
		if f.meta {
			value = ""
		}
		view.Table.Row(e.GetKey(), num(e.GetVersion()), num(e.GetRev()), render.Time(e.GetWallMs()), e.GetAuthor(),
			num(uint64(len(e.GetValue()))), e.GetSource(), value)
	}
	if len(keys) == 1 && len(view.Lines) == 1 {
		view.Object = view.Lines[0]
	}
	if len(view.Lines) > 0 {
		if err := a.out.Print(view); err != nil {
			return err
		}
	}
	if first != nil || !f.watch {
		return first
	}
	return a.follow(ctx, b, keys, shown+1, f.raw)
}

// raw writes a value as it is; a terminal gets it escaped and with a line break, a stream one a line.
func (a *app) raw(value []byte, stream bool) error {
	if a.stdoutTerminal || stream {
		value = append(value[:len(value):len(value)], '\n')
	}
	_, err := render.Document(a.stdout, a.stdoutTerminal).Write(value)
	return err
}

func modeWord(m boardpb.Mode) string { return exitcode.EnumWord(m.String(), "MODE_") }

func (a *app) historyCommand() *cobra.Command {
	var limit uint32
	var since, atRev uint64
	var diff bool
	c := leaf(verb{use: "history KEY", short: "Versions of a key, newest first",
		examples: [2]string{`raftboard history draft --limit 5`, `raftboard history draft --diff`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			answer, read, err := b.History(ctx, args[0], limit, 0, a.readingAt(atRev))
			if err != nil {
				return refused(err)
			}
			if diff {
				return a.printDiff(answer.GetEntries())
			}
			return a.printHistory(answer, read.Rev, since)
		}})
	c.Flags().Uint32Var(&limit, "limit", 50, "at most this many versions (500)")
	c.Flags().Uint64Var(&since, "since", 0, "only versions written after this rev")
	atRevFlag(c, &atRev)
	c.Flags().BoolVar(&diff, "diff", false, "what the newest version changed, line by line")
	c.ValidArgsFunction = a.completeKeys
	return c
}

func (a *app) printHistory(answer *wirepb.HistoryAnswer, rev, since uint64) error {
	view := render.View{Lines: []render.Object{},
		Table: &render.Table{Columns: render.Cols("VERSION", "REV", "TIME", "AUTHOR", "+BYTES", "+LOOP", "+SOURCE", "+STATE", "VALUE")}}
	marks := marksByRef(answer.GetMarks())
	for _, e := range answer.GetEntries() {
		if e.GetRev() <= since {
			continue
		}
		value := string(e.GetValue())
		if e.GetDeleted() {
			value = "(deleted)"
		}
		o, mark := entryObject(e, true), markOf(marks, e)
		addMark(&o, mark)
		view.Lines = append(view.Lines, o)
		view.Names = append(view.Names, fmt.Sprintf("%s@%d", e.GetKey(), e.GetVersion()))
		view.Table.Row(num(e.GetVersion()), num(e.GetRev()), render.Time(e.GetWallMs()), e.GetAuthor(),
			num(uint64(len(e.GetValue()))), e.GetLoop(), e.GetSource(), markWord(mark), value)
	}
	view.Object = render.Obj("rev", rev, "versions", view.Lines, "has_more", answer.GetHasMore(),
		"oldest_version", answer.GetOldestVersion())
	return a.out.Print(view)
}

// atRevFlag is of the reads that can look back.
func atRevFlag(c *cobra.Command, rev *uint64) {
	c.Flags().Uint64Var(rev, "at-rev", 0, "as it was right after this rev, as far as history is kept; 0 is now")
}

// maxListed bounds what list reads when it has to sort or filter by itself.
const maxListed = 100_000

type listFlags struct {
	limit        uint32
	author, sort string
	after        string
	atRev        uint64
}

func (a *app) listCommand() *cobra.Command {
	var f listFlags
	c := leaf(verb{use: "list [PATTERN]", short: "Keys without values; a listing reserves nothing",
		long:     "* matches within one segment, ** as the last segment everything below. Without a pattern: everything.",
		examples: [2]string{`raftboard list 'claims/*'`, `raftboard list 'results/**' --author worker-1 --sort rev`},
		args:     cobra.MaximumNArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			pattern := "**"
			if len(args) == 1 {
				pattern = args[0]
			}
			return a.list(ctx, pattern, f)
		}})
	c.Flags().Uint32Var(&f.limit, "limit", 200, "at most this many keys")
	c.Flags().StringVar(&f.author, "author", "", "only keys whose newest version is from this author")
	c.Flags().StringVar(&f.sort, "sort", "key", "key, rev (newest first), bytes (largest first)")
	c.Flags().StringVar(&f.after, "after", "", "continue behind this key")
	atRevFlag(c, &f.atRev)
	c.ValidArgsFunction = a.completeKeys
	return c
}

// list reads as many pages as the flags need, at most maxListed keys.
func (a *app) list(ctx context.Context, pattern string, f listFlags) error {
	by := map[string]func(x, y *wirepb.ListItem) bool{
		"key":   func(x, y *wirepb.ListItem) bool { return x.GetKey() < y.GetKey() },
		"rev":   func(x, y *wirepb.ListItem) bool { return x.GetRev() > y.GetRev() },
		"bytes": func(x, y *wirepb.ListItem) bool { return x.GetBytes() > y.GetBytes() },
	}[f.sort]
	if by == nil {
		return exitcode.Usagef("--sort rev", "--sort %q is none of key, rev, bytes", f.sort)
	}
	if f.limit == 0 {
		return exitcode.Usagef("--limit 200", "--limit must be above zero")
	}
	b, err := a.board(ctx)
	if err != nil {
		return err
	}
	whole := f.author != "" || f.sort != "key"
	items, next, rev, err := a.listPages(ctx, b, pattern, f, whole)
	if err != nil {
		return err
	}
	sort.SliceStable(items, func(i, j int) bool { return by(items[i], items[j]) })
	if len(items) > int(f.limit) {
		items = items[:f.limit]
		next = items[f.limit-1].GetKey()
	}
	view := render.View{Lines: []render.Object{},
		Table: &render.Table{Empty: "no keys yet: raftboard append facts/hello '\"world\"'",
			Columns: render.Cols("KEY", "VERSION", "REV", "TIME", "AUTHOR", "BYTES", "COUNT", "SUMMARY")}}
	for _, it := range items {
		o := render.Obj("key", it.GetKey(), "version", it.GetVersion(), "rev", it.GetRev(), "author", it.GetAuthor(),
			"time", render.Time(it.GetWallMs()), "t_ms", it.GetTMs(), "bytes", it.GetBytes())
		o.AddSet("count", it.GetCount())
		o.AddSet("summary", it.GetSummary())
		o.AddSet("invalidated", it.GetInvalidated())
		o.AddSet("rests_on_invalidated", it.GetRestsOnInvalidated())
		view.Lines, view.Names = append(view.Lines, o), append(view.Names, it.GetKey())
		count := ""
		if it.GetCount() > 0 {
			count = num(it.GetCount())
		}
		view.Table.Row(it.GetKey(), num(it.GetVersion()), num(it.GetRev()), render.Time(it.GetWallMs()), it.GetAuthor(),
			num(it.GetBytes()), count, summaryOf(it))
	}
	view.Object = render.Obj("rev", rev, "keys", view.Lines)
	if next != "" {
		view.Object.Add("next", next)
		a.warn("more keys: --after %s, or a larger --limit", next)
	}
	return a.out.Print(view)
}

// summaryOf is what the writer says of a key in a line, behind what is known to be wrong with it.
func summaryOf(it *wirepb.ListItem) string {
	switch {
	case it.GetInvalidated():
		return strings.TrimSpace("[invalidated] " + it.GetSummary())
	case it.GetRestsOnInvalidated():
		return strings.TrimSpace("[rests on invalidated] " + it.GetSummary())
	}
	return it.GetSummary()
}

func (a *app) listPages(ctx context.Context, b *client.Board, pattern string, f listFlags, whole bool) (
	items []*wirepb.ListItem, next string, rev uint64, err error) {
	next = f.after
	for {
		page := uint32(1000)
		if !whole {
			page = min(page, f.limit-uint32(len(items)))
		}
		answer, read, err := b.List(ctx, pattern, page, next, a.readingAt(f.atRev))
		if err != nil {
			return nil, "", 0, refused(err)
		}
		rev = read.Rev
		for _, it := range answer.GetItems() {
			if f.author == "" || it.GetAuthor() == f.author {
				items = append(items, it)
			}
		}
		next = answer.GetNext()
		if next == "" || len(items) >= maxListed || !whole && len(items) >= int(f.limit) {
			return items, next, rev, nil
		}
	}
}

type dumpFlags struct {
	namespace string
	history   bool
	markdown  bool
	atRev     uint64
}

func (a *app) dumpCommand() *cobra.Command {
	var f dumpFlags
	c := leaf(verb{use: "dump", short: "Everything on the board: entries with values, and leases",
		examples: [2]string{`raftboard dump -o jsonl > board.jsonl`, `raftboard dump --namespace 'results/**' --markdown`},
		args:     cobra.NoArgs,
		run: func(ctx context.Context, _ []string) error {
			defer a.close()
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			return a.dump(ctx, b, f)
		}})
	c.Flags().StringVar(&f.namespace, "namespace", "", "only keys of this pattern")
	c.Flags().BoolVar(&f.history, "history", false, "every retained version instead of the newest")
	atRevFlag(c, &f.atRev)
	c.Flags().BoolVar(&f.markdown, "markdown", false, "as Markdown, one section a key")
	return c
}

// dump streams page by page: a board may be larger than memory should hold. Only -o json needs the whole.
func (a *app) dump(ctx context.Context, b *client.Board, f dumpFlags) error {
	d := &dumper{a: a, f: f, whole: render.Obj("board", a.g.board)}
	for after := ""; ; {
		answer, read, err := b.Dump(ctx, f.namespace, 200, after, a.readingAt(f.atRev))
		if err != nil {
			return refused(err)
		}
		if d.rev == 0 {
			d.rev = read.Rev
		}
		for _, e := range answer.GetEntries() {
			if err := d.entry(ctx, b, e); err != nil {
				return err
			}
		}
		for _, l := range answer.GetLeases() {
			if err := d.lease(l); err != nil {
				return err
			}
		}
		if err := d.flush(); err != nil {
			return err
		}
		if after = answer.GetNext(); after == "" {
			return d.end()
		}
	}
}

// dumper collects or streams what dump reads.
type dumper struct {
	a       *app
	f       dumpFlags
	rev     uint64
	whole   render.Object
	entries []render.Object
	leases  []render.Object
	rows    [][]render.Cell // of the page
	count   int
}

// collects tells whether the form wants one document.
func (d *dumper) collects() bool {
	return !d.f.markdown && (d.a.out.Form == render.FormJSON || d.a.out.Form == render.FormYAML)
}

func (d *dumper) entry(ctx context.Context, b *client.Board, e *boardpb.Entry) error {
	if !d.f.history {
		return d.version(e)
	}
	for before := uint64(0); ; {
		answer, _, err := b.History(ctx, e.GetKey(), 500, before, d.a.readingAt(d.f.atRev))
		if err != nil {
			return refused(err)
		}
		for _, v := range answer.GetEntries() {
			if err := d.version(v); err != nil {
				return err
			}
			before = v.GetVersion()
		}
		if !answer.GetHasMore() {
			return nil
		}
	}
}

func (d *dumper) version(e *boardpb.Entry) error {
	d.count++
	if d.collects() {
		d.entries = append(d.entries, entryObject(e, true))
		return nil
	}
	if d.f.markdown {
		_, err := fmt.Fprintf(render.Document(d.a.stdout, d.a.stdoutTerminal),
			"## %s\n\nversion %d, rev %d, %s, %s\n\n    %s\n\n",
			e.GetKey(), e.GetVersion(), e.GetRev(), e.GetAuthor(), render.Time(e.GetWallMs()), oneLine(e.GetValue()))
		return err
	}
	if !d.a.out.Machine() {
		d.rows = append(d.rows, []render.Cell{{Text: e.GetKey()}, {Text: num(e.GetVersion())}, {Text: num(e.GetRev())},
			{Text: e.GetAuthor()}, {Text: string(e.GetValue())}})
		return nil
	}
	return d.a.out.Stream(append(render.Obj("type", "entry"), entryObject(e, true)...), e.GetKey(), nil, nil)
}

// flush draws the rows of a page together, so that they stand in columns.
func (d *dumper) flush() error {
	rows := d.rows
	d.rows = nil
	if len(rows) == 0 {
		return nil
	}
	return d.a.out.StreamRows(render.Cols("KEY", "VERSION", "REV", "AUTHOR", "VALUE"), rows)
}

func (d *dumper) lease(l *boardpb.Lease) error {
	o := leaseObject(&wirepb.LeaseRow{Lease: l})
	if d.collects() {
		d.leases = append(d.leases, o)
		return nil
	}
	if d.a.out.Form != render.FormLines && d.a.out.Form != render.FormTemplate {
		return nil // people read claims
	}
	return d.a.out.Stream(append(render.Obj("type", "lease"), o...), l.GetKey(), nil, nil)
}

func (d *dumper) end() error {
	if d.collects() {
		d.whole.Add("rev", d.rev)
		d.whole.Add("entries", append([]render.Object{}, d.entries...))
		d.whole.Add("leases", append([]render.Object{}, d.leases...))
		return d.a.out.Print(render.View{Object: d.whole})
	}
	if d.count == 0 && !d.a.out.Machine() {
		d.a.warn("the board %s holds no entries (rev %d)", d.a.g.board, d.rev)
	}
	return nil
}

func oneLine(value []byte) string {
	return string(render.AppendJSON(nil, render.Raw(value), true))
}

// errEnough ends a stream that has shown what was asked for.
var errEnough = errors.New("enough")

// follow prints versions of keys from a rev on, until interrupted.
func (a *app) follow(ctx context.Context, b *client.Board, keys []string, from uint64, raw bool) error {
	return a.watchLoop(ctx, b, watchFlags{values: true, from: num(from)}, keys, func(e *boardpb.Event,
		entry *boardpb.Entry, _ bool) error {
		if entry == nil {
			return nil
		}
		if raw {
			return a.raw(entry.GetValue(), true)
		}
		return a.out.Stream(entryObject(entry, true), entry.GetKey(), render.Cols("KEY", "VERSION", "REV", "TIME",
			"AUTHOR", "VALUE"),
			[]render.Cell{{Text: entry.GetKey()}, {Text: num(entry.GetVersion())}, {Text: num(entry.GetRev())},
				{Text: clockTime(entry.GetWallMs())}, {Text: entry.GetAuthor()}, {Text: string(entry.GetValue())}})
	})
}

func clockTime(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).Format("15:04:05")
}
