package clustertest

import (
	"errors"
	"os"
	"sync"
	"time"
)

// pipeBytes are in flight in one direction of a connection at most.
const pipeBytes = 256 << 10

// pipe is one direction of a connection: chunks that arrive when the link lets them, in their
// order. One goroutine reads and one writes at a time.
type pipe struct {
	way *way

	mu     sync.Mutex
	chunks []chunk
	bytes  int
	newest time.Time // arrival of the last chunk
	ended  error     // what the reader gets behind the last chunk
	broken bool      // nothing more arrives, not even what was sent

	news chan struct{} // something arrived or ended; holds one
	room chan struct{} // something was read or ended; holds one

	reads, writes wait
}

type chunk struct {
	at     time.Time
	data   []byte
	bitten bool // the link counted it already
	after  bool // sent when the sender was held
}

func newPipe(w *way) *pipe {
	return &pipe{way: w, news: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (p *pipe) end(err error, broken bool) {
	p.mu.Lock()
	if p.ended == nil {
		p.ended = err
	}
	p.broken = p.broken || broken
	p.mu.Unlock()
	poke(p.news)
	poke(p.room)
}

func (p *pipe) write(b []byte, d *deadline) (int, error) {
	for {
		taken, err := p.put(b)
		if taken || err != nil {
			return len(b), err
		}
		moved, left := d.look()
		if left <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		select {
		case <-p.room:
		case <-moved:
		case <-p.writes.over(left):
		}
		p.writes.stop()
	}
}

// put sends b, unless too much is in flight.
func (p *pipe) put(b []byte) (taken bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		return false, errors.New("write: broken pipe")
	}
	if p.bytes >= pipeBytes {
		return false, nil
	}
	at, bitten, stopped := p.way.send(len(b))
	if at.Before(p.newest) {
		at = p.newest
	}
	p.newest = at
	p.chunks = append(p.chunks, chunk{at, append([]byte(nil), b...), bitten, stopped})
	p.bytes += len(b)
	poke(p.news)
	return true, nil
}

func (p *pipe) read(b []byte, d *deadline) (int, error) {
	for {
		passes, changed := p.way.holds()
		n, wait, err := p.take(b, passes)
		if n > 0 || err != nil {
			return n, err
		}
		moved, left := d.look()
		if left <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		select {
		case <-p.news:
		case <-changed:
		case <-moved:
		case <-p.reads.over(min(wait, left)):
		}
		p.reads.stop()
	}
}

// take copies what has arrived, or says how long until something does.
func (p *pipe) take(b []byte, passes passage) (n int, wait time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.broken:
		return 0, 0, errors.New("read: connection reset by peer")
	case passes == closed || passes == before && (len(p.chunks) == 0 || p.chunks[0].after):
		if len(p.chunks) > 0 && !p.chunks[0].bitten {
			p.chunks[0].bitten = true
			p.way.bite()
		}
		return 0, forever, nil
	case len(p.chunks) == 0:
		return 0, forever, p.ended
	}
	now := time.Now()
	if wait := p.chunks[0].at.Sub(now); wait > 0 {
		return 0, wait, nil
	}
	for n < len(b) && len(p.chunks) > 0 && !p.chunks[0].at.After(now) && (passes == open || !p.chunks[0].after) {
		first := &p.chunks[0]
		size := copy(b[n:], first.data)
		n += size
		if first.data = first.data[size:]; len(first.data) == 0 {
			p.chunks = p.chunks[1:]
		}
	}
	p.bytes -= n
	poke(p.room)
	return n, 0, nil
}

// forever is a wait that only news ends.
const forever = time.Duration(1<<63 - 1)

// wait is the timer of one goroutine that waits again and again.
type wait struct{ timer *time.Timer }

// over is told when a time has passed, from here on; for a wait that has no end it is nil.
func (w *wait) over(d time.Duration) <-chan time.Time {
	switch {
	case d == forever:
		return nil
	case w.timer == nil:
		w.timer = time.NewTimer(d)
	default:
		w.timer.Reset(d)
	}
	return w.timer.C
}

func (w *wait) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}
