package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"raftboard/jepsen/history"
)

const (
	endPatience  = 10 * time.Second // from SIGKILL to the end: the kernel's work only
	stopPatience = 20 * time.Second // from SIGTERM to the end
	seenPatience = 5 * time.Second  // until a process is seen to be stopped, or to go on
)

// node is one of the cluster, in all its lives.
type node struct {
	c        *Cluster
	index    int
	name     string
	founders int // 0: it joins
	space    *space
	wall     *wall
	retired  atomic.Bool

	mu        sync.Mutex // one thing at a time is done to a node
	life      *life      // nil: down
	lives     int
	other     bool   // it runs the other binary from its next life on
	failpoint string // of its next life
	died      error  // why it ended by itself; nil: it did not, or that was told
}

// life is one process.
type life struct {
	number    int
	binary    string
	failpoint string
	cmd       *exec.Cmd
	log       string        // path of what it says
	ended     chan struct{} // closed when the process has ended
	read      chan struct{} // closed when its trace was read to the end
}

// plug makes the namespace of a node and puts it on the bridge.
func (n *node) plug() (err error) {
	if n.space, err = makeSpace(n.c.tag + n.name); err != nil {
		return err
	}
	port := fmt.Sprintf("node%d", n.index)
	_, err = n.c.hub.run(strings.Join([]string{
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", port, n.space.name),
		fmt.Sprintf("link set %s master bridge up", port),
		fmt.Sprintf("addr add %s/16 dev bridge", faceAddr(n.index)),
	}, "\n"), "ip", "-batch", "-")
	if err == nil {
		_, err = n.space.run(fmt.Sprintf("addr add %s/16 dev eth0\nlink set eth0 up\n", nodeAddr(n.index)), "ip", "-batch", "-")
	}
	if err == nil {
		n.wall, err = newWall(n.space, "")
	}
	return errors.Join(err, os.MkdirAll(n.dir(), 0o755))
}

// close ends the node and removes all that is of it but its directory.
func (n *node) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	err := errors.Join(n.kill(), n.remove())
	if n.died != nil {
		n.c.opt.Log.Note(history.Note{Kind: history.NoteDied, Node: n.name, Text: clip(n.died.Error())})
	}
	return err
}

// remove undoes plug. Called with n.mu held, of a node that is down.
func (n *node) remove() error {
	if n.space == nil {
		return nil
	}
	return n.space.close()
}

// dir holds all that is of a node.
func (n *node) dir() string { return filepath.Join(n.c.dir, n.name) }

// data is its data directory.
func (n *node) data() string { return filepath.Join(n.dir(), "data") }

// args are those of its next life.
func (n *node) args(trace string) []string {
	args := []string{"serve", "--auth", "off", "--unsafe-no-auth-on-network", "--node-name", n.name,
		"--data-dir", n.data(), "--grpc-addr", nodeAddr(n.index) + ":" + grpcPort, "--raft-addr", nodeAddr(n.index) + ":" + raftPort,
		"--admin-addr", "", "--log-format", "text", "--trace-file", trace}
	for _, number := range []struct {
		flag  string
		value uint64
	}{{"--snapshot-threshold", n.c.opt.SnapshotThreshold}, {"--trailing-logs", n.c.opt.TrailingLogs}} {
		if number.value > 0 {
			args = append(args, number.flag, strconv.FormatUint(number.value, 10))
		}
	}
	if n.c.opt.SnapshotInterval > 0 {
		args = append(args, "--snapshot-interval", n.c.opt.SnapshotInterval.String())
	}
	others := n.founders
	if n.founders > 0 {
		args = append(args, "--bootstrap-expect", strconv.Itoa(n.founders))
	} else {
		others = n.index
	}
	var join []string
	for i := range others {
		join = append(join, nodeAddr(i)+":"+grpcPort)
	}
	return append(args, "--join", strings.Join(join, ","))
}

// environment is that of this process without what would reach the node by accident.
func (n *node) environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "RAFTBOARD_") || strings.HasPrefix(v, "FAULT") || strings.HasPrefix(v, "MUTANT=")
	})
	return append(env, n.c.opt.Env...)
}

// start begins a life. Called with n.mu held.
func (n *node) start() error {
	n.reap()
	switch {
	case n.life != nil:
		return nil
	case n.retired.Load():
		return fmt.Errorf("netns: %s is retired", n.name)
	}
	l := &life{number: n.lives + 1, binary: n.c.opt.Binary, failpoint: n.failpoint, ended: make(chan struct{}), read: make(chan struct{})}
	if n.other {
		l.binary = n.c.opt.OtherBinary
	}
	l.log = filepath.Join(n.dir(), fmt.Sprintf("life%d.log", l.number))
	trace := filepath.Join(n.dir(), fmt.Sprintf("life%d.trace", l.number))
	out, err := os.OpenFile(l.log, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	l.cmd = exec.Command(l.binary, n.args(trace)...)
	l.cmd.Env, l.cmd.Stdout, l.cmd.Stderr = n.environment(), out, out
	// A group of its own, so that a Ctrl-C is the harness's to answer; the end of the thread
	// that forks it, and so of the harness, is its end.
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := n.space.fork(l.cmd.Start); err != nil {
		return fmt.Errorf("netns: start %s: %w", n.name, err)
	}
	n.life, n.lives = l, l.number
	go func() { // ends with the process
		defer close(l.ended)
		l.cmd.Wait() // how it ended is in ProcessState
	}()
	go func() { // ends with the process
		defer close(l.read)
		n.follow(l, trace)
	}()
	return nil
}

// alive says whether there is a process. Called with n.mu held.
func (n *node) alive() bool {
	n.reap()
	return n.life != nil
}

// reap takes note of a process that has ended by itself. Called with n.mu held.
func (n *node) reap() {
	if n.life == nil {
		return
	}
	select {
	case <-n.life.ended:
		n.died = fmt.Errorf("%s, life %d: %v: %s", n.name, n.life.number, n.life.cmd.ProcessState, lastWords(n.life.log))
		n.buried()
	default:
	}
}

// buried closes a life whose process has ended. Called with n.mu held.
func (n *node) buried() {
	<-n.life.read
	n.overheard(n.life)
	n.life = nil
}

// end sends a signal and waits for the end of the process. Called with n.mu held.
func (n *node) end(sig syscall.Signal, most time.Duration) error {
	if !n.alive() {
		return nil
	}
	if err := n.life.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-n.life.ended:
		n.buried()
		return nil
	case <-timer.C:
		return fmt.Errorf("netns: %s has not ended %v after %v", n.name, most, sig)
	}
}

func (n *node) kill() error { return n.end(syscall.SIGKILL, endPatience) }

// halted sends SIGSTOP or SIGCONT and waits until the kernel says so. Called with n.mu held.
func (n *node) halted(stop bool) error {
	if !n.alive() {
		if stop {
			return fmt.Errorf("netns: %s is down", n.name)
		}
		return nil
	}
	sig := syscall.SIGCONT
	if stop {
		sig = syscall.SIGSTOP
	}
	if err := n.life.cmd.Process.Signal(sig); err != nil {
		return err
	}
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		fields, err := procStat(n.life.cmd.Process.Pid)
		if err == nil && (fields[0] == "T") == stop {
			return nil
		}
		if time.Since(began) > seenPatience {
			return fmt.Errorf("netns: %s is in state %v after %v: %w", n.name, fields, sig, err)
		}
	}
}
