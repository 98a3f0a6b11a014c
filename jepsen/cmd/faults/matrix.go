package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"raftboard/jepsen/check"
	"raftboard/jepsen/suite"
	"raftboard/jepsen/workload"
)

// matrixFlags say which part of the grid is run.
type matrixFlags struct {
	driver    string
	time      time.Duration
	rate      int
	seed      uint64
	seeds     int
	nightly   bool
	budget    time.Duration
	workloads []string
	columns   []string
	output    string
	dir       string
}

func matrixCommand() *cobra.Command {
	f := &matrixFlags{}
	c := &cobra.Command{Use: "matrix", Short: "Run the grid of workloads and nemeses", Args: cobra.NoArgs,
		Long: "Runs every cell of the grid that belongs to a full run; --nightly adds the others. Runs that the\n" +
			"driver cannot make are listed as such. Writes a page of the whole suite into --dir.",
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) }}
	fs := c.Flags()
	fs.StringVar(&f.driver, "driver", suite.Sim, "sim or netns")
	fs.DurationVar(&f.time, "time", 0, "of each run, from the first operation to the heal (10s on sim, 60s on netns)")
	fs.IntVar(&f.rate, "rate", 0, "operations per second of all clients")
	fs.Uint64Var(&f.seed, "seed", 1, "the first")
	fs.IntVar(&f.seeds, "seeds", 1, "runs of each cell")
	fs.BoolVar(&f.nightly, "nightly", false, "also the cells of the night")
	fs.DurationVar(&f.budget, "budget", 0, "begin no further run after this long; cells that were not run are listed (0: no bound)")
	fs.StringSliceVar(&f.workloads, "workloads", nil, "only these")
	fs.StringSliceVar(&f.columns, "columns", nil, "only these, by their names in the grid: N1-2, N7 …")
	addOutput(c, &f.output, &f.dir)
	return c
}

// plans are the runs asked for, all cells with one seed before any with the next, and what
// the driver cannot do.
func (f *matrixFlags) plans() (plans []suite.Plan, impossible []string, err error) {
	for _, name := range f.workloads {
		if _, err := workload.New(name); err != nil {
			return nil, nil, err
		}
	}
	for _, name := range f.columns {
		if !slices.ContainsFunc(suite.Grid(), func(c suite.Cell) bool { return c.Column == name }) {
			return nil, nil, fmt.Errorf("no column %q: there are %s", name, strings.Join(suite.Columns(), ", "))
		}
	}
	for i := range f.seeds {
		for _, cell := range suite.Grid() {
			switch {
			case !cell.Full && !f.nightly,
				len(f.workloads) > 0 && !slices.Contains(f.workloads, cell.Workload),
				len(f.columns) > 0 && !slices.Contains(f.columns, cell.Column):
				continue
			}
			if missing := suite.CannotDo(f.driver, cell.Nemeses); len(missing) > 0 {
				if i == 0 {
					impossible = append(impossible, fmt.Sprintf("%s × %s: %s cannot do %v", cell.Workload, cell.Column, f.driver, missing))
				}
				if cell.Nemeses = without(cell.Nemeses, missing); len(cell.Nemeses) == 0 {
					continue
				}
			}
			p := cell.Plan(f.driver, f.time, f.seed+uint64(i))
			p.Rate = f.rate
			if p, err = p.Complete(); err != nil {
				return nil, nil, err
			}
			plans = append(plans, p)
		}
	}
	if len(plans) == 0 {
		err = fmt.Errorf("the grid has no such cell on %s: see list, and --nightly for the cells of the night", f.driver)
	}
	return plans, impossible, err
}

func without(names, missing []string) (left []string) {
	for _, n := range names {
		if !slices.Contains(missing, n) {
			left = append(left, n)
		}
	}
	return left
}

func (f *matrixFlags) run(cmd *cobra.Command) error {
	if err := errors.Join(checkOutput(f.output), checkZeros(cmd, "time", "rate", "seeds")); err != nil {
		return err
	}
	plans, impossible, err := f.plans()
	if err != nil {
		return err
	}
	var done func()
	if f.dir, done, err = outputDir(f.dir); err != nil {
		return err
	}
	defer done()
	progress := cmd.ErrOrStderr()
	for _, text := range impossible {
		fmt.Fprintln(progress, text)
	}
	show := showLines(cmd.OutOrStdout(), f.output)
	var outcomes []suite.Outcome
	began, worst, unrun := time.Now(), check.VALID, 0
	var interrupted error
	for len(plans) > 0 {
		if f.budget > 0 && time.Since(began) > f.budget {
			unrun = len(plans)
			break
		}
		slice := plans[:min(len(plans), cmp.Or(f.slice(), 1))]
		plans = plans[len(slice):]
		err := runAll(cmd.Context(), progress, slice, f.dir, false, func(o suite.Outcome) {
			worst, outcomes = suite.Worst(worst, o.Verdict), append(outcomes, o)
			show(o)
		})
		if errors.Is(err, errInterrupted) {
			interrupted = err
			break
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(progress, "%d runs in %v, %d to go\n", len(outcomes), time.Since(began).Round(time.Second), len(plans))
	}
	if unrun > 0 {
		fmt.Fprintf(progress, "the budget is spent: %d runs were not made\n", unrun)
	}
	fmt.Fprintln(progress, suite.Sum(outcomes))
	if err := suite.Keep(f.dir, f.command(cmd), outcomes, nil); err != nil {
		return err
	}
	fmt.Fprintln(progress, "page:", filepath.Join(f.dir, suite.PageFile))
	if interrupted != nil {
		return interrupted
	}
	if unrun > 0 {
		worst = suite.Worst(worst, check.INVALID)
	}
	return verdict(worst)
}

// command is the command line that asks for the same part of the grid again.
func (f *matrixFlags) command(cmd *cobra.Command) string {
	line := "go run ./jepsen/cmd/faults matrix --driver " + f.driver
	cmd.Flags().Visit(func(set *pflag.Flag) {
		switch set.Name {
		case "driver", "dir", "output":
		case "nightly":
			line += " --nightly"
		default:
			line += " --" + set.Name + " " + strings.Trim(set.Value.String(), "[]")
		}
	})
	return line
}

// slice is how many runs go to the test binary at a time: enough to keep it busy, few enough
// that the budget is looked at.
func (f *matrixFlags) slice() int {
	if f.driver == suite.Sim {
		return 40
	}
	return 1
}
