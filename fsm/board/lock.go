package board

import (
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// The lock of a phase is a lease without an item (SPEC PH-6): what grants, fences, renews and
// expires leases does it here too, so generations and keepalives are the same.

// Lock grants a lock, or renews it for the loop that holds it, or answers who does.
func Lock(x *state.Txn, key string, duration *int64) *boardpb.Result {
	l := x.Lease(key)
	if l.GetState() == held {
		if !callerOf(x).holds(l) {
			return heldBy(x, l)
		}
		next := renew(x, l, duration)
		next.LetGo, next.GrantSeq = false, x.Command().Seq
		r := granted(x, next)
		r.Renewed = true
		return plainLock(r)
	}
	space := &state.Space{Namespace: &boardpb.Namespace{LeaseMs: state.DefaultPhaseMs}}
	return plainLock(grant(x, space, key, l, duration))
}

// plainLock leaves out what only items have.
func plainLock(r *boardpb.Result) *boardpb.Result {
	r.Attempts, r.Previous = 0, nil
	return r
}

// RenewLock extends a live lock of the caller.
func RenewLock(x *state.Txn, key string, generation uint64, extend *int64) *boardpb.Result {
	l, r := fence(x, key, generation)
	if r != nil {
		return r
	}
	return plainLock(granted(x, renew(x, l, extend)))
}

// Unlock ends a live lock of the caller.
func Unlock(x *state.Txn, key string, generation uint64) *boardpb.Result {
	l, r := fence(x, key, generation)
	if r != nil {
		return r
	}
	l = endLease(x, l, free, boardpb.EndedBy_ENDED_BY_RELEASED, "")
	emitEnd(x, boardpb.Kind_KIND_RELEASE, l, l.Previous[0])
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: key, Generation: generation}
}

// HoldsLock tells the generation that the caller holds, 0 if nobody holds the lock. It
// refuses a generation that is not the live one, and answers who else holds it.
func HoldsLock(x *state.Txn, key string, generation uint64) (live uint64, r *boardpb.Result) {
	if generation > 0 {
		l, r := fence(x, key, generation)
		return l.GetGeneration(), r
	}
	l := x.Lease(key)
	switch {
	case l.GetState() != held:
		return 0, nil
	case callerOf(x).holds(l):
		return l.Generation, nil
	}
	return 0, heldBy(x, l)
}

// PassLock takes a free lock and gives it back in the same commit: its generation fences
// every earlier holder. It returns the generation, or a refusal.
func PassLock(x *state.Txn, key string) (generation uint64, r *boardpb.Result) {
	next := &boardpb.Lease{Key: key, State: free, Generation: x.FirstGeneration(key)}
	if l := x.Lease(key); l != nil {
		next = state.CloneLease(l)
	} else if !x.MakeRoom(key, state.LeaseBytes) {
		return 0, fullBoard(x, key, state.LeaseBytes)
	}
	next.Generation = x.NextGeneration(key, next.Generation)
	next.EndedBy, next.EndedTMs, next.EndedWallMs, next.Rev = boardpb.EndedBy_ENDED_BY_RELEASED, x.T(), x.Wall(), x.Rev()
	x.PutLease(next)
	return next.Generation, nil
}

// Caller is whom a command is from.
func Caller(x *state.Txn) string { return callerOf(x).principal }

// FitsBoard refuses data above the board's limit of a value, or that the board has no room for.
func FitsBoard(x *state.Txn, key string, data []byte) *boardpb.Result {
	limit := x.Settings().GetMaxValueBytes()
	if limit == 0 {
		limit = state.DefaultValueBytes
	}
	if n := uint64(len(data)); n > limit {
		return &boardpb.Result{Code: boardpb.Code_CODE_TOO_LARGE, Key: key, Got: n, Limit: limit}
	}
	return RoomFor(x, key, state.PhaseBytes(&boardpb.PhaseData{Data: data})+state.MaxSegmentBytes+state.MaxPrincipal)
}

// RoomFor refuses what the board has no room for.
func RoomFor(x *state.Txn, key string, need uint64) *boardpb.Result {
	if x.MakeRoom(key, need) {
		return nil
	}
	return fullBoard(x, key, need)
}
