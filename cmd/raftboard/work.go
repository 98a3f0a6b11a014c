package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
)

// workCommands are the verbs of items and leases.
func (a *app) workCommands() []*cobra.Command {
	return []*cobra.Command{a.claimCommand(), a.heartbeatCommand(), a.releaseCommand(), a.completeCommand(), a.failCommand(),
		a.claimsCommand(), a.reopenCommand(), a.unparkCommand(), a.phaseCommand(), a.loopCommand()}
}

// claimFlags are shared by claim and run.
type claimFlags struct {
	next     string
	ttl      time.Duration
	ttlSet   bool
	takeover bool
	after    uint64
}

// command makes the claim of a key, or of the next item of a pattern.
func (f *claimFlags) command(keys ...string) *boardpb.Command {
	var duration *int64
	if f.ttlSet { // zero is not "unset": the board refuses it
		ms := f.ttl.Milliseconds()
		duration = &ms
	}
	if f.next != "" {
		return &boardpb.Command{Op: &boardpb.Command_ClaimNext{ClaimNext: &boardpb.ClaimNext{Pattern: f.next,
			DurationMs: duration, After: f.after}}}
	}
	op := &boardpb.Claim{DurationMs: duration, Takeover: f.takeover}
	if len(keys) == 1 {
		op.Key = keys[0]
	} else {
		op.Keys = keys
	}
	return &boardpb.Command{Op: &boardpb.Command_Claim{Claim: op}}
}

func (a *app) claimCommand() *cobra.Command {
	var f claimFlags
	var c *cobra.Command
	c = leaf(verb{use: "claim KEY… | claim --next PATTERN", short: "Take the lease of a key, of several at once, or of the next posted item",
		long: "Without --loop a loop is opened for it and its id printed: name it with --loop (or RAFTBOARD_LOOP) in heartbeat,\n" +
			"complete, fail, release and set. Held by another, done or not ready: exit 4. Nothing to claim: exit 124.\n" +
			"Several keys are claimed all or none: the answer names those that something is in the way of.",
		examples: [2]string{`raftboard claim claims/build --ttl 30s`, `raftboard claim --next 'claims/*' -o json`},
		args:     cobra.ArbitraryArgs,
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			f.ttlSet = c.Flags().Changed("ttl")
			if (len(args) > 0) == (f.next != "") {
				return exitcode.Usagef("raftboard claim KEY, or raftboard claim --next 'claims/*'",
					"claim needs either KEYs or --next PATTERN")
			}
			return a.claim(ctx, args, f)
		}})
	c.Flags().StringVar(&f.next, "next", "", "the first posted item of this pattern that is free")
	c.Flags().DurationVar(&f.ttl, "ttl", 0, "duration of the lease (default: that of the namespace)")
	c.Flags().BoolVar(&f.takeover, "takeover", false, "end the lease of another loop of yours")
	c.Flags().Uint64Var(&f.after, "after", 0, "with --next: continue behind this queue position")
	c.ValidArgsFunction = a.completeClaims
	return c
}

// claim opens a loop where none is named, and closes it again unless it holds something.
func (a *app) claim(ctx context.Context, keys []string, f claimFlags) error {
	own := a.g.loop == ""
	if own {
		ttl := f.ttl
		if !f.ttlSet {
			ttl = a.defaultLease(ctx, append(keys, "")[0], f.next)
		}
		id, err := a.openLoop(ctx, loopTTL(ttl), "")
		if err != nil {
			return err
		}
		a.g.loop = id
	}
	r, err := a.apply(ctx, f.command(keys...))
	if err != nil {
		if own {
			a.closeLoop(ctx, a.g.loop)
		}
		return err
	}
	r.Loop = a.g.loop
	if len(keys) > 1 {
		var all []string
		for _, one := range r.GetResults() {
			one.Loop = a.g.loop
			all = append(all, claimedText(one))
		}
		return a.printResult(r, strings.Join(all, "\n"))
	}
	return a.printResult(r, claimedText(r))
}

func claimedText(r *boardpb.Result) string {
	text := fmt.Sprintf("claimed %s  generation %d  ttl %s  loop %s", r.GetKey(), r.GetGeneration(),
		render.Duration(r.GetDurationMs()), r.GetLoop())
	if r.GetRenewed() {
		text += "  renewed"
	}
	for _, p := range r.GetPrevious() {
		text += fmt.Sprintf("\nbefore: %s, generation %d, ended by %s", p.GetOwner(), p.GetGeneration(),
			exitcode.EnumWord(p.GetEndedBy().String(), "ENDED_BY_"))
	}
	if len(r.GetValue()) > 0 {
		text += "\n" + oneLine(r.GetValue())
	}
	return text
}

func (a *app) heartbeatCommand() *cobra.Command {
	var lease leaseFlags
	var extend, every time.Duration
	var c *cobra.Command
	c = leaf(verb{use: "heartbeat KEY", short: "Renew a lease and its loop",
		examples: [2]string{`raftboard heartbeat claims/build --loop $LOOP --gen 2`,
			`raftboard heartbeat claims/build --loop $LOOP --gen 2 --every 10s`},
		args: cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			if every < 0 || c.Flags().Changed("every") && every == 0 {
				return exitcode.Usagef("--every 10s", "--every %v must be above zero", every)
			}
			op := &boardpb.Heartbeat{Key: args[0], Generation: lease.of(args[0])}
			if c.Flags().Changed("extend") {
				ms := extend.Milliseconds()
				op.ExtendMs = &ms
			}
			return a.heartbeat(ctx, op, every)
		}})
	lease.declare(c.Flags())
	c.Flags().DurationVar(&extend, "extend", 0, "renew for this long (default: the lease's own duration)")
	c.Flags().DurationVar(&every, "every", 0, "go on renewing until interrupted or refused")
	c.ValidArgsFunction = a.completeClaims
	return c
}

func (a *app) heartbeat(ctx context.Context, op *boardpb.Heartbeat, every time.Duration) error {
	for {
		r, err := a.applyInLoop(ctx, &boardpb.Command{Op: &boardpb.Command_Heartbeat{Heartbeat: op}})
		if err != nil {
			return a.loopHint(err, op.GetKey())
		}
		text := fmt.Sprintf("renewed %s  generation %d  left %s", op.GetKey(), r.GetGeneration(),
			render.Duration(r.GetExpiresInMs()))
		if err := a.printResult(r, text); err != nil || every == 0 {
			return err
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *app) releaseCommand() *cobra.Command {
	var lease leaseFlags
	var force bool
	var reason string
	c := leaf(verb{use: "release KEY", short: "Give a claimed item back unfinished",
		long: "--force takes it from whoever holds it: the generation rises, and what the old holder still sends is refused.",
		examples: [2]string{`raftboard release claims/build --loop $LOOP --gen 2`,
			`raftboard release claims/build --force --reason "host is gone"`},
		args: cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			if force {
				return a.lease(ctx, "released by force", args[0],
					&boardpb.Command{Op: &boardpb.Command_ForceRelease{ForceRelease: &boardpb.ForceRelease{Key: args[0], Reason: reason}}})
			}
			if reason != "" {
				return exitcode.Usagef("raftboard fail KEY --reason …", "--reason goes with --force only")
			}
			return a.lease(ctx, "released", args[0],
				&boardpb.Command{Op: &boardpb.Command_Release{Release: &boardpb.Release{Key: args[0], Generation: lease.of(args[0])}}})
		}})
	lease.declare(c.Flags())
	c.Flags().BoolVar(&force, "force", false, "free it whoever holds it (operator)")
	c.Flags().StringVar(&reason, "reason", "", "with --force: why; shown in the feed")
	c.ValidArgsFunction = a.completeClaims
	return c
}

func (a *app) completeCommand() *cobra.Command {
	var lease leaseFlags
	var result, resultsKey string
	var text bool
	var cites []string
	c := leaf(verb{use: "complete KEY", short: "Finish a claimed item, with a result; it can't be claimed again",
		examples: [2]string{`raftboard complete claims/build --loop $LOOP --gen 2 --result '{"ok":true}'`,
			`raftboard complete claims/build --loop $LOOP --gen 2 --result @out.json --results-key results/worker-1/build`},
		args: cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			op := &boardpb.Complete{Key: args[0], Generation: lease.of(args[0]), ResultsKey: resultsKey, Cites: cites}
			if result != "" {
				v := valueFlags{text: text}
				raw, err := v.read(a, []string{result})
				if err != nil {
					return err
				}
				op.Result = raw
			}
			return a.lease(ctx, "completed", args[0], &boardpb.Command{Op: &boardpb.Command_Complete{Complete: op}})
		}})
	lease.declare(c.Flags())
	citeFlag(c.Flags(), &cites)
	c.Flags().StringVar(&result, "result", "", "JSON, - or @FILE")
	c.Flags().StringVar(&resultsKey, "results-key", "", "store the result under this key of yours, in the same commit")
	c.Flags().BoolVar(&text, "text", false, "the result is text: store it as one JSON string")
	c.ValidArgsFunction = a.completeClaims
	return c
}

func (a *app) failCommand() *cobra.Command {
	var lease leaseFlags
	var reason string
	var retryAfter time.Duration
	c := leaf(verb{use: "fail KEY", short: "Give a claimed item back because it can't be done (now)",
		examples: [2]string{`raftboard fail claims/build --loop $LOOP --gen 2 --reason "no access to the repository"`,
			`raftboard fail claims/build --loop $LOOP --gen 2 --reason "rate limit" --retry-after 5m`},
		args: cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			return a.lease(ctx, "failed", args[0], &boardpb.Command{Op: &boardpb.Command_Fail{Fail: &boardpb.Fail{Key: args[0],
				Generation: lease.of(args[0]), Reason: reason, RetryAfterMs: retryAfter.Milliseconds()}}})
		}})
	lease.declare(c.Flags())
	c.Flags().StringVar(&reason, "reason", "", "why, for whoever claims it next")
	c.Flags().DurationVar(&retryAfter, "retry-after", 0, "claimable again after this time")
	c.ValidArgsFunction = a.completeClaims
	return c
}

func (a *app) reopenCommand() *cobra.Command {
	c := leaf(verb{use: "reopen KEY", short: "Make a finished item claimable again (orchestrator, operator)",
		examples: [2]string{`raftboard reopen claims/build`, `raftboard reopen claims/review-api --as orchestrator`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			return a.lease(ctx, "reopened", args[0],
				&boardpb.Command{Op: &boardpb.Command_Reopen{Reopen: &boardpb.Reopen{Key: args[0]}}})
		}})
	c.ValidArgsFunction = a.completeClaims
	return c
}

func (a *app) unparkCommand() *cobra.Command {
	c := leaf(verb{use: "unpark KEY", short: "Make a parked item claimable again, with all its attempts (orchestrator, supervisor, operator)",
		long: "An item is parked when it was claimed as often as max_attempts of its namespace allows and was not completed.\n" +
			"`raftboard claims --parked` lists the parked ones with their reasons.",
		examples: [2]string{`raftboard unpark claims/build`, `raftboard unpark claims/review-api --as orchestrator`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			return a.lease(ctx, "unparked", args[0],
				&boardpb.Command{Op: &boardpb.Command_Unpark{Unpark: &boardpb.Unpark{Key: args[0]}}})
		}})
	c.ValidArgsFunction = a.completeClaims
	return c
}

// lease sends a command about one leased key and prints its answer.
func (a *app) lease(ctx context.Context, did, key string, cmd *boardpb.Command) error {
	defer a.close()
	send := a.applyInLoop
	if cmd.GetForceRelease() != nil || cmd.GetReopen() != nil || cmd.GetUnpark() != nil {
		send = a.apply
	}
	r, err := send(ctx, cmd)
	if err != nil {
		return a.loopHint(err, key)
	}
	if r.GetKey() == "" {
		r.Key = key
	}
	text := fmt.Sprintf("%s %s  generation %d  rev %d", did, key, r.GetGeneration(), r.GetRev())
	if r.GetResultRef() != "" {
		text += "  result " + r.GetResultRef()
	}
	return a.printResult(r, text)
}
