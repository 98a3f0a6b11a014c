package check

import (
	"fmt"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

const (
	defaultGrace  = 10_000 // ms, until a ClusterSet says otherwise
	graceExtends  = 60_000 // the most that elections together delay one expiry (SPEC F-4)
	causeExpired  = "expired"
	causeTakeover = "takeover"
	causeOverlap  = "overlapped" // another was granted the key: L3
)

// Window is one grant of a key: who held it, from when to when, in board time.
type Window struct {
	Board, Key  string
	Generation  uint64
	Owner, Loop string
	Op          uint64 // that was granted it; 0: none of the harness
	From        int64
	To          int64         // when it ended; meaningless while Cause is ""
	Graced      bool          // it was due at some time, and lived on because there had been an election
	Ended       time.Duration // when a node first wrote down what ended it; 0: nobody knows
	Cause       string        // how it ended: "expired", "completed", …; "" while it lasts
	Parked      bool          // its item was tried out with it
	Due         int64         // when it was to end at the latest, by what was known when it did (SPEC F-4)

	granted, ended place     // in A
	spared         []spell   // in which it must live on because there had been an election
	renewals       []renewal // the grant first

	duration, own int64
	grantSeq      uint64
	letGo         bool
	partial       []string // what was stored under it, as references
}

// spell is a stretch of board time.
type spell struct{ from, to int64 }

// renewal is a command that a lease lives so many ms from, at least.
type renewal struct {
	by *history.Applied
	ms int64
}

type slot struct{ board, key string }

type loopState struct {
	floor, renewedFloor uint64
	renewedT            int64
}

// account is the naive second opinion on leases: a walk over A that keeps who holds what.
type account struct {
	at         *history.Applied
	t          int64
	grace      int64
	graceUntil int64
	live       map[slot]*Window
	top        map[slot]uint64 // the highest generation a key ever had
	loops      map[string]*loopState
	trials     trials
	windows    []*Window
	found      []Finding
}

// Leases replays A in the checker's own words and finds: L1, generations of a key that do not
// rise; L2, Q2, a write or a complete accepted from anyone but the live holder; L3, a grant
// while another's window lasts, an expiry before its time, an answer with another end of the
// window than its renewals give; L4, board time that falls; L7, a live holder refused; Q7, an
// item parked too early, too late, or granted while it is.
//
// What it finds is kept with A: asking again costs nothing.
func Leases(a *Order) ([]*Window, []Finding) {
	if a.leases != nil {
		return a.leases.windows, a.leases.found
	}
	acc := &account{grace: defaultGrace, live: map[slot]*Window{}, top: map[slot]uint64{}, loops: map[string]*loopState{},
		trials: newTrials()}
	for i := range a.Records {
		acc.apply(&a.Records[i])
	}
	for _, w := range acc.live {
		w.Due = acc.due(acc.until(w))
	}
	a.leases = acc
	return acc.windows, acc.found
}

func (acc *account) say(checker, format string, args ...any) {
	f := violation(checker, format, args...).at(acc.at.Index)
	if id := history.OpOf(acc.at.Command.GetCallId()); id != 0 {
		f = f.of(id)
	}
	acc.found = append(acc.found, f)
}

func (acc *account) apply(a *history.Applied) {
	acc.at = a
	if a.T < acc.t {
		acc.say("L4", "board time fell from %d to %d", acc.t, a.T)
	}
	acc.t = max(acc.t, a.T)
	c, r := a.Command, a.Result
	if lead := c.GetLead(); lead != nil {
		acc.graceUntil = acc.t + acc.grace // and nothing expires before it is known
		for _, w := range acc.live {
			w.spared = append(w.spared, spell{acc.t, acc.due(acc.until(w))})
		}
		return
	}
	acc.expire()
	if a.OK() {
		acc.done(c, c.Op, r)
	} else if !r.Replayed {
		acc.refused(c, r)
	}
	if l := acc.loops[c.Loop]; l != nil && (r.Replayed || !neverRan(r)) {
		l.floor = max(l.floor, c.Floor)
	}
}

// due is when a deadline passes (SPEC F-4).
func (acc *account) due(e int64) int64 { return max(e, min(acc.graceUntil, e+graceExtends)) }

// until is when a window ends: its own expiry, or as far as its loop's keepalives reach.
func (acc *account) until(w *Window) int64 {
	l := acc.loops[w.Loop]
	if l == nil || l.renewedT == 0 || w.letGo || w.grantSeq != 0 && w.grantSeq >= l.renewedFloor {
		return w.own
	}
	return max(w.own, l.renewedT+w.duration)
}

// expire ends what is due. The state machine ends what a command names and up to 256 others;
// runs of the harness have fewer leases than that.
func (acc *account) expire() {
	for s, w := range acc.live {
		if acc.t >= acc.due(acc.until(w)) {
			acc.end(s, causeExpired)
		} else if acc.t >= acc.until(w) {
			w.Graced = true
		}
	}
}

func (acc *account) end(s slot, cause string) {
	if w := acc.live[s]; w != nil {
		w.To, w.Ended, w.Cause = acc.t, acc.at.At, cause
		w.Due, w.ended = acc.due(acc.until(w)), placeOf(acc.at)
		delete(acc.live, s)
		acc.gaveBack(s, w)
	}
}

// done follows a command that was accepted.
func (acc *account) done(c *boardpb.Command, op any, r *boardpb.Result) {
	switch o := op.(type) {
	case *boardpb.Command_ClusterSet:
		if o.ClusterSet.GraceMs != nil {
			acc.grace = *o.ClusterSet.GraceMs
		}
	case *boardpb.Command_BoardCreate:
		acc.trials.declared(o.BoardCreate.Name, o.BoardCreate.Settings)
	case *boardpb.Command_BoardSet:
		acc.trials.declared(o.BoardSet.Name, o.BoardSet.Settings)
	case *boardpb.Command_Unpark:
		acc.unparked(slot{c.Board, o.Unpark.Key})
	case *boardpb.Command_BoardDelete:
		for s := range acc.live {
			if s.board == o.BoardDelete.Name {
				acc.end(s, "board deleted")
			}
		}
	case *boardpb.Command_LoopOpen:
		if acc.loops[r.Loop] == nil {
			acc.loops[r.Loop] = &loopState{floor: 1}
		}
	case *boardpb.Command_LoopKeepalive:
		acc.keepalive(c, o.LoopKeepalive, r)
	case *boardpb.Command_LoopClose:
		acc.loopClosed(c, o.LoopClose)
	case *boardpb.Command_Txn:
		for _, g := range o.Txn.Guards {
			acc.fenced(c, g.GetLease())
		}
		for i, one := range o.Txn.Ops[:min(len(o.Txn.Ops), len(r.Results))] {
			acc.lease(c, txnOp(one), r.Results[i])
		}
	default:
		acc.lease(c, plainOp(c), r)
	}
}

func (acc *account) keepalive(c *boardpb.Command, o *boardpb.LoopKeepalive, r *boardpb.Result) {
	for _, ref := range o.LetGo {
		if w := acc.live[slot{c.Board, ref.Key}]; w != nil && w.Generation == ref.Generation && w.Owner == c.Actor.GetPrincipal() && !w.letGo {
			w.own, w.letGo = acc.until(w), true
		}
	}
	covered := map[string]uint64{} // loop → floor
	for i, renewal := range o.Loops {
		l := acc.loops[renewal.Loop]
		if l == nil || i >= len(r.Loops) || r.Loops[i].Code != boardpb.Code_CODE_UNSPECIFIED {
			continue
		}
		l.floor = max(l.floor, renewal.Floor)
		l.renewedT, l.renewedFloor = acc.t, l.floor
		covered[renewal.Loop] = l.floor
	}
	for _, w := range acc.live {
		if floor, renewed := covered[w.Loop]; renewed && !w.letGo && w.grantSeq < floor {
			w.renewals = append(w.renewals, renewal{acc.at, w.duration})
		}
	}
}

func (acc *account) loopClosed(c *boardpb.Command, o *boardpb.LoopClose) {
	id := o.Loop
	if id == "" {
		id = c.Loop
	}
	for s, w := range acc.live {
		if w.Loop == id {
			acc.end(s, "loop closed")
		}
	}
}

// lease follows one accepted operation on a key, alone or in a txn.
func (acc *account) lease(c *boardpb.Command, op any, r *boardpb.Result) {
	switch o := op.(type) {
	case *boardpb.Claim:
		for i, key := range o.Keys {
			acc.granted(c, slot{c.Board, key}, o.DurationMs, o.Takeover, r.Results[i])
		}
		if len(o.Keys) > 0 {
			return
		}
		acc.granted(c, slot{c.Board, o.Key}, o.DurationMs, o.Takeover, r)
	case *boardpb.ClaimNext:
		acc.granted(c, slot{c.Board, r.Key}, o.DurationMs, false, r)
	case *boardpb.Heartbeat:
		if w := acc.guarded(c, o.Key, o.Generation, "L2", "heartbeat"); w != nil {
			acc.renew(w, o.ExtendMs)
			acc.sameEnd(w, r)
		}
	case *boardpb.Set:
		acc.fenced(c, o.Fence)
		acc.written(c, o.Key, o.Generation, o.ForClaim, r)
	case *boardpb.Append:
		acc.fenced(c, o.Fence)
		acc.written(c, o.Key, o.Generation, o.ForClaim, r)
	case *boardpb.Delete:
		acc.written(c, o.Key, o.Generation, nil, r)
	case *boardpb.Complete:
		acc.guarded(c, o.Key, o.Generation, "Q2", "complete")
		acc.end(slot{c.Board, o.Key}, "completed")
	case *boardpb.Fail:
		acc.guarded(c, o.Key, o.Generation, "L2", "fail")
		acc.end(slot{c.Board, o.Key}, "failed")
	case *boardpb.Release:
		acc.guarded(c, o.Key, o.Generation, "L2", "release")
		acc.end(slot{c.Board, o.Key}, "released")
	case *boardpb.ForceRelease:
		acc.end(slot{c.Board, o.Key}, "forced")
		acc.raise(slot{c.Board, o.Key}, r.Generation)
	}
}

func (acc *account) raise(s slot, generation uint64) {
	if was := acc.top[s]; generation <= was {
		acc.say("L1", "key %s got generation %d after %d", s.key, generation, was)
	}
	acc.top[s] = max(acc.top[s], generation)
}

func (acc *account) granted(c *boardpb.Command, s slot, duration *int64, takeover bool, r *boardpb.Result) {
	w, me := acc.live[s], c.Actor.GetPrincipal()
	if r.Renewed && w != nil && w.Generation == r.Generation && w.Owner == me && w.Loop == c.Loop {
		acc.renew(w, duration)
		w.letGo, w.grantSeq = false, c.Seq // it is worked on again
		acc.sameEnd(w, r)
		return
	}
	if w != nil && takeover && w.Owner == me {
		acc.end(s, causeTakeover)
	} else if w != nil {
		acc.say("L3", "generation %d of %s was granted to %s at %d, while %s holds generation %d until %d (grace until %d)",
			r.Generation, s.key, me, acc.t, w.Owner, w.Generation, acc.until(w), acc.graceUntil)
		acc.end(s, causeOverlap)
	}
	acc.raise(s, r.Generation)
	acc.tried(s, r)
	w = &Window{Board: s.board, Key: s.key, Generation: r.Generation, Owner: me, Loop: c.Loop,
		Op: history.OpOf(c.CallId), From: acc.t, duration: r.DurationMs, own: acc.t + r.DurationMs, grantSeq: c.Seq, granted: placeOf(acc.at),
		renewals: []renewal{{acc.at, r.DurationMs}}}
	acc.live[s], acc.windows = w, append(acc.windows, w)
	acc.sameEnd(w, r)
}

func (acc *account) renew(w *Window, by *int64) {
	ms := w.duration
	if by != nil {
		ms = *by
	}
	w.own = max(acc.until(w), acc.t+ms)
	w.renewals = append(w.renewals, renewal{acc.at, ms})
}

// sameEnd: an answer that tells when the window ends is held to it.
func (acc *account) sameEnd(w *Window, r *boardpb.Result) {
	if want := acc.until(w); r.ExpiresTMs != 0 && r.ExpiresTMs != want {
		acc.say("L3", "generation %d of %s is said to end at %d; its renewals give %d", w.Generation, w.Key, r.ExpiresTMs, want)
	}
}

// guarded finds the live window that an accepted command names, or says what is wrong.
func (acc *account) guarded(c *boardpb.Command, key string, generation uint64, checker, what string) *Window {
	s, me := slot{c.Board, key}, c.Actor.GetPrincipal()
	w := acc.live[s]
	switch {
	case generation < acc.top[s]:
		acc.say(checker, "a %s of %s under generation %d was accepted after generation %d was granted", what, key, generation, acc.top[s])
	case w == nil:
		acc.say(checker, "a %s of %s under generation %d was accepted, and nobody holds it", what, key, generation)
	case w.Generation != generation || w.Owner != me || w.Loop != c.Loop:
		acc.say(checker, "a %s of %s by %s under generation %d was accepted, and %s holds generation %d", what, key, me, generation, w.Owner, w.Generation)
	default:
		return w
	}
	return nil
}

func (acc *account) written(c *boardpb.Command, key string, generation uint64, partOf *boardpb.LeaseRef, r *boardpb.Result) {
	if partOf != nil {
		if w := acc.live[slot{c.Board, partOf.Key}]; w != nil && w.Generation == partOf.Generation {
			w.partial = append(w.partial, fmt.Sprintf("%s@%d", key, r.Version))
		}
	}
	if generation == 0 {
		return
	}
	if w := acc.guarded(c, key, generation, "L2", "write"); w != nil {
		acc.renew(w, nil)
	}
}

// fenced: what depends on a lease elsewhere is done only under the live one. It renews nothing.
func (acc *account) fenced(c *boardpb.Command, on *boardpb.LeaseRef) {
	if on != nil {
		acc.guarded(c, on.Key, on.Generation, "L2", "write elsewhere")
	}
}

// refused looks at what a fence turned away: the live holder must never be.
func (acc *account) refused(c *boardpb.Command, r *boardpb.Result) {
	acc.saidParked(slot{c.Board, r.Key}, r)
	switch r.Code {
	case boardpb.Code_CODE_STALE_LEASE, boardpb.Code_CODE_LEASE_EXPIRED, boardpb.Code_CODE_NO_LEASE, boardpb.Code_CODE_NOT_HOLDER:
	default:
		return
	}
	w := acc.live[slot{c.Board, r.Key}]
	if w == nil || w.Generation != r.YourGeneration || w.Owner != c.Actor.GetPrincipal() || w.Loop != c.Loop {
		return
	}
	acc.say("L7", "%s holds generation %d of %s until %d (grace until %d) and was answered %s at %d",
		w.Owner, w.Generation, w.Key, acc.until(w), acc.graceUntil, name(r), acc.t)
}

// plainOp is the operation of a command, without its arm.
func plainOp(c *boardpb.Command) any {
	switch o := c.Op.(type) {
	case *boardpb.Command_Set:
		return o.Set
	case *boardpb.Command_Append:
		return o.Append
	case *boardpb.Command_Delete:
		return o.Delete
	case *boardpb.Command_Claim:
		return o.Claim
	case *boardpb.Command_ClaimNext:
		return o.ClaimNext
	case *boardpb.Command_Heartbeat:
		return o.Heartbeat
	case *boardpb.Command_Release:
		return o.Release
	case *boardpb.Command_Complete:
		return o.Complete
	case *boardpb.Command_Fail:
		return o.Fail
	case *boardpb.Command_ForceRelease:
		return o.ForceRelease
	}
	return nil
}

func txnOp(o *boardpb.TxnOp) any {
	switch op := o.Op.(type) {
	case *boardpb.TxnOp_Set:
		return op.Set
	case *boardpb.TxnOp_Append:
		return op.Append
	case *boardpb.TxnOp_Delete:
		return op.Delete
	case *boardpb.TxnOp_Claim:
		return op.Claim
	case *boardpb.TxnOp_Release:
		return op.Release
	case *boardpb.TxnOp_Complete:
		return op.Complete
	case *boardpb.TxnOp_Fail:
		return op.Fail
	}
	return nil
}
