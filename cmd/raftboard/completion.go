package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// completionTime bounds the look at the live board while somebody types; failure is silent.
const completionTime = 300 * time.Millisecond

// maxCompletions bounds what a shell is given.
const maxCompletions = 200

// complete asks the board for candidates. It gives none rather than an error or a pause.
func (a *app) complete(cmd *cobra.Command, ask func(context.Context) ([]string, error)) ([]string,
	cobra.ShellCompDirective) {
	if err := readEnv(cmd.Flags()); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a.g.quiet, a.g.timeout = true, completionTime
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	defer a.close()
	out, err := ask(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeKeys offers keys that begin with what was typed.
func (a *app) completeKeys(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && cmd.Name() != "get" && cmd.Name() != "watch" {
		return nil, cobra.ShellCompDirectiveDefault // values may be files
	}
	return a.complete(cmd, func(ctx context.Context) ([]string, error) {
		b, err := a.board(ctx)
		if err != nil {
			return nil, err
		}
		var out []string
		for _, pattern := range []string{typed + "*", typed + "*/**"} {
			answer, _, err := b.List(ctx, pattern, maxCompletions, "", a.reading())
			if err != nil {
				continue // a pattern that cannot match is no pattern
			}
			for _, item := range answer.GetItems() {
				out = append(out, item.GetKey())
			}
		}
		return out, nil
	})
}

// completeClaims offers keys of held leases.
func (a *app) completeClaims(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(ctx context.Context) ([]string, error) {
		b, err := a.board(ctx)
		if err != nil {
			return nil, err
		}
		states := []boardpb.LeaseState{boardpb.LeaseState_LEASE_STATE_HELD, boardpb.LeaseState_LEASE_STATE_FREE}
		answer, _, err := b.Leases(ctx, &wirepb.LeasesQuery{States: states, Limit: maxCompletions}, a.reading())
		var out []string
		for _, row := range answer.GetLeases() {
			out = append(out, row.GetLease().GetKey())
		}
		return out, err
	})
}

// completeBoards offers the boards of the cluster.
func (a *app) completeBoards(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(ctx context.Context) ([]string, error) {
		c, err := a.connect(ctx)
		if err != nil {
			return nil, err
		}
		answer, err := c.Boards(ctx)
		var out []string
		for _, b := range answer.GetBoards() {
			out = append(out, b.GetName())
		}
		return out, err
	})
}
