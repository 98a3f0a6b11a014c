package clustertest

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	packet      = 1448                   // bytes that are lost together
	retransmit  = 200 * time.Millisecond // until what was lost is sent again; twice as long each time
	mostResends = 8                      // of one chunk
)

// Shape is what a link does in one direction. The zero Shape is a whole link.
type Shape struct {
	// Cut holds everything back, as when every packet is lost: both ends keep their connection,
	// and what was on its way arrives when the link is whole again.
	Cut bool
	// Reset breaks every connection that is made or used.
	Reset bool
	// Delay is added to what passes, and up to Jitter more; order is kept, as TCP does.
	Delay, Jitter time.Duration
	// Loss is the part of packets that is lost, 0 to 1. A lost one arrives later, by the time
	// of its retransmission, and holds up what comes behind it.
	Loss float64
	// Rate is in bytes per second, of all connections together; 0 is without a limit.
	Rate int
}

func (s Shape) slows() bool { return s.Delay > 0 || s.Jitter > 0 || s.Loss > 0 || s.Rate > 0 }

// way is the link from one host to another.
type way struct {
	from, to string
	hop      time.Duration

	mu      sync.Mutex
	cut     bool // of this pair alone
	stopped int  // times its sender is held: what it sends from then on waits
	deaf    int  // times its receiver is held: whatever arrives waits
	shape   Shape
	busy    time.Time     // until when what was sent before occupies a link with a rate
	count   uint64        // chunks dropped, held or delayed
	changed chan struct{} // closed at every change of the first four
}

func (w *way) change(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
	close(w.changed)
	w.changed = make(chan struct{})
}

// passage is what a link lets through.
type passage int

const (
	open   passage = iota
	before         // only what was sent before the sender was held
	closed
)

// holds says what passes, and when to look again.
func (w *way) holds() (passage, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.cut || w.deaf > 0 || w.shape.Cut:
		return closed, w.changed
	case w.stopped > 0:
		return before, w.changed
	}
	return open, w.changed
}

// resets says whether a connection that uses this way breaks.
func (w *way) resets() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shape.Reset {
		w.count++
	}
	return w.shape.Reset
}

// cross takes as long as a packet needs that makes a connection, and as ctx allows. Where one
// end is held it passes: a machine makes connections for a process that is stopped.
func (w *way) cross(ctx context.Context) error {
	const handshake = 64 // bytes
	at, bitten, _ := w.send(handshake)
	var timer wait
	defer timer.stop()
	for {
		w.mu.Lock()
		cut, changed := w.cut || w.shape.Cut, w.changed
		if cut && !bitten {
			bitten = true
			w.count++
		}
		w.mu.Unlock()
		left := time.Until(at)
		if !cut && left <= 0 {
			return nil
		}
		if cut {
			left = forever
		}
		select {
		case <-changed:
		case <-timer.over(left):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// bite counts something that was held up.
func (w *way) bite() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
}

// send is when n bytes that are sent now arrive; bitten says that the link did something to
// them, or will, and stopped that their sender is held.
func (w *way) send(n int) (at time.Time, bitten, stopped bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	bitten = w.cut || w.stopped > 0 || w.deaf > 0 || w.shape.Cut || w.shape.slows()
	if bitten {
		w.count++
	}
	if w.shape.Rate > 0 {
		if w.busy.Before(now) {
			w.busy = now
		}
		w.busy = w.busy.Add(time.Duration(n) * time.Second / time.Duration(w.shape.Rate))
		now = w.busy
	}
	return now.Add(w.hop + w.late(n)), bitten, w.stopped > 0
}

// late is what delay, jitter and loss cost n bytes.
func (w *way) late(n int) time.Duration {
	late := w.shape.Delay
	if w.shape.Jitter > 0 {
		late += rand.N(w.shape.Jitter)
	}
	if w.shape.Loss <= 0 {
		return late
	}
	lost := false
	for range (n + packet - 1) / packet {
		lost = lost || rand.Float64() < w.shape.Loss
	}
	for wait := retransmit; lost && wait < retransmit<<mostResends; wait *= 2 {
		late += wait
		lost = rand.Float64() < w.shape.Loss
	}
	return late
}
