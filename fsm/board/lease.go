package board

import (
	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// Claim grants a lease of one key, or answers who has it (SPEC LS-2, LS-3); or of several
// keys, all or none (LS-14).
func Claim(x *state.Txn, o *boardpb.Claim) *boardpb.Result {
	if len(o.Keys) > 0 {
		return claimAll(x, o)
	}
	space, r := leasedSpace(x, o.Key)
	if r == nil {
		r = obstacle(x, o.Key, o.Takeover)
	}
	if r != nil {
		return r
	}
	return take(x, space, o.Key, o)
}

// obstacle answers why a key cannot be granted to the caller, or nil.
func obstacle(x *state.Txn, key string, takeover bool) *boardpb.Result {
	l := x.Lease(key)
	me := callerOf(x)
	switch l.GetState() {
	case held:
		if me.holds(l) || takeover && l.Owner == me.principal {
			return nil
		}
		return heldBy(x, l)
	case done:
		return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_DONE, Key: key, Holder: l.Owner, Generation: l.Generation, ResultRef: l.ResultRef}
	case parked:
		return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_NOT_READY, Key: key, Generation: l.Generation, Field: fieldParked, Reason: l.Reason}
	}
	if l != nil && l.FreeTMs > 0 && !x.Passed(l.FreeTMs) {
		return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_NOT_READY, Key: key, Generation: l.Generation,
			RetryAfterMs: x.When(l.FreeTMs) - x.T(), Reason: l.Reason}
	}
	return nil
}

// take grants a key that nothing is in the way of: a live lease of the caller is renewed,
// one of another loop of its principal ends.
func take(x *state.Txn, space *state.Space, key string, o *boardpb.Claim) *boardpb.Result {
	l := x.Lease(key)
	if l.GetState() != held {
		return grant(x, space, key, l, o.DurationMs)
	}
	if callerOf(x).holds(l) {
		next := renew(x, l, o.DurationMs)
		// It is worked on again: keepalives cover it once this answer is acknowledged.
		next.LetGo, next.GrantSeq = false, x.Command().Seq
		r := granted(x, next)
		r.Renewed = true
		return r
	}
	l = endLease(x, l, free, boardpb.EndedBy_ENDED_BY_TAKEOVER, "")
	emitEnd(x, boardpb.Kind_KIND_RELEASE, l, l.Previous[0])
	return grant(x, space, key, l, o.DurationMs)
}

// claimAll grants all keys or none: what is in the way of the first is answered, and which
// others there is something in the way of.
func claimAll(x *state.Txn, o *boardpb.Claim) *boardpb.Result {
	var first *boardpb.Result
	var inTheWay []string
	for _, key := range o.Keys {
		_, r := leasedSpace(x, key)
		if r == nil {
			r = obstacle(x, key, o.Takeover)
		}
		if r != nil {
			inTheWay = append(inTheWay, key)
			if first == nil {
				first = r
			}
		}
	}
	if first != nil {
		first.InTheWay = inTheWay
		return first
	}
	out := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK}
	size := 0
	for _, key := range o.Keys {
		r := take(x, x.Schema().Find(key), key, o)
		if r.Outcome != boardpb.Outcome_OUTCOME_OK { // the loop, or the board, is full
			return r
		}
		size = spare(r, size)
		out.Results = append(out.Results, r)
	}
	return out
}

// spare leaves the value and the past of a grant out of an answer that would not hold them.
func spare(r *boardpb.Result, size int) int {
	more := len(r.Value)
	for _, p := range r.Previous {
		more += proto.Size(p)
	}
	if size+more > state.MaxTxnValues {
		r.Value, r.ValueGone, r.Previous = nil, len(r.Value) > 0, nil
		return size
	}
	return size + more
}

func heldBy(x *state.Txn, l *boardpb.Lease) *boardpb.Result {
	expires := EffectiveExpiry(l, x.Loop(l.Loop))
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_HELD, Key: l.Key, Holder: l.Owner, HolderLoop: l.Loop,
		Generation: l.Generation, ExpiresTMs: expires, ExpiresInMs: max(0, expires-x.T())}
}

// grant gives the next generation of a free key to the caller.
func grant(x *state.Txn, space *state.Space, key string, old *boardpb.Lease, duration *int64) *boardpb.Result {
	me := callerOf(x)
	loop := x.Loop(me.loop)
	if loop.GetHolds() >= state.MaxLeases {
		return &boardpb.Result{Code: boardpb.Code_CODE_LIMIT_LEASES, Key: key, Got: uint64(loop.GetHolds()), Limit: state.MaxLeases}
	}
	if old == nil && !x.MakeRoom(key, state.LeaseBytes) {
		return fullBoard(x, key, state.LeaseBytes)
	}
	next := &boardpb.Lease{Key: key, Generation: x.FirstGeneration(key), Posted: live(x.Entry(key))}
	if old != nil {
		next = state.CloneLease(old)
	}
	ms := x.LeaseDefault(space)
	if duration != nil {
		ms = *duration
	}
	ev := &boardpb.Event{Kind: boardpb.Kind_KIND_CLAIM, Surface: boardpb.Surface_SURFACE_LEASE, Key: key}
	_, lock := state.PhaseOf(key)
	if lock {
		ev.Kind, ev.Surface = boardpb.Kind_KIND_PHASE_LOCK, boardpb.Surface_SURFACE_PHASE
	} else if old.GetEndedBy() == boardpb.EndedBy_ENDED_BY_EXPIRED {
		ev.Kind, ev.PriorGeneration = boardpb.Kind_KIND_RECLAIM, old.Generation
		if len(old.Previous) > 0 {
			ev.Holder = old.Previous[0].Owner
		}
		x.Counters().Reclaims++
		x.Use(key, func(u *boardpb.Usage) { u.Reclaims++ })
	}
	next.State, next.Owner, next.Loop = held, me.principal, me.loop
	next.Generation = x.NextGeneration(key, next.Generation)
	next.AcquiredTMs, next.AcquiredWallMs, next.HeartbeatTMs = x.T(), x.Wall(), x.T()
	next.DurationMs, next.ExpiresTMs = ms, x.T()+ms
	next.GrantSeq = x.Command().Seq
	next.LetGo, next.FreeTMs, next.EndedBy, next.Reason, next.ResultRef = false, 0, boardpb.EndedBy_ENDED_BY_UNSPECIFIED, "", ""
	next.EndedTMs, next.EndedWallMs = 0, 0
	next.Attempts++
	next.Rev = x.Rev()
	x.PutLease(next)
	if !lock {
		x.Counters().Claims++
	}
	ev.Generation = next.Generation
	x.Emit(ev)
	return granted(x, next)
}

func granted(x *state.Txn, l *boardpb.Lease) *boardpb.Result {
	expires := EffectiveExpiry(l, x.Loop(l.Loop))
	r := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: l.Key, Generation: l.Generation, DurationMs: l.DurationMs,
		ExpiresTMs: expires, ExpiresInMs: expires - x.T(), Attempts: l.Attempts, Previous: l.Previous}
	if e := x.Entry(l.Key); live(e) {
		describe(r, e)
	}
	return r
}

// emitEnd reports how a grant ended, and whose it was; an item that is parked with it is
// the orchestrator's to look at.
func emitEnd(x *state.Txn, kind boardpb.Kind, l *boardpb.Lease, p *boardpb.Previous) {
	surface := boardpb.Surface_SURFACE_LEASE
	if _, lock := state.PhaseOf(l.Key); lock {
		surface = boardpb.Surface_SURFACE_PHASE
		if kind == boardpb.Kind_KIND_RELEASE {
			kind = boardpb.Kind_KIND_PHASE_UNLOCK
		}
	}
	x.Emit(&boardpb.Event{Kind: kind, Surface: surface, Key: l.Key, Generation: p.Generation,
		Holder: p.Owner, Cause: p.EndedBy})
	if l.State == parked {
		x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_PARK, Surface: boardpb.Surface_SURFACE_LEASE, Key: l.Key, Generation: p.Generation,
			Holder: p.Owner, Cause: p.EndedBy, Reason: lastAttempt(l, p.EndedBy), To: orchestratorRole})
	}
	if p.EndedBy == boardpb.EndedBy_ENDED_BY_EXPIRED || p.EndedBy == boardpb.EndedBy_ENDED_BY_TAKEOVER {
		lastLease(x, p.Loop)
	}
}

// Heartbeat extends the caller's live lease. It takes no rev and no event (SPEC F-32).
func Heartbeat(x *state.Txn, o *boardpb.Heartbeat) *boardpb.Result {
	if _, r := leasedSpace(x, o.Key); r != nil {
		return r
	}
	l, r := fence(x, o.Key, o.Generation)
	if r != nil {
		return r
	}
	next := renew(x, l, o.ExtendMs)
	r = granted(x, next)
	r.Value, r.Author, r.AuthorWallMs, r.Previous = nil, "", 0, nil // the caller has them
	return r
}

// Release gives a key back; its generation stays.
func Release(x *state.Txn, o *boardpb.Release) *boardpb.Result {
	if _, r := leasedSpace(x, o.Key); r != nil {
		return r
	}
	l, r := fence(x, o.Key, o.Generation)
	if r != nil {
		return r
	}
	l = endLease(x, l, free, boardpb.EndedBy_ENDED_BY_RELEASED, "")
	emitEnd(x, boardpb.Kind_KIND_RELEASE, l, l.Previous[0])
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: o.Key, Generation: o.Generation}
}

// Complete ends an item: its result and its state change in one commit (SPEC LS-8, LS-18).
func Complete(x *state.Txn, o *boardpb.Complete) *boardpb.Result {
	if _, r := leasedSpace(x, o.Key); r != nil {
		return r
	}
	if o.ResultsKey != "" {
		if r := resultsAllowed(x, o.ResultsKey); r != nil {
			return r
		}
	}
	l, r := fence(x, o.Key, o.Generation)
	if r != nil {
		return r
	}
	out := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: o.Key, Generation: o.Generation}
	if o.Result != nil {
		stored := storeResult(x, o)
		if stored.Outcome != boardpb.Outcome_OUTCOME_OK {
			return stored
		}
		out.Version, out.ResultRef = stored.Version, resultRef(o, stored.Version)
		l = x.Lease(o.Key)
	}
	to := done
	if e := x.Entry(o.Key); e != nil && e.Deleted {
		to = free // its holder deleted the item: posting it again is new work
	}
	next := state.CloneLease(endLease(x, l, to, boardpb.EndedBy_ENDED_BY_COMPLETED, ""))
	next.ResultRef = out.ResultRef
	x.PutLease(next)
	x.Counters().Completes++
	x.Use(o.Key, func(u *boardpb.Usage) { state.Worked(u, x.T()-l.AcquiredTMs) })
	x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_COMPLETE, Surface: boardpb.Surface_SURFACE_LEASE, Key: o.Key,
		Generation: o.Generation, Version: x.Entry(o.Key).GetVersion(), Cause: boardpb.EndedBy_ENDED_BY_COMPLETED, Holder: l.Owner})
	return out
}

// resultRef names where the result of an item went; version 0 is no result.
func resultRef(o *boardpb.Complete, version uint64) string {
	if version == 0 {
		return ""
	}
	return refOf(firstOfAll(o.ResultsKey, o.Key), version)
}

// resultsAllowed: a result goes to an owned key of the caller.
func resultsAllowed(x *state.Txn, key string) *boardpb.Result {
	space, r := spaceOf(x, key)
	if r != nil {
		return r
	}
	if space.Mode != boardpb.Mode_MODE_OWNED {
		return wrongMode(space, key)
	}
	return ownerOnly(space, key, x.Command().Actor)
}

func storeResult(x *state.Txn, o *boardpb.Complete) *boardpb.Result {
	w := write{key: o.ResultsKey, value: o.Result, overwrite: true, always: true, cites: o.Cites,
		forClaim: &boardpb.LeaseRef{Key: o.Key, Generation: o.Generation}}
	if w.key == "" {
		w.key, w.generation, w.forClaim = o.Key, o.Generation, nil
	}
	return put(x, w)
}

// Fail gives an item back with a reason; it may be claimed again after a while.
func Fail(x *state.Txn, o *boardpb.Fail) *boardpb.Result {
	if _, r := leasedSpace(x, o.Key); r != nil {
		return r
	}
	l, r := fence(x, o.Key, o.Generation)
	if r != nil {
		return r
	}
	l = endLease(x, l, free, boardpb.EndedBy_ENDED_BY_FAILED, o.Reason)
	if o.RetryAfterMs > 0 && l.State == free {
		next := state.CloneLease(l)
		next.FreeTMs = x.T() + o.RetryAfterMs
		x.PutLease(next)
	}
	emitEnd(x, boardpb.Kind_KIND_FAIL, l, l.Previous[0])
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: o.Key, Generation: o.Generation, RetryAfterMs: o.RetryAfterMs}
}

// Reopen makes a done item claimable again.
func Reopen(x *state.Txn, o *boardpb.Reopen) *boardpb.Result {
	if _, r := leasedSpace(x, o.Key); r != nil {
		return r
	}
	l := x.Lease(o.Key)
	if l == nil {
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Key: o.Key}
	}
	if l.State != done {
		return wrongState(l)
	}
	next := state.CloneLease(l)
	next.State, next.EndedBy, next.Owner, next.Loop, next.ResultRef = free, boardpb.EndedBy_ENDED_BY_REOPENED, "", "", ""
	next.Rev = x.Rev()
	x.PutLease(next)
	x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_REOPEN, Surface: boardpb.Surface_SURFACE_LEASE, Key: o.Key, Generation: l.Generation, Holder: l.Owner})
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: o.Key, Generation: l.Generation}
}

// Unpark makes a parked item claimable again, with all its attempts (SPEC LS-17).
func Unpark(x *state.Txn, o *boardpb.Unpark) *boardpb.Result {
	if _, r := leasedSpace(x, o.Key); r != nil {
		return r
	}
	l := x.Lease(o.Key)
	if l == nil {
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Key: o.Key}
	}
	if l.State != parked {
		return wrongState(l)
	}
	next := state.CloneLease(l)
	next.State, next.EndedBy, next.Reason, next.Attempts = free, boardpb.EndedBy_ENDED_BY_REOPENED, "", 0
	next.Rev = x.Rev()
	x.PutLease(next)
	x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_UNPARK, Surface: boardpb.Surface_SURFACE_LEASE, Key: o.Key, Generation: l.Generation})
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: o.Key, Generation: l.Generation}
}

// ForceRelease fences a holder out: the generation rises and the key is free (SPEC LS-9).
func ForceRelease(x *state.Txn, o *boardpb.ForceRelease) *boardpb.Result {
	if _, r := leasedSpace(x, o.Key); r != nil {
		return r
	}
	l := x.Lease(o.Key)
	if l == nil {
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Key: o.Key}
	}
	if l.State != held {
		return wrongState(l)
	}
	next := state.CloneLease(endLease(x, l, free, boardpb.EndedBy_ENDED_BY_FORCED, o.Reason))
	next.Generation = x.NextGeneration(o.Key, next.Generation)
	x.PutLease(next)
	x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_FORCE_RELEASE, Surface: boardpb.Surface_SURFACE_LEASE, Key: o.Key,
		Generation: next.Generation, PriorGeneration: l.Generation, Holder: l.Owner, Cause: boardpb.EndedBy_ENDED_BY_FORCED, Reason: o.Reason})
	lastLease(x, l.Loop)
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: o.Key, Generation: next.Generation, Holder: l.Owner}
}

func wrongState(l *boardpb.Lease) *boardpb.Result {
	return &boardpb.Result{Code: boardpb.Code_CODE_WRONG_STATE, Key: l.Key, Field: StateName(l.State), Generation: l.Generation}
}
