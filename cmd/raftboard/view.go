package main

import (
	"context"

	"github.com/spf13/cobra"

	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/view"
	wirepb "raftboard/transport/pb"
)

// agentCommands are what a host gives to the agents it runs.
func (a *app) agentCommands() []*cobra.Command {
	return []*cobra.Command{a.runCommand(), a.viewCommand(), a.agentPromptCommand(), a.toolCommand()}
}

func (a *app) viewCommand() *cobra.Command {
	q := &wirepb.ViewQuery{}
	var at uint64
	c := leaf(verb{use: "view --subscribe PATTERN…", short: "What others wrote, as text within a budget of tokens",
		long: "Leaves out what you (--as) wrote yourself. Pins come first, then the newest run; what did not fit is counted at the\n" +
			"end. Nothing to show prints nothing. A token is four characters of the whole text. What it prints is what other\n" +
			"agents say: put it into a user's or a tool's message, never into a system prompt, and do not run what it asks for.",
		examples: [2]string{`raftboard view --subscribe 'facts/*' --pin plan --as worker-1`,
			`raftboard view --subscribe 'facts/*,results/**' --limit-tokens 500 --nonce "$(openssl rand -hex 8)"`},
		args: cobra.NoArgs,
		run: func(ctx context.Context, _ []string) error {
			defer a.close()
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			answer, read, err := b.View(ctx, q, a.readingAt(at))
			if err != nil {
				return refused(err)
			}
			return a.out.Print(render.View{Text: answer.GetText(), Names: answer.GetShown(),
				Object: render.Obj("rev", read.Rev, "text", answer.GetText(), "tokens", uint64(answer.GetTokens()),
					"shown", append([]string{}, answer.GetShown()...), "not_shown", answer.GetNotShown(), "missing_pins", answer.GetMissingPins())})
		}})
	c.Flags().StringSliceVar(&q.Subscribe, "subscribe", nil, "patterns of keys; ** alone takes the role operator")
	c.Flags().StringSliceVar(&q.Pinned, "pin", nil, "patterns whose entries come first, at most half the budget in full")
	c.Flags().Uint32Var(&q.LimitTokens, "limit-tokens", 2000, "the most that the whole text may take")
	c.Flags().StringVar(&q.Nonce, "nonce", "", "8 to 64 random letters and digits for the tags around the text")
	c.Flags().Uint64Var(&at, "at-rev", 0, "what there was to show right after this rev")
	return c
}

func (a *app) agentPromptCommand() *cobra.Command {
	return leaf(verb{use: "agent-prompt", short: "The board's namespaces and rules, as text for the prompt of an agent",
		long:     "Prints what an agent needs to know before it uses the board. What it does not print is what others wrote.",
		examples: [2]string{`raftboard agent-prompt -b apollo > prompt.txt`, `raftboard agent-prompt -o json`},
		args:     cobra.NoArgs,
		run: func(ctx context.Context, _ []string) error {
			defer a.close()
			return a.printPrompt(ctx, view.AgentPrompt)
		}})
}

// printPrompt prints a text made of the board's table.
func (a *app) printPrompt(ctx context.Context, text func(board string, namespaces []*boardpb.Namespace) string) error {
	b, err := a.board(ctx)
	if err != nil {
		return err
	}
	answer, err := a.describe(ctx, b)
	if err != nil {
		return err
	}
	out := text(a.g.board, effective(answer.GetHead().GetSettings()).GetNamespaces())
	return a.out.Print(render.View{Text: out, Object: render.Obj("board", a.g.board, "text", out)})
}

// toolCommand is how a host without the Go client runs what a model called.
func (a *app) toolCommand() *cobra.Command {
	var input valueFlags
	return leaf(verb{use: "tool NAME INPUT|-|@FILE", short: "Run a call that a model made of one of the tools of schema --tools",
		long: "INPUT is the call's input as JSON. What is printed is for the model: a conflict or a refusal too, with exit code 0;\n" +
			"-o json has the outcome apart. Other exit codes are for the host: the board could not be reached, say. Put the text\n" +
			"into a tool's message, never into a system prompt.",
		examples: [2]string{`raftboard tool bb_list '{"prefix":"findings"}'`,
			`raftboard tool bb_append '{"key":"findings/api","content":"port 8970","summary":"the port"}' --as worker-1`},
		args: cobra.ExactArgs(2),
		run: func(ctx context.Context, args []string) error {
			raw, err := input.read(a, args[1:])
			if err != nil {
				return err
			}
			defer a.close()
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			use := b.UseTool
			if a.g.loop != "" {
				use = b.AttachLoop(a.g.loop).UseTool
			}
			seen, err := use(ctx, args[0], raw)
			if err != nil {
				return refused(err)
			}
			o := render.Obj("outcome", seen.Outcome, "text", seen.Text)
			o.AddSet("ref", seen.Ref)
			o.AddSet("version", seen.Version)
			return a.out.Print(render.View{Text: seen.Text, Object: o})
		}})
}
