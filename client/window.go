package client

import (
	"context"
	"sync"
)

// windowSize is SPEC F-7: seq s may be sent only while s < floor + 256.
const windowSize = 256

// window hands out the seqs of one loop and knows its floor, the lowest seq whose answer
// is still wanted. A call that leaves raises the floor past its seq, answered or not; the
// server then never runs it.
type window struct {
	mu    sync.Mutex
	next  uint64          // the next seq to give
	floor uint64          // every seq below is finished
	open  map[uint64]bool // given and not finished
	moved chan struct{}   // closed and replaced when floor rises
}

func newWindow() *window {
	return &window{next: 1, floor: 1, open: map[uint64]bool{}, moved: make(chan struct{})}
}

// startAt makes seq the first one to be given.
func (w *window) startAt(seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next, w.floor = seq, seq
}

// begin gives the next seq, waiting for room until ctx or the loop ends.
func (w *window) begin(ctx context.Context, ended <-chan struct{}) (seq, floor uint64, err error) {
	for {
		w.mu.Lock()
		if w.next < w.floor+windowSize {
			seq = w.next
			w.next++
			w.open[seq] = true
			floor = w.floor
			w.mu.Unlock()
			return seq, floor, nil
		}
		moved := w.moved
		w.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-ended:
			return 0, 0, ErrLoopEnded
		}
	}
}

// finish says that nobody wants the answer to seq any more.
func (w *window) finish(seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, seq)
	was := w.floor
	for w.floor < w.next && !w.open[w.floor] {
		w.floor++
	}
	if w.floor > was {
		close(w.moved)
		w.moved = make(chan struct{})
	}
}

func (w *window) lowest() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.floor
}

// inFlight counts the seqs between floor and next: what the window has used up.
func (w *window) inFlight() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int(w.next - w.floor)
}
