package sim

import (
	"sync"
	"time"

	"raftboard/jepsen/nemesis"
	"raftboard/node"
)

// clock is the pair of clocks of one machine: the wall clock is the true one and an offset,
// the monotonic one runs at a rate of its own and never jumps.
type clock struct {
	mu    sync.Mutex
	fault nemesis.ClockFault
	from  time.Time     // when the rate was last set
	shown time.Duration // by the monotonic clock, then
}

func newClock() *clock { return &clock{from: time.Now()} }

func (c *clock) set(f nemesis.ClockFault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown = c.monoLocked()
	c.from, c.fault = time.Now(), f
}

func (c *clock) monoLocked() time.Duration {
	return c.shown + time.Duration(float64(time.Since(c.from))*(1+c.fault.Drift))
}

// seam is what a node reads.
func (c *clock) seam() node.Clock {
	return node.Clock{
		Wall: func() time.Time {
			c.mu.Lock()
			defer c.mu.Unlock()
			return time.Now().Add(c.fault.Wall)
		},
		Mono: func() time.Duration {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.monoLocked()
		},
	}
}
