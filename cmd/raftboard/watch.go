package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"raftboard/client"
	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
)

type watchFlags struct {
	from   string
	kinds  []string
	count  uint64
	exec   string
	to     string
	values bool
}

func (a *app) watchCommand() *cobra.Command {
	var f watchFlags
	c := leaf(verb{use: "watch [PATTERN…]", short: "Tail the feed: every change, in order, without gaps, across failovers",
		long: "--exec runs CMD by sh -c once for each event, with the event as JSON on its standard input.",
		examples: [2]string{`raftboard watch 'claims/*' --from 18390`,
			`raftboard watch --kinds complete,fail --exec 'jq -r .key'`},
		args: cobra.ArbitraryArgs,
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				args = []string{"**"}
			}
			shown := uint64(0)
			err = a.watchLoop(ctx, b, f, args, func(e *boardpb.Event, entry *boardpb.Entry, gone bool) error {
				if err := a.watched(ctx, f, e, entry, gone); err != nil {
					return err
				}
				if shown++; shown == f.count {
					return errEnough
				}
				return nil
			})
			if errors.Is(err, errEnough) {
				return nil
			}
			return err
		}})
	c.Flags().StringVar(&f.from, "from", "now", "REV, now, or snapshot (what is there, then what changes)")
	c.Flags().StringSliceVar(&f.kinds, "kinds", nil, "only these kinds: set,claim,complete,…")
	c.Flags().Uint64Var(&f.count, "count", 0, "end after this many")
	c.Flags().StringVar(&f.exec, "exec", "", "run this for each event")
	c.Flags().StringVar(&f.to, "to", "", "only events addressed to this role or principal")
	c.Flags().BoolVar(&f.values, "values", false, "with the value each event speaks of")
	c.ValidArgsFunction = a.completeKeys
	return c
}

// options turns the flags into those of the client.
func (f *watchFlags) options(patterns []string) (client.WatchOptions, error) {
	o := client.WatchOptions{Patterns: patterns, IncludeValues: f.values, To: f.to}
	switch f.from {
	case "now":
	case "snapshot":
		o.Snapshot = true
	default:
		rev, err := strconv.ParseUint(f.from, 10, 64)
		if err != nil || rev == 0 {
			return o, exitcode.Usagef("--from 1", "--from %q is neither a rev nor now nor snapshot", f.from)
		}
		o.FromRev = rev
	}
	for _, kind := range f.kinds {
		n, known := boardpb.Kind_value["KIND_"+strings.ToUpper(kind)]
		if !known || n == 0 {
			return o, exitcode.Usagef("--kinds set,append,claim,complete", "%q is no kind of event", kind)
		}
		o.Kinds = append(o.Kinds, boardpb.Kind(n))
	}
	return o, nil
}

// watchLoop hands every event, and every entry of a snapshot (with a nil event), to show.
func (a *app) watchLoop(ctx context.Context, b *client.Board, f watchFlags, patterns []string,
	show func(*boardpb.Event, *boardpb.Entry, bool) error) error {
	opts, err := f.options(patterns)
	if err != nil {
		return err
	}
	opts.OnState = func(s client.State) {
		if s.Err != nil && ctx.Err() == nil {
			a.warn("%s %s: %v", s.Kind, s.Endpoint, s.Err)
		}
	}
	w, err := b.Watch(ctx, opts)
	if err != nil {
		return refused(err)
	}
	defer w.Close()
	for _, pattern := range w.Unmatched() {
		a.warn("warning: no namespace of the board can match %s", pattern)
	}
	for {
		m, err := w.Next(ctx)
		if err != nil {
			return refused(err)
		}
		switch m.Kind {
		case client.MessageEvent, client.MessageEntry:
			err = show(m.Event, m.Entry, m.ValueGone)
		case client.MessageSnapshotEnd:
			a.warn("-- snapshot of rev %d ends here --", m.Rev)
		}
		if err != nil {
			return err
		}
	}
}

// watched prints one event, or runs the command of --exec for it.
func (a *app) watched(ctx context.Context, f watchFlags, e *boardpb.Event, entry *boardpb.Entry, gone bool) error {
	var o render.Object
	if e == nil {
		o = append(render.Obj("kind", "snapshot"), entryObject(entry, f.values)...)
		e = &boardpb.Event{Rev: entry.GetRev(), WallMs: entry.GetWallMs(), Key: entry.GetKey(), Author: entry.GetAuthor(),
			Version: entry.GetVersion()}
	} else {
		o = eventObject(e)
		if f.values && entry != nil {
			o.Add("value", render.Raw(entry.GetValue()))
		}
		o.AddSet("value_gone", gone)
	}
	if f.exec != "" {
		return execEvent(ctx, f.exec, o)
	}
	kind := "snapshot"
	if e.GetKind() != boardpb.Kind_KIND_UNSPECIFIED {
		kind = kindWord(e.GetKind())
	}
	row := []render.Cell{{Text: fmt.Sprintf("%-5d", e.GetRev())}, {Text: clockTime(e.GetWallMs())},
		{Text: fmt.Sprintf("%-13s", kind)},
		{Text: fmt.Sprintf("%-20s", e.GetKey())}, {Text: fmt.Sprintf("%-10s", e.GetAuthor())}, {Text: eventDetail(e)}}
	if f.values && entry != nil {
		row = append(row, render.Cell{Text: string(entry.GetValue())})
	}
	return a.out.Stream(o, e.GetKey(), render.Cols("REV", "TIME", "KIND", "KEY", "AUTHOR", "DETAIL", "VALUE")[:len(row)], row)
}

// eventDetail says what else there is to know, in a few words.
func eventDetail(e *boardpb.Event) string {
	var parts []string
	add := func(format string, n uint64) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, n))
		}
	}
	add("version %d", e.GetVersion())
	add("generation %d", e.GetGeneration())
	add("before %d", e.GetPriorGeneration())
	if e.GetHolder() != "" {
		parts = append(parts, "holder "+e.GetHolder())
	}
	if e.GetCause() != boardpb.EndedBy_ENDED_BY_UNSPECIFIED {
		parts = append(parts, exitcode.EnumWord(e.GetCause().String(), "ENDED_BY_"))
	}
	if e.GetCode() != boardpb.Code_CODE_UNSPECIFIED {
		parts = append(parts, exitcode.EnumWord(e.GetCode().String(), "CODE_"))
	}
	if e.GetReason() != "" {
		parts = append(parts, e.GetReason())
	}
	if e.GetTo() != "" {
		parts = append(parts, "to "+e.GetTo())
	}
	return strings.Join(parts, ", ")
}

// execEvent runs the command of --exec; its failure ends the watch.
func execEvent(ctx context.Context, line string, o render.Object) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Stdin = bytes.NewReader(append(render.AppendJSON(nil, o, true), '\n'))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return &exitcode.Error{Status: exitcode.Other, Msg: fmt.Sprintf("--exec failed at rev %v: %v", o.Get("rev"), err),
			Hint: fmt.Sprintf("continue with --from %v", o.Get("rev"))}
	}
	return nil
}
