package workload

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// Retry is W6: clients that give their commands their identities themselves, below the client
// library, and repeat them in every way that a lost answer can make a client repeat them: to
// another node, at two nodes at once, long after newer ones, with another body, below the floor
// that they stated, on a loop that has ended or never was. Some have loops, some have only
// idempotency keys. They count (appends) and set cells at versions, some of which conflict, so
// that refusals are repeated too.
type Retry struct {
	Clients int // with loops; 0: by the rate, so that the load goes on while a node answers nobody
	Keyed   int // without; 0: half as many
}

const (
	// retryTTL is longer than a run: loops end because they are closed, and for no other reason.
	retryTTL = time.Hour
	// remembered is how many seqs a client keeps repeatable in its loop. When it raises its
	// floor it gives the older ones up.
	remembered = 10
	// keptForGood is how many seqs a second loop may hold whose floor never rises: identities
	// that are repeated at the end after whatever happened to the nodes meanwhile.
	keptForGood = 100
	forgotten   = 12 // identities below the floor that are still tried
	closedLoops = 3  // ended loops that are still tried
	inFlight    = 256
	lastTries   = 20 // of a command that nobody answered, at the end
)

// Name implements Workload.
func (Retry) Name() string { return "retry" }

// Watched implements Workload.
func (Retry) Watched() bool { return false }

// Settings of the board that W6 needs.
func (Retry) Settings() *boardpb.BoardSettings {
	return &boardpb.BoardSettings{Namespaces: []*boardpb.Namespace{
		{Pattern: "counts/*", Mode: boardpb.Mode_MODE_APPEND, Purpose: "counters: one item is one increment"},
		{Pattern: "cells/*", Mode: boardpb.Mode_MODE_SHARED, Purpose: "values that are set at a version"},
	}}
}

// Run lets the clients work until they are to stop, lets them repeat once more what was never
// answered, and waits for them.
func (w Retry) Run(ctx context.Context, e Env) error {
	load, cancel := e.loading(ctx)
	defer cancel()
	w.Clients = cmp.Or(w.Clients, max(e.Rate/12, 4))
	w.Keyed = cmp.Or(w.Keyed, w.Clients/2)
	var group sync.WaitGroup
	defer group.Wait()
	for i := range w.Clients + w.Keyed {
		r := &resender{env: e, as: fmt.Sprintf("retry-%d", i+1), dice: e.dice(i), versions: map[string]uint64{}}
		if i >= w.Clients {
			r.as, r.keyed = fmt.Sprintf("keyed-%d", i+1-w.Clients), true
		} else {
			c, err := e.Cluster.Dial(r.as, i%len(e.Cluster.Nodes()))
			if err != nil {
				cancel()
				return err
			}
			r.c = c
		}
		group.Go(func() { r.run(ctx, load, e.pace(w.Clients+w.Keyed)) })
	}
	return nil
}

// attempt is a command as it was first sent, and its identity: a seq of a loop, or a key.
type attempt struct {
	loop, identity string
	seq, floor     uint64 // floor: the one stated when it was first sent
	kind           history.Kind
	key, value     string
	ifVersion      uint64
	decided        bool // somebody answered what became of it
}

// line is one loop and what was sent on it.
type line struct {
	loop        string
	next, floor uint64
	kept, gone  []*attempt // repeatable ones, oldest first; ones below the floor
}

// resender is one client.
type resender struct {
	env      Env
	as       string
	keyed    bool
	c        *client.Client // opens loops; nil without any
	dice     *rand.Rand
	versions map[string]uint64 // last seen of a cell
	written  int
	took     time.Duration // by the last acknowledged write

	main, archive *line
	ended         []*line
}

func (r *resender) run(ctx, load context.Context, pace time.Duration) {
	if r.c != nil {
		defer r.c.Close()
	}
	r.main, r.archive = r.open(load), r.open(load)
	for r.main != nil && r.archive != nil && rest(load, time.Duration(1+r.dice.Int64N(int64(pace)))) {
		// What is out when the load ends is waited for; every call has a deadline of its own.
		out := context.WithoutCancel(load)
		if r.keyed {
			r.oneKeyed(out)
		} else {
			r.one(load, out)
		}
	}
	r.last(ctx)
}

// open opens a loop the ordinary way; nil when ctx ended first. A client without loops has a
// line all the same, of keys.
func (r *resender) open(ctx context.Context) *line {
	if r.keyed {
		return &line{}
	}
	for ctx.Err() == nil {
		loop, err := r.c.Board(r.env.Board).OpenLoop(ctx, client.LoopOptions{TTL: retryTTL, Label: r.as, Manual: true})
		if err == nil {
			return &line{loop: loop.ID(), next: 1, floor: 1}
		}
		rest(ctx, 200*time.Millisecond)
	}
	return nil
}

func (r *resender) one(load, out context.Context) {
	switch n := r.dice.IntN(100); {
	case n < 34:
		r.send(out, r.fresh(r.main))
	case n < 46:
		r.twice(out, r.fresh(r.main))
	case n < 60:
		r.again(out, pick(r.dice, r.main.kept))
	case n < 66:
		r.again(out, pick(r.dice, r.archive.kept))
	case n < 74:
		if r.archive.next <= keptForGood {
			r.send(out, r.fresh(r.archive))
		}
	case n < 80:
		r.otherBody(out, pick(r.dice, r.main.kept))
	case n < 86:
		r.belowFloor(out)
	case n < 89:
		r.end(load, out)
	case n < 92:
		r.onEnded(out)
	case n < 94:
		nobodys := attempt{loop: fmt.Sprintf("l-%016x", r.dice.Uint64()), seq: 1, floor: 1, kind: history.Append, key: count, value: r.value()}
		r.send(out, &nobodys)
	case n < 96:
		far := r.command(&attempt{loop: r.main.loop, seq: r.main.floor + inFlight, floor: r.main.floor})
		r.send(out, far)
	default:
		r.env.getAt(out, r.node(), r.as, cell(r.dice))
	}
}

func (r *resender) oneKeyed(out context.Context) {
	switch n := r.dice.IntN(100); {
	case n < 40:
		r.send(out, r.fresh(r.main))
	case n < 54:
		r.twice(out, r.fresh(r.main))
	case n < 92:
		r.again(out, pick(r.dice, r.main.kept))
	default:
		r.otherBody(out, pick(r.dice, r.main.kept))
	}
}

const count = "counts/all"

func cell(dice *rand.Rand) string { return fmt.Sprintf("cells/x-%d", dice.IntN(3)) }

// pick draws one, newer ones rather; nil if there is none.
func pick(dice *rand.Rand, from []*attempt) *attempt {
	if len(from) == 0 {
		return nil
	}
	return from[max(dice.IntN(len(from)), dice.IntN(len(from)))]
}

// value is JSON, and nobody else's.
func (r *resender) value() string {
	r.written++
	return fmt.Sprintf("%q", fmt.Sprintf("%s.%d", r.as, r.written))
}

// command fills in what is to be done: an increment, or a cell set at the version last seen,
// which often is an old one.
func (r *resender) command(a *attempt) *attempt {
	a.kind, a.key, a.value = history.Append, count, r.value()
	if r.dice.IntN(3) == 0 {
		a.kind, a.key = history.Set, cell(r.dice)
		a.ifVersion = r.versions[a.key]
	}
	return a
}

// fresh is a new command under the next identity of a line. The line gives its oldest ones up
// when there are too many: from then on their answers are not wanted, and they never run.
func (r *resender) fresh(l *line) *attempt {
	a := r.command(&attempt{loop: l.loop})
	if r.keyed {
		a.identity = fmt.Sprintf("%s.%d", r.as, r.written)
	} else {
		a.seq = l.next
		l.next++
	}
	l.kept = append(l.kept, a)
	if l != r.archive && len(l.kept) > remembered {
		l.giveUp()
	}
	a.floor = l.floor
	return a
}

// giveUp stops wanting the oldest answer.
func (l *line) giveUp() {
	l.gone = append(l.gone, l.kept[0])
	l.gone = l.gone[max(0, len(l.gone)-forgotten):]
	if l.kept = l.kept[1:]; l.loop != "" {
		l.floor = l.kept[0].seq
	}
}

// node is one by the dice.
func (r *resender) node() int { return someNode(r.env, r.dice) }

// waits says how an answer is waited for. A deadline travels with the call, and shortly before
// it a server proposes nothing any more; who hangs up says nothing before, so what was under way
// is done, and its answer is lost.
type waits struct {
	deadline time.Duration
	hangUp   time.Duration // 0: never
}

// patience is that of one call: 0.3 to 6.3 s, and rather less, for a node that is away answers
// none of them. It is often over after about as long as the last answer took.
func (r *resender) patience() waits {
	u := r.dice.Float64()
	w := waits{deadline: 300*time.Millisecond + time.Duration(u*u*u*float64(6*time.Second))}
	if r.dice.IntN(100) < 40 {
		w.hangUp = time.Millisecond + time.Duration(r.dice.Int64N(int64(r.took+r.took/4+time.Millisecond)))
	}
	return w
}

// send sends an attempt to a node by the dice. nil sends nothing.
func (r *resender) send(ctx context.Context, a *attempt) {
	if a != nil {
		asked := r.env.Log.Now()
		res := r.tell(ctx, r.as, r.node(), *a, r.patience())
		if r.learn(a, res); res.GetOutcome() == boardpb.Outcome_OUTCOME_OK {
			r.took = min(r.env.Log.Now()-asked, tookAtMost)
		}
	}
}

// tell sends one attempt to one node and records it as an operation of its own, tied to the
// others by its identity. It blocks until there is an answer or patience is over; nil is none.
func (r *resender) tell(ctx context.Context, hand string, node int, a attempt, w waits) *boardpb.Result {
	ctx, cancel := context.WithTimeout(ctx, w.deadline)
	defer cancel()
	if w.hangUp > 0 {
		defer time.AfterFunc(w.hangUp, cancel).Stop()
	}
	op := history.Op{Client: hand, Loop: a.loop, Seq: a.seq, Kind: a.kind, Key: a.key,
		Args: history.Args{Value: a.value, IfVersion: a.ifVersion, Floor: a.floor, Identity: a.identity}}
	cmd := a.body()
	cmd.Board, cmd.Loop, cmd.Seq, cmd.Floor, cmd.IdempotencyKey = r.env.Board, a.loop, a.seq, a.floor, a.identity
	return r.env.applyAt(ctx, node, r.as, op, cmd)
}

const tookAtMost = 100 * time.Millisecond // an answer that took longer says nothing of the next one

// body is what a command does.
func (a *attempt) body() *boardpb.Command {
	switch a.kind {
	case history.LoopClose:
		return &boardpb.Command{Op: &boardpb.Command_LoopClose{LoopClose: &boardpb.LoopClose{Loop: a.loop}}}
	case history.Set:
		return &boardpb.Command{Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: a.key, Value: []byte(a.value), IfVersion: a.ifVersion}}}
	}
	return &boardpb.Command{Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: a.key, Value: []byte(a.value)}}}
}

// learn takes what an answer says: that the attempt is decided, and where a cell stands.
func (r *resender) learn(a *attempt, res *boardpb.Result) {
	if res == nil || res.Code == boardpb.Code_CODE_UNAVAILABLE || res.Code == boardpb.Code_CODE_LIMIT_REQUESTS {
		return
	}
	a.decided = true
	if a.kind == history.Set {
		r.versions[a.key] = max(r.versions[a.key], res.Version)
	}
}

// again repeats an attempt, under the floor that its loop has by now.
func (r *resender) again(ctx context.Context, a *attempt) {
	if a == nil {
		return
	}
	for _, l := range []*line{r.main, r.archive} {
		if l != nil && l.loop == a.loop {
			a.floor = l.floor
		}
	}
	r.send(ctx, a)
}

// twice sends an attempt to two nodes at the same time, with two hands: each of them does one
// thing at a time.
func (r *resender) twice(ctx context.Context, a *attempt) {
	first, second := r.node(), r.node()
	patience, also := r.patience(), r.patience()
	var group sync.WaitGroup
	var other *boardpb.Result
	group.Go(func() { other = r.tell(ctx, r.as+"-twin", second, *a, also) })
	mine := r.tell(ctx, r.as, first, *a, patience)
	group.Wait()
	r.learn(a, mine)
	r.learn(a, other)
}

// otherBody states an identity that was answered with another body than it has.
func (r *resender) otherBody(ctx context.Context, a *attempt) {
	if a == nil || !a.decided {
		return
	}
	other := *a
	other.value = r.value()
	r.tell(ctx, r.as, r.node(), other, r.patience())
}

// belowFloor repeats what was given up, as a copy that was on its way for long would: under the
// floor of then, or of now.
func (r *resender) belowFloor(ctx context.Context) {
	if len(r.main.gone) == 0 {
		if len(r.main.kept) < 2 {
			return
		}
		r.main.giveUp()
		r.send(ctx, r.fresh(r.main)) // tells of the floor
	}
	late := *pick(r.dice, r.main.gone)
	if r.dice.IntN(2) == 0 {
		late.floor = r.main.floor
	}
	r.tell(ctx, r.as, r.node(), late, r.patience())
}

// end closes the loop, which is a command under an identity like others, and goes on with a new
// one.
func (r *resender) end(load, out context.Context) {
	a := &attempt{loop: r.main.loop, seq: r.main.next, floor: r.main.floor, kind: history.LoopClose}
	r.main.next++
	r.main.kept = append(r.main.kept, a)
	for range lastTries {
		if r.send(out, a); a.decided || load.Err() != nil {
			break
		}
	}
	if !a.decided {
		return
	}
	old := r.main
	r.ended = append(r.ended, old)
	r.ended = r.ended[max(0, len(r.ended)-closedLoops):]
	r.main = r.open(load)
	r.onEnded(out)
}

// onEnded tries a loop that has ended: with what was done on it, and with something new.
func (r *resender) onEnded(ctx context.Context) {
	if len(r.ended) == 0 {
		return
	}
	l := r.ended[r.dice.IntN(len(r.ended))]
	r.again(ctx, pick(r.dice, l.kept))
	late := r.command(&attempt{loop: l.loop, seq: l.next, floor: l.floor})
	l.next++
	r.tell(ctx, r.as, r.node(), *late, r.patience())
}

// last repeats what nobody answered until somebody does, and what is oldest once more. Then it
// does once more what faults may have left no time for.
func (r *resender) last(ctx context.Context) {
	if r.main == nil || r.archive == nil {
		return
	}
	for _, l := range []*line{r.main, r.archive} {
		for _, a := range l.kept {
			for n := 0; n < lastTries && !a.decided && ctx.Err() == nil; n++ {
				r.again(ctx, a)
			}
		}
		for _, a := range slices.Clone(l.kept[:min(5, len(l.kept))]) {
			if ctx.Err() == nil {
				r.again(ctx, a)
			}
		}
	}
	r.otherBody(ctx, pick(r.dice, r.main.kept))
	if r.keyed {
		return
	}
	for range 2 {
		r.send(ctx, r.fresh(r.main))
		r.belowFloor(ctx)
	}
	r.end(ctx, ctx)
}
