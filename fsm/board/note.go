package board

import (
	"slices"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/jepsen/planted"
)

// orchestratorRole is who is told of what workers could not settle among themselves.
const orchestratorRole = "role:orchestrator"

// Refused leaves what a refusal decided by state leaves behind (SPEC F-21): counters,
// the run of conflicts, and a note in the feed, at most ten per second and principal.
// Everything the operation had staged must have been discarded before.
func Refused(x *state.Txn, r *boardpb.Result) {
	n := x.Counters()
	ev := &boardpb.Event{Surface: boardpb.Surface_SURFACE_KV, Key: firstOfAll(r.Key, bodyKey(x.Command())), Version: r.Version,
		Generation: r.YourGeneration, PriorGeneration: r.Generation, Holder: r.Holder, Code: r.Code}
	if _, phase := state.PhaseOf(ev.Key); phase {
		ev.Surface = boardpb.Surface_SURFACE_PHASE
	}
	switch {
	case r.Outcome == boardpb.Outcome_OUTCOME_CONFLICT:
		n.Conflicts++
		x.Use(r.Key, func(u *boardpb.Usage) { u.Conflicts++ })
		ev.Kind = boardpb.Kind_KIND_CONFLICT
		conflicted(x, r.Key)
	case r.Code == boardpb.Code_CODE_UNSPECIFIED:
		return // held, done, not_ready, timeout: the ordinary life of a queue
	case isFence(r.Code) || r.Code == boardpb.Code_CODE_BAD_REQUEST && r.Field == fieldGeneration:
		n.FenceRejections++
		x.Use(r.Key, func(u *boardpb.Usage) { u.FenceRejections++ })
		ev.Kind, ev.Surface = boardpb.Kind_KIND_FENCE_REJECTED, boardpb.Surface_SURFACE_LEASE
	default:
		n.Refusals++
		ev.Kind = boardpb.Kind_KIND_REFUSED
	}
	if x.ClosedRev() > 0 {
		return // it stays as it is
	}
	if !x.NoteAllowed(state.Principal(x.Command().Actor)) {
		n.NotesSuppressed++
		return
	}
	x.Emit(ev)
}

func isFence(c boardpb.Code) bool {
	switch c {
	case boardpb.Code_CODE_STALE_LEASE, boardpb.Code_CODE_LEASE_EXPIRED, boardpb.Code_CODE_NO_LEASE, boardpb.Code_CODE_NOT_HOLDER:
		return true
	}
	return false
}

// conflicted counts one more conflict in a row of this principal on a key; of each key
// the last eight principals are kept.
func conflicted(x *state.Txn, key string) {
	if x.Key(key) == nil {
		return // a key without a record has nobody to fight over it, and no bound
	}
	me := state.Principal(x.Command().Actor)
	next := &boardpb.ConflictCount{Key: key}
	mine := &boardpb.ConflictBy{Principal: me, Rev: x.Head()}
	for _, by := range x.Conflicts(key).GetBy() {
		if by.Principal == me {
			mine.Count = by.Count
		} else {
			next.By = append(next.By, by)
		}
	}
	mine.Count++
	next.By = append(next.By, mine)
	if n := len(next.By); n > state.ConflictNames {
		next.By = next.By[n-state.ConflictNames:]
	}
	if planted.Bug("M10") { // the bug: the order of a map
		next.By = planted.Jumbled(next.By)
	}
	x.PutConflicts(next)
}

// succeeded ends a principal's run of conflicts on a key.
func succeeded(x *state.Txn, key string) {
	runs := x.Conflicts(key)
	if runs == nil {
		return
	}
	me := state.Principal(x.Command().Actor)
	x.PutConflicts(&boardpb.ConflictCount{Key: key, By: slices.DeleteFunc(slices.Clone(runs.By),
		func(b *boardpb.ConflictBy) bool { return b.Principal == me })})
}

// ReportConflict records that a caller gave up after its retries, for the orchestrator.
func ReportConflict(x *state.Txn, o *boardpb.ReportConflict) *boardpb.Result {
	if _, r := spaceOf(x, o.Key); r != nil {
		return r
	}
	if l := x.Lease(o.Key); planted.Bug("M21") && o.Attempts > 1<<30 && l.GetState() == held && l.Generation == o.Version {
		l = endLease(x, l, free, boardpb.EndedBy_ENDED_BY_EXPIRED, "") // the bug: somebody's timer says so
		emitEnd(x, boardpb.Kind_KIND_LEASE_EXPIRED, l, l.Previous[0])
	}
	succeeded(x, o.Key)
	x.Counters().PersistentConflicts++
	x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_PERSISTENT_CONFLICT, Surface: boardpb.Surface_SURFACE_KV, Key: o.Key,
		Version: x.Entry(o.Key).GetVersion(), PriorVersion: o.Version, To: orchestratorRole})
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: o.Key, Version: x.Entry(o.Key).GetVersion()}
}
