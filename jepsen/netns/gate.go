package netns

import (
	"math/rand/v2"
	"sync"
	"time"

	"raftboard/jepsen/nemesis"
)

// gate is one direction of a link, for all connections that go over it: it holds and delays
// pieces of what is sent.
type gate struct {
	mu      sync.Mutex
	holds   int // how many want it held
	shape   nemesis.Shape
	changed chan struct{} // closed at each change
	free    time.Time     // with a rate: when the link has carried what it was given
	touched uint64        // pieces that were held or delayed
}

func newGate() *gate { return &gate{changed: make(chan struct{})} }

// set replaces what the gate does; pieces that wait in it see the change.
func (g *gate) set(s nemesis.Shape) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s == g.shape {
		return
	}
	g.shape, g.free = s, time.Time{}
	g.stir()
}

// hold holds everything until release, which may be called more than once.
func (g *gate) hold() (release func()) {
	g.count(1)
	return sync.OnceFunc(func() { g.count(-1) })
}

func (g *gate) count(by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds += by
	g.stir()
}

// stir wakes what waits. Called with g.mu held.
func (g *gate) stir() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// lost is how many pieces were held or delayed so far.
func (g *gate) lost() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.touched
}

// pass waits until a piece of some bytes, sent at a moment, is through the gate; false when
// over is closed before. Only one goroutine of a direction of a connection calls it, so pieces
// stay in order.
func (g *gate) pass(sent time.Time, bytes int, over <-chan struct{}) bool {
	counted, luck := false, rand.Float64()
	for {
		g.mu.Lock()
		wait, changed := g.due(sent, bytes, luck), g.changed
		held := g.holds > 0 || g.shape.Hold
		if (held || wait > 0) && !counted {
			counted = true
			g.touched++
		}
		if !held && wait <= 0 && g.shape.Rate > 0 {
			g.free = later(g.free, time.Now()).Add(carries(bytes, g.shape.Rate))
		}
		g.mu.Unlock()
		if !held && wait <= 0 {
			return true
		}
		if held {
			wait = time.Hour
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-over:
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// due is how long a piece has to wait still. Called with g.mu held.
func (g *gate) due(sent time.Time, bytes int, luck float64) time.Duration {
	at := sent.Add(g.shape.Delay + time.Duration(luck*float64(g.shape.Jitter)))
	if g.shape.Rate > 0 {
		at = later(at, g.free)
	}
	return time.Until(at)
}

func carries(bytes, rate int) time.Duration {
	return time.Duration(bytes) * time.Second / time.Duration(rate)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
