package netns

import (
	"errors"
	"fmt"

	"raftboard/jepsen/nemesis"
)

// with does something to a node, alone.
func (c *Cluster) with(i int, do func(*node) error) error {
	n, err := c.node(i)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone {
		return errClosed
	}
	return do(n)
}

// Kill implements nemesis.Target.
func (c *Cluster) Kill(i int) error { return c.with(i, (*node).kill) }

// Start implements nemesis.Target.
func (c *Cluster) Start(i int) error { return c.with(i, (*node).start) }

// Stop implements nemesis.Target: SIGTERM, and 20 s for the process to end.
func (c *Cluster) Stop(i int) error { return c.with(i, (*node).terminate) }

// Pause implements nemesis.Target: SIGSTOP, until the process is in state T.
func (c *Cluster) Pause(i int) error {
	return c.with(i, func(n *node) error { return n.halted(true) })
}

// Resume implements nemesis.Target.
func (c *Cluster) Resume(i int) error {
	return c.with(i, func(n *node) error { return n.halted(false) })
}

// Add implements nemesis.Target. A name is used once.
func (c *Cluster) Add(name string) (int, error) {
	n, err := c.add(name, 0)
	if err != nil {
		return 0, err
	}
	return n.index, c.Start(n.index)
}

// Retire implements nemesis.Target.
func (c *Cluster) Retire(i int) error {
	return c.with(i, func(n *node) error {
		n.retired.Store(true)
		return n.kill()
	})
}

// Switch implements nemesis.Target.
func (c *Cluster) Switch(i int) error {
	if c.opt.OtherBinary == "" {
		return fmt.Errorf("another build: %w: Options.OtherBinary is not given", nemesis.ErrUnsupported)
	}
	return c.with(i, func(n *node) error {
		n.other = !n.other
		return nil
	})
}

// Died implements nemesis.Target. The error holds how the process ended and its last words.
func (c *Cluster) Died(i int) error {
	var died error
	err := c.with(i, func(n *node) error {
		n.reap()
		died, n.died = n.died, nil
		return nil
	})
	return errors.Join(err, died)
}
