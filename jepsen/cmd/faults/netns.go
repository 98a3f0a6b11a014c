package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/netns"
	"raftboard/jepsen/planted"
	"raftboard/jepsen/suite"
)

// runNetns makes one run with real processes.
func runNetns(ctx context.Context, b *builds, p suite.Plan, dir string, keepAll bool) suite.Outcome {
	began := time.Now()
	if err := netns.Needs(); err != nil {
		return suite.Failure(p, err)
	}
	if p.Mutant != "" && !planted.On {
		return delegate(ctx, b, p, dir)
	}
	own := filepath.Join(dir, p.Name())
	release, err := hold(own)
	if err != nil {
		return suite.Failure(p, err)
	}
	defer release()
	h, err := realRun(ctx, b, p, own)
	if err != nil {
		return suite.Failure(p, fmt.Errorf("%w; its files are in %s", err, own))
	}
	r := suite.Request{Dir: dir, KeepAll: keepAll}
	o := r.Finished(p, suite.Recording{History: h}, began)
	if o.Dir == "" { // nothing to keep: the logs of its nodes go as well
		os.RemoveAll(own)
	}
	return o
}

// realRun starts the cluster, lets the suite run the plan, and takes everything away again,
// also when it is told to end in the middle. The directory is held by the caller.
func realRun(ctx context.Context, b *builds, p suite.Plan, dir string) (_ *history.History, err error) {
	needs := p.Needs()
	o := netns.Options{Nodes: p.Nodes, Dir: dir, Relay: needs.Relay, PowerDisks: needs.Power, Tagged: needs.Tagged}
	if o.Binary, err = b.server(needs.Tagged, false); err != nil {
		return nil, err
	}
	if needs.Other {
		if o.OtherBinary, err = b.server(needs.Tagged, true); err != nil {
			return nil, err
		}
	}
	// An earlier run of this plan may have left files there; one that was killed, mounts too.
	if err := errors.Join(netns.Sweep(), clear(dir)); err != nil {
		return nil, err
	}
	o.Log = history.NewLog(p.Describe()) // its clock starts here, and not while things are built
	if p.Mutant != "" {
		o.Env = append(o.Env, "MUTANT="+p.Mutant)
	}
	if p.Fault != "" {
		o.Env = append(o.Env, "FAULT="+p.Fault)
	}
	if needs.Compact {
		o.SnapshotThreshold, o.TrailingLogs, o.SnapshotInterval = 200, 100, 2*time.Second
	}
	c, err := netns.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	err = suite.Run(ctx, c, o.Log, p)
	err = errors.Join(err, c.Close())
	return o.Log.History(), err
}

// delegate lets a build of this command that can have planted bugs make the run.
func delegate(ctx context.Context, b *builds, p suite.Plan, dir string) suite.Outcome {
	self, err := b.self()
	if err != nil {
		return suite.Failure(p, err)
	}
	args := []string{"run", "-o", "json", "--dir", dir, "--driver", p.Driver, "--workload", p.Workload,
		"--nemesis", strings.Join(p.Nemeses, ","), "--nodes", fmt.Sprint(p.Nodes), "--time", p.Time.String(),
		"--rate", fmt.Sprint(p.Rate), "--seed", fmt.Sprint(p.Seed), "--mutant", p.Mutant, "--fault", p.Fault}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it has a cluster to take away
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                 // and a Ctrl-C that came twice would not let it
	cmd.WaitDelay = time.Minute
	cmd.Env = append(os.Environ(), "MUTANT="+p.Mutant)
	var out bytes.Buffer
	var said tail
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	var o suite.Outcome
	if json.Unmarshal(out.Bytes(), &o) != nil || o.Verdict == "" {
		return suite.Failure(p, fmt.Errorf("the build with planted bugs gave no outcome (%v): %s", err, said.text()))
	}
	if o.Verdict == check.VALID && o.Dir != "" {
		os.RemoveAll(o.Dir)
	}
	return o
}
