package node

import (
	"sync"
	"time"

	"raftboard/jepsen/planted"
)

// The bounds of board time (DESIGN §7).
const (
	sampleEvery = 100 * time.Millisecond // how often the lead loop samples
	maxStep     = 500 * time.Millisecond // what a step between two samples counts at most
	maxPending  = 500 * time.Millisecond // board time stands still while a proposal is older
	maxCut      = time.Second            // a stall that cut more makes the leader propose Lead{resumed}
)

// Clock is the seam to the machine's clocks. A nil field means the real one.
type Clock struct {
	Wall func() time.Time     // UTC, may step
	Mono func() time.Duration // monotonic, any origin
}

func (c Clock) withDefaults() Clock {
	if c.Wall == nil {
		c.Wall = planted.Wall(time.Now)
	}
	if c.Mono == nil {
		origin := time.Now()
		c.Mono = planted.Mono(func() time.Duration { return time.Since(origin) })
	}
	return c
}

// stampState says what came of asking for a stamp.
type stampState int

const (
	stamped    stampState = iota
	notRunning            // no Lead of this term is applied yet
	stalled               // a long stall ended: a Lead{resumed} must be applied first
)

// boardClock runs board time while this node leads: the time applied with Lead plus the
// monotonic time since then that counts. Every stamp and every finished proposal is a sample.
type boardClock struct {
	source Clock

	mu      sync.Mutex
	term    uint64 // of the Lead it runs on; 0: it does not run
	board   time.Duration
	last    time.Duration // monotonic, of the last sample
	cut     time.Duration // what the stall that lasts has cut so far
	resume  bool          // a stall cut more than maxCut: nothing is stamped
	wall    int64         // ms, never decreasing
	stampAt time.Duration // monotonic, of the last stamp
	pending map[uint64]time.Duration
	nextID  uint64
}

func newBoardClock(c Clock) *boardClock {
	return &boardClock{source: c.withDefaults(), pending: map[uint64]time.Duration{}}
}

// start runs the clock from board time t (ms) in a term, when its Lead was applied.
func (c *boardClock) start(term uint64, t, wall int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.term, c.board = term, time.Duration(t)*time.Millisecond
	c.last = c.source.Mono()
	c.stampAt = c.last
	c.cut, c.resume = 0, false
	c.wall = max(c.wall, wall)
}

// runs tells whether board time runs on the Lead of a term.
func (c *boardClock) runs(term uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.term == term
}

// stop ends board time with the leadership.
func (c *boardClock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.term, c.cut, c.resume = 0, 0, false
}

// sample moves board time on and reports whether a long stall waits for a Lead{resumed}.
func (c *boardClock) sample() (resume bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sampleLocked()
	return c.resume
}

func (c *boardClock) sampleLocked() {
	now := c.source.Mono()
	passed := now - c.last
	from := c.last
	c.last = now
	if c.term == 0 || passed <= 0 {
		return
	}
	counts := min(passed, maxStep)
	for _, began := range c.pending {
		counts = min(counts, max(0, began+maxPending-from))
	}
	c.board += counts
	if counts == passed {
		c.cut = 0
		return
	}
	c.cut += passed - counts
	if c.cut > maxCut {
		c.resume = true
	}
}

// stamp samples and answers board time and wall time for an entry of this term.
func (c *boardClock) stamp(term uint64) (t, wall int64, state stampState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sampleLocked()
	switch {
	case c.term == 0 || c.term != term:
		return 0, 0, notRunning
	case c.resume:
		return 0, 0, stalled
	}
	c.wall = max(c.wall, c.source.Wall().UnixMilli())
	c.stampAt = c.last
	if planted.Bug("M9") { // the bug: the wall clock for board time
		return c.source.Wall().UnixMilli(), c.wall, stamped
	}
	return c.board.Milliseconds(), c.wall, stamped
}

// sinceStamp is how long ago the last stamp was taken.
func (c *boardClock) sinceStamp() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.source.Mono() - c.stampAt
}

// begin notes that a proposal is on its way to a majority.
func (c *boardClock) begin() (id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextID++
	c.pending[c.nextID] = c.source.Mono()
	return c.nextID
}

// finish samples before the proposal leaves the set, so that the time it stalled is cut.
func (c *boardClock) finish(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sampleLocked()
	delete(c.pending, id)
}
