package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"raftboard/jepsen/check"
	"raftboard/jepsen/netns"
)

func needsCommand() *cobra.Command {
	return &cobra.Command{Use: "needs", Short: "What this machine lacks for --driver netns", Args: cobra.NoArgs,
		Long: "Says what is missing for runs with real processes, and what to install. Exit status 2 if anything is.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := netns.Needs(); err != nil {
				fmt.Fprintln(cmd.OutOrStdout(), err)
				return verdict(check.INVALID)
			}
			fmt.Fprintln(cmd.OutOrStdout(), "nothing is missing: runs with real processes can be made here")
			return nil
		}}
}
