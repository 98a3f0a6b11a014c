package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"raftboard/jepsen/check"
	"raftboard/jepsen/suite"
)

func analyzeCommand() *cobra.Command {
	var output string
	c := &cobra.Command{Use: "analyze DIR", Short: "Judge a stored history again, and make its page anew", Args: cobra.ExactArgs(1),
		Long: "Reads " + suite.HistoryFile + " in DIR, or in each directory below DIR that has one, judges it without\n" +
			"running anything, writes the page again and shows the outcome.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			dirs, err := runsIn(args[0])
			if err != nil {
				return err
			}
			show, worst := showLines(cmd.OutOrStdout(), output), check.VALID
			for _, dir := range dirs {
				began := time.Now()
				h, err := suite.Load(dir)
				if err != nil {
					return err
				}
				j := check.Whole(h)
				if err := suite.Page(dir, h, j); err != nil {
					return err
				}
				o := suite.Conclude(suite.PlanOf(h), h, j)
				o.Dir, o.Took = dir, time.Since(began)
				worst = suite.Worst(worst, o.Verdict)
				show(o)
			}
			return verdict(worst)
		}}
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

// runsIn lists the directories of runs: the one given, or those in it.
func runsIn(dir string) (dirs []string, err error) {
	if _, err := os.Stat(filepath.Join(dir, suite.HistoryFile)); err == nil {
		return []string{dir}, nil
	}
	found, err := filepath.Glob(filepath.Join(dir, "*", suite.HistoryFile))
	for _, path := range found {
		dirs = append(dirs, filepath.Dir(path))
	}
	if err == nil && len(dirs) == 0 {
		err = fmt.Errorf("%s holds no %s", dir, suite.HistoryFile)
	}
	return dirs, err
}
