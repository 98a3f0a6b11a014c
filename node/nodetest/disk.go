package nodetest

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"raftboard/node"
)

// Disk is what a node has stored. It outlives the node, and it can be slow, hang, fail, lose
// what was not synced, and be damaged. Safe for several goroutines.
//
// A process opens it with Stores and writes through what it got; Cut ends that, as the death
// of the process does: what was not stored by then never is. Every write is synced before it
// returns, unless Lazy says that nothing is.
type Disk struct {
	mu      sync.Mutex
	now     content
	open    []*store // by processes that were not cut off
	serial  int      // of snapshots
	fault   Fault
	held    bool
	waiting int       // writes that do not return
	until   time.Time // of a stall
	err     error
	changed chan struct{} // closed at every change of how the disk is

	lazy  bool
	undos []undo // of what was written and not synced, oldest first

	older     []content // checkpoints, oldest first
	olderThan time.Time // of the newest one
}

// Fault is one way in which a disk is bad; the zero Fault is a good one.
type Fault struct {
	Slow  time.Duration // every write takes this much longer
	Hung  bool          // no write returns
	Full  bool          // no space left
	Error bool          // writes fail with an I/O error
	Short bool          // half of a write is stored, and it fails
}

var errGone = errors.New("the process that had this disk open is dead")

// NewDisk makes an empty disk.
func NewDisk() *Disk {
	return &Disk{now: newContent(), changed: make(chan struct{}), olderThan: time.Now()}
}

// Copy is another disk that holds what this one does now.
func (d *Disk) Copy() (*Disk, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := NewDisk()
	c.now, c.serial = d.now.clone(), d.serial
	return c, nil
}

// Stores are the disk as a process opens it.
func (d *Disk) Stores() node.Stores {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &store{d: d, gone: make(chan struct{})}
	d.open = append(d.open, s)
	return node.Stores{Log: node.Sealed(s), Stable: s, Snapshots: s, Where: "memory", Close: func() error {
		d.close(s)
		return nil
	}}
}

func (d *Disk) close(s *store) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, o := range d.open {
		if o == s {
			d.open = append(d.open[:i], d.open[i+1:]...)
			close(s.gone)
			return
		}
	}
}

// Cut ends what every process so far can do to the disk: a write that has not happened yet,
// because the disk hangs or is held, fails and never happens.
func (d *Disk) Cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.open {
		close(s.gone)
	}
	d.open = nil
}

// Lazy says whether writes to log and keys are left unsynced from now on, as under a store
// that does not sync: they are there for every process at once and reach the disk by themselves
// after some seconds, but a power loss takes those that had not reached it. Snapshots are
// files of their own and synced in any case. What was written lazily is synced when that ends.
func (d *Disk) Lazy(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lazy = on; !on {
		d.undos = nil
	}
}

// PowerLoss cuts the disk off and takes back, newest first, every write that was neither synced
// nor old enough to be there anyway. It answers how many.
func (d *Disk) PowerLoss() (lost int) {
	d.Cut()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settle()
	lost = len(d.undos)
	for i := len(d.undos) - 1; i >= 0; i-- {
		d.undos[i].back(&d.now)
	}
	d.undos = nil
	return lost
}

// settle forgets how to take back what has reached the disk by itself.
func (d *Disk) settle() {
	n := 0
	for n < len(d.undos) && time.Since(d.undos[n].at) >= writeBack {
		n++
	}
	d.undos = d.undos[n:]
}

// Stall makes every write that begins in the next while wait until it is over. A write holds
// raft's main goroutine.
func (d *Disk) Stall(length time.Duration) {
	d.change(func() { d.until = time.Now().Add(length) })
}

// Hold makes every write wait until it is released; with the links of the node held too, it
// stands in for a stopped process.
func (d *Disk) Hold(on bool) { d.change(func() { d.held = on }) }

// Waiting is how many writes have begun and wait for the disk.
func (d *Disk) Waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting
}

// Fail makes every write fail with an error; nil mends the disk.
func (d *Disk) Fail(err error) { d.change(func() { d.err = err }) }

// Break sets how the disk is bad from now on.
func (d *Disk) Break(f Fault) { d.change(func() { d.fault = f }) }

func (d *Disk) change(do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	do()
	close(d.changed)
	d.changed = make(chan struct{})
}

// write waits until the disk takes a write, and then does it, or fails. half is what a short
// write leaves; nil: nothing.
func (d *Disk) write(gone <-chan struct{}, whole, half func(*content) func(*content)) error {
	slowed := false
	for {
		d.mu.Lock()
		wait, changed := d.due(&slowed)
		if wait <= 0 {
			err := d.writeLocked(gone, whole, half)
			d.mu.Unlock()
			return err
		}
		d.waiting++
		d.mu.Unlock()
		dead := pause(wait, changed, gone)
		d.mu.Lock()
		d.waiting--
		d.mu.Unlock()
		if dead {
			return errGone
		}
	}
}

// pause waits for a while, or until something changes; true says that the process died.
func pause(wait time.Duration, changed, gone <-chan struct{}) (dead bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-gone:
		return true
	}
	return false
}

// due says how long a write still has to wait, unless something changes. A write is slow once.
func (d *Disk) due(slowed *bool) (wait time.Duration, changed <-chan struct{}) {
	const long = 365 * 24 * time.Hour
	switch {
	case d.held || d.fault.Hung:
		return long, d.changed
	case time.Until(d.until) > 0:
		return time.Until(d.until), d.changed
	case d.fault.Slow > 0 && !*slowed:
		*slowed = true
		return d.fault.Slow, nil
	}
	return 0, nil
}

func (d *Disk) writeLocked(gone <-chan struct{}, whole, half func(*content) func(*content)) error {
	select {
	case <-gone:
		return errGone
	default:
	}
	switch {
	case d.err != nil:
		return d.err
	case d.fault.Full:
		return fmt.Errorf("write to memory: %w", syscall.ENOSPC)
	case d.fault.Error:
		return fmt.Errorf("write to memory: %w", syscall.EIO)
	case d.fault.Short:
		if half != nil {
			d.did(half(&d.now))
		}
		return io.ErrShortWrite
	}
	d.did(whole(&d.now))
	return nil
}

// did notes how a write is taken back, if it can be lost, and now and then what the disk holds.
func (d *Disk) did(back func(*content)) {
	now := time.Now()
	if d.lazy && back != nil {
		d.settle()
		d.undos = append(d.undos, undo{now, back})
	}
	if now.Sub(d.olderThan) >= checkpointEvery {
		d.olderThan = now
		d.older = append(d.older[max(0, len(d.older)-checkpointsKept+1):], d.now.clone())
	}
}
