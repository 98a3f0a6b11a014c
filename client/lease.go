package client

import (
	"context"
	"errors"
	"sync"
	"time"

	boardpb "raftboard/fsm/pb"
)

// Lease is a grant of a key to a loop. Until its work ends the client renews it. It is
// lost when an answer says so, or when its own deadline passes without an acknowledged
// renewal, also while no server can be reached: then Lost is closed and Context
// cancelled, once, and nothing else happens to the process.
//
// Its writes go to the server even when it is lost. They are fenced there: the server's
// refusal is the truth, and tells who holds the key now.
type Lease struct {
	loop       *Loop
	id         leaseID
	value      []byte
	previous   []*boardpb.Previous
	attempts   uint32
	duration   time.Duration
	grantSeq   uint64 // 0: granted under a key, so acknowledged by nature
	version    uint64
	ctx        context.Context
	cancel     context.CancelCauseFunc
	stopFollow func() bool // stops watching the context of the work
	lost       chan struct{}

	mu       sync.Mutex
	phase    leasePhase
	explicit bool      // a keepalive may not cover it: renewed by heartbeat
	deadline time.Time // monotonic: before the last acknowledged renewal was sent + duration
	timer    *time.Timer
	ended    Ended
}

// leaseID names one grant: a generation of a key is never given twice.
type leaseID struct {
	key        string
	generation uint64
}

type leasePhase int

const (
	leaseLive   leasePhase = iota
	leaseLost              // ended without our doing
	leaseClosed            // completed, failed, released or let go
)

// Key is what is leased.
func (l *Lease) Key() string { return l.id.key }

// Generation is the fencing token.
func (l *Lease) Generation() uint64 { return l.id.generation }

// Value is the item as it was when the lease was granted; nil if it was not posted.
func (l *Lease) Value() []byte { return l.value }

// Version is the version of Value.
func (l *Lease) Version() uint64 { return l.version }

// Previous tells of earlier grants, newest first: who had the item, why it ended, and
// which partial results they left.
func (l *Lease) Previous() []*boardpb.Previous { return l.previous }

// Attempts counts the grants of the item, this one included.
func (l *Lease) Attempts() uint32 { return l.attempts }

// Duration is how long the lease lives from each renewal.
func (l *Lease) Duration() time.Duration { return l.duration }

// Loop is the loop that holds the lease.
func (l *Lease) Loop() *Loop { return l.loop }

// Context is for the work: derived from the context the claim was made with, cancelled
// with cause ErrLost when the lease is lost, with ErrWorkEnded when the work is over.
func (l *Lease) Context() context.Context { return l.ctx }

// Lost is closed when the lease is lost; Ended then says how.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Ended tells how the lease was lost; the zero value while it is not.
func (l *Lease) Ended() Ended {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// Deadline is when the lease is lost unless a renewal is acknowledged before.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// For names this lease, for the ForClaim and Fence of other writes.
func (l *Lease) For() *boardpb.LeaseRef {
	return &boardpb.LeaseRef{Key: l.id.key, Generation: l.id.generation}
}

// Attach makes a write partial work under this claim: the next claimant finds it in
// Previous, and it is kept even if it arrives after the lease ended.
func (l *Lease) Attach(opts SetOptions) SetOptions {
	opts.ForClaim = l.For()
	return opts
}

// Set writes the leased key itself; without options whatever version is there.
func (l *Lease) Set(ctx context.Context, value []byte, opts SetOptions) (*boardpb.Result, error) {
	op := &boardpb.Set{
		Key: l.id.key, Value: value, IfVersion: opts.IfVersion, Overwrite: opts.Overwrite || opts.IfVersion == 0,
		Generation: l.id.generation, Source: opts.Source, Cites: opts.Cites, Summary: opts.Summary,
	}
	return l.write(ctx, &boardpb.Command{Op: &boardpb.Command_Set{Set: op}})
}

// Append adds to the leased key.
func (l *Lease) Append(ctx context.Context, value []byte) (*boardpb.Result, error) {
	op := &boardpb.Append{Key: l.id.key, Value: value, Generation: l.id.generation}
	return l.write(ctx, &boardpb.Command{Op: &boardpb.Command_Append{Append: op}})
}

// Delete deletes the leased key; the lease goes on.
func (l *Lease) Delete(ctx context.Context, ifVersion uint64) (*boardpb.Result, error) {
	op := &boardpb.Delete{Key: l.id.key, IfVersion: ifVersion, Generation: l.id.generation}
	return l.write(ctx, &boardpb.Command{Op: &boardpb.Command_Delete{Delete: op}})
}

// Heartbeat renews the lease now; extend 0 is its own duration. The client renews by
// itself: this is for a longer step ahead.
func (l *Lease) Heartbeat(ctx context.Context, extend time.Duration) (*boardpb.Result, error) {
	op := &boardpb.Heartbeat{Key: l.id.key, Generation: l.id.generation, ExtendMs: millis(extend)}
	return l.write(ctx, &boardpb.Command{Op: &boardpb.Command_Heartbeat{Heartbeat: op}})
}

// Complete stores the result and makes the item done, for ever. With a resultsKey, an
// owned key of this principal, the result is stored there in the same commit.
func (l *Lease) Complete(ctx context.Context, result []byte, resultsKey string) (*boardpb.Result, error) {
	op := &boardpb.Complete{Key: l.id.key, Generation: l.id.generation, Result: result, ResultsKey: resultsKey}
	return l.close(ctx, &boardpb.Command{Op: &boardpb.Command_Complete{Complete: op}})
}

// Fail gives the item back with a reason, claimable again after retryAfter.
func (l *Lease) Fail(ctx context.Context, reason string, retryAfter time.Duration) (*boardpb.Result, error) {
	op := &boardpb.Fail{Key: l.id.key, Generation: l.id.generation, Reason: reason, RetryAfterMs: retryAfter.Milliseconds()}
	return l.close(ctx, &boardpb.Command{Op: &boardpb.Command_Fail{Fail: op}})
}

// Release gives the item back.
func (l *Lease) Release(ctx context.Context) (*boardpb.Result, error) {
	op := &boardpb.Release{Key: l.id.key, Generation: l.id.generation}
	return l.close(ctx, &boardpb.Command{Op: &boardpb.Command_Release{Release: op}})
}

// LetGo stops renewing the lease: it runs out within its duration. Nothing is sent
// before it returns. This is what happens when the context of the work ends; Release,
// which frees the item at once, is for work that has really stopped.
func (l *Lease) LetGo() {
	if !l.finish() {
		return
	}
	l.loop.b.show(l.id)
	l.loop.addLetGo(l.For())
}

// write sends a command under this lease. An accepted write renews it (SPEC LS-5), and a
// refusal that names the lease ends it here as well.
func (l *Lease) write(ctx context.Context, cmd *boardpb.Command) (*boardpb.Result, error) {
	ans, err := l.loop.submit(ctx, ctx, cmd)
	if err != nil {
		return nil, err
	}
	res, err := refusal(ans.result)
	if cause, over := overBy(err); over {
		l.lose(cause, ans.result.WallMs, false)
	}
	// A replayed answer speaks of a renewal of unknown age.
	if err == nil && res.Outcome == boardpb.Outcome_OUTCOME_OK && !res.Replayed {
		l.renewed(ans.sentAt)
	}
	return res, err
}

// close sends the command that ends the lease; done, it is not renewed any more.
func (l *Lease) close(ctx context.Context, cmd *boardpb.Command) (*boardpb.Result, error) {
	res, err := l.write(ctx, cmd)
	if err == nil && res.Outcome == boardpb.Outcome_OUTCOME_OK {
		l.finish()
	}
	return res, err
}

// overBy says whether a refusal means that the lease named in the call is over.
func overBy(err error) (boardpb.EndedBy, bool) {
	switch {
	case errors.Is(err, ErrLeaseExpired):
		return boardpb.EndedBy_ENDED_BY_EXPIRED, true
	case errors.Is(err, ErrLoopEnded):
		return boardpb.EndedBy_ENDED_BY_LOOP_CLOSED, true
	case errors.Is(err, ErrStaleLease), errors.Is(err, ErrNoLease), errors.Is(err, ErrNotHolder):
		return boardpb.EndedBy_ENDED_BY_UNSPECIFIED, true
	}
	return boardpb.EndedBy_ENDED_BY_UNSPECIFIED, false
}

// grant makes the Lease of an answer, or renews the one there is already. Its deadline
// counts from before the answered try was sent: nothing the server said is older.
func (l *Loop) grant(work context.Context, seq uint64, g grant, sentAt time.Time) *Lease {
	id := leaseID{g.key, g.res.Generation}
	duration := time.Duration(g.res.DurationMs) * time.Millisecond
	left := timeLeft(g.res)
	if have := l.b.lease(id); have != nil && have.loop == l {
		have.until(sentAt.Add(left))
		return have
	}
	lease := &Lease{
		loop: l, id: id, value: g.res.Value, version: g.res.Version, previous: g.res.Previous, attempts: g.res.Attempts,
		duration: duration, grantSeq: seq, lost: make(chan struct{}), deadline: sentAt.Add(left),
		// A lease that was let go and claimed again may not be covered by keepalives.
		explicit: g.res.Renewed,
	}
	if lease.duration <= 0 {
		lease.duration = left
	}
	lease.ctx, lease.cancel = context.WithCancelCause(work)
	lease.mu.Lock() // nobody may end it before it is complete
	lease.timer = time.AfterFunc(time.Until(lease.deadline), lease.expire)
	lease.stopFollow = context.AfterFunc(work, lease.LetGo)
	l.b.add(lease)
	l.mu.Lock()
	l.leases[lease] = true
	l.mu.Unlock()
	lease.mu.Unlock()
	if !l.manual {
		l.c.keeper.grew(l, sentAt.Add(lease.duration/3))
	}
	return lease
}

// timeLeft reads how long a grant lives from the board time of the answer on, which is
// not before the try that got the answer was sent.
func timeLeft(res *boardpb.Result) time.Duration {
	ms := res.ExpiresInMs
	if res.TMs != 0 && res.ExpiresTMs != 0 {
		ms = res.ExpiresTMs - res.TMs
	}
	if ms == 0 && res.ExpiresTMs == 0 {
		ms = res.DurationMs
	}
	return time.Duration(max(ms, 0)) * time.Millisecond
}

// renewed moves the deadline after an acknowledged renewal that was sent at sentAt.
func (l *Lease) renewed(sentAt time.Time) { l.until(sentAt.Add(l.duration)) }

func (l *Lease) until(deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != leaseLive || !deadline.After(l.deadline) {
		return
	}
	l.deadline = deadline
	l.timer.Reset(time.Until(deadline))
}

// expire is the lease's own clock: it needs no server.
func (l *Lease) expire() {
	l.mu.Lock()
	left := time.Until(l.deadline)
	if l.phase == leaseLive && left > 0 {
		l.timer.Reset(left)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	if l.lose(boardpb.EndedBy_ENDED_BY_EXPIRED, 0, true) {
		l.loop.addLetGo(l.For()) // the work stops: should the lease still live, it is not renewed
	}
}

// lose signals the loss once: the work's context, the channel, then the callback.
func (l *Lease) lose(cause boardpb.EndedBy, wallMs int64, own bool) bool {
	wall := time.Now().UTC()
	if wallMs > 0 {
		wall = time.UnixMilli(wallMs).UTC()
	}
	e := Ended{
		Board: l.loop.b.name, Loop: l.loop.id, Key: l.id.key, Generation: l.id.generation,
		Cause: cause, Wall: wall, OwnClock: own,
	}
	if !l.leave(leaseLost, e) {
		return false
	}
	first := l.loop.b.show(l.id) // before anybody acts on the loss and hears of it again
	l.cancel(ErrLost)
	close(l.lost)
	if first {
		l.loop.b.call(e)
	}
	return true
}

// finish ends the care for a lease whose work is over.
func (l *Lease) finish() bool {
	if !l.leave(leaseClosed, Ended{}) {
		return false
	}
	l.cancel(ErrWorkEnded)
	return true
}

// leave takes a live lease out of everybody's care; false if it was not live any more.
func (l *Lease) leave(phase leasePhase, e Ended) bool {
	l.mu.Lock()
	if l.phase != leaseLive {
		l.mu.Unlock()
		return false
	}
	l.phase, l.ended = phase, e
	l.timer.Stop()
	stop := l.stopFollow
	l.mu.Unlock()
	stop()
	l.loop.mu.Lock()
	delete(l.loop.leases, l)
	l.loop.mu.Unlock()
	l.loop.b.remove(l)
	return true
}
