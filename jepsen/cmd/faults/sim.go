package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"raftboard/jepsen/suite"
)

// mostLine bounds an outcome in the output of the test binary.
const mostLine = 4 << 20

// runSim lets the test binary of the driver on virtual time make the runs: those with nothing
// planted together in one process, and each bug in a process of its own.
func runSim(ctx context.Context, b *builds, plans []suite.Plan, dir string, keepAll bool, each func(suite.Outcome)) (err error) {
	type binary struct {
		tagged        bool
		mutant, fault string
	}
	var order []binary
	groups := map[binary][]suite.Plan{}
	for _, p := range plans {
		key := binary{p.Needs().Tagged, p.Mutant, p.Fault}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], p)
	}
	for _, key := range order {
		bin, broken := b.sim(key.tagged)
		if broken != nil && ctx.Err() == nil {
			for _, p := range groups[key] {
				each(suite.Failure(p, broken))
			}
		}
		if broken == nil {
			env := []string{"MUTANT=" + key.mutant, "FAULT=" + key.fault}
			err = errors.Join(err, simProcess(ctx, bin, env, groups[key], dir, keepAll, each))
		}
	}
	return err
}

// simProcess runs one test binary. A run for which it gave no answer, because it broke, is
// told as one that could not be made.
func simProcess(ctx context.Context, bin string, env []string, plans []suite.Plan, dir string, keepAll bool, each func(suite.Outcome)) error {
	request, err := json.Marshal(suite.Request{Plans: plans, Dir: dir, KeepAll: keepAll, Parallel: runtime.GOMAXPROCS(0)})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, bin, "-test.run", "^TestRuns$", "-test.timeout", "0")
	cmd.Env = append(append(os.Environ(), env...), suite.RequestEnv+"="+string(request))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var said tail
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return err
	}
	answered := map[string]bool{}
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 64<<10), mostLine)
	for lines.Scan() {
		_, text, ours := strings.Cut(lines.Text(), suite.AnswerMark)
		if !ours {
			said.Write(append(lines.Bytes(), '\n'))
			continue
		}
		var o suite.Outcome
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			return errors.Join(fmt.Errorf("the test binary answered what cannot be read: %w", err), cmd.Wait())
		}
		answered[o.Plan.Name()] = true
		each(o)
	}
	err = errors.Join(lines.Err(), cmd.Wait())
	if ctx.Err() != nil {
		return nil // the runs without an answer have no verdict, and their end is nobody's fault
	}
	for _, p := range plans {
		if !answered[p.Name()] {
			each(suite.Failure(p, fmt.Errorf("the run broke (%v): %s", err, said.text())))
		}
	}
	return nil
}

// tail keeps the end of what a process said, on both of its streams.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

const mostTail = 8 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	if over := len(t.kept) - mostTail; over > 0 {
		t.kept = append([]byte(nil), t.kept[over:]...)
	}
	return len(b), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}
