package client

import (
	"context"
	"errors"
	"strings"
	"time"

	boardpb "raftboard/fsm/pb"
)

// WorkOptions of Board.Work.
type WorkOptions struct {
	Pattern    string        // of the items, for instance "claims/*"
	Duration   time.Duration // of each lease; 0: the namespace's default
	Idle       time.Duration // pause while nothing is claimable; 0: 1 s
	RetryAfter time.Duration // of a failed item; 0: 1 s after the first failure, then twice as long each time, up to 5 min
	Loop       LoopOptions
	OnError    func(error) // hears what the worker survives: no leader, a refused completion
}

// Done is what a work function hands in. ResultsKey, an owned key of this principal,
// receives the result in the commit that completes the item.
type Done struct {
	Result     []byte
	ResultsKey string
}

// closingTime bounds the last word about an item whose work is over: long enough to sit
// out an election several times over.
const closingTime = time.Minute

// Work opens a loop and works on items one after the other until ctx ends: claim the
// next, run fn, complete it with what fn returns, or fail it with fn's error. The end of
// ctx is a wish to stop: no further claim is made, the item at hand is finished and
// completed while it is still renewed, then the loop is closed and Work returns nil. fn's
// own context ends only when its lease is lost; fn should then return, whatever it did.
// A panic of fn passes through; the lease then runs out. Refusals that no retry can
// mend (wrong pattern, forbidden) end Work as an error.
func (b *Board) Work(ctx context.Context, opts WorkOptions, fn func(context.Context, *Lease) (Done, error)) error {
	if opts.Idle <= 0 {
		opts.Idle = time.Second
	}
	w := &worker{b: b, opts: opts, fn: fn}
	defer w.close(ctx)
	for failures := 0; ctx.Err() == nil; {
		worked, err := w.one(ctx)
		switch {
		case err == nil && worked:
			failures = 0
			continue
		case err == nil:
			failures = 0
			_ = b.c.rest(ctx, opts.Idle/2+backoff(0, opts.Idle/2, opts.Idle/2))
		case ctx.Err() != nil:
		case survivable(err):
			w.report(err)
			_ = b.c.rest(ctx, backoff(failures, 50*time.Millisecond, time.Second))
			failures++
		default:
			return err
		}
		if b.c.ctx.Err() != nil {
			return ErrClosed
		}
	}
	return nil
}

// worker is one run of Board.Work.
type worker struct {
	b    *Board
	opts WorkOptions
	fn   func(context.Context, *Lease) (Done, error)
	loop *Loop
}

func (w *worker) report(err error) {
	if w.opts.OnError != nil {
		w.opts.OnError(err)
	}
}

// survivable errors go away by waiting, or with a new loop.
func survivable(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrLoopEnded) || errors.Is(err, ErrRateLimited) ||
		errors.Is(err, ErrLimitRequests) || errors.Is(err, ErrLimitInFlight) || errors.Is(err, ErrReadTimeout)
}

// one claims and works on one item; false if there was none.
func (w *worker) one(ctx context.Context) (bool, error) {
	if w.loop == nil {
		l, err := w.b.OpenLoop(ctx, w.opts.Loop)
		if err != nil {
			return false, err
		}
		w.loop = l
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel() // also when fn panics: the lease is let go
	op := &boardpb.ClaimNext{Pattern: w.opts.Pattern, DurationMs: millis(w.opts.Duration)}
	lease, _, err := w.loop.claim(ctx, work, ClaimOptions{}, &boardpb.Command{Op: &boardpb.Command_ClaimNext{ClaimNext: op}})
	if errors.Is(err, ErrLoopEnded) {
		w.loop = nil // it was silent for too long, in a pause perhaps; the next one starts afresh
	}
	if err != nil || lease == nil {
		return false, err
	}
	done, err := w.fn(lease.Context(), lease)
	w.finish(ctx, lease, done, err)
	return true, nil
}

// finish has the last word about an item. Its outcome is the server's to decide: a lease
// that was lost meanwhile is refused there.
func (w *worker) finish(ctx context.Context, lease *Lease, done Done, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closingTime)
	defer cancel()
	switch {
	case err == nil:
		_, err = lease.Complete(ctx, done.Result, done.ResultsKey)
	case errors.Is(context.Cause(lease.Context()), ErrLost):
	default:
		_, err = lease.Fail(ctx, reason(err), w.retryAfter(lease))
	}
	if err != nil {
		w.report(err)
	}
}

// The pause of an item that fails again and again: at once it would only fail once more.
const (
	firstRetry   = time.Second
	longestRetry = 5 * time.Minute
)

func (w *worker) retryAfter(lease *Lease) time.Duration {
	if w.opts.RetryAfter > 0 {
		return w.opts.RetryAfter
	}
	failed := min(max(lease.Attempts(), 1)-1, 16)
	return min(firstRetry<<failed, longestRetry)
}

// maxReason is how many bytes of valid UTF-8 a failure may carry (SPEC 1.2).
const maxReason = 512

// reason fits an error into maxReason.
func reason(err error) string {
	s := strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", ""), "")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "")
	}
	return s
}

func (w *worker) close(ctx context.Context) {
	if w.loop == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.b.c.cfg.Timeout)
	defer cancel()
	if err := w.loop.Close(ctx); err != nil {
		w.report(err)
	}
}
