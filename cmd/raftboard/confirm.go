package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"raftboard/cmd/raftboard/exitcode"
)

// confirmFlags belong to every verb that can't be taken back.
type confirmFlags struct {
	yes, dryRun bool
}

func (f *confirmFlags) declare(fs *pflag.FlagSet) {
	fs.BoolVar(&f.yes, "yes", false, "do not ask")
	fs.BoolVar(&f.dryRun, "dry-run", false, "say what would be done, do nothing")
}

// confirm asks on a terminal; elsewhere the verb needs --yes.
func (a *app) confirm(f confirmFlags, what string) (bool, error) {
	switch {
	case f.dryRun:
		fmt.Fprintln(a.stdout, "would "+what)
		return false, nil
	case f.yes:
		return true, nil
	case !a.stdinTerminal || !a.stderrTerminal:
		return false, exitcode.Usagef("--yes", "this would %s: say so with --yes", what)
	}
	fmt.Fprintf(a.safeErr(), "This will %s. Go on? [y/N] ", what)
	line, err := bufio.NewReader(a.stdin).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err == nil && (answer == "y" || answer == "yes") {
		return true, nil
	}
	return false, &exitcode.Error{Status: exitcode.Other, Msg: "nothing was done"}
}
