package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"raftboard/cmd/raftboard/exitcode"
)

// group names of the command tree.
const (
	groupData    = "data"
	groupWork    = "work"
	groupAgents  = "agents"
	groupBoards  = "boards"
	groupCluster = "cluster"
	groupTools   = "tools"
)

// root builds the whole command tree.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:               "raftboard",
		Version:           version(),
		Short:             "A replicated board for agents and workers on several machines",
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: a.prepare,
		Args:              cobra.NoArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true, DisableDefaultCmd: true},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	a.globalFlags(root.PersistentFlags())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exitcode.Usagef(cmd.CommandPath()+" --help   (values that begin with - come after --)", "%v", err)
	})
	for id, commands := range map[string][]*cobra.Command{
		groupData:    slices.Concat(a.dataCommands(), a.readCommands(), a.provenanceCommands()),
		groupWork:    a.workCommands(),
		groupAgents:  a.agentCommands(),
		groupBoards:  a.boardCommands(),
		groupCluster: a.clusterCommands(),
		groupTools:   a.toolCommands(),
	} {
		for _, c := range commands {
			c.Annotations = map[string]string{"group": id}
			root.AddCommand(c)
		}
	}
	root.SetVersionTemplate(versionLine() + "\n")
	root.SuggestionsMinimumDistance = 2
	root.SetHelpCommand(&cobra.Command{Hidden: true, Use: "no-help"})
	root.SetHelpFunc(help)
	boards := func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return a.completeBoards(cmd, nil, typed)
	}
	if err := root.RegisterFlagCompletionFunc("board", boards); err != nil {
		panic(err) // the flag is declared above
	}
	return root
}

// verb is what a leaf command is made of. Examples are two command lines.
type verb struct {
	use, short, long string
	examples         [2]string
	args             cobra.PositionalArgs
	run              func(ctx context.Context, args []string) error
}

// leaf makes the command of a verb.
func leaf(v verb) *cobra.Command {
	return &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long, Args: v.args,
		Example: "  " + v.examples[0] + "\n  " + v.examples[1],
		RunE: func(cmd *cobra.Command, args []string) error {
			return v.run(cmd.Context(), args)
		},
	}
}

// noun makes a command that only groups leaves.
func noun(use, short string, leaves ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exitcode.Usagef(cmd.CommandPath()+" --help", "%s needs one of %s", cmd.CommandPath(), names(cmd))
		}}
	c.AddCommand(leaves...)
	return c
}

func names(cmd *cobra.Command) string {
	var out []string
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			out = append(out, c.Name())
		}
	}
	return strings.Join(out, ", ")
}

// help writes the manual of a command: under 40 lines, so that it fits a screen.
func help(cmd *cobra.Command, _ []string) {
	w := cmd.OutOrStdout()
	if !cmd.HasParent() {
		fmt.Fprint(w, rootHelp(cmd))
		return
	}
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s\n", cmd.Short, cmd.UseLine())
	if cmd.Long != "" {
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(cmd.Long))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprint(w, "\nCommands:\n")
		for _, c := range cmd.Commands() {
			if !c.Hidden {
				fmt.Fprintf(w, "  %-10s %s\n", c.Name(), c.Short)
			}
		}
	}
	if cmd.Example != "" {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	if flags := cmd.NonInheritedFlags(); flags.HasAvailableFlags() {
		fmt.Fprintf(w, "\nFlags:\n%s", flags.FlagUsages())
	}
	fmt.Fprint(w, "\nGlobal flags (raftboard --help): --endpoints -b --loop --as -o --no-headers -q -v --timeout\n"+
		"  --color --consistency --at-least\n")
}

// rootHelp is the first screen.
func rootHelp(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUsage:\n  raftboard COMMAND [ARGUMENTS] [FLAGS]     raftboard COMMAND --help\n\n", root.Short)
	for _, id := range []string{groupData, groupWork, groupAgents, groupBoards, groupCluster, groupTools} {
		var list []string
		for _, c := range root.Commands() {
			if c.Hidden || c.Annotations["group"] != id {
				continue
			}
			name := c.Name()
			if c.HasAvailableSubCommands() {
				name += " " + strings.ReplaceAll(names(c), ", ", "|")
			}
			list = append(list, name)
		}
		fmt.Fprintf(&b, "  %-8s %s\n", id, wrap(list, 90, "           "))
	}
	b.WriteString("\nExamples:\n  raftboard dev\n  raftboard append facts/hello '\"world\"'\n")
	b.WriteString("\nGlobal flags:\n" + root.PersistentFlags().FlagUsages())
	b.WriteString("\nFlags come before variables (RAFTBOARD_ENDPOINTS, _BOARD, _LOOP, _AS, _OUTPUT, _TIMEOUT), those before defaults.\n" +
		"Exit codes: 0 ok, 1 other, 2 usage, 3 not found, 4 not as you assumed, 5 unavailable, 6 forbidden,\n" +
		"  7 can't be accepted as written, 8 limit, 124 wait timed out, 130 interrupted.\n")
	return b.String()
}

// wrap joins words with two blanks into lines of at most width.
func wrap(words []string, width int, indent string) string {
	var b strings.Builder
	line := 0
	for i, word := range words {
		if i > 0 && line+len(word)+2 > width {
			b.WriteString("\n" + indent)
			line = 0
		} else if i > 0 {
			b.WriteString("  ")
			line += 2
		}
		b.WriteString(word)
		line += len(word)
	}
	return b.String()
}
