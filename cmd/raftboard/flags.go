package main

import (
	"io"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
	wirepb "raftboard/transport/pb"
)

// globals are the flags every command has.
type globals struct {
	endpoints   []string
	board       string
	loop        string
	as          string
	output      string
	noHeaders   bool
	quiet       bool
	verbose     bool
	timeout     time.Duration
	color       string
	consistency string
	atLeast     uint64
}

// app is one run of the binary.
type app struct {
	stdin          io.Reader
	stdout         io.Writer
	stderr         io.Writer
	stdinTerminal  bool
	stdoutTerminal bool
	stderrTerminal bool

	g       globals
	out     *render.Printer
	conn    *conn // made by the first command that needs it
	started bool  // the command line was understood
}

func newApp() *app {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	a.stdinTerminal = term.IsTerminal(int(os.Stdin.Fd()))
	a.stdoutTerminal = term.IsTerminal(int(os.Stdout.Fd()))
	a.stderrTerminal = term.IsTerminal(int(os.Stderr.Fd()))
	a.out = &render.Printer{Out: a.stdout, Form: render.FormTable}
	return a
}

// envNote marks a flag that a variable can set; the value is the variable's name.
const envNote = "raftboard-env"

// fromEnv lets RAFTBOARD_<NAME> set these flags.
func fromEnv(fs *pflag.FlagSet, names ...string) {
	for _, name := range names {
		variable := "RAFTBOARD_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if err := fs.SetAnnotation(name, envNote, []string{variable}); err != nil {
			panic(err) // a name that is no flag: a mistake of this program
		}
	}
}

// variableOf names the variable that sets a flag, or "".
func variableOf(f *pflag.Flag) string {
	if note := f.Annotations[envNote]; len(note) == 1 {
		return note[0]
	}
	return ""
}

// globalFlags declares the flags every command has.
func (a *app) globalFlags(fs *pflag.FlagSet) {
	g := &a.g
	fs.StringSliceVar(&g.endpoints, "endpoints", []string{"127.0.0.1:8970"},
		"gRPC addresses of nodes; one is enough, several survive its loss")
	fs.StringVarP(&g.board, "board", "b", "default", "the board to work on")
	fs.StringVar(&g.loop, "loop", "", "the loop that holds the lease, as claim or run gave it")
	fs.StringVar(&g.as, "as", "", "your name (default: the name of the system's user)")
	fs.StringVarP(&g.output, "output", "o", "table", strings.Join(render.Forms(), ", "))
	fs.BoolVar(&g.noHeaders, "no-headers", false, "no line of column names")
	fs.BoolVarP(&g.quiet, "quiet", "q", false, "no hints, warnings and progress on stderr")
	fs.BoolVarP(&g.verbose, "verbose", "v", false, "say on stderr which node is used")
	fs.DurationVar(&g.timeout, "timeout", 10*time.Second, "longest time for one call")
	fs.StringVar(&g.color, "color", "auto", "auto, always, never")
	fs.StringVar(&g.consistency, "consistency", "linearizable", "of reads: linearizable, at-least, stale")
	fs.Uint64Var(&g.atLeast, "at-least", 0, "read any node that has reached this rev")
	fromEnv(fs, "endpoints", "board", "loop", "as", "output", "timeout")
}

// readEnv gives flags that were not set the value of their variable: flag, then variable, then default.
func readEnv(fs *pflag.FlagSet) error {
	var err error
	fs.VisitAll(func(f *pflag.Flag) {
		variable := variableOf(f)
		value := os.Getenv(variable)
		if err != nil || f.Changed || variable == "" || value == "" {
			return
		}
		if e := fs.Set(f.Name, value); e != nil {
			err = exitcode.Usagef("unset "+variable, "variable %s: %v", variable, e)
		}
	})
	return err
}

// prepare runs before every command: variables, checks of the global flags, the printer.
func (a *app) prepare(cmd *cobra.Command, _ []string) error {
	if err := readEnv(cmd.Flags()); err != nil {
		return err
	}
	g := &a.g
	form, text, err := render.ParseForm(g.output)
	if err != nil {
		return exitcode.Usagef("-o json", "%v", err)
	}
	if g.timeout <= 0 {
		return exitcode.Usagef("--timeout 10s", "--timeout %v must be above zero", g.timeout)
	}
	if !slices.Contains([]string{"auto", "always", "never"}, g.color) {
		return exitcode.Usagef("--color auto", "--color %q is none of auto, always, never", g.color)
	}
	if _, err := g.readMode(); err != nil {
		return err
	}
	auto := a.stdoutTerminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	a.out = &render.Printer{Out: a.stdout, Form: form, Template: text, Terminal: a.stdoutTerminal, NoHeaders: g.noHeaders,
		Color: g.color == "always" || g.color == "auto" && auto}
	a.started = true
	return nil
}

// readMode turns --consistency and --at-least into what a read carries.
func (g *globals) readMode() (wirepb.Consistency, error) {
	switch {
	case g.consistency == "at-least" && g.atLeast == 0:
		return 0, exitcode.Usagef("--at-least REV", "--consistency at-least needs --at-least REV")
	case g.consistency == "at-least", g.consistency == "linearizable" && g.atLeast > 0:
		return wirepb.Consistency_CONSISTENCY_AT_LEAST, nil
	case g.consistency == "linearizable":
		return wirepb.Consistency_CONSISTENCY_LINEARIZABLE, nil
	case g.consistency == "stale" && g.atLeast == 0:
		return wirepb.Consistency_CONSISTENCY_STALE, nil
	}
	return 0, exitcode.Usagef("--consistency linearizable",
		"--consistency %q is none of linearizable, at-least, stale (only at-least goes with --at-least)", g.consistency)
}

// validName is the grammar of a principal.
func validName(s string) bool {
	reserved := []string{"all", "swarm", "system", "anonymous", "operator"}
	return regexp.MustCompile(`^[a-z][a-z0-9_-]{0,47}$`).MatchString(s) && !slices.Contains(reserved, s)
}

// whoAmI is --as, or the system's user folded to the grammar of names.
func (a *app) whoAmI() (string, error) {
	if a.g.as != "" {
		if !validName(a.g.as) {
			return "", exitcode.Usagef("--as worker-1",
				"--as %q is no name: a letter a-z, then a-z 0-9 _ -, at most 48; all, swarm, system, anonymous and operator are reserved", a.g.as)
		}
		return a.g.as, nil
	}
	u, err := user.Current()
	if err != nil {
		return "", exitcode.Usagef("--as NAME", "the system does not say who you are: %v", err)
	}
	name := foldName(u.Username)
	if !validName(name) {
		return "", exitcode.Usagef("--as NAME", "the user name %q gives no usable name", u.Username)
	}
	return name, nil
}

// foldName makes a system's user name fit: DOMAIN\Jane.Doe becomes jane-doe.
func foldName(s string) string {
	if i := strings.LastIndexAny(s, `\/`); i >= 0 {
		s = s[i+1:]
	}
	folded := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
	folded = strings.TrimLeft(folded, "-_0123456789")
	return folded[:min(len(folded), 48)]
}
