package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"raftboard/cmd/raftboard/exitcode"
	boardpb "raftboard/fsm/pb"
)

// dataCommands are the verbs that change entries.
func (a *app) dataCommands() []*cobra.Command {
	return []*cobra.Command{a.setCommand(), a.appendCommand(), a.postCommand(), a.deleteCommand(), a.txnCommand()}
}

// leaseFlags name the caller's lease of a key.
type leaseFlags struct {
	generation uint64
	claim      string
	claimGen   uint64
}

func (l *leaseFlags) declare(fs *pflag.FlagSet) {
	fs.Uint64Var(&l.generation, "gen", 0, "generation of your lease of KEY (default: that of run, if KEY is its key)")
}

// declareClaim adds the flags of partial work.
func (l *leaseFlags) declareClaim(fs *pflag.FlagSet) {
	l.declare(fs)
	fs.StringVar(&l.claim, "for-claim", "", "this is partial work under your claim of that key")
	fs.Uint64Var(&l.claimGen, "for-claim-gen", 0, "generation of that claim")
}

// of gives the generation for a key: --gen, or what run handed to its child.
func (l *leaseFlags) of(key string) uint64 {
	if l.generation != 0 || os.Getenv("RAFTBOARD_KEY") != key {
		return l.generation
	}
	n, err := strconv.ParseUint(os.Getenv("RAFTBOARD_GENERATION"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (l *leaseFlags) forClaim() *boardpb.LeaseRef {
	if l.claim == "" {
		return nil
	}
	return &boardpb.LeaseRef{Key: l.claim, Generation: l.claimGen}
}

// versionFlag is --if-version: absent, a number, or '*'.
type versionFlag struct {
	number    uint64
	overwrite bool
}

func (v *versionFlag) String() string { return "" }
func (v *versionFlag) Type() string   { return "N|*" }
func (v *versionFlag) Set(s string) error {
	if s == "*" {
		*v = versionFlag{overwrite: true}
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is neither a version nor '*'", s)
	}
	*v = versionFlag{number: n}
	return nil
}

func (a *app) setCommand() *cobra.Command {
	var value valueFlags
	var lease leaseFlags
	var version versionFlag
	var source, summary string
	var cites []string
	c := leaf(verb{use: "set KEY VALUE|-|@FILE", short: "Store a JSON value under a key",
		long: "Without --if-version the key must not exist now. With it, the write happens only if the key is still at\n" +
			"that version; otherwise nothing is written, the answer says who changed it, and the exit code is 4.",
		examples: [2]string{`raftboard set plan/current '{"goal":"ship"}'`,
			`raftboard set draft @draft.md --text --if-version 5`},
		args: cobra.RangeArgs(1, 2),
		run: func(ctx context.Context, args []string) error {
			raw, err := value.read(a, args[1:])
			if err != nil {
				return err
			}
			return a.write(ctx, "set", &boardpb.Command{Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: args[0], Value: raw,
				IfVersion: version.number, Overwrite: version.overwrite, Generation: lease.of(args[0]), Source: source,
				ForClaim: lease.forClaim(), Cites: cites, Summary: summary}}})
		}})
	value.declare(c.Flags())
	lease.declareClaim(c.Flags())
	c.Flags().Var(&version, "if-version", "the version you read; '*' overwrites, where the mode allows it")
	c.Flags().StringVar(&source, "source", "", "where this comes from (URL, tool, key)")
	c.Flags().StringVar(&summary, "summary", "", "what it says, on one line of at most 200 characters")
	citeFlag(c.Flags(), &cites)
	c.ValidArgsFunction = a.completeKeys
	return c
}

func (a *app) appendCommand() *cobra.Command {
	var value valueFlags
	var lease leaseFlags
	var source, summary string
	var unique bool
	var cites []string
	c := leaf(verb{use: "append KEY VALUE|-|@FILE", short: "Add an item to an append key; it never conflicts",
		examples: [2]string{`raftboard append facts/api '{"port":8970}'`,
			`echo "two lines" | raftboard append findings/log - --text`},
		args: cobra.RangeArgs(1, 2),
		run: func(ctx context.Context, args []string) error {
			raw, err := value.read(a, args[1:])
			if err != nil {
				return err
			}
			return a.write(ctx, "append", &boardpb.Command{Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: args[0],
				Value:      raw,
				Generation: lease.of(args[0]), Source: source, ForClaim: lease.forClaim(), Cites: cites, Summary: summary,
				Unique: unique}}})
		}})
	value.declare(c.Flags())
	lease.declareClaim(c.Flags())
	c.Flags().StringVar(&source, "source", "", "where this comes from (URL, tool, key)")
	c.Flags().StringVar(&summary, "summary", "", "what it says, on one line of at most 200 characters")
	c.Flags().BoolVar(&unique, "unique", false, "add nothing if an equal item is there, in a namespace that is unique")
	citeFlag(c.Flags(), &cites)
	c.ValidArgsFunction = a.completeKeys
	return c
}

func (a *app) postCommand() *cobra.Command {
	var value valueFlags
	c := leaf(verb{use: "post KEY VALUE|-|@FILE", short: "Offer work: the first version of a leased key, which needs no lease",
		examples: [2]string{`raftboard post claims/review-api '{"pr":17}'`, `raftboard post claims/build @job.json`},
		args:     cobra.RangeArgs(1, 2),
		run: func(ctx context.Context, args []string) error {
			raw, err := value.read(a, args[1:])
			if err != nil {
				return err
			}
			return a.post(ctx, args[0], raw)
		}})
	value.declare(c.Flags())
	c.ValidArgsFunction = a.completeKeys
	return c
}

// post sets the first version of a leased key. The board would take the same set in other
// namespaces, where it offers no work, so their mode is looked at first.
func (a *app) post(ctx context.Context, key string, value []byte) error {
	defer a.close()
	b, err := a.board(ctx)
	if err != nil {
		return err
	}
	answer, err := a.describe(ctx, b)
	if err != nil {
		return err
	}
	for _, ns := range answer.GetHead().GetSettings().GetNamespaces() {
		if ns.GetMode() != boardpb.Mode_MODE_LEASED && matches(ns.GetPattern(), key) {
			return refusal(boardpb.Code_CODE_WRONG_MODE, fmt.Sprintf("namespace %s is %s: work is posted in leased ones",
				ns.GetPattern(), exitcode.EnumWord(ns.GetMode().String(), "MODE_")),
				"raftboard set or append writes here; raftboard schema shows the leased namespaces")
		}
	}
	err = a.write(ctx, "posted", &boardpb.Command{Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: key, Value: value}}})
	var e *exitcode.Refused
	if errors.As(err, &e) && e.Result.GetCode() == boardpb.Code_CODE_NO_LEASE {
		return refusal(boardpb.Code_CODE_EXISTS, key+" was posted already", "raftboard claims "+key+" shows its state")
	}
	return err
}

func (a *app) deleteCommand() *cobra.Command {
	var lease leaseFlags
	var version uint64
	c := leaf(verb{use: "delete KEY", short: "Delete a key; its versions go on rising",
		examples: [2]string{`raftboard delete results/worker-1/old`, `raftboard delete draft --if-version 7`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			return a.write(ctx, "deleted", &boardpb.Command{Op: &boardpb.Command_Delete{Delete: &boardpb.Delete{Key: args[0],
				IfVersion: version, Generation: lease.of(args[0])}}})
		}})
	lease.declare(c.Flags())
	c.Flags().Uint64Var(&version, "if-version", 0, "the version you read (needed in shared namespaces)")
	c.ValidArgsFunction = a.completeKeys
	return c
}

// write sends a change of one key and prints its answer.
func (a *app) write(ctx context.Context, did string, cmd *boardpb.Command) error {
	defer a.close()
	send := a.apply
	if generationOf(cmd) != 0 {
		send = a.applyInLoop
	}
	r, err := send(ctx, cmd)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s %s  version %d  rev %d", did, r.GetKey(), r.GetVersion(), r.GetRev())
	if r.GetLate() {
		text += "  late: its lease had ended"
	}
	return a.printResult(r, text)
}

// generationOf is the lease a change claims to be under; 0: none.
func generationOf(cmd *boardpb.Command) uint64 {
	switch op := cmd.GetOp().(type) {
	case *boardpb.Command_Set:
		return op.Set.GetGeneration()
	case *boardpb.Command_Append:
		return op.Append.GetGeneration()
	case *boardpb.Command_Delete:
		return op.Delete.GetGeneration()
	}
	return 0
}

// applyInLoop is apply for what needs a loop. Where none is named it opens one for this call, which
// can hold nothing: the answer then says who does.
func (a *app) applyInLoop(ctx context.Context, cmd *boardpb.Command) (*boardpb.Result, error) {
	if a.g.loop != "" {
		return a.apply(ctx, cmd)
	}
	id, err := a.openLoop(ctx, shortestLoop, "")
	if err != nil {
		return nil, err
	}
	a.g.loop = id
	r, err := a.apply(ctx, cmd)
	a.g.loop = ""
	a.closeLoop(ctx, id)
	return r, err
}

// loopHint helps a caller of a lease verb who names no loop.
func (a *app) loopHint(err error, key string) error {
	var e *exitcode.Refused
	if a.g.loop == "" && errors.As(err, &e) && e.Result.GetCode() == boardpb.Code_CODE_NOT_HOLDER {
		e.Result.Hint = "name the loop that holds it: --loop LOOP (raftboard claims " + key + " shows it)"
	}
	return err
}
