package node

import (
	"context"
	"sync"
	"time"

	boardpb "raftboard/fsm/pb"
)

// The bounds of what waits to be proposed and of one log entry (DESIGN §10).
const (
	maxQueued      = 8192
	maxQueuedBytes = 32 << 20
	maxBatchBytes  = 512 << 10
	maxInFlight    = 3                     // batches that wait for their majority
	lastWord       = 20 * time.Millisecond // before its deadline a command is not proposed any more
)

// proposal is one command between its caller and the log. The queue's lock guards its state.
type proposal struct {
	data     []byte // the command, encoded, with its entropy
	deadline time.Time
	answer   chan answer // one, buffered: nobody waits for a caller
	state    proposalState
}

type answer struct {
	result *boardpb.Result
	err    error
}

type proposalState int

const (
	queued    proposalState = iota
	taken                   // in a batch: it may be in the log
	withdrawn               // never proposed
	abandoned               // its caller left, with "unknown", while it was in a batch
)

func newProposal(ctx context.Context, data []byte) *proposal {
	p := &proposal{data: data, answer: make(chan answer, 1)}
	p.deadline, _ = ctx.Deadline()
	return p
}

// queue holds what waits for its turn, bounded in number and bytes.
type queue struct {
	mu     sync.Mutex
	items  []*proposal
	live   int // not withdrawn
	bytes  int
	closed error
	wake   chan struct{} // one token: look again
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// poke makes the proposer look again.
func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// push adds a proposal; ahead puts it before all others (ticks and the like).
func (q *queue) push(p *proposal, ahead bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed != nil:
		return q.closed
	case q.live >= maxQueued || q.bytes+len(p.data) > maxQueuedBytes:
		return &NotDone{Why: "too many commands wait at the leader", RetryAfter: 200 * time.Millisecond}
	}
	if ahead {
		q.items = append([]*proposal{p}, q.items...)
	} else {
		q.items = append(q.items, p)
	}
	q.live++
	q.bytes += len(p.data)
	q.poke()
	return nil
}

// withdraw takes a waiting proposal back; false: it was proposed already.
func (q *queue) withdraw(p *proposal) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.state == taken {
		p.state = abandoned
	}
	if p.state != queued {
		return p.state == withdrawn
	}
	p.state = withdrawn
	q.live--
	q.bytes -= len(p.data)
	p.data = nil
	if len(q.items) > 2*maxQueued { // withdrawn ones go when a batch forms, or here
		q.compact()
	}
	return true
}

func (q *queue) compact() {
	kept := q.items[:0]
	for _, p := range q.items {
		if p.state == queued {
			kept = append(kept, p)
		}
	}
	clear(q.items[len(kept):])
	q.items = kept
}

// take forms a batch: in order, up to maxBatchBytes, a larger command alone. What was withdrawn
// is left out, and what is (nearly) past its deadline too, so that its caller hears a definite
// word in time.
func (q *queue) take(now time.Time) (batch, late []*proposal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	size, n := 0, 0
	for _, p := range q.items {
		if p.state == withdrawn {
			n++
			continue
		}
		expired := !p.deadline.IsZero() && p.deadline.Sub(now) < lastWord
		if !expired && len(batch) > 0 && size+len(p.data) > maxBatchBytes {
			break
		}
		n++
		q.live--
		q.bytes -= len(p.data)
		if expired {
			p.state = withdrawn
			late = append(late, p)
			continue
		}
		p.state = taken
		batch = append(batch, p)
		size += len(p.data)
	}
	clear(q.items[:n])
	if q.items = q.items[n:]; len(q.items) == 0 {
		q.items = nil
	}
	return batch, late
}

// putBack returns a batch that raft did not take to its place at the head, without those whose
// callers have left.
func (q *queue) putBack(batch []*proposal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var kept []*proposal
	for _, p := range batch {
		if p.state == taken {
			p.state = queued
			kept = append(kept, p)
			q.live++
			q.bytes += len(p.data)
		}
	}
	q.items = append(kept, q.items...)
}

// empty answers whether nothing waits.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.live == 0
}

// refuse answers everything that waits with an error that says not done.
func (q *queue) refuse(err error) {
	q.mu.Lock()
	items := q.items
	q.items, q.live, q.bytes = nil, 0, 0
	waiting := items[:0]
	for _, p := range items {
		if p.state == queued {
			p.state = withdrawn
			waiting = append(waiting, p)
		}
	}
	q.mu.Unlock()
	for _, p := range waiting {
		p.answer <- answer{err: err}
	}
}

// close refuses what waits and everything that comes later.
func (q *queue) close(err error) {
	q.mu.Lock()
	q.closed = err
	q.mu.Unlock()
	q.refuse(err)
}
