package client

import (
	"context"
	"errors"
	"sync"
	"time"

	boardpb "raftboard/fsm/pb"
)

// Loop is one running activity of this principal on one board: what holds leases and
// gives writes their identity (SPEC F-13). It is safe for many goroutines; at most 256
// of its calls are in flight, further ones wait (see Pool). The client renews it until
// Close, so that it ends only when the process does.
type Loop struct {
	writes
	b        *Board
	id       string
	ttl      time.Duration
	attached bool // opened elsewhere: no seq is ours to give, so writes use keys
	manual   bool // nobody renews it but its owner
	win      *window

	mu     sync.Mutex
	leases map[*Lease]bool
	letGo  []*boardpb.LeaseRef // not yet told to the server
	ended  chan struct{}       // closed once the loop is known to have ended
	over   bool
}

// LoopOptions of OpenLoop.
type LoopOptions struct {
	TTL    time.Duration // 0: 30 s
	Nonce  string        // the same nonce of the same principal gives the same live loop; "": random
	Parent string        // loop of the parent
	Label  string        // opaque, at most 128 bytes
	Manual bool          // the client does not renew it; see Keepalive
}

// OpenLoop opens a loop, bounded by ctx, and keeps it alive until Loop.Close or
// Client.Close. Under the nonce of a loop that still lives it continues that loop; only
// one handle of a loop may be in use at a time, because a seq is given once.
func (b *Board) OpenLoop(ctx context.Context, opts LoopOptions) (*Loop, error) {
	nonce := opts.Nonce
	if nonce == "" {
		nonce = randomHex(16)
	}
	op := &boardpb.LoopOpen{Nonce: nonce, ParentLoop: opts.Parent, TtlMs: opts.TTL.Milliseconds(), Label: opts.Label}
	ans, err := b.submit(ctx, &boardpb.Command{Op: &boardpb.Command_LoopOpen{LoopOpen: op}})
	if err != nil {
		return nil, err
	}
	if _, err := refusal(ans.result); err != nil {
		return nil, err
	}
	l := newLoop(b, ans.result.Loop)
	l.ttl = time.Duration(ans.result.TtlMs) * time.Millisecond
	if l.ttl <= 0 {
		l.ttl = 30 * time.Second
	}
	l.manual = opts.Manual
	if ans.result.Renewed {
		if err := l.resume(ctx); err != nil {
			return nil, err
		}
	}
	if !l.manual {
		b.c.keeper.add(l, ans.sentAt)
	}
	return l, nil
}

// resume takes over a loop that was open already under this nonce: the opener's process
// began anew, or its first answer was lost. What the former handle had in flight is given
// up, by beginning above everything it can have sent. What the loop still holds has
// nobody who works on it here, so it is not renewed; claim it again to go on with it.
func (l *Loop) resume(ctx context.Context) error {
	got, _, err := l.b.LoopStatus(ctx, l.id, ReadOptions{})
	if err != nil {
		return err
	}
	l.win.startAt(got.GetLoop().GetFloor() + windowSize)
	if !l.manual {
		for _, lease := range got.GetLeases() {
			l.addLetGo(&boardpb.LeaseRef{Key: lease.Key, Generation: lease.Generation})
		}
	}
	return nil
}

// AttachLoop makes a handle of a loop that another process opened, for one-shot callers.
// Its writes carry idempotency keys, and this client renews neither it nor its leases.
func (b *Board) AttachLoop(id string) *Loop {
	l := newLoop(b, id)
	l.attached, l.manual = true, true
	return l
}

func newLoop(b *Board, id string) *Loop {
	l := &Loop{b: b, id: id, win: newWindow(), leases: map[*Lease]bool{}, ended: make(chan struct{})}
	l.writes = writes{c: b.c, send: l.apply}
	return l
}

// ID is the loop's id, as the server issued it.
func (l *Loop) ID() string { return l.id }

// Board is the board the loop belongs to.
func (l *Loop) Board() *Board { return l.b }

// TTL is how long the loop may be silent.
func (l *Loop) TTL() time.Duration { return l.ttl }

// Ended is closed once the server said that the loop ended, or after Close. Calls then
// answer ErrLoopEnded; open another.
func (l *Loop) Ended() <-chan struct{} { return l.ended }

// apply is how the shared writes of this loop are sent.
func (l *Loop) apply(ctx context.Context, cmd *boardpb.Command) (*boardpb.Result, error) {
	ans, err := l.submit(ctx, ctx, cmd)
	if err != nil {
		return nil, err
	}
	return refusal(ans.result)
}

// submit sends a command under the loop's next seq; work is the context whose end lets
// go what the command was granted.
func (l *Loop) submit(ctx, work context.Context, cmd *boardpb.Command) (answer, error) {
	cmd.Loop = l.id
	if key := stringFrom(ctx, identityKey); l.attached || key != "" {
		cmd.IdempotencyKey = identityFrom(ctx)
		ans, err := l.b.submit(ctx, cmd)
		switch {
		case err == nil:
			ans.leases = l.adopt(work, cmd, ans)
			l.check(ans.result)
		case errors.Is(err, ErrUnknown) && grants(cmd) && !l.attached:
			l.c.start(func() { l.disown(cmd) })
		}
		return ans, err
	}
	seq, floor, err := l.seq(ctx)
	if err != nil {
		if errors.Is(err, ErrLoopEnded) {
			return answer{}, &Error{Result: &boardpb.Result{Code: boardpb.Code_CODE_LOOP_ENDED, Loop: l.id, Message: "the loop ended", Hint: "open another"}}
		}
		return answer{}, unanswered(boardpb.Proposed_PROPOSED_NO, err, "%d calls of this loop wait for answers", windowSize)
	}
	cmd.Seq, cmd.Floor = seq, floor
	ans, err := l.b.submit(ctx, cmd)
	if errors.Is(err, ErrUnknown) {
		if grants(cmd) && l.c.start(func() { l.disown(cmd) }) {
			return ans, err // disown finishes the seq: until then the floor stays below it
		}
		l.win.finish(seq)
		l.c.keeper.hurry(l) // carries the floor, so that the command never runs later
		return ans, err
	}
	l.win.finish(seq)
	if err == nil {
		ans.leases = l.adopt(work, cmd, ans)
		l.check(ans.result)
	}
	return ans, err
}

// seq takes the next seq, waiting for room in the window as long as a call may last.
func (l *Loop) seq(ctx context.Context) (seq, floor uint64, err error) {
	if _, own := ctx.Deadline(); !own {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.c.cfg.Timeout)
		defer cancel()
	}
	return l.win.begin(ctx, l.ended)
}

// check notices that the server considers the loop as ended.
func (l *Loop) check(res *boardpb.Result) {
	if res.Code == boardpb.Code_CODE_LOOP_ENDED {
		l.end(res)
	}
}

// end forgets a loop that is over: its leases with it.
func (l *Loop) end(res *boardpb.Result) {
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return
	}
	l.over = true
	close(l.ended)
	held := l.held()
	l.letGo = nil
	l.mu.Unlock()
	l.c.keeper.remove(l)
	for _, lease := range held {
		lease.lose(boardpb.EndedBy_ENDED_BY_LOOP_CLOSED, res.GetWallMs(), false)
	}
}

// held lists the live leases. Called with l.mu held.
func (l *Loop) held() []*Lease {
	out := make([]*Lease, 0, len(l.leases))
	for lease := range l.leases {
		out = append(out, lease)
	}
	return out
}

// Leases lists what this handle holds.
func (l *Loop) Leases() []*Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held()
}

// Close ends the loop on the server, which frees what it still holds, and stops renewing
// it. Calls in flight should have returned before. A loop that ended already is no error.
func (l *Loop) Close(ctx context.Context) error {
	ans, err := l.submit(ctx, ctx, &boardpb.Command{Op: &boardpb.Command_LoopClose{LoopClose: &boardpb.LoopClose{Loop: l.id}}})
	l.mu.Lock()
	held, first := l.held(), !l.over
	if first {
		l.over = true
		close(l.ended)
	}
	l.mu.Unlock()
	l.c.keeper.remove(l)
	for _, lease := range held {
		lease.finish()
	}
	if err == nil {
		_, err = refusal(ans.result)
	}
	if errors.Is(err, ErrLoopEnded) {
		return nil
	}
	return err
}

// Keepalive renews the loop and its leases once, now. Only a loop opened with Manual, or
// attached, needs it.
func (l *Loop) Keepalive(ctx context.Context) (*boardpb.Result, error) {
	ans, err := l.b.keepalive(ctx, []renewal{l.renewal()})
	if err != nil {
		return nil, err
	}
	return refusal(ans.result)
}
