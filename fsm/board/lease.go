package board

import (
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// Claim grants a lease of one key, or answers who has it (SPEC LS-2, LS-3).
func Claim(x *state.Txn, o *boardpb.Claim) *boardpb.Result {
	space, r := leasedSpace(x, o.Key)
	if r != nil {
		return r
	}
	l := x.Lease(o.Key)
	me := callerOf(x)
	switch l.GetState() {
	case held:
		switch {
		case me.holds(l):
			next := renew(x, l, o.DurationMs)
			// It is worked on again: keepalives cover it once this answer is acknowledged.
			next.LetGo, next.GrantSeq = false, x.Command().Seq
			r := granted(x, next)
			r.Renewed = true
			return r
		case o.Takeover && l.Owner == me.principal:
			l = endLease(x, l, free, boardpb.EndedBy_ENDED_BY_TAKEOVER, "")
			emitEnd(x, boardpb.Kind_KIND_RELEASE, l, l.Previous[0])
		default:
			return heldBy(x, l)
		}
	case done:
		return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_DONE, Key: o.Key, Holder: l.Owner, Generation: l.Generation, ResultRef: l.ResultRef}
	case parked:
		return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_NOT_READY, Key: o.Key, Generation: l.Generation, Field: fieldParked, Reason: l.Reason}
	}
	if l != nil && l.FreeTMs > 0 && !x.Passed(l.FreeTMs) {
		return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_NOT_READY, Key: o.Key, Generation: l.Generation,
			RetryAfterMs: x.When(l.FreeTMs) - x.T(), Reason: l.Reason}
	}
	return grant(x, space, o.Key, l, o.DurationMs)
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
	next := &boardpb.Lease{Key: key, Generation: x.FirstGeneration(), Posted: live(x.Entry(key))}
	if old != nil {
		next = state.CloneLease(old)
	}
	ms := space.LeaseDefault()
	if duration != nil {
		ms = *duration
	}
	ev := &boardpb.Event{Kind: boardpb.Kind_KIND_CLAIM, Surface: boardpb.Surface_SURFACE_LEASE, Key: key}
	if old.GetEndedBy() == boardpb.EndedBy_ENDED_BY_EXPIRED {
		ev.Kind, ev.PriorGeneration = boardpb.Kind_KIND_RECLAIM, old.Generation
		if len(old.Previous) > 0 {
			ev.Holder = old.Previous[0].Owner
		}
		x.Counters().Reclaims++
	}
	next.State, next.Owner, next.Loop = held, me.principal, me.loop
	next.Generation++
	next.AcquiredTMs, next.AcquiredWallMs, next.HeartbeatTMs = x.T(), x.Wall(), x.T()
	next.DurationMs, next.ExpiresTMs = ms, x.T()+ms
	next.GrantSeq = x.Command().Seq
	next.LetGo, next.FreeTMs, next.EndedBy, next.Reason, next.ResultRef = false, 0, boardpb.EndedBy_ENDED_BY_UNSPECIFIED, "", ""
	next.EndedTMs, next.EndedWallMs = 0, 0
	next.Attempts++
	next.Rev = x.Rev()
	x.PutLease(next)
	x.Counters().Claims++
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
	x.Emit(&boardpb.Event{Kind: kind, Surface: boardpb.Surface_SURFACE_LEASE, Key: l.Key, Generation: p.Generation,
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
	next.Generation++
	x.PutLease(next)
	x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_FORCE_RELEASE, Surface: boardpb.Surface_SURFACE_LEASE, Key: o.Key,
		Generation: next.Generation, PriorGeneration: l.Generation, Holder: l.Owner, Cause: boardpb.EndedBy_ENDED_BY_FORCED, Reason: o.Reason})
	lastLease(x, l.Loop)
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: o.Key, Generation: next.Generation, Holder: l.Owner}
}

func wrongState(l *boardpb.Lease) *boardpb.Result {
	return &boardpb.Result{Code: boardpb.Code_CODE_WRONG_STATE, Key: l.Key, Field: StateName(l.State), Generation: l.Generation}
}
