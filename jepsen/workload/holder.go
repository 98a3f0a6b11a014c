package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// fate is how a holder comes to the end of a lease without giving it back.
type fate int

const (
	fateNone fate = iota
	fateCrash
	fatePause
	fateSilent
)

const (
	fateEvery = 10 * time.Second // a holder comes to one, about
	longPause = 20 * time.Second // outlasts a lease and the grace of an election
)

// holder is one life of a client that holds leases: one operation, and one lease, at a time.
type holder struct {
	*house
	name, as string
	c        *client.Client
	b        *client.Board
	dice     *rand.Rand
	manual   bool // it renews by operations of its own
	first    fate // that it comes to; later ones are drawn

	loop    *client.Loop
	kept    time.Time // when its loop was last renewed, by hand
	due     time.Time // when the next fate is
	writes  int
	crashed bool
	paused  bool // it was, once
}

func (o *holder) run() {
	for !o.crashed && rest(o.load, time.Duration(1+o.dice.Int64N(int64(o.pace)))) {
		ctx, cancel := context.WithTimeout(o.hard, callPatience)
		o.loop = keepOpen(ctx, o.b, o.loop, client.LoopOptions{TTL: loopTTL, Label: o.name, Manual: o.manual})
		cancel()
		if o.loop != nil {
			o.hold()
		}
	}
	if !o.crashed {
		closeLoop(o.hard, o.loop)
	}
}

// hold claims a key, works under its lease for a while, and comes to one of the ends.
func (o *holder) hold() {
	at := o.dice.IntN(len(o.keys.left))
	work, cancel := context.WithCancel(o.hard)
	defer cancel()
	lease := o.claim(work, o.key(at))
	if lease == nil {
		rest(o.load, time.Duration(1+o.dice.Int64N(2*int64(o.pace))))
		return
	}
	o.keys.next(at) // grants wear a key out, and not attempts: whoever lost it must have a successor
	b := believe(o.env, o.name, lease, o.manual)
	defer b.settle()
	for range 2 + o.dice.IntN(8) {
		if !rest(o.load, time.Duration(1+o.dice.Int64N(int64(o.pace)))) || b.over() {
			break
		}
		o.step(lease)
	}
	f := o.fate()
	if f != fateNone {
		o.away.Add(1)
		defer o.away.Add(-1)
	}
	switch f {
	case fateCrash:
		o.crash(lease, b)
	case fatePause:
		o.pause(lease, b)
	case fateSilent:
		o.silent(lease, b)
	default:
		o.giveBack(lease, b)
	}
}

// fate draws how a lease ends: by the clock and not by their number, so that holders that are
// fast are there as much as those that are slow.
func (o *holder) fate() (f fate) {
	if o.calm || o.load.Err() != nil || time.Now().Before(o.due) || int(o.away.Load()) >= o.most {
		return fateNone
	}
	o.due = time.Now().Add(fateEvery/2 + time.Duration(o.dice.Int64N(int64(fateEvery))))
	if f, o.first = o.first, fateNone; f != fateNone {
		return f
	}
	switch n := o.dice.IntN(100); {
	case n < 20:
		return fateCrash
	case n < 55:
		return fatePause
	}
	return fateSilent
}

// call records one operation and notices when the loop is over.
func (o *holder) call(op history.Op, do func(context.Context) (*boardpb.Result, error)) error {
	ctx, cancel := context.WithTimeout(o.identified(o.hard), callPatience)
	defer cancel()
	op.Client = o.name
	if o.loop != nil {
		op.Loop = o.loop.ID()
	}
	_, err := o.env.call(ctx, op, do)
	if errors.Is(err, client.ErrLoopEnded) {
		o.loop = nil
	}
	return err
}

// identified gives some writes an identity of their own, which is remembered for longer than
// one of the loop, and can be sent again when the loop has long gone on.
func (o *holder) identified(ctx context.Context) context.Context {
	if o.dice.IntN(4) > 0 {
		return ctx
	}
	o.writes++
	return client.WithIdempotencyKey(ctx, fmt.Sprintf("%s.%d", o.name, o.writes))
}

func (o *holder) claim(work context.Context, key string) (lease *client.Lease) {
	opts := client.ClaimOptions{Duration: time.Duration(1500+500*o.dice.IntN(4)) * time.Millisecond, Takeover: o.dice.IntN(2) == 0, Timeout: callPatience}
	op := history.Op{Client: o.name, Loop: o.loop.ID(), Kind: history.Claim, Key: key, Args: history.Args{Takeover: opts.Takeover}}
	_, err := o.env.call(work, op, func(work context.Context) (res *boardpb.Result, err error) {
		lease, res, err = o.loop.Claim(o.identified(work), key, opts)
		return res, err
	})
	if errors.Is(err, client.ErrLoopEnded) {
		o.loop = nil
	}
	o.kept = time.Now()
	return lease
}

// step is one operation under a lease.
func (o *holder) step(lease *client.Lease) {
	if o.manual && time.Since(o.kept) > lease.Duration()/4 {
		o.keepalive(lease)
		return
	}
	switch n := o.dice.IntN(100); {
	case n < 55:
		o.guarded(lease)
	case n < 80:
		o.fenced(lease)
	case n < 92:
		o.call(o.under(lease, history.Renew), func(ctx context.Context) (*boardpb.Result, error) { return lease.Heartbeat(ctx, 0) })
	default:
		o.call(o.under(lease, history.Delete), func(ctx context.Context) (*boardpb.Result, error) { return lease.Delete(ctx, 0) })
	}
}

func (o *holder) under(lease *client.Lease, kind history.Kind) history.Op {
	return history.Op{Kind: kind, Key: lease.Key(), Args: history.Args{Generation: lease.Generation()}}
}

func (o *holder) value(lease *client.Lease) string {
	o.writes++
	return fmt.Sprintf(`{"generation":%d,"by":"%s.%d"}`, lease.Generation(), o.name, o.writes)
}

// guarded writes the key itself, and outside what knows of the lease by its generation alone.
func (o *holder) guarded(lease *client.Lease) {
	o.out.write(o.name, lease.Key(), lease.Generation())
	op := o.under(lease, history.Guarded)
	op.Args.Value = o.value(lease)
	o.call(op, func(ctx context.Context) (*boardpb.Result, error) {
		return lease.Set(ctx, []byte(op.Args.Value), client.SetOptions{})
	})
}

// fenced writes something else on the condition that the lease lives.
func (o *holder) fenced(lease *client.Lease) {
	op := o.under(lease, history.Fenced)
	op.Key, op.Args.ForClaim, op.Args.Value = "log"+lease.Key()[len("lease"):], lease.Key(), o.value(lease)
	loop := lease.Loop()
	o.call(op, func(ctx context.Context) (*boardpb.Result, error) {
		return loop.Append(ctx, op.Key, []byte(op.Args.Value), client.AppendOptions{Fence: lease.For()})
	})
}

func (o *holder) keepalive(lease *client.Lease) {
	loop, sent := lease.Loop(), time.Now()
	if err := o.call(history.Op{Kind: history.Keepalive}, loop.Keepalive); err == nil {
		o.kept = sent
	}
}

// giveBack ends a lease in order. From the moment that is sent the holder believes nothing.
func (o *holder) giveBack(lease *client.Lease, b *belief) {
	if b.over() {
		if o.dice.IntN(2) == 0 { // it was lost: one more write shows that it is
			o.guarded(lease)
		}
		return
	}
	b.end(history.BeliefGiven)
	switch n := o.dice.IntN(100); {
	case n < 75:
		o.call(o.under(lease, history.Release), lease.Release)
	case n < 90:
		op := o.under(lease, history.Fail)
		op.Args.Reason = "the dice said so"
		o.call(op, func(ctx context.Context) (*boardpb.Result, error) { return lease.Fail(ctx, op.Args.Reason, 0) })
	default:
		closeLoop(o.hard, o.loop)
		o.loop = nil
	}
}

// crash leaves everything as it is: the process is gone, and tells nobody.
func (o *holder) crash(lease *client.Lease, b *belief) {
	o.crashed = true
	b.end(history.BeliefCrashed)
	at := o.env.Log.Now()
	o.c.Close()
	o.env.Log.Fault(history.Fault{Name: "crash", Targets: []string{o.name}, Start: at, End: at,
		Witness: fmt.Sprintf("held %s under generation %d", lease.Key(), lease.Generation())})
}

// silent stops renewing: it lets the lease go, which tells the servers, or, where it renews by
// hand, just does nothing until its own clock says that it is over. Then it writes once more.
func (o *holder) silent(lease *client.Lease, b *belief) {
	f := history.Fault{Name: "silent", Targets: []string{o.name}, Start: o.env.Log.Now(),
		Witness: fmt.Sprintf("renewed generation %d of %s no more", lease.Generation(), lease.Key())}
	if !o.manual {
		b.end(history.BeliefSilent)
		lease.LetGo()
	}
	for ends := time.Now().Add(3 * lease.Duration()); time.Now().Before(ends) && o.moved(o.load, lease.Key()) <= lease.Generation(); {
		if !rest(o.load, lease.Duration()/4) {
			break
		}
	}
	f.End = o.env.Log.Now()
	o.env.Log.Fault(f)
	o.unseat(lease) // it has had its time
	o.guarded(lease)
	o.fenced(lease)
}

// pause stops the process: nothing reaches it, and it looks at no clock, for up to a few times
// as long as the lease lives, or until somebody else has the key. When it runs again, the
// first thing it does is to go on where it was.
func (o *holder) pause(lease *client.Lease, b *belief) {
	f := history.Fault{Name: "pause", Targets: []string{o.name}, Start: o.env.Log.Now()}
	b.freeze()
	thaw := o.env.Cluster.Freeze(o.as)
	f.Witness = o.cutOff(o.as)
	lasts := lease.Duration() / 2 << o.dice.IntN(4)
	if !o.paused || o.dice.IntN(2) == 0 { // the first one comes back too late
		lasts, o.paused = longPause, true
	}
	until, moved := f.Start+lasts, false
	for o.env.Log.Now() < until && rest(o.load, time.Second/5) {
		if now := o.moved(o.load, lease.Key()); !moved && now > lease.Generation() && f.Witness != "" {
			f.Witness += fmt.Sprintf("; %s went on to generation %d", lease.Key(), now)
			// The other one works for a while before this one comes back.
			until, moved = min(until, o.env.Log.Now()+time.Second/2+time.Duration(o.dice.Int64N(int64(2*time.Second)))), true
		}
	}
	if lasts == longPause || o.load.Err() != nil {
		o.unseat(lease)
	}
	thaw()
	f.End = o.env.Log.Now()
	o.env.Log.Fault(f)
	b.thaw()
	o.guarded(lease)
	o.fenced(lease)
}

// belief watches what its client believes of one lease.
type belief struct {
	env   Env
	lease *client.Lease
	stop  func() bool
	fired chan struct{} // closed when the lease's context is over and that was seen

	mu     sync.Mutex
	rec    history.Belief
	ended  bool
	frozen bool
}

func believe(e Env, name string, lease *client.Lease, manual bool) *belief {
	b := &belief{env: e, lease: lease, fired: make(chan struct{}), rec: history.Belief{Client: name, Board: e.Board, Key: lease.Key(),
		Generation: lease.Generation(), Duration: lease.Duration(), From: e.Log.Now(), Manual: manual}}
	b.stop = context.AfterFunc(lease.Context(), func() {
		defer close(b.fired)
		b.lost()
	})
	return b
}

// lost ends the belief, unless the process is paused and cannot know.
func (b *belief) lost() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.frozen {
		return
	}
	why := history.BeliefTold
	if b.lease.Ended().OwnClock {
		why = history.BeliefClock
	}
	b.finish(why)
}

// finish ends it once. Called with b.mu held.
func (b *belief) finish(why string) {
	if b.ended {
		return
	}
	now := b.env.Log.Now()
	b.ended, b.rec.To, b.rec.Why = true, now, why
	b.rec.Until = now + time.Until(b.lease.Deadline())
}

func (b *belief) end(why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finish(why)
}

func (b *belief) over() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

func (b *belief) freeze() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.frozen, b.rec.Paused = true, true
	}
}

// thaw: the process runs again, and looks.
func (b *belief) thaw() {
	b.mu.Lock()
	b.frozen = false
	b.mu.Unlock()
	if b.lease.Context().Err() != nil {
		b.lost()
	}
}

// settle records the belief; nobody watches it any more.
func (b *belief) settle() {
	if !b.stop() {
		<-b.fired
	}
	b.end(history.BeliefRunning)
	b.env.Log.Believed(b.rec)
}
