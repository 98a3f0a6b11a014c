package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftboard/jepsen/check"
	"raftboard/jepsen/planted/table"
	"raftboard/jepsen/suite"
)

// mutantFlags say which bugs are planted, and how long each may take to be caught.
type mutantFlags struct {
	only   []string
	driver string
	runs   int
	seed   uint64
	output string
	dir    string
}

func mutantsCommand() *cobra.Command {
	f := &mutantFlags{}
	c := &cobra.Command{Use: "mutants [M1 M2 …]", Short: "Plant each bug and see that the checker named for it fires",
		Long: "Runs each planted bug with the workload and the nemeses that should show it, until one of the checkers\n" +
			"named for it fires, and then the same seed without the bug, which must be VALID. Exit status 1 when a bug\n" +
			"was not caught, or when the build without it is not clean.",
		RunE: func(cmd *cobra.Command, args []string) error {
			f.only = args
			return f.run(cmd)
		}}
	c.Flags().StringVar(&f.driver, "driver", "", "only the bugs of this driver: sim, netns, test or harness")
	c.Flags().IntVar(&f.runs, "runs", 8, "runs after which a bug counts as not caught")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "the first")
	addOutput(c, &f.output, &f.dir)
	return c
}

func (f *mutantFlags) chosen() (chosen []table.Mutant, err error) {
	all := table.Mutants()
	for _, name := range f.only {
		if !slices.ContainsFunc(all, func(m table.Mutant) bool { return m.Name == name }) {
			return nil, fmt.Errorf("no planted bug %q: see list bugs", name)
		}
	}
	for _, m := range all {
		if len(f.only) > 0 && !slices.Contains(f.only, m.Name) {
			continue
		}
		for _, driver := range []string{m.Driver, m.Also} {
			if driver != "" && (f.driver == "" || f.driver == driver) {
				m.Driver = driver
				chosen = append(chosen, m)
			}
		}
	}
	if len(chosen) == 0 {
		err = fmt.Errorf("no planted bug is asked for: the drivers are sim, netns, test and harness, and list bugs says which has which")
	}
	return chosen, err
}

func (f *mutantFlags) run(cmd *cobra.Command) error {
	if err := errors.Join(checkOutput(f.output), checkZeros(cmd, "runs")); err != nil {
		return err
	}
	mutants, err := f.chosen()
	if err != nil {
		return err
	}
	var done func()
	if f.dir, done, err = outputDir(f.dir); err != nil {
		return err
	}
	defer done()
	b := &builds{ctx: cmd.Context(), progress: cmd.ErrOrStderr()}
	defer b.remove()
	var all []suite.Caught
	bad := 0
	var interrupted error
	for _, m := range mutants {
		c, err := f.one(cmd.Context(), b, m)
		if cmd.Context().Err() != nil {
			interrupted = interruptedIn(f.dir)
			break // those before it have their page
		}
		if err != nil {
			return err
		}
		if !c.OK() {
			bad++
		}
		all = append(all, c)
		showCaught(cmd.OutOrStdout(), f.output, c)
	}
	if err := suite.Keep(f.dir, "go run ./jepsen/cmd/faults mutants", nil, all); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%d planted bugs, %d not as they should be; page: %s\n", len(all), bad, filepath.Join(f.dir, suite.PageFile))
	if interrupted != nil {
		return interrupted
	}
	if bad > 0 {
		return verdict(check.FAILED)
	}
	return nil
}

// one plants one bug.
func (f *mutantFlags) one(ctx context.Context, b *builds, m table.Mutant) (suite.Caught, error) {
	c := suite.Caught{Mutant: m, NotHere: true}
	switch {
	case m.Open != "":
		return c, nil
	case m.Driver == table.Test:
		return f.directed(ctx, m)
	case m.Driver == table.Harness:
		return f.selfTest(ctx, m)
	}
	if err := built(b, m); err != nil {
		return c, err
	}
	began := time.Now()
	for n := 0; n < f.runs && !(c.Caught && c.Clean); n++ {
		plan, err := suite.MutantPlan(m, n, f.seed).Complete()
		if err != nil {
			return c, fmt.Errorf("%s: %w", m.Name, err)
		}
		o, err := f.alone(ctx, b, plan)
		if err != nil {
			return c, err
		}
		c.Runs, c.Took, c.Seed, c.Dir = n+1, time.Since(began), plan.Seed, o.Dir
		c.By, c.Caught = o.Fired, suite.Catches(m, o)
		c.Said = strings.Join(append(o.Findings[:min(len(o.Findings), 1)], o.Error), "")
		if !c.Caught {
			continue
		}
		clean, err := f.alone(ctx, b, plan.Without())
		if err != nil {
			return c, err
		}
		if c.Clean = clean.Verdict == check.VALID; !c.Clean {
			c.Said = "without the bug: " + clean.Line() + " " + strings.Join(clean.Findings, "; ")
		}
		if clean.Verdict == check.FAILED {
			break // what fires without the bug proves nothing; a run that proves nothing is made again
		}
	}
	return c, f.elsewhere(ctx, b, &c)
}

// built makes the binaries that a bug needs, so that the time it takes to catch one is not that
// of the compiler.
func built(b *builds, m table.Mutant) (err error) {
	switch {
	case m.Driver == table.Sim:
		_, err = b.sim(true)
	default:
		_, err = b.server(true, false)
		if err == nil && m.Clients {
			_, err = b.self()
		}
	}
	return err
}

// elsewhere plants the bug under the nemeses that must not show it.
func (f *mutantFlags) elsewhere(ctx context.Context, b *builds, c *suite.Caught) error {
	for _, nemesis := range c.Mutant.NotUnder {
		plan := suite.MutantPlan(c.Mutant, 0, f.seed)
		plan.Nemeses = []string{nemesis}
		plan, err := plan.Complete()
		if err != nil {
			return err
		}
		o, err := f.alone(ctx, b, plan)
		if err != nil {
			return err
		}
		if o.Verdict != check.VALID {
			c.NotHere, c.Said = false, fmt.Sprintf("under %s it was to go unseen, and was %s: %v", nemesis, o.Verdict, o.Findings)
		}
	}
	return nil
}

// alone makes one run. Bugs of the client are planted in this process, so with real processes
// it hands over to a build of itself that can have them.
func (f *mutantFlags) alone(ctx context.Context, b *builds, plan suite.Plan) (o suite.Outcome, err error) {
	if plan.Driver == suite.Sim {
		err = runSim(ctx, b, []suite.Plan{plan}, f.dir, false, func(got suite.Outcome) { o = got })
		return o, err
	}
	return runNetns(ctx, b, plan, f.dir, false), ctx.Err()
}

// directed runs the test that shows a bug which no workload can be expected to meet.
func (f *mutantFlags) directed(ctx context.Context, m table.Mutant) (suite.Caught, error) {
	pkg, run, _ := strings.Cut(m.Test, " -run ")
	return f.goTest(ctx, m, "-tags", tag, "-run", run, pkg)
}

// selfTest runs the tests of the checkers, which spoil histories as a broken harness would.
func (f *mutantFlags) selfTest(ctx context.Context, m table.Mutant) (suite.Caught, error) {
	return f.goTest(ctx, m, "-run", "Harness|Spoiled", "./jepsen/check", "./jepsen/sim")
}

// goTest counts a bug as caught when tests ran and passed.
func (f *mutantFlags) goTest(ctx context.Context, m table.Mutant, args ...string) (suite.Caught, error) {
	c := suite.Caught{Mutant: m, NotHere: true, Runs: 1}
	root, err := moduleRoot(ctx)
	if err != nil {
		return c, err
	}
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-v"}, args...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	passed := err == nil && strings.Contains(string(out), "--- PASS: ")
	c.Took, c.Caught, c.Clean = time.Since(began), passed, passed
	c.By, c.Said = m.Fires, "the tests show it with the bug, and nothing without"
	if !passed {
		c.By, c.Said = nil, fmt.Sprintf("go test %s: %v", strings.Join(args, " "), err)
	}
	return c, nil
}

func showCaught(w io.Writer, output string, c suite.Caught) {
	if output == "json" {
		_ = json.NewEncoder(w).Encode(c)
		return
	}
	word := "caught"
	switch {
	case c.Mutant.Open != "":
		fmt.Fprintf(w, "%-5s %-7s %s; %s\n", c.Mutant.Name, "open", c.Mutant.What, c.Mutant.Open)
		return
	case !c.Caught:
		word = "MISSED"
	case !c.OK():
		word = "WRONG"
	}
	fmt.Fprintf(w, "%-5s %-7s %-5s by %v of %v, run %d, %v: %s\n", c.Mutant.Name, word, c.Mutant.Driver, c.By, c.Mutant.Fires, c.Runs,
		c.Took.Round(100*time.Millisecond), c.Mutant.What)
	if !c.OK() {
		fmt.Fprintf(w, "      %s\n", c.Said)
	}
}
