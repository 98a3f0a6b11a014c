package board

import (
	"fmt"
	"slices"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

const (
	active   = boardpb.LoopState_LOOP_STATE_ACTIVE
	inactive = boardpb.LoopState_LOOP_STATE_INACTIVE
	ended    = boardpb.LoopState_LOOP_STATE_ENDED
)

// LoopOpen issues a loop, or returns the living one that the same nonce opened (SPEC F-13).
func LoopOpen(x *state.Txn, o *boardpb.LoopOpen) *boardpb.Result {
	principal := state.Principal(x.Command().Actor)
	if o.Nonce != "" {
		if l := x.LoopByNonce(principal, o.Nonce); l != nil {
			next := state.CloneLoop(l)
			next.LastTMs = x.T()
			wake(x, next)
			x.PutLoop(next)
			return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Loop: l.Id, TtlMs: l.TtlMs, Renewed: true}
		}
	}
	if n := x.LoopCount(); n >= state.MaxLoops {
		return &boardpb.Result{Code: boardpb.Code_CODE_LIMIT_LOOPS, Got: uint64(n), Limit: state.MaxLoops}
	}
	if o.ParentLoop != "" {
		switch parent := x.Loop(o.ParentLoop); {
		case parent == nil:
			return &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Loop: o.ParentLoop}
		case parent.Principal != principal:
			return &boardpb.Result{Code: boardpb.Code_CODE_FORBIDDEN, Loop: o.ParentLoop, Field: fieldLoop}
		}
	}
	ttl := o.TtlMs
	if ttl == 0 {
		ttl = state.DefaultLoopTTLMs
	}
	l := &boardpb.Loop{
		Id: newLoopID(x), Principal: principal, Nonce: o.Nonce, Parent: o.ParentLoop, Label: o.Label,
		TtlMs: ttl, OpenedTMs: x.T(), OpenedWallMs: x.Wall(), LastTMs: x.T(), CheckTMs: x.T() + ttl,
		Floor: 1, State: active,
	}
	x.PutLoop(l)
	x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_LOOP_OPEN, Surface: boardpb.Surface_SURFACE_LOOP, Holder: principal, Loop: l.Id, Label: o.Label})
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Loop: l.Id, TtlMs: ttl}
}

// newLoopID makes an id of the leader's random bits; no id is issued twice while it is
// remembered.
func newLoopID(x *state.Txn) string {
	for n := x.Command().Entropy; ; n++ {
		if id := fmt.Sprintf("l-%016x", n); x.Loop(id) == nil {
			return id
		}
	}
}

// LoopKeepalive renews loops of one principal and what they hold. One record per loop is
// written; it takes no rev and no event.
func LoopKeepalive(x *state.Txn, o *boardpb.LoopKeepalive) *boardpb.Result {
	me := state.Principal(x.Command().Actor)
	out := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK}
	for _, ref := range o.LetGo {
		letGo(x, me, ref)
	}
	for _, renewal := range o.Loops {
		s := &boardpb.LoopStatus{Loop: renewal.Loop}
		switch l := x.Loop(renewal.Loop); {
		case l == nil:
			s.Code = boardpb.Code_CODE_NOT_FOUND
		case l.Principal != me:
			s.Code = boardpb.Code_CODE_FORBIDDEN
		case l.State == ended:
			s.Code, s.State = boardpb.Code_CODE_LOOP_ENDED, ended
		default:
			next := raiseFloor(x, l, renewal.Floor)
			next.RenewedTMs, next.RenewedFloor = x.T(), next.Floor
			s.State = active
			wake(x, next)
			x.PutLoop(next)
			if l.Id != x.Command().Loop { // the calling loop is told with every answer
				out.Ended = append(out.Ended, next.Untold...)
			}
		}
		out.Loops = append(out.Loops, s)
	}
	return out
}

// letGo takes a lease out of what keepalives cover: the work under it has ended.
func letGo(x *state.Txn, me string, ref *boardpb.LeaseRef) {
	l := x.Lease(ref.Key)
	if l == nil || l.State != held || l.Generation != ref.Generation || l.Owner != me || l.LetGo {
		return
	}
	next := state.CloneLease(l)
	next.ExpiresTMs, next.LetGo = EffectiveExpiry(l, x.Loop(l.Loop)), true
	x.PutLease(next)
}

// wake makes a loop live from now for its ttl. A loop that is checked for already keeps
// that check: it is a lower bound, and is moved when it comes.
func wake(x *state.Txn, l *boardpb.Loop) {
	l.State = active
	if l.CheckTMs == 0 {
		l.CheckTMs = x.T() + l.TtlMs
	}
}

// raiseFloor returns a copy of the loop with the floor raised; what lies below is
// forgotten, and so are endings that an answer below the floor has told.
func raiseFloor(x *state.Txn, l *boardpb.Loop, floor uint64) *boardpb.Loop {
	next := state.CloneLoop(l)
	if floor <= l.Floor {
		return next
	}
	for seq := l.Floor; seq < min(floor, l.Floor+state.InFlight); seq++ {
		if id := windowID(l.Id, seq); x.Kept(id) != nil {
			x.DropKept(id)
		}
	}
	next.Floor = floor
	told := func(e *boardpb.Ended) bool { return e.ToldSeq > 0 && e.ToldSeq < floor }
	if slices.ContainsFunc(next.Untold, told) {
		next.Untold = slices.DeleteFunc(slices.Clone(next.Untold), told)
	}
	return next
}

// LoopClose ends a loop at once and frees what it holds.
func LoopClose(x *state.Txn, o *boardpb.LoopClose) *boardpb.Result {
	id := o.Loop
	if id == "" {
		id = x.Command().Loop
	}
	l := x.Loop(id)
	switch {
	case l == nil:
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Loop: id}
	case l.Principal != state.Principal(x.Command().Actor):
		return &boardpb.Result{Code: boardpb.Code_CODE_FORBIDDEN, Loop: id, Field: fieldLoop}
	case l.State == ended:
		return &boardpb.Result{Code: boardpb.Code_CODE_LOOP_ENDED, Loop: id}
	}
	for _, key := range x.Holdings(id, state.MaxLeases, false) {
		if lease := x.Lease(key); lease.State == held && lease.Loop == id {
			lease = endLease(x, lease, free, boardpb.EndedBy_ENDED_BY_LOOP_CLOSED, "")
			emitEnd(x, boardpb.Kind_KIND_RELEASE, lease, lease.Previous[0])
		}
	}
	if l = x.Loop(id); l.State != ended {
		endLoop(x, l, "closed")
	}
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Loop: id}
}

// endLoop ends a loop. Its window is kept for an hour, so that a retry of what was
// applied still gets its first answer.
func endLoop(x *state.Txn, l *boardpb.Loop, why string) {
	next := state.CloneLoop(l)
	next.State, next.EndedTMs, next.EndedWallMs, next.EndedWhy = ended, x.T(), x.Wall(), why
	next.CheckTMs = x.T() + state.EndedKeptMs
	x.PutLoop(next)
	kind := boardpb.Kind_KIND_LOOP_END
	if why == "closed" {
		kind = boardpb.Kind_KIND_LOOP_CLOSE
	}
	x.Emit(&boardpb.Event{Kind: kind, Surface: boardpb.Surface_SURFACE_LOOP, Holder: l.Principal, Loop: l.Id, Label: l.Label, Reason: why})
}
