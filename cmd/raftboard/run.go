package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"raftboard/client"
	"raftboard/cmd/raftboard/exitcode"
	boardpb "raftboard/fsm/pb"
)

// killAfter is how long a child may take to end after SIGTERM.
const killAfter = 10 * time.Second

// lastWords bounds the calls made after the child ended, also when we are interrupted.
const lastWords = 5 * time.Second

type runFlags struct {
	claimFlags
	claim      string
	result     string
	text       bool
	resultsKey string
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	var c *cobra.Command
	c = leaf(verb{use: "run --claim KEY|--next PATTERN -- CMD…",
		short: "Run a command under a lease: claim, keep alive, complete or fail",
		long: "The child sees RAFTBOARD_LOOP, RAFTBOARD_KEY and RAFTBOARD_GENERATION. It ends with 0: the item is completed,\n" +
			"else it is failed; the exit code is the child's. Lost lease: SIGTERM to its process group, SIGKILL after 10 s,\n" +
			"nothing is completed, exit 4. Held or done: exit 4. Nothing to claim: exit 124.",
		examples: [2]string{`raftboard run --claim claims/build --ttl 1m -- make all`,
			`raftboard run --next 'claims/*' --result out.json -- ./worker.sh`},
		args: cobra.MinimumNArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			f.ttlSet = c.Flags().Changed("ttl")
			if (f.claim == "") == (f.next == "") {
				return exitcode.Usagef("raftboard run --claim KEY -- CMD", "run needs either --claim KEY or --next PATTERN")
			}
			path, err := exec.LookPath(args[0])
			if err != nil {
				return exitcode.Usagef("", "%v", err)
			}
			return a.run(ctx, &f, append([]string{path}, args[1:]...))
		}})
	c.Flags().StringVar(&f.claim, "claim", "", "the key to claim")
	c.Flags().StringVar(&f.next, "next", "", "claim the first free posted item of this pattern")
	c.Flags().DurationVar(&f.ttl, "ttl", 0, "duration of the lease; it is renewed while the child runs")
	c.Flags().BoolVar(&f.takeover, "takeover", false, "end the lease of another loop of yours")
	c.Flags().StringVar(&f.result, "result", "", "a file the child writes: JSON, stored as the result")
	c.Flags().BoolVar(&f.text, "text", false, "the result is text: store it as one JSON string")
	c.Flags().StringVar(&f.resultsKey, "results-key", "", "store the result under this key of yours")
	return c
}

func (a *app) run(ctx context.Context, f *runFlags, argv []string) error {
	b, err := a.board(ctx)
	if err != nil {
		return err
	}
	// The lease belongs to the child's life, not to ours: it stays renewed while the child winds up.
	work := context.WithoutCancel(ctx)
	loop, err := b.OpenLoop(ctx, client.LoopOptions{TTL: loopTTL(f.ttl)})
	if err != nil {
		return refused(err)
	}
	defer func() {
		end, cancel := context.WithTimeout(work, lastWords)
		defer cancel()
		if err := loop.Close(end); err != nil {
			a.warn("warning: loop %s was not closed: %v", loop.ID(), err)
		}
	}()
	r, err := settled(loop.Do(work, f.command(f.claim)))
	if err != nil {
		return err
	}
	lease := loop.Held(r.GetKey(), r.GetGeneration())
	if lease == nil {
		return fmt.Errorf("the lease of %s was over before the command could start", r.GetKey())
	}
	a.warn("claimed %s  generation %d  loop %s", r.GetKey(), r.GetGeneration(), loop.ID())
	return a.child(ctx, f, lease, argv)
}

// child runs the command and settles the lease by how it ended.
func (a *app) child(ctx context.Context, f *runFlags, lease *client.Lease, argv []string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if !a.stdinTerminal { // a process group in the background may not read a terminal
		cmd.Stdin = os.Stdin
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(), "RAFTBOARD_LOOP="+lease.Loop().ID(), "RAFTBOARD_KEY="+lease.Key(),
		fmt.Sprintf("RAFTBOARD_GENERATION=%d", lease.Generation()), "RAFTBOARD_BOARD="+a.g.board, "RAFTBOARD_AS="+a.conn.as)
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("starting %s: %w", argv[0], err), a.settle(f, lease, "the command did not start"))
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the child, which is killed at the latest
	select {
	case err := <-ended:
		return a.childEnded(f, lease, err)
	case <-lease.Lost():
		stopGroup(cmd.Process.Pid, ended)
		e := lease.Ended()
		return &exitcode.Error{Status: exitcode.State,
			Msg: fmt.Sprintf("the lease of %s (generation %d) was lost: %s; the command was stopped",
				lease.Key(), lease.Generation(), exitcode.EnumWord(e.Cause.String(), "ENDED_BY_")),
			Hint: "raftboard claims " + lease.Key()}
	case <-ctx.Done():
		stopGroup(cmd.Process.Pid, ended)
		if err := a.settle(f, lease, "interrupted"); err != nil {
			a.warn("warning: %s was not given back: %v", lease.Key(), err)
		}
		return ctx.Err()
	}
}

// stopGroup ends a child's process group: SIGTERM, then SIGKILL.
func stopGroup(pid int, ended <-chan error) {
	syscall.Kill(-pid, syscall.SIGTERM)
	timer := time.NewTimer(killAfter)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		syscall.Kill(-pid, syscall.SIGKILL)
		<-ended
	}
	syscall.Kill(-pid, syscall.SIGKILL) // what the child left behind in its group
}

// childEnded completes or fails the item; the child's status is ours if that was accepted.
func (a *app) childEnded(f *runFlags, lease *client.Lease, err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return a.settle(f, lease, "")
	case !errors.As(err, &exit):
		return errors.Join(err, a.settle(f, lease, "the command could not be waited for"))
	}
	status := exit.ExitCode()
	if ws, is := exit.Sys().(syscall.WaitStatus); is && ws.Signaled() {
		status = 128 + int(ws.Signal())
	}
	if err := a.settle(f, lease, fmt.Sprintf("the command ended with %d", status)); err != nil {
		return err
	}
	return &exitcode.Silent{Status: status}
}

// settle completes the item, or fails it with a reason.
func (a *app) settle(f *runFlags, lease *client.Lease, failure string) error {
	var result []byte
	var unreadable error
	if failure == "" && f.result != "" {
		v := valueFlags{file: f.result, text: f.text}
		if result, unreadable = v.read(a, nil); unreadable != nil {
			failure = "the result could not be read"
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(lastWords, a.g.timeout))
	defer cancel()
	var r *boardpb.Result
	var err error
	if failure != "" {
		r, err = settled(lease.Fail(ctx, failure, 0))
	} else {
		r, err = settled(lease.Complete(ctx, result, f.resultsKey))
	}
	if err != nil {
		return errors.Join(unreadable, err)
	}
	a.warn("%s %s  rev %d", map[bool]string{true: "completed", false: "failed"}[failure == ""], lease.Key(), r.GetRev())
	return unreadable
}
