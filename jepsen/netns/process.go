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
	disk     *disk // nil: its data directory is one of the machine
	retired  atomic.Bool

	mu        sync.Mutex // one thing at a time is done to a node
	life      *life      // nil: down
	lives     int
	other     bool    // it runs the other binary from its next life on
	failpoint string  // of its next life
	share     float64 // of a core; 0: no limit
	damaged   bool    // since its last life
	gone      bool    // with its cluster
	died      error   // why it ended by itself; nil: it did not, or that was told
}

// life is one process.
type life struct {
	number int
	cmd    *exec.Cmd
	wanted bool          // its end was: it is not one by itself
	log    string        // path of what it says
	upTo   int64         // what it said behind this, without power, does not count; 0: all counts
	ended  chan struct{} // closed when the process has ended
	read   chan struct{} // closed when its trace was read to the end
}

// plug makes the namespace of a node, puts it on the bridge, and makes its disk. Called with
// n.mu held.
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
	if err == nil && n.c.opt.Relay {
		err = n.c.relay.join(n)
	}
	err = errors.Join(err, os.MkdirAll(n.dir(), 0o755))
	if err == nil && n.c.opt.PowerDisks {
		err = n.newDisk()
	}
	return err
}

// close ends the node and removes all that is of it but its directory.
func (n *node) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = true
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
	err := n.release()
	if n.disk != nil {
		err = errors.Join(err, n.disk.close())
	}
	return errors.Join(err, n.space.close())
}

// dir holds all that is of a node.
func (n *node) dir() string { return filepath.Join(n.c.dir, n.name) }

// data is its data directory.
func (n *node) data() string {
	if n.disk != nil {
		return filepath.Join(n.disk.at, "data")
	}
	return filepath.Join(n.dir(), "data")
}

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
	if err := n.prepare(); err != nil {
		return err
	}
	l := &life{number: n.lives + 1, ended: make(chan struct{}), read: make(chan struct{})}
	binary := n.c.opt.Binary
	if n.other {
		binary = n.c.opt.OtherBinary
	}
	l.log = filepath.Join(n.dir(), fmt.Sprintf("life%d.log", l.number))
	trace := filepath.Join(n.dir(), fmt.Sprintf("life%d.trace", l.number))
	out, err := os.OpenFile(l.log, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	l.cmd = exec.Command(binary, n.args(trace)...)
	l.cmd.Env, l.cmd.Stdout, l.cmd.Stderr = append(n.environment(), n.plant(n.failpoint)...), out, out
	// A group of its own, so that a Ctrl-C is the harness's to answer; the end of the thread
	// that forks it, and so of the harness, is its end.
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := n.space.fork(l.cmd.Start); err != nil {
		return fmt.Errorf("netns: start %s: %w", n.name, err)
	}
	n.life, n.lives = l, l.number
	var confined error
	if n.share > 0 {
		confined = n.confine()
	}
	go func() { // ends with the process
		defer close(l.ended)
		l.cmd.Wait() // how it ended is in ProcessState
	}()
	go func() { // ends with the process
		defer close(l.read)
		n.follow(l, trace)
	}()
	return confined
}

// prepare makes ready what a life needs, and keeps a copy of what it begins with.
func (n *node) prepare() error {
	if err := n.powered(); err != nil {
		return err
	}
	damaged := n.damaged
	n.damaged = false
	if n.lives == 0 || damaged {
		return nil
	}
	return n.keep()
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
		if !n.life.wanted {
			n.died = fmt.Errorf("%s, life %d: %v: %s", n.name, n.life.number, n.life.cmd.ProcessState, lastWords(n.life.log))
		}
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

// ask tells a process to end; false when there is none. Called with n.mu held.
func (n *node) ask(sig syscall.Signal) (asked bool, err error) {
	if !n.alive() {
		return false, nil
	}
	n.life.wanted = true
	if err := n.life.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return true, err
	}
	return true, nil
}

// wait waits for the end of a process that was asked to. Called with n.mu held.
func (n *node) wait(most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-n.life.ended:
		n.buried()
		return nil
	case <-timer.C:
		return fmt.Errorf("netns: %s has not ended %v after it was told to", n.name, most)
	}
}

// kill ends a process. One that waits for its disk can only end when the disk answers, so a
// disk that hangs answers for a moment.
func (n *node) kill() error {
	asked, err := n.ask(syscall.SIGKILL)
	if !asked || err != nil {
		return err
	}
	if n.disk == nil {
		return n.wait(endPatience)
	}
	return n.disk.breathe(func() error { return n.wait(endPatience) })
}

// terminate lets a process end in its own way.
func (n *node) terminate() error {
	asked, err := n.ask(syscall.SIGTERM)
	if !asked || err != nil {
		return err
	}
	return n.wait(stopPatience)
}

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
		states, err := threads(n.life.cmd.Process.Pid)
		stopped := strings.Count(states, "T")
		if err == nil && (stop && stopped == len(states) || !stop && stopped == 0) {
			return nil
		}
		if time.Since(began) > seenPatience {
			return fmt.Errorf("netns: the threads of %s are in states %s after %v: %w", n.name, states, sig, err)
		}
	}
}

// threads are the states of the threads of a process, a letter each: R, S, D, T.
func threads(pid int) (states string, err error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		fields, err := statFields(fmt.Sprintf("/proc/%d/task/%s/stat", pid, task.Name()))
		if err != nil {
			return states, err
		}
		states += fields[0]
	}
	return states, err
}
