package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"raftboard/cmd/raftboard/demo"
	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
)

func (a *app) demoCommand() *cobra.Command {
	o := demo.Options{}
	var interactive bool
	c := leaf(verb{use: "demo", short: "Three nodes and some workers share real work while things break; then count",
		long: "Kills the leader and restarts it, kills a worker, pauses another past its lease. Counts from the workers' own logs\n" +
			"and the feed. Exit 0 only if nothing was lost or done twice, a late write was refused, and the totals match.",
		examples: [2]string{`raftboard demo`, `raftboard demo --dir "$(go env GOROOT)/src/net" -o json`},
		args:     cobra.NoArgs,
		run: func(ctx context.Context, _ []string) error {
			return a.demo(ctx, o, interactive)
		}})
	c.Flags().StringVar(&o.Dir, "dir", "", "work on the files below this directory (default: an embedded collection of short texts)")
	c.Flags().IntVar(&o.Workers, "workers", 4, "worker processes")
	c.Flags().IntVar(&o.Nodes, "nodes", 3, "node processes: 3 or 5")
	c.Flags().BoolVar(&o.Keep, "keep", false, "keep data directories and logs, and say where")
	c.Flags().BoolVar(&interactive, "interactive", false, "you break things: k, r, w, q")
	c.Flags().StringVar(&o.Inject, "inject", "", "break a promise on purpose: double or loss; the demo must fail")
	return c
}

func (a *app) demo(ctx context.Context, o demo.Options, interactive bool) error {
	var err error
	if o.Binary, err = os.Executable(); err != nil {
		return err
	}
	talk := &demoTalk{a: a}
	o.Say, o.Progress = talk.say, talk.progress
	if err := o.Validate(); err != nil {
		return exitcode.Usagef("raftboard demo --help", "%v", err)
	}
	if interactive {
		if !a.stdinTerminal {
			return exitcode.Usagef("raftboard demo", "--interactive needs a terminal")
		}
		state, err := term.MakeRaw(int(os.Stdin.Fd()))
		if err != nil {
			return err
		}
		talk.restore = func() { term.Restore(int(os.Stdin.Fd()), state) }
		defer talk.restore() // also when the demo panics
		o.Keys = keys(a.stdin)
	}
	r, err := demo.Run(ctx, o)
	talk.clear()
	if talk.restore != nil {
		talk.restore()
	}
	if err != nil {
		return err
	}
	if err := a.out.Print(demoView(r, interactive)); err != nil || r.Passed() {
		return err
	}
	return &exitcode.Error{Status: exitcode.Other, Msg: "the demo failed: " + strings.Join(r.Problems, "; "),
		Hint: "raftboard demo --keep leaves the logs behind"}
}

// keys reads single keys until standard input ends; the process does not wait for it.
func keys(r io.Reader) <-chan byte {
	out := make(chan byte)
	go func() {
		defer close(out)
		buf := make([]byte, 1)
		for {
			if _, err := r.Read(buf); err != nil {
				return
			}
			out <- buf[0]
		}
	}()
	return out
}

// demoTalk writes events line by line, and the progress as one line that is drawn again, on terminals only.
type demoTalk struct {
	a       *app
	restore func() // out of raw mode, in which a terminal needs its own carriage returns; nil: it is not raw
	drawn   bool
}

func (t *demoTalk) say(who, what string) {
	if t.a.g.quiet {
		return
	}
	t.clear()
	end := "\n"
	if t.restore != nil {
		end = "\r\n"
	}
	line := fmt.Sprintf("%s  %-9s %s", time.Now().Format("15:04:05"), who, what)
	if t.a.stderrTerminal {
		line = render.Safe(line)
	}
	fmt.Fprint(t.a.stderr, line+end)
}

func (t *demoTalk) progress(done, items int, note string) {
	if t.a.g.quiet || !t.a.stderrTerminal {
		return
	}
	fmt.Fprintf(t.a.stderr, "\r\x1b[K%d of %d items done  %s", done, items, note)
	t.drawn = true
}

func (t *demoTalk) clear() {
	if t.drawn {
		fmt.Fprint(t.a.stderr, "\r\x1b[K")
		t.drawn = false
	}
}

// demoView is the report in every form.
func demoView(r *demo.Report, interactive bool) render.View {
	faults := "at least 1"
	if interactive { // somebody else decided which faults there were
		faults = ""
	}
	o := render.Obj("items", r.Items, "completed", r.Completed, "completed_twice", r.CompletedTwice, "lost", r.Lost,
		"fenced_writes", r.FencedWrites, "reclaims", r.Reclaims, "leader_changes", r.LeaderChanges,
		"longest_pause_ms", r.LongestPauseMS, "conflict_rate", r.ConflictRate, "writes_per_s", round(r.WritesPerS),
		"totals_match", r.TotalsMatch, "passed", r.Passed(), "writes", r.Writes, "seconds", round(r.Seconds),
		"disk_syncs_per_s", round(r.DiskSyncsPerS), "lines", r.Totals.Lines, "words", r.Totals.Words, "bytes", r.Totals.Bytes,
		"problems", append([]string{}, r.Problems...))
	t := &render.Table{Columns: render.Cols("WHAT", "COUNT", "MUST BE")}
	row := func(what string, value any, must string) { t.Row(what, fmt.Sprint(value), must) }
	row("items", r.Items, "")
	row("completed", r.Completed, fmt.Sprint(r.Items))
	row("completed twice", r.CompletedTwice, "0")
	row("lost", r.Lost, "0")
	row("refused late writes", r.FencedWrites, faults)
	row("reclaims", r.Reclaims, faults)
	row("leader changes", r.LeaderChanges, faults)
	row("totals match", r.TotalsMatch, "true")
	row("longest write pause", fmt.Sprintf("%.1f s", float64(r.LongestPauseMS)/1000), "")
	row("conflict rate", fmt.Sprintf("%.1f %%", 100*r.ConflictRate), "")
	row("acknowledged writes", fmt.Sprintf("%d (%.0f a second)", r.Writes, r.WritesPerS), "")
	row("disk syncs a second", fmt.Sprintf("%.0f", r.DiskSyncsPerS), "")
	row("lines, words, bytes", fmt.Sprintf("%d, %d, %d", r.Totals.Lines, r.Totals.Words, r.Totals.Bytes), "")
	return render.View{Object: o, Names: []string{map[bool]string{true: "passed", false: "failed"}[r.Passed()]}, Table: t}
}

func round(x float64) float64 { return float64(int64(x*10+0.5)) / 10 }

// demoNodeCommand is serve with a lifeline: the node of a demo ends when its parent does.
func (a *app) demoNodeCommand() *cobra.Command {
	c := a.serveCommand()
	c.Use, c.Hidden, c.Short = "demo-node", true, "A node of the demo; it ends when its standard input closes"
	serve := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithCancel(cmd.Context())
		defer cancel()
		go func() { // ends with the parent's end of the pipe
			defer cancel()
			_, _ = io.Copy(io.Discard, a.stdin)
		}()
		cmd.SetContext(ctx)
		return serve(cmd, args)
	}
	return c
}

// demoWorkerCommand is one worker of the demo.
func (a *app) demoWorkerCommand() *cobra.Command {
	o := demo.WorkerOptions{}
	c := leaf(verb{use: "demo-worker", short: "A worker of the demo; it ends when its standard input closes",
		examples: [2]string{`raftboard demo-worker --as worker-1 --dir ./texts --acks worker-1.acks`, `raftboard demo`},
		args:     cobra.NoArgs,
		run: func(ctx context.Context, _ []string) error {
			o.Endpoints, o.Name = a.g.endpoints, a.g.as
			return demo.Work(ctx, o, a.stdin)
		}})
	c.Hidden = true
	c.Flags().StringVar(&o.Dir, "dir", "", "where the files are")
	c.Flags().StringVar(&o.AckLog, "acks", "", "where answers are written down")
	c.Flags().DurationVar(&o.Pace, "pace", 0, "how long an item takes at least")
	c.Flags().IntVar(&o.AtOnce, "at-once", 1, "items at the same time")
	c.Flags().BoolVar(&o.Lie, "lie", false, "once, log a completion that was never sent")
	return c
}
