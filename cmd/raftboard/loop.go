package main

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftboard/client"
	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// Bounds of the loop a one-shot command opens for itself.
const (
	shortestLoop = 30 * time.Second
	longestLoop  = state.MaxLoopTTLMs * time.Millisecond
	commonLease  = state.DefaultLeaseMs * time.Millisecond // of a namespace that names none
)

// loopTTL outlives the lease it is opened for, so that a holder who is late hears "lease expired"
// and not "no such loop".
func loopTTL(lease time.Duration) time.Duration {
	return min(max(shortestLoop, 2*lease), longestLoop)
}

// defaultLease is what a claim without --ttl will get, as far as it can be told; it sizes the loop only.
func (a *app) defaultLease(ctx context.Context, key, pattern string) time.Duration {
	b, err := a.board(ctx)
	if err != nil {
		return commonLease
	}
	answer, err2 := a.describe(ctx, b)
	if err2 != nil {
		return commonLease
	}
	for _, ns := range answer.GetHead().GetSettings().GetNamespaces() {
		if ns.GetLeaseMs() > 0 && (ns.GetPattern() == pattern || matches(ns.GetPattern(), key+pattern)) {
			return time.Duration(ns.GetLeaseMs()) * time.Millisecond
		}
	}
	return commonLease
}

// matches is the grammar of patterns, segment by segment; only the board's own judgement counts.
func matches(pattern, key string) bool {
	p, k := strings.Split(pattern, "/"), strings.Split(key, "/")
	for i, segment := range p {
		if segment == "**" && i == len(p)-1 {
			return len(k) > i
		}
		if i >= len(k) {
			return false
		}
		if ok, err := path.Match(segment, k[i]); err != nil || !ok {
			return false
		}
	}
	return len(p) == len(k)
}

// openLoop opens a loop that nobody renews but the verbs that name it.
func (a *app) openLoop(ctx context.Context, ttl time.Duration, label string) (string, error) {
	b, err := a.board(ctx)
	if err != nil {
		return "", err
	}
	l, err := b.OpenLoop(ctx, client.LoopOptions{TTL: ttl, Label: label, Manual: true})
	if err != nil {
		return "", refused(err)
	}
	return l.ID(), nil
}

// closeLoop gives back a loop that turned out to hold nothing; if that fails it ends by its ttl.
func (a *app) closeLoop(ctx context.Context, id string) {
	if b, err := a.board(ctx); err == nil {
		if err := b.AttachLoop(id).Close(ctx); err != nil {
			a.warn("warning: loop %s was not closed: %v", id, err)
		}
	}
}

func (a *app) loopCommand() *cobra.Command {
	return noun("loop", "Loops: what holds leases between two commands",
		a.loopOpenCommand(), a.loopKeepaliveCommand(), a.loopCloseCommand())
}

func (a *app) loopOpenCommand() *cobra.Command {
	var ttl time.Duration
	var label, parent, nonce string
	c := leaf(verb{use: "open", short: "Open a loop and print its id",
		examples: [2]string{`export RAFTBOARD_LOOP=$(raftboard loop open --ttl 10m -o name)`,
			`raftboard loop open --label build-4711 -o json`},
		args: cobra.NoArgs,
		run: func(ctx context.Context, _ []string) error {
			defer a.close()
			if ttl < 0 {
				return exitcode.Usagef("--ttl 30s", "--ttl %v must not be negative", ttl)
			}
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			l, err := b.OpenLoop(ctx, client.LoopOptions{TTL: ttl, Label: label, Parent: parent, Nonce: nonce, Manual: true})
			if err != nil {
				return refused(err)
			}
			o := render.Obj("outcome", "ok", "loop", l.ID(), "loop_ttl_ms", l.TTL().Milliseconds())
			return a.out.Print(render.View{Object: o, Names: []string{l.ID()},
				Text: fmt.Sprintf("loop %s  ttl %s", l.ID(), render.Duration(l.TTL().Milliseconds()))})
		}})
	c.Flags().DurationVar(&ttl, "ttl", 30*time.Second, "how long it may be silent")
	c.Flags().StringVar(&label, "label", "", "shown in its events, decides nothing")
	c.Flags().StringVar(&parent, "parent", "", "the loop that started it")
	c.Flags().StringVar(&nonce, "nonce", "", "the same nonce gives the same loop while it lives")
	return c
}

func (a *app) loopKeepaliveCommand() *cobra.Command {
	var every time.Duration
	c := leaf(verb{use: "keepalive [LOOP]", short: "Renew a loop and the leases it holds",
		examples: [2]string{`raftboard loop keepalive --every 10s`, `raftboard loop keepalive $LOOP`},
		args:     cobra.MaximumNArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			id, err := a.loopOf(args)
			if err != nil {
				return err
			}
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			for {
				r, err := settled(b.AttachLoop(id).Keepalive(ctx))
				if err != nil {
					return err
				}
				if err := a.loopAlive(r, id); err != nil || every <= 0 {
					return err
				}
				if err := pause(ctx, every); err != nil {
					return err
				}
			}
		}})
	c.Flags().DurationVar(&every, "every", 0, "go on until interrupted or refused")
	return c
}

// loopAlive reads what the keepalive says about the loop.
func (a *app) loopAlive(r *boardpb.Result, id string) error {
	for _, s := range r.GetLoops() {
		if s.GetLoop() == id && s.GetCode() != boardpb.Code_CODE_UNSPECIFIED {
			return refusal(s.GetCode(), "the loop "+id+" can't be renewed", "raftboard loop open")
		}
	}
	r.Loop = id
	return a.printResult(r, "renewed loop "+id)
}

func (a *app) loopCloseCommand() *cobra.Command {
	return leaf(verb{use: "close [LOOP]", short: "End a loop; what it holds becomes free",
		examples: [2]string{`raftboard loop close`, `raftboard loop close $LOOP`},
		args:     cobra.MaximumNArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			id, err := a.loopOf(args)
			if err != nil {
				return err
			}
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			r, err := settled(b.AttachLoop(id).Do(ctx,
				&boardpb.Command{Op: &boardpb.Command_LoopClose{LoopClose: &boardpb.LoopClose{Loop: id}}}))
			if err != nil {
				return err
			}
			r.Loop = id
			return a.printResult(r, "closed loop "+id)
		}})
}

// loopOf is the loop named as argument, by --loop or RAFTBOARD_LOOP.
func (a *app) loopOf(args []string) (string, error) {
	if len(args) == 1 {
		return args[0], nil
	}
	if a.g.loop == "" {
		return "", exitcode.Usagef("raftboard loop open", "no loop is named: give it as argument, --loop or RAFTBOARD_LOOP")
	}
	return a.g.loop, nil
}
