package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
)

// toolCommands are about the binary itself.
func (a *app) toolCommands() []*cobra.Command {
	return []*cobra.Command{a.versionCommand(), a.completionCommand(), a.docsCommand()}
}

// linked is a constant: the version that the linker was told, with -ldflags "-X main.linked=…",
// for builds of one source that must be told apart; empty leaves it to the build.
var linked string

// version is what the build recorded: a tag, or the revision of the source.
func version() string {
	if linked != "" {
		return linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "dev-" + s.Value[:12]
		}
	}
	return "dev"
}

// versionLine is what `version` and --version say.
func versionLine() string {
	return fmt.Sprintf("raftboard %s (%s, %s/%s)", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (a *app) versionCommand() *cobra.Command {
	return leaf(verb{use: "version", short: "Version of this binary",
		examples: [2]string{`raftboard version`, `raftboard version -o json`},
		args:     cobra.NoArgs,
		run: func(context.Context, []string) error {
			o := render.Obj("version", version(), "go", runtime.Version(), "os", runtime.GOOS, "arch", runtime.GOARCH)
			return a.out.Print(render.View{Object: o, Names: []string{version()}, Text: versionLine()})
		}})
}

func (a *app) completionCommand() *cobra.Command {
	var c *cobra.Command
	c = leaf(verb{use: "completion bash|zsh|fish|powershell", short: "Print the completion script of a shell",
		examples: [2]string{`source <(raftboard completion bash)`,
			`raftboard completion fish > ~/.config/fish/completions/raftboard.fish`},
		args: cobra.ExactArgs(1),
		run: func(_ context.Context, args []string) error {
			root := c.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.stdout)
			case "fish":
				return root.GenFishCompletion(a.stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.stdout)
			}
			return exitcode.Usagef("raftboard completion bash", "%q is none of bash, zsh, fish, powershell", args[0])
		}})
	c.ValidArgs = []string{"bash", "zsh", "fish", "powershell"}
	return c
}

// docsCommand writes the reference; a test compares it with the copy in the repository.
func (a *app) docsCommand() *cobra.Command {
	var c *cobra.Command
	c = leaf(verb{use: "docs", short: "Write the reference of all commands as Markdown",
		examples: [2]string{`raftboard docs > cmd/raftboard/REFERENCE.md`, `raftboard docs | less`},
		args:     cobra.NoArgs,
		run: func(context.Context, []string) error {
			_, err := fmt.Fprint(a.stdout, reference(c.Root()))
			return err
		}})
	c.Hidden = true
	return c
}

// reference is every command in the order of the tree.
func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# raftboard: commands\n\nWritten by `raftboard docs`; do not edit.\n\n## Global flags\n\n")
	b.WriteString(flagList(root.PersistentFlags()))
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			if c.Hidden {
				continue
			}
			if c.HasAvailableSubCommands() {
				walk(c)
				continue
			}
			fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n    %s\n", c.CommandPath(), c.Short, strings.TrimSuffix(c.UseLine(), " [flags]"))
			if c.Long != "" {
				fmt.Fprintf(&b, "\n%s\n", c.Long)
			}
			fmt.Fprintf(&b, "\nExamples:\n\n%s\n", "  "+strings.ReplaceAll(c.Example, "\n", "\n  "))
			if flags := c.NonInheritedFlags(); flags.HasAvailableFlags() {
				b.WriteString("\n" + flagList(flags))
			}
		}
	}
	walk(root)
	return b.String()
}

// hostDefault is a default that differs from machine to machine.
const hostDefault = "node-name"

func flagList(fs *pflag.FlagSet) string {
	var b strings.Builder
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		fmt.Fprintf(&b, "- `--%s`", f.Name)
		if f.Shorthand != "" {
			fmt.Fprintf(&b, ", `-%s`", f.Shorthand)
		}
		fmt.Fprintf(&b, " (%s", f.Value.Type())
		switch {
		case f.Name == hostDefault:
			b.WriteString(", default: the host's name")
		case f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" && f.DefValue != "0":
			fmt.Fprintf(&b, ", default `%s`", strings.Trim(f.DefValue, "[]"))
		}
		if v := variableOf(f); v != "" {
			fmt.Fprintf(&b, ", variable `%s`", v)
		}
		fmt.Fprintf(&b, "): %s\n", f.Usage)
	})
	return b.String()
}
