package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"raftboard/jepsen/check"
	"raftboard/jepsen/suite"
)

// 0 to 3 are verdicts.
const (
	exitUsage       = 64  // a command line that makes no sense
	exitInterrupted = 130 // as a shell shows it
)

// errInterrupted is why a run has no verdict when somebody ended it.
var errInterrupted = errors.New("interrupted before there was a verdict")

func main() { os.Exit(realMain(os.Args[1:], os.Stdout, os.Stderr)) }

func realMain(args []string, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	defer stop()
	root := newRoot(out, errs)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var judged verdictError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &judged):
		return suite.Code(judged.verdict)
	case ctx.Err() != nil:
		if !errors.Is(err, errInterrupted) {
			err = errInterrupted
		}
		fmt.Fprintln(errs, "faults:", err)
		return exitInterrupted
	}
	fmt.Fprintln(errs, "faults:", err)
	return exitUsage
}

// verdictError carries a verdict that is not VALID out of a command; it has been shown.
type verdictError struct{ verdict check.Verdict }

func (e verdictError) Error() string { return "verdict " + string(e.verdict) }

// verdict is what a command returns when it has shown its outcome.
func verdict(v check.Verdict) error {
	if v == check.VALID {
		return nil
	}
	return verdictError{v}
}

func newRoot(out, errs io.Writer) *cobra.Command {
	root := &cobra.Command{Use: "faults", Short: "Run raftboard under faults and judge what happened",
		Long: "Runs raftboard under faults and judges what happened.\n\n" +
			"Exit status: 0 VALID, 1 FAILED, 2 INVALID, 3 UNKNOWN, 64 for a command line that makes no sense,\n" +
			"130 interrupted: what a run has made is taken away, and there is no verdict.\n" +
			"`go run` shows any of them as 1; build the command to see them.",
		SilenceErrors: true, SilenceUsage: true, CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}}
	root.SetOut(out)
	root.SetErr(errs)
	root.AddCommand(listCommand(), runCommand(), matrixCommand(), mutantsCommand(), analyzeCommand(), needsCommand())
	return root
}
