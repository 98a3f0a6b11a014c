package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftboard/jepsen/check"
	"raftboard/jepsen/suite"
)

func runCommand() *cobra.Command {
	var plan suite.Plan
	var seeds int
	var output, dir string
	c := &cobra.Command{Use: "run", Short: "Run one workload under nemeses, and judge it", Args: cobra.NoArgs,
		Example: "  faults run --driver sim --workload work --nemesis kill,pause --seed 7\n" +
			"  faults run --driver netns --workload append --nemesis power --time 60s -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(checkOutput(output), checkZeros(cmd, "time", "rate", "seeds")); err != nil {
				return err
			}
			if len(plan.Nemeses) == 0 {
				return errors.New("--nemesis is empty: none is the control without faults")
			}
			plan, err := plan.Complete()
			if err != nil {
				return err
			}
			dir, done, err := outputDir(dir)
			if err != nil {
				return err
			}
			defer done()
			var plans []suite.Plan
			for i := range seeds {
				p := plan
				p.Seed += uint64(i)
				plans = append(plans, p)
			}
			show := showLines(cmd.OutOrStdout(), output)
			worst := check.VALID
			began := time.Now()
			err = runAll(cmd.Context(), cmd.ErrOrStderr(), plans, dir, true, func(o suite.Outcome) {
				worst = suite.Worst(worst, o.Verdict)
				show(o)
			})
			if err != nil {
				return err
			}
			if len(plans) == 1 {
				return verdict(worst)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%d runs in %v: %.0f a minute\n", len(plans), time.Since(began).Round(time.Millisecond),
				float64(len(plans))/time.Since(began).Minutes())
			return verdict(worst)
		}}
	f := c.Flags()
	f.StringVar(&plan.Driver, "driver", suite.Sim, "sim (virtual time) or netns (real processes; needs root)")
	f.StringVar(&plan.Workload, "workload", "register", "see list")
	f.StringSliceVar(&plan.Nemeses, "nemesis", []string{"none"}, "see list; several are composed")
	f.IntVar(&plan.Nodes, "nodes", 3, "3 or 5")
	f.DurationVar(&plan.Time, "time", 0, "from the first operation to the heal (10s on sim, 60s on netns)")
	f.IntVar(&plan.Rate, "rate", 0, "operations per second of all clients (50 on sim, 200 on netns)")
	f.Uint64Var(&plan.Seed, "seed", 1, "of what clients and nemeses choose")
	f.IntVar(&seeds, "seeds", 1, "so many runs, with this seed and those that follow")
	f.StringVar(&plan.Mutant, "mutant", "", "plant this bug, see list bugs")
	f.StringVar(&plan.Fault, "fault", "", "what every node does at named points, see list points: NAME:WHEN:DO, WHEN 3, 3+ or %3, DO panic, sleep=200ms, eio, short or hit")
	f.BoolVar(&plan.Tagged, "tagged", false, "nodes built with failpoints and without a planted bug")
	addOutput(c, &output, &dir)
	return c
}

// addOutput declares how outcomes are shown and where runs are kept.
func addOutput(c *cobra.Command, output, dir *string) {
	c.Flags().StringVarP(output, "output", "o", "text", "text or json (one line for each run)")
	c.Flags().StringVar(dir, "dir", "", "where histories and pages go (a new directory of the system's temporary files)")
}

// checkOutput refuses what would be shown as something else.
func checkOutput(output string) error {
	if output != "text" && output != "json" {
		return fmt.Errorf("no output %q: there are text and json", output)
	}
	return nil
}

// checkZeros refuses a zero that would be taken for the default.
func checkZeros(c *cobra.Command, names ...string) error {
	for _, name := range names {
		f := c.Flags().Lookup(name)
		if f.Changed && (strings.TrimRight(f.Value.String(), "0s") == "" || strings.HasPrefix(f.Value.String(), "-")) {
			return fmt.Errorf("--%s %s: it must be more than nothing", name, f.Value)
		}
	}
	return nil
}

// outputDir makes the directory in which runs are kept. done removes one that was made for
// this command and holds nothing.
func outputDir(dir string) (_ string, done func(), err error) {
	if dir != "" {
		return dir, func() {}, os.MkdirAll(dir, 0o755)
	}
	dir, err = os.MkdirTemp("", "raftboard-faults-")
	return dir, func() { os.Remove(dir) }, err
}

// runAll runs plans, those of the driver on virtual time together, and tells each outcome as
// soon as there is one. keepAll keeps the histories of runs that are VALID as well.
func runAll(ctx context.Context, progress io.Writer, plans []suite.Plan, dir string, keepAll bool, each func(suite.Outcome)) error {
	b := &builds{ctx: ctx, progress: progress}
	defer b.remove()
	var virtual []suite.Plan
	var err error
	version := sourceVersion(ctx)
	for i := range plans {
		plans[i].Version = version
	}
	for _, p := range plans {
		if p.Driver == suite.Sim {
			virtual = append(virtual, p)
		}
	}
	if len(virtual) > 0 {
		err = runSim(ctx, b, virtual, dir, keepAll, each)
	}
	for _, p := range plans {
		if p.Driver == suite.Netns && ctx.Err() == nil {
			if o := runNetns(ctx, b, p, dir, keepAll); ctx.Err() == nil {
				each(o) // one that was interrupted has no verdict
			}
		}
	}
	if ctx.Err() != nil {
		return interruptedIn(dir)
	}
	return err
}

// interruptedIn says where there is what had been kept by then, if there is anything.
func interruptedIn(dir string) error {
	if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
		return errInterrupted
	}
	return fmt.Errorf("%w; what was kept is in %s", errInterrupted, dir)
}

// showLines shows outcomes one by one.
func showLines(w io.Writer, output string) func(suite.Outcome) {
	if output == "json" {
		enc := json.NewEncoder(w)
		return func(o suite.Outcome) { _ = enc.Encode(o) }
	}
	return func(o suite.Outcome) {
		fmt.Fprintln(w, o.Line())
		if o.Verdict == check.VALID {
			if o.Dir != "" {
				fmt.Fprintf(w, "        no anomaly found under these faults at this rate; %s/%s\n", o.Dir, suite.PageFile)
			}
			return
		}
		said := map[string]bool{}
		for _, f := range o.Findings {
			if code, _, _ := strings.Cut(f, ":"); !said[code] {
				said[code] = true
				fmt.Fprintf(w, "        %s demands: %s\n", code, check.RuleOf(code))
			}
			first, _, more := strings.Cut(f, "\n")
			if more {
				first += " …" // the story tells it, and the page shows it whole
			}
			fmt.Fprintln(w, "         ", first)
		}
		if o.More > 0 {
			fmt.Fprintf(w, "        and %d more findings\n", o.More)
		}
		if o.Story != "" {
			fmt.Fprintln(w, o.Story)
		}
		fmt.Fprintf(w, "        seed %d; again: %s\n", o.Plan.Seed, o.Rerun)
		if o.Dir != "" {
			fmt.Fprintf(w, "        history and page: %s\n", o.Dir)
		}
	}
}
