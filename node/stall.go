package node

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// The bound of a call of the stores. A call that lasts longer ends the process: heartbeats do
// not wait for the disk, so a leader whose disk hangs stays leader while nothing is written
// (RAFT P16, hashicorp/raft#503).
const (
	// defaultStoreTimeout is thirty times the slowest call that was measured (0.7 s: three nodes
	// and writers on one disk, two processes that synced 256 MiB files on it without a pause, 31
	// processes ready to run on two cores), and twice rpcTimeout, after which a leader gives a
	// follower's answer up anyway. Too short would end a node that only had to wait.
	defaultStoreTimeout = 20 * time.Second
	// A call is judged in steps. One that ends late says that the process did not run, paused
	// or starved, and that the disk had no chance: it does not count.
	stallSteps = 4
	// What a call may take longer, because it does more.
	perCutEntry     = 100 * time.Microsecond
	perSnapshotMiB  = 250 * time.Millisecond // a disk slower than 4 MiB/s is broken
	bytesPerMiB     = 1 << 20
	lateStepDivisor = 2
)

// stallWatch ends the process when a call of a store lasts too long, also while it hangs.
type stallWatch struct {
	bound time.Duration // below zero: none
	mono  func() time.Duration
	stuck func(what string, lasts time.Duration)
	worst atomic.Int64 // the longest call so far
}

// begin watches a call until its end, which the caller reports by calling end. It may last extra
// longer than others.
func (w *stallWatch) begin(what string, extra time.Duration) (end func()) {
	if w == nil {
		return func() {}
	}
	began := w.mono()
	measure := func() {
		took := int64(w.mono() - began)
		for worst := w.worst.Load(); took > worst && !w.worst.CompareAndSwap(worst, took); worst = w.worst.Load() {
		}
	}
	if w.bound < 0 {
		return measure
	}
	c := &watchedCall{w: w, what: what, step: (w.bound + extra) / stallSteps, began: began}
	c.mu.Lock()
	c.due = began + c.step
	c.timer = time.AfterFunc(c.step, c.look)
	c.mu.Unlock()
	return func() {
		measure()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.over = true
		c.timer.Stop()
	}
}

// watchedCall is one call that lasts.
type watchedCall struct {
	w     *stallWatch
	what  string
	step  time.Duration
	began time.Duration

	mu    sync.Mutex
	timer *time.Timer
	due   time.Duration
	steps int
	over  bool
}

// look runs at the end of each step.
func (c *watchedCall) look() {
	c.mu.Lock()
	now := c.w.mono()
	if late := now - c.due; late < c.step/lateStepDivisor {
		c.steps++
	}
	stuck := !c.over && c.steps >= stallSteps
	if !c.over && !stuck {
		c.due = now + c.step
		c.timer.Reset(c.step)
	}
	c.mu.Unlock()
	if stuck {
		c.w.stuck(c.what, now-c.began)
	}
}

// storeHangs is the error of a store that hangs.
func storeHangs(dir, what string, lasts time.Duration) error {
	return &DirError{Dir: dir,
		What: fmt.Sprintf("the disk does not answer: %q has lasted %v", what, lasts.Round(time.Millisecond)),
		Hint: "acknowledged data is safe; check the disk (dmesg, smartctl), then start the node again: it replays its log. " +
			"If a disk like that is slow and sound, raise --store-timeout"}
}
