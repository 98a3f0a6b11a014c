package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// disputeCommands are about changes of a phase that met each other.
func (a *app) disputeCommands() []*cobra.Command {
	return []*cobra.Command{a.phaseDetectCommand(), a.phaseResolveCommand(), a.phaseConflictsCommand(), a.phaseSettleCommand()}
}

func (a *app) phaseDetectCommand() *cobra.Command {
	var read uint64
	var keys []string
	c := leaf(verb{use: "detect PHASE", short: "What a write that was made from a version would meet",
		long:     "It is advice: the write looks again. It suggests write, merge, or escalate.",
		examples: [2]string{`raftboard phase detect research --read 3`, `raftboard phase detect research --read 3 --keys summary,sources -o json`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			d, at, err := b.DetectConflict(ctx, args[0], read, keys, a.reading())
			if err != nil {
				return refused(err)
			}
			text := args[0] + " is at version " + num(d.GetVersionCurrent())
			if d.GetModifiedBy() != "" {
				text += " by " + d.GetModifiedBy()
			}
			switch {
			case d.GetNotReady():
				text = args[0] + " is another's, and not completed"
			case d.GetConflict():
				text += ": others changed " + strings.Join(d.GetOverlap(), ", ") + "; " + d.GetSuggested()
			case len(d.GetTheirs()) > 0:
				text += ": others changed other keys; merge"
			default:
				text += ": nobody changed it since; write"
			}
			return a.out.Print(render.View{Text: text, Names: []string{d.GetSuggested()}, Object: render.Obj("rev", at.Rev, "phase", args[0],
				"conflict", d.GetConflict(), "version_read", d.GetVersionRead(), "version_current", d.GetVersionCurrent(),
				"modified_by", d.GetModifiedBy(), "theirs", append([]string{}, d.GetTheirs()...), "overlap", append([]string{}, d.GetOverlap()...),
				"mergeable", d.GetMergeable(), "suggested", d.GetSuggested(), "not_ready", d.GetNotReady())})
		}})
	c.Flags().Uint64Var(&read, "read", 0, "the version you read")
	c.Flags().StringSliceVar(&keys, "keys", nil, "the keys you would change (default: any)")
	return c
}

func (a *app) phaseResolveCommand() *cobra.Command {
	var value valueFlags
	var read uint64
	var strategy string
	var c *cobra.Command
	op := &boardpb.PhaseResolve{}
	c = leaf(verb{use: "resolve PHASE [LOCAL]", short: "Say what becomes of data that met a conflict",
		long: "LOCAL is what you have, a JSON object; - is standard input, @FILE a file. --strategy merge lays it over the current data if no\n" +
			"key is in both, local puts it in its place, remote keeps and shows what is there, escalate leaves it to a supervisor:\n" +
			"until it is decided only a supervisor changes the keys that overlap. --seen is the version that the conflict named.",
		examples: [2]string{`raftboard phase resolve research '{"summary":"mine"}' --read 3 --seen 4 --strategy escalate`,
			`raftboard phase resolve research @mine.json --read 3 --seen 4 --strategy local`},
		args: cobra.RangeArgs(1, 2),
		run: func(ctx context.Context, args []string) error {
			local, err := []byte("{}"), error(nil)
			if len(args) == 2 || strategy != "remote" { // remote has no use for it
				local, err = value.read(a, args[1:])
			}
			if err != nil {
				return err
			}
			number, known := boardpb.PhaseStrategy_value["PHASE_STRATEGY_"+strings.ToUpper(strategy)]
			if !known || number == 0 {
				return exitcode.Usagef("--strategy escalate", "--strategy %q is none of merge, local, remote, escalate", strategy)
			}
			if c.Flags().Changed("read") {
				op.VersionRead = &read
			}
			op.Phase, op.Local, op.Strategy = args[0], local, boardpb.PhaseStrategy(number)
			err = a.phase(ctx, "resolved "+args[0], &boardpb.Command{Op: &boardpb.Command_PhaseResolve{PhaseResolve: op}})
			var told *exitcode.Refused
			if errors.As(err, &told) && told.Result.GetOutcome() == boardpb.Outcome_OUTCOME_ESCALATED && strategy == "escalate" {
				return a.printResult(told.Result, "escalated "+args[0]+" as "+told.Result.GetField()+": a supervisor decides about "+
					strings.Join(told.Result.GetOverlap(), ", "))
			}
			return err
		}})
	value.declare(c.Flags())
	c.Flags().Uint64Var(&read, "read", 0, "the version that LOCAL was made from")
	c.Flags().Uint64Var(&op.VersionSeen, "seen", 0, "the version that the conflict named")
	c.Flags().Uint64Var(&op.Generation, "gen", 0, "generation of your lock")
	c.Flags().StringVar(&strategy, "strategy", "", "merge, local, remote or escalate")
	return c
}

func (a *app) phaseConflictsCommand() *cobra.Command {
	q := &wirepb.ConflictsQuery{}
	c := leaf(verb{use: "conflicts [PHASE]", short: "Conflicts that wait for a supervisor",
		examples: [2]string{`raftboard phase conflicts`, `raftboard phase conflicts research --decided -o json`},
		args:     cobra.MaximumNArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				q.Phase = args[0]
			}
			view := render.View{Lines: []render.Object{}, Table: &render.Table{Empty: "no conflict waits for a supervisor",
				Columns: render.Cols("CONFLICT", "PHASE", "SINCE", "RAISED BY", "KEYS", "DECIDED", "+LOCAL", "+CURRENT")}}
			got, at, err := b.PhaseConflicts(ctx, q, a.reading())
			if err != nil {
				return refused(err)
			}
			for _, one := range got.GetConflicts() {
				view.Lines, view.Names = append(view.Lines, conflictObject(one)), append(view.Names, one.GetId())
				decided := ""
				if one.GetResolution() != "" {
					decided = one.GetResolution() + " by " + one.GetResolvedBy()
				}
				view.Table.Row(one.GetId(), one.GetPhase(), render.Time(one.GetWallMs()), one.GetRaisedBy(), strings.Join(one.GetOverlap(), " "),
					decided, string(one.GetLocal()), string(one.GetCurrent()))
			}
			view.Object = render.Obj("rev", at.Rev, "conflicts", view.Lines)
			if got.GetNext() != "" {
				view.Object.Add("next", got.GetNext())
				a.warn("more conflicts: --after %s, or a larger --limit", got.GetNext())
			}
			return a.out.Print(view)
		}})
	c.Flags().BoolVar(&q.Decided, "decided", false, "the decided ones too")
	c.Flags().StringVar(&q.After, "after", "", "continue behind this conflict")
	c.Flags().Uint32Var(&q.Limit, "limit", 50, "at most this many, at most 200")
	return c
}

func conflictObject(c *boardpb.PhaseConflict) render.Object {
	o := render.Obj("id", c.GetId(), "phase", c.GetPhase(), "base_version", c.GetBaseVersion(), "current_version", c.GetCurrentVersion(),
		"overlap", append([]string{}, c.GetOverlap()...))
	if len(c.GetLocal()) > 0 { // left out for who may not read the phase
		o.Add("local", render.Raw(c.GetLocal()))
		o.Add("current", render.Raw(c.GetCurrent()))
	}
	o.Add("raised_by", c.GetRaisedBy())
	o.Add("time", render.Time(c.GetWallMs()))
	o.AddSet("resolution", c.GetResolution())
	o.AddSet("resolved_by", c.GetResolvedBy())
	o.AddSet("resolved_version", c.GetResolvedVersion())
	return o
}

func (a *app) phaseSettleCommand() *cobra.Command {
	var value valueFlags
	op := &boardpb.PhaseSettle{}
	c := leaf(verb{use: "settle CONFLICT [DATA]", short: "Decide a conflict of a phase (supervisor)",
		long:     "DATA, a JSON object, is laid over the phase's data; --keep leaves it as it is.",
		examples: [2]string{`raftboard phase settle c-14 '{"summary":"both"}'`, `raftboard phase settle c-14 --keep`},
		args:     cobra.RangeArgs(1, 2),
		run: func(ctx context.Context, args []string) error {
			if op.KeepCurrent == (len(args) == 2) {
				return exitcode.Usagef("raftboard phase settle "+args[0]+" --keep", "give either DATA or --keep")
			}
			if len(args) == 2 {
				data, err := value.read(a, args[1:])
				if err != nil {
					return err
				}
				op.Data = data
			}
			op.Conflict = args[0]
			return a.phase(ctx, "settled "+args[0], &boardpb.Command{Op: &boardpb.Command_PhaseSettle{PhaseSettle: op}})
		}})
	c.Flags().BoolVar(&op.KeepCurrent, "keep", false, "leave the data as it is")
	value.declare(c.Flags())
	return c
}
