package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
)

func main() { os.Exit(realMain()) }

// realMain exists for the test scripts, which run it under the name of the binary.
func realMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends a command at once
	defer stop()
	return exitcode.From(run(ctx, os.Args[1:]))
}

// run executes one command line. What went wrong has been said on stderr when it returns.
func run(ctx context.Context, args []string) error {
	a := newApp()
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.started && exitcode.From(err) == exitcode.Other {
		err = exitcode.Usagef(usageHint(cmd, args), "%s", err) // cobra's own: unknown command, arguments
	}
	return a.report(ctx, err)
}

// usageHint leads to the manual of the command that was meant.
func usageHint(cmd *cobra.Command, args []string) string {
	if !cmd.HasParent() {
		for _, arg := range args {
			if near := cmd.SuggestionsFor(arg); len(near) > 0 {
				return "raftboard " + near[0] + "?"
			}
		}
	}
	return cmd.CommandPath() + " --help"
}

// report says what went wrong: words on stderr, and for programs the refusal itself on stdout.
func (a *app) report(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && exitcode.From(err) == exitcode.Unavailable { // nobody waited for the answer
		err = fmt.Errorf("interrupted: %w", context.Canceled)
	}
	line, hint := exitcode.Explain(err)
	if line == "" {
		return err
	}
	a.printRefusal(err)
	w := render.Document(a.stderr, a.stderrTerminal)
	fmt.Fprintln(w, line)
	if hint != "" && !a.g.quiet {
		fmt.Fprintln(w, "hint: "+hint)
	}
	return err
}
