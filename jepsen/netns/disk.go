package netns

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"raftboard/jepsen/history"
	"raftboard/jepsen/nemesis"
)

// disk is the volume of a node and what is wrong with it. The lock of its node guards it.
type disk struct {
	*volume
	fault nemesis.DiskFault
	pulse *pulse // while it is slow

	settles time.Time     // when it settles next
	pause   time.Duration // and how long after that once more
	stop    chan struct{}
	stopped chan struct{}
}

// firstSettle is when a disk settles for the first time after it was mounted. A kernel writes
// out what nobody synced sooner or later. Here it does so at once and as a whole, after 3 s,
// 6 s, 12 s and so on: so a loss of power takes at most about half of what was not synced, and
// as much as that.
const firstSettle = 3 * time.Second

// newDisk makes the disk of a node; close ends it.
func (n *node) newDisk() (err error) {
	d := &disk{stop: make(chan struct{}), stopped: make(chan struct{})}
	n.disk = d
	go func() { // ends with close
		defer close(d.stopped)
		ticker := time.NewTicker(firstSettle / 10)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-d.stop:
				return
			}
			if n.mu.TryLock() { // else something is being done to it
				n.settle()
				n.mu.Unlock()
			}
		}
	}()
	if d.volume, err = newVolume(filepath.Join(n.dir(), "disk.ext4"), filepath.Join(n.dir(), n.space.name)); err == nil {
		d.plugged()
	}
	return err
}

// plugged begins the time in which a disk was mounted.
func (d *disk) plugged() {
	d.settles, d.pause = time.Now().Add(firstSettle), firstSettle
}

// settle writes out what is in memory if it is time to. Writers wait meanwhile, so the disk
// is as it would be had the process died in that moment. Called with n.mu held.
func (n *node) settle() {
	d := n.disk
	if d.volume == nil || !d.mounted || d.fault != (nemesis.DiskFault{}) || time.Now().Before(d.settles) {
		return
	}
	d.settles, d.pause = time.Now().Add(d.pause), 2*d.pause
	if err := errors.Join(d.freeze(), d.thaw()); err != nil {
		n.c.opt.Log.Note(history.Note{Kind: history.NoteStuck, Node: n.name, Text: "its disk cannot be written out: " + err.Error()})
	}
}

// pulse freezes a volume again and again: what wants to write waits for the end of a freeze,
// and gets a short while to write in.
type pulse struct {
	stop chan struct{}
	done chan struct{}
	err  error // of the first freeze or thaw that failed; read when done is closed
}

// writeWindow is how long a slow disk answers between two freezes: enough for one sync, and
// little beside what it is slow by.
const writeWindow = 4 * time.Millisecond

func startPulse(v *volume, length time.Duration) *pulse {
	p := &pulse{stop: make(chan struct{}), done: make(chan struct{})}
	go func() { // ends with end
		defer close(p.done)
		rest := func(d time.Duration) bool {
			select {
			case <-time.After(d):
				return true
			case <-p.stop:
				return false
			}
		}
		for on := true; on && p.err == nil; {
			p.err = v.freeze()
			on = rest(length)
			p.err = errors.Join(p.err, v.thaw())
			on = on && rest(writeWindow)
		}
	}()
	return p
}

func (p *pulse) end() error {
	close(p.stop)
	<-p.done
	return p.err
}

// breathe does something while a disk that hangs answers.
func (d *disk) breathe(do func() error) error {
	if !d.fault.Hung {
		return do()
	}
	return errors.Join(d.thaw(), do(), d.freeze())
}

// mend ends what is wrong with a disk, of which nothing stays.
func (d *disk) mend() (err error) {
	if d.pulse != nil {
		err = d.pulse.end()
		d.pulse = nil
	}
	if d.mounted {
		err = errors.Join(err, d.thaw(), d.drain())
	}
	d.fault = nemesis.DiskFault{}
	return err
}

// spoil makes a mounted disk bad. A fault of Slow, Hung and Full only.
func (d *disk) spoil(f nemesis.DiskFault) (err error) {
	if f.Full {
		err = d.fill()
	}
	switch {
	case err != nil:
	case f.Hung:
		err = d.freeze()
	case f.Slow > 0:
		d.pulse = startPulse(d.volume, f.Slow)
	}
	d.fault = f
	return err
}

// close ends the disk of a node that is down. Called with n.mu held.
func (d *disk) close() error {
	close(d.stop)
	<-d.stopped
	if d.volume == nil {
		return nil
	}
	return errors.Join(d.mend(), d.unmount(false))
}

// powered makes the disk of a node usable again after its power was cut. Called with n.mu held.
func (n *node) powered() error {
	if n.disk == nil || n.disk.mounted {
		return nil
	}
	err := errors.Join(n.disk.mount(), n.disk.drain())
	n.disk.plugged()
	return err
}

// PowerOff implements nemesis.Target: at one instant every file system forgets what was not
// synced, then the processes die. It ends what else was wrong with the disks. A node that is
// down loses what it left unsynced.
func (c *Cluster) PowerOff(nodes ...int) (err error) {
	if !c.opt.PowerDisks {
		return fmt.Errorf("power: %w without Options.PowerDisks", nemesis.ErrUnsupported)
	}
	nodes = slices.Compact(slices.Sorted(slices.Values(nodes))) // in order, as two calls might meet
	var victims []*node
	for _, i := range nodes {
		n, err := c.node(i)
		if err != nil {
			return err
		}
		victims = append(victims, n)
	}
	slices.SortFunc(victims, func(a, b *node) int { return cmp.Compare(a.index, b.index) })
	for _, n := range victims {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.gone {
			return errClosed
		}
	}
	for _, n := range victims {
		n.reap()
		err = errors.Join(err, n.disk.mend())
	}
	return errors.Join(err, atOnce(victims, (*node).cutPower), atOnce(victims, (*node).fall))
}

// atOnce does something to several nodes as nearly at the same moment as there are cores.
func atOnce(nodes []*node, do func(*node) error) error {
	errs, ready := make([]error, len(nodes)), make(chan struct{})
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() {
			<-ready
			errs[i] = do(n)
		})
	}
	close(ready)
	group.Wait()
	return errors.Join(errs...)
}

// cutPower takes the power from disk and process. What the process says when its disk is gone
// and it is not yet does not count.
func (n *node) cutPower() error {
	if !n.disk.mounted {
		return nil
	}
	if n.life == nil {
		return n.disk.cut()
	}
	n.life.wanted = true
	if info, err := os.Stat(n.life.log); err == nil {
		n.life.upTo = info.Size() + 1
	}
	err := n.disk.cut()
	n.life.cmd.Process.Signal(syscall.SIGKILL) // it may have ended of the loss already
	return err
}

func (n *node) fall() error { return errors.Join(n.kill(), n.disk.unmount(true)) }

// Disk implements nemesis.Target. Slow, Hung and Full need Options.PowerDisks; Error and Short
// are answers of the node's own code and need Options.Tagged.
func (c *Cluster) Disk(i int, f nemesis.DiskFault) error {
	plain := nemesis.DiskFault{Slow: f.Slow, Hung: f.Hung, Full: f.Full}
	switch {
	case plain != nemesis.DiskFault{} && !c.opt.PowerDisks:
		return fmt.Errorf("a slow, hung or full disk: %w without Options.PowerDisks", nemesis.ErrUnsupported)
	case (f.Error || f.Short) && !c.opt.Tagged:
		return fmt.Errorf("a failing disk: %w without Options.Tagged", nemesis.ErrUnsupported)
	}
	return c.with(i, func(n *node) error {
		err := n.fail(f.Error, f.Short)
		if n.disk == nil {
			return err
		}
		err = errors.Join(err, n.disk.mend())
		if err != nil || plain == (nemesis.DiskFault{}) {
			return err
		}
		return errors.Join(n.powered(), n.disk.spoil(plain))
	})
}
