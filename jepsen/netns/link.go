package netns

import (
	"errors"
	"fmt"
	"sync"

	"raftboard/jepsen/nemesis"
)

// Link implements nemesis.Target. Between nodes, Hold, Delay, Jitter and Rate need
// Options.Relay.
func (c *Cluster) Link(from, to int, s nemesis.Shape) error {
	if _, err := c.end(from); err != nil {
		return err
	}
	target, err := c.end(to)
	if err != nil {
		return err
	}
	if from == to {
		return fmt.Errorf("netns: a link from %d to itself", from)
	}
	slow := nemesis.Shape{Hold: s.Hold, Delay: s.Delay, Jitter: s.Jitter, Rate: s.Rate}
	between := from != nemesis.Clients && to != nemesis.Clients
	if between && !c.opt.Relay && slow != (nemesis.Shape{}) {
		return fmt.Errorf("holding or delaying what nodes send each other: %w without Options.Relay", nemesis.ErrUnsupported)
	}
	c.gate(from, to).set(slow)
	return target.shape(from, s)
}

// end is the firewall at one end of links.
func (c *Cluster) end(i int) (*wall, error) {
	if i == nemesis.Clients {
		return c.wall, nil
	}
	n, err := c.node(i)
	if err != nil {
		return nil, err
	}
	return n.wall, nil
}

// Break implements nemesis.Target. Both ends see a reset.
func (c *Cluster) Break(a, b int) error {
	c.joints.cut(a, b)
	if a == nemesis.Clients || b == nemesis.Clients {
		return nil // all of them have joints
	}
	return errors.Join(c.reset(a, b), c.reset(b, a))
}

// reset ends the connections of a node with another.
func (c *Cluster) reset(at, with int) error {
	n, err := c.node(at)
	if err != nil {
		return err
	}
	return n.space.reset(nodeAddr(with), faceAddr(with))
}

// Lost implements nemesis.Target.
func (c *Cluster) Lost(node int) (uint64, error) {
	if _, err := c.node(node); err != nil {
		return 0, err
	}
	c.mu.Lock()
	walls := map[int]*wall{nemesis.Clients: c.wall}
	for _, n := range c.nodes {
		walls[n.index] = n.wall
	}
	var lost uint64
	for ends, g := range c.gates {
		if ends[0] == node || ends[1] == node {
			lost += g.lost()
		}
	}
	c.mu.Unlock()
	var mu sync.Mutex
	var err error
	var group sync.WaitGroup
	for end, w := range walls {
		group.Go(func() {
			counts, failed := w.counts()
			mu.Lock()
			defer mu.Unlock()
			err = errors.Join(err, failed)
			for name, packets := range counts {
				if end == node || name == counter(node) {
					lost += packets
				}
			}
		})
	}
	group.Wait()
	return lost, err
}
