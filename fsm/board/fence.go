package board

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/jepsen/planted"
)

const (
	held   = boardpb.LeaseState_LEASE_STATE_HELD
	free   = boardpb.LeaseState_LEASE_STATE_FREE
	parked = boardpb.LeaseState_LEASE_STATE_PARKED
	done   = boardpb.LeaseState_LEASE_STATE_DONE
)

// EffectiveExpiry is when a held lease ends in board time: its own expiry, or what the
// keepalive of its loop reaches, if that one covered it (SPEC F-13): the grant had been
// acknowledged when the keepalive was sent, and the work has not been let go.
func EffectiveExpiry(l *boardpb.Lease, loop *boardpb.Loop) int64 {
	if loop == nil || loop.RenewedTMs == 0 || l.LetGo || l.GrantSeq >= loop.RenewedFloor && l.GrantSeq != 0 {
		return l.ExpiresTMs
	}
	return max(l.ExpiresTMs, loop.RenewedTMs+l.DurationMs)
}

// caller is whom a command is from, as far as leases care.
type caller struct{ principal, loop string }

func callerOf(x *state.Txn) caller {
	c := x.Command()
	return caller{state.Principal(c.Actor), c.Loop}
}

func (c caller) holds(l *boardpb.Lease) bool {
	return l.State == held && l.Owner == c.principal && l.Loop == c.loop
}

// spaceOf returns the namespace of a key, or the refusal.
func spaceOf(x *state.Txn, key string) (*state.Space, *boardpb.Result) {
	if space := x.Schema().Find(key); space != nil {
		return space, nil
	}
	return nil, &boardpb.Result{Code: boardpb.Code_CODE_UNDECLARED_NAMESPACE, Key: key}
}

func wrongMode(space *state.Space, key string) *boardpb.Result {
	return &boardpb.Result{Code: boardpb.Code_CODE_WRONG_MODE, Key: key, Namespace: space.Pattern.String(), Field: ModeName(space.Mode)}
}

func leasedSpace(x *state.Txn, key string) (*state.Space, *boardpb.Result) {
	space, r := spaceOf(x, key)
	if r == nil && space.Mode != boardpb.Mode_MODE_LEASED {
		return nil, wrongMode(space, key)
	}
	return space, r
}

// fence is the one check of a generation (SPEC LS-5, LS-6): the record decides, never an
// entry. What the command names was expired before, if due, so a held lease is a live one.
func fence(x *state.Txn, key string, generation uint64) (*boardpb.Lease, *boardpb.Result) {
	l := x.Lease(key)
	current := x.FirstGeneration(key)
	if l != nil {
		current = l.Generation
	}
	refuse := func(code boardpb.Code) (*boardpb.Lease, *boardpb.Result) {
		r := &boardpb.Result{Code: code, Key: key, YourGeneration: generation, Generation: current}
		if l != nil {
			r.Holder = l.Owner
		}
		return nil, r
	}
	switch {
	case generation == 0:
		return refuse(boardpb.Code_CODE_NO_LEASE)
	case planted.Bug("M1") && l.GetState() == held: // the generation is not checked
		return l, nil
	case generation > current:
		_, r := refuse(boardpb.Code_CODE_BAD_REQUEST)
		r.Field = fieldGeneration
		return nil, r
	case generation < current || l == nil:
		return refuse(boardpb.Code_CODE_STALE_LEASE)
	case l.State == held && callerOf(x).holds(l):
		return l, nil
	case l.State == held:
		return refuse(boardpb.Code_CODE_NOT_HOLDER)
	case l.State == free && l.EndedBy == boardpb.EndedBy_ENDED_BY_EXPIRED:
		return refuse(boardpb.Code_CODE_LEASE_EXPIRED)
	}
	return refuse(boardpb.Code_CODE_NO_LEASE)
}

// otherFence is SPEC X-4: a write anywhere, conditional on a live lease of the caller.
func otherFence(x *state.Txn, ref *boardpb.LeaseRef) *boardpb.Result {
	if ref == nil {
		return nil
	}
	if _, r := leasedSpace(x, ref.Key); r != nil {
		return r
	}
	_, r := fence(x, ref.Key, ref.Generation)
	return r
}

// renew extends a live lease by its own duration, or by the given one, and never shortens it.
func renew(x *state.Txn, l *boardpb.Lease, extend *int64) *boardpb.Lease {
	next := state.CloneLease(l)
	by := l.DurationMs
	if extend != nil {
		by = *extend
	}
	next.ExpiresTMs = max(EffectiveExpiry(l, x.Loop(l.Loop)), x.T()+by)
	next.HeartbeatTMs = x.T()
	x.PutLease(next)
	return next
}

// endLease ends a live lease: the item is free again unless state says otherwise, the
// next claimant finds what this one left, and a holder who did not end it is told.
func endLease(x *state.Txn, l *boardpb.Lease, to boardpb.LeaseState, cause boardpb.EndedBy, reason string) *boardpb.Lease {
	next := state.CloneLease(l)
	next.State, next.EndedBy, next.Reason = to, cause, reason
	switch {
	case x.Entry(l.Key).GetDeleted():
		next.Attempts = 0 // the item is gone: what is posted under its key next is new work
	case to == free && exhausted(x, l, cause):
		next.State, next.Reason = parked, parkReason(l, cause, reason)
		x.Counters().Parks++
	}
	next.EndedTMs, next.EndedWallMs, next.Rev = x.T(), x.Wall(), x.Rev()
	next.FreeTMs, next.LetGo = 0, false
	next.Previous = append([]*boardpb.Previous{{
		Owner: l.Owner, Loop: l.Loop, Generation: l.Generation, EndedBy: cause, Reason: reason,
		PartialRefs: l.PartialRefs, EndedTMs: x.T(), EndedWallMs: x.Wall(),
	}}, l.Previous[:min(len(l.Previous), state.MaxPrevious-1)]...)
	next.PartialRefs = nil
	if e := x.Entry(l.Key); planted.Bug("M31") && e.GetDeleted() { // the bug: with the item goes its number
		next.Generation = 0
	}
	if to != done {
		next.Owner, next.Loop = "", ""
	}
	x.PutLease(next)
	switch cause {
	case boardpb.EndedBy_ENDED_BY_EXPIRED, boardpb.EndedBy_ENDED_BY_TAKEOVER, boardpb.EndedBy_ENDED_BY_FORCED:
		tell(x, l, cause)
	}
	return next
}

// exhausted tells whether an item that is given back was granted as often as its namespace
// allows (SPEC LS-17). An operator's force_release and a takeover give nothing back.
func exhausted(x *state.Txn, l *boardpb.Lease, cause boardpb.EndedBy) bool {
	switch cause {
	case boardpb.EndedBy_ENDED_BY_EXPIRED, boardpb.EndedBy_ENDED_BY_FAILED,
		boardpb.EndedBy_ENDED_BY_RELEASED, boardpb.EndedBy_ENDED_BY_LOOP_CLOSED:
		space := x.Schema().Find(l.Key)
		return space != nil && space.MaxAttempts > 0 && l.Attempts >= space.MaxAttempts
	}
	return false
}

// parkReason says how often an item was tried and how the last attempt ended; what its
// worker said of that comes behind it, so it is shown as what a worker wrote.
func parkReason(l *boardpb.Lease, cause boardpb.EndedBy, said string) string {
	why := lastAttempt(l, cause)
	if said != "" {
		why += ": " + said
	}
	if len(why) > state.MaxText {
		why = strings.ToValidUTF8(why[:state.MaxText], "")
	}
	return why
}

// lastAttempt is the part of it that the board itself says.
func lastAttempt(l *boardpb.Lease, cause boardpb.EndedBy) string {
	return fmt.Sprintf("attempt %d ended: %s", l.Attempts, EndName(cause))
}

// lastLease ends a loop that was kept only by the lease that others, or time, just ended.
// It comes after the event of the lease, which is its cause.
func lastLease(x *state.Txn, loop string) {
	if l := x.Loop(loop); l != nil && l.State == inactive && l.Holds == 0 {
		endLoop(x, l, "silent")
	}
}

// tell leaves a note for the loop that lost a lease (SPEC LS-20).
func tell(x *state.Txn, l *boardpb.Lease, cause boardpb.EndedBy) {
	old := x.Loop(l.Loop)
	if old == nil {
		return
	}
	loop := state.CloneLoop(old)
	loop.Untold = append(slices.Clone(loop.Untold), &boardpb.Ended{
		Key: l.Key, Generation: l.Generation, Cause: cause, TMs: x.T(), WallMs: x.Wall(),
	})
	if n := len(loop.Untold); n > state.MaxUntold {
		loop.Untold = loop.Untold[n-state.MaxUntold:]
	}
	x.PutLoop(loop)
}

// addPartial notes what a worker stored under a claim, live or ended (SPEC LS-11), and
// tells whether the claim had ended.
func addPartial(x *state.Txn, ref *boardpb.LeaseRef, stored string) (late bool) {
	l := x.Lease(ref.Key)
	if l.State == held && l.Generation == ref.Generation {
		if len(l.PartialRefs) < state.MaxPartialRefs {
			next := state.CloneLease(l)
			next.PartialRefs, next.Rev = append(slices.Clone(l.PartialRefs), stored), x.Rev()
			x.PutLease(next)
		}
		return false
	}
	for i, p := range l.Previous {
		if p.Generation != ref.Generation || len(p.PartialRefs) >= state.MaxPartialRefs {
			continue
		}
		next := state.CloneLease(l)
		next.Previous, next.Rev = slices.Clone(l.Previous), x.Rev()
		next.Previous[i] = state.ClonePrevious(p)
		next.Previous[i].PartialRefs = append(slices.Clone(p.PartialRefs), stored)
		x.PutLease(next)
	}
	return true
}

// checkPartial refuses a for_claim that names a grant the caller never had.
func checkPartial(x *state.Txn, ref *boardpb.LeaseRef) *boardpb.Result {
	if ref == nil {
		return nil
	}
	if _, r := leasedSpace(x, ref.Key); r != nil {
		return r
	}
	l := x.Lease(ref.Key)
	if l == nil || ref.Generation > l.Generation {
		return &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Key: ref.Key, Field: fieldGeneration,
			YourGeneration: ref.Generation, Generation: l.GetGeneration()}
	}
	owner := ""
	if l.Generation == ref.Generation && l.State == held {
		owner = l.Owner
	}
	for _, p := range l.Previous {
		if p.Generation == ref.Generation {
			owner = p.Owner
		}
	}
	forced := owner == "" && ref.Generation == l.Generation // a force_release takes one that is nobody's
	if me := callerOf(x).principal; forced || owner != "" && owner != me {
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_HOLDER, Key: ref.Key, YourGeneration: ref.Generation,
			Generation: l.Generation, Holder: owner}
	}
	return nil
}

// refOf names one version of a key.
func refOf(key string, version uint64) string {
	return string(strconv.AppendUint(append(make([]byte, 0, 96), key+"@"...), version, 10))
}
