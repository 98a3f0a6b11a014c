package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// phaseCommand groups the verbs of phases.
func (a *app) phaseCommand() *cobra.Command {
	return noun("phase", "Phases of a long piece of work: a lock, a version and what they depend on",
		append([]*cobra.Command{a.phaseDefineCommand(), a.phaseListCommand(), a.phaseReadCommand(), a.phaseLockCommand(),
			a.phaseRenewCommand(), a.phaseUnlockCommand(), a.phaseWriteCommand(), a.phaseCompleteCommand(), a.phaseReopenCommand()},
			a.disputeCommands()...)...)
}

func (a *app) phaseDefineCommand() *cobra.Command {
	var needs, expect []string
	var name string
	var strict bool
	c := leaf(verb{use: "define PHASE", short: "Make a phase, or change what is expected of it (orchestrator)",
		examples: [2]string{`raftboard phase define research --expect sources:array,summary:string`,
			`raftboard phase define analysis --needs research`},
		args: cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			p := &boardpb.PhaseSpec{Id: args[0], Name: name, Dependencies: needs, Strict: strict}
			for _, text := range expect {
				key, kind, found := strings.Cut(text, ":")
				if !found {
					return exitcode.Usagef("--expect sources:array", "--expect %q names no type", text)
				}
				p.Expected = append(p.Expected, &boardpb.ExpectedKey{Key: key, Type: kind})
			}
			op := &boardpb.PhaseDefine{Phases: []*boardpb.PhaseSpec{p}}
			return a.phase(ctx, "defined "+args[0], &boardpb.Command{Op: &boardpb.Command_PhaseDefine{PhaseDefine: op}})
		}})
	c.Flags().StringVar(&name, "name", "", "a label")
	c.Flags().StringSliceVar(&needs, "needs", nil, "phases that must be completed before")
	c.Flags().StringSliceVar(&expect, "expect", nil, "KEY:TYPE that its data must have to be completed")
	c.Flags().BoolVar(&strict, "strict", false, "no other keys than the expected ones")
	return c
}

// phase sends a command on phases and prints its answer.
func (a *app) phase(ctx context.Context, did string, cmd *boardpb.Command) error {
	defer a.close()
	r, err := a.apply(ctx, cmd)
	if err != nil {
		return err
	}
	text := did
	if r.GetVersion() > 0 {
		text += "  version " + num(r.GetVersion())
	}
	if r.GetGeneration() > 0 {
		text += "  generation " + num(r.GetGeneration())
	}
	if r.GetMerged() {
		text += "  merged with " + strings.Join(r.GetTheirs(), ", ")
	}
	if len(r.GetValue()) > 0 {
		text += "\n" + string(r.GetValue())
	}
	return a.printResult(r, text)
}

// phaseInLoop is phase for what belongs to a loop.
func (a *app) phaseInLoop(ctx context.Context, did string, cmd *boardpb.Command) error {
	if a.g.loop == "" {
		return exitcode.Usagef("raftboard loop open", "the lock of a phase belongs to a loop: name it with --loop or RAFTBOARD_LOOP")
	}
	return a.phase(ctx, did, cmd)
}

func (a *app) phaseLockCommand() *cobra.Command {
	var ttl time.Duration
	c := leaf(verb{use: "lock PHASE", short: "Take the lock of a phase, and become its owner",
		long:     "Held by another, or waiting for other phases: exit 4. The lock belongs to --loop.",
		examples: [2]string{`raftboard phase lock research --loop $LOOP`, `raftboard phase lock research --loop $LOOP --ttl 10m`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			op := &boardpb.PhaseLock{Phase: args[0], DurationMs: optionalMs(ttl)}
			return a.phaseInLoop(ctx, "locked "+args[0], &boardpb.Command{Op: &boardpb.Command_PhaseLock{PhaseLock: op}})
		}})
	c.Flags().DurationVar(&ttl, "ttl", 0, "duration of the lock (default: 30m)")
	return c
}

func optionalMs(d time.Duration) *int64 {
	if d == 0 {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

func (a *app) phaseRenewCommand() *cobra.Command {
	var gen uint64
	var ttl time.Duration
	c := leaf(verb{use: "renew PHASE", short: "Renew the lock of a phase",
		examples: [2]string{`raftboard phase renew research --loop $LOOP --gen 1`, `raftboard phase renew research --loop $LOOP --gen 1 --ttl 1h`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			op := &boardpb.PhaseRenew{Phase: args[0], Generation: gen, DurationMs: optionalMs(ttl)}
			return a.phaseInLoop(ctx, "renewed "+args[0], &boardpb.Command{Op: &boardpb.Command_PhaseRenew{PhaseRenew: op}})
		}})
	c.Flags().Uint64Var(&gen, "gen", 0, "generation of your lock")
	c.Flags().DurationVar(&ttl, "ttl", 0, "renew for this long (default: the lock's own duration)")
	return c
}

func (a *app) phaseUnlockCommand() *cobra.Command {
	var gen uint64
	c := leaf(verb{use: "unlock PHASE", short: "Give the lock of a phase back",
		examples: [2]string{`raftboard phase unlock research --loop $LOOP --gen 1`, `raftboard phase unlock research --gen 1 -o json`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			op := &boardpb.PhaseUnlock{Phase: args[0], Generation: gen}
			return a.phaseInLoop(ctx, "unlocked "+args[0], &boardpb.Command{Op: &boardpb.Command_PhaseUnlock{PhaseUnlock: op}})
		}})
	c.Flags().Uint64Var(&gen, "gen", 0, "generation of your lock")
	return c
}

func (a *app) phaseWriteCommand() *cobra.Command {
	var value valueFlags
	var inputs []string
	var c *cobra.Command
	op := &boardpb.PhaseWrite{}
	var read uint64
	c = leaf(verb{use: "write PHASE PATCH", short: "Change top-level keys of a phase's data",
		long: "PATCH is a JSON object, - for standard input, or @FILE. What others wrote since --read to other keys stays; if they\n" +
			"changed a key of the patch, nothing is written: exit 4. Without --gen the lock is taken for this one write.",
		examples: [2]string{`raftboard phase write research '{"summary":"s"}' --read 0`,
			`raftboard phase write research @data.json --read 4 --complete`},
		args: cobra.RangeArgs(1, 2),
		run: func(ctx context.Context, args []string) error {
			patch, err := value.read(a, args[1:])
			if err != nil {
				return err
			}
			if c.Flags().Changed("read") {
				op.VersionRead = &read
			}
			op.Phase, op.Patch = args[0], patch
			if op.Inputs, err = phaseInputs(inputs); err != nil {
				return err
			}
			return a.phase(ctx, "wrote "+args[0], &boardpb.Command{Op: &boardpb.Command_PhaseWrite{PhaseWrite: op}})
		}})
	value.declare(c.Flags())
	c.Flags().Uint64Var(&read, "read", 0, "the version you read; 0 is a phase without data")
	c.Flags().Uint64Var(&op.Generation, "gen", 0, "generation of your lock")
	c.Flags().BoolVar(&op.Replace, "replace", false, "the patch is all the data there is")
	c.Flags().BoolVar(&op.Complete, "complete", false, "complete the phase in the same commit")
	c.Flags().StringSliceVar(&op.DeleteKeys, "delete", nil, "keys to delete")
	c.Flags().StringSliceVar(&inputs, "input", nil, "PHASE@VERSION that you read since")
	return c
}

func phaseInputs(texts []string) (inputs []*boardpb.PhaseInput, err error) {
	for _, text := range texts {
		id, version, _ := strings.Cut(text, "@")
		n, err := strconv.ParseUint(version, 10, 64)
		if err != nil {
			return nil, exitcode.Usagef("--input research@3", "--input %q is no PHASE@VERSION", text)
		}
		inputs = append(inputs, &boardpb.PhaseInput{Phase: id, Version: n})
	}
	return inputs, nil
}

func (a *app) phaseCompleteCommand() *cobra.Command {
	var gen uint64
	var inputs []string
	c := leaf(verb{use: "complete PHASE", short: "Complete a phase (its owner)",
		examples: [2]string{`raftboard phase complete research`, `raftboard phase complete analysis --gen 1 --loop $LOOP --input research@3`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			list, err := phaseInputs(inputs)
			if err != nil {
				return err
			}
			op := &boardpb.PhaseComplete{Phase: args[0], Generation: gen, Inputs: list}
			return a.phase(ctx, "completed "+args[0], &boardpb.Command{Op: &boardpb.Command_PhaseComplete{PhaseComplete: op}})
		}})
	c.Flags().Uint64Var(&gen, "gen", 0, "generation of your lock")
	c.Flags().StringSliceVar(&inputs, "input", nil, "PHASE@VERSION that you read since")
	return c
}

func (a *app) phaseReopenCommand() *cobra.Command {
	return leaf(verb{use: "reopen PHASE", short: "Take a completed phase up again (supervisor, or its owner)",
		long:     "What was built from it is stale until it is built from the newer version.",
		examples: [2]string{`raftboard phase reopen research`, `raftboard phase reopen research --as supervisor`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			op := &boardpb.PhaseReopen{Phase: args[0]}
			return a.phase(ctx, "reopened "+args[0], &boardpb.Command{Op: &boardpb.Command_PhaseReopen{PhaseReopen: op}})
		}})
}

func (a *app) phaseReadCommand() *cobra.Command {
	var wait time.Duration
	c := leaf(verb{use: "read PHASE", short: "Show a phase and its data",
		long:     "Before it is completed only its owner, who holds its lock, orchestrators and supervisors see the data; others: exit 4.",
		examples: [2]string{`raftboard phase read research`, `raftboard phase read research --wait 30s -o json`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			got, read, err := b.Phase(ctx, args[0], wait, a.reading())
			if err != nil {
				return refused(err)
			}
			if got.GetNotReady() {
				return &exitcode.Refused{Result: &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_NOT_READY, Key: "phase:" + args[0],
					Message: fmt.Sprintf("phase %s is %s, by %s", args[0], phaseStatus(got.GetPhase()), got.GetPhase().GetOwner()),
					Hint:    "wait for it: raftboard phase read " + args[0] + " --wait 60s"}}
			}
			o := append(render.Obj("rev", read.Rev), phaseObject(got)...)
			text := fmt.Sprintf("%s  %s  version %d", args[0], phaseStatus(got.GetPhase()), got.GetPhase().GetVersion())
			if d := got.GetData(); d != nil {
				o.Add("data", render.Raw(d.GetData()))
				text += "\n" + oneLine(d.GetData())
			}
			return a.out.Print(render.View{Object: o, Names: args, Text: text})
		}})
	c.Flags().DurationVar(&wait, "wait", 0, "wait so long for its completion; at most 60s")
	return c
}

func (a *app) phaseListCommand() *cobra.Command {
	return leaf(verb{use: "list", short: "List the phases of a board",
		examples: [2]string{`raftboard phase list`, `raftboard phase list -o json`},
		args:     cobra.NoArgs,
		run: func(ctx context.Context, _ []string) error {
			defer a.close()
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			view := render.View{Lines: []render.Object{}, Table: &render.Table{Empty: "no phases",
				Columns: render.Cols("PHASE", "STATUS", "VERSION", "OWNER", "LOCKED BY", "NEEDS", "NOTE")}}
			rev := uint64(0)
			for after := ""; ; {
				got, read, err := b.Phases(ctx, after, 0, a.reading())
				if err != nil {
					return refused(err)
				}
				rev = read.Rev
				for _, row := range got.GetPhases() {
					p, note := row.GetPhase(), ""
					if p.GetStaleInputs() {
						note = "stale inputs"
					}
					if p.GetEscalated() {
						note = strings.TrimPrefix(note+", a conflict waits for a supervisor", ", ")
					}
					view.Lines = append(view.Lines, phaseObject(row))
					view.Names = append(view.Names, p.GetId())
					view.Table.Row(p.GetId(), phaseStatus(p), num(p.GetVersion()), p.GetOwner(), row.GetLockedBy(),
						strings.Join(p.GetDependencies(), " "), note)
				}
				if after = got.GetNext(); after == "" {
					break
				}
			}
			view.Object = render.Obj("rev", rev, "phases", view.Lines)
			return a.out.Print(view)
		}})
}

func phaseStatus(p *boardpb.Phase) string {
	return exitcode.EnumWord(p.GetStatus().String(), "PHASE_STATUS_")
}

func phaseObject(row *wirepb.PhaseAnswer) render.Object {
	p := row.GetPhase()
	o := render.Obj("id", p.GetId(), "status", phaseStatus(p), "version", p.GetVersion())
	o.AddSet("name", p.GetName())
	o.AddSet("owner", p.GetOwner())
	o.AddSet("dependencies", p.GetDependencies())
	o.AddSet("strict", p.GetStrict())
	o.AddSet("stale_inputs", p.GetStaleInputs())
	o.AddSet("locked_by", row.GetLockedBy())
	o.AddSet("locked_until", render.Time(row.GetLockedUntilWallMs()))
	o.AddSet("lock_generation", row.GetLockGeneration())
	expected, inputs := []render.Object{}, []render.Object{}
	for _, x := range p.GetExpected() {
		expected = append(expected, render.Obj("key", x.GetKey(), "type", x.GetType()))
	}
	for _, in := range p.GetInputs() {
		inputs = append(inputs, render.Obj("phase", in.GetPhase(), "version", in.GetVersion()))
	}
	return append(o, render.Obj("expected_data", expected, "inputs", inputs, "time", render.Time(p.GetWallMs()))...)
}
