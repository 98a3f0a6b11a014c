package phase

import (
	"bytes"
	"slices"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// resolve does with data that met a conflict what its caller decided (SPEC PH-15). It is about
// the version that the conflict was with: another one by now is a new conflict.
func resolve(x *state.Txn, o *boardpb.PhaseResolve) *boardpb.Result {
	if o.Strategy == boardpb.PhaseStrategy_PHASE_STRATEGY_MERGE {
		return write(x, &boardpb.PhaseWrite{Phase: o.Phase, Patch: o.Local, VersionRead: o.VersionRead, Generation: o.Generation})
	}
	p, r := find(x, o.Phase)
	if r != nil {
		return r
	}
	newest := x.PhaseData(p.Id, p.Version)
	mine := &boardpb.PhaseWrite{Phase: o.Phase, Patch: o.Local, VersionRead: o.VersionRead}
	switch {
	case o.GetVersionRead() > p.Version || o.VersionSeen > p.Version:
		return &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Key: state.PhaseKey(p.Id), Field: board.FieldVersionRead,
			Got: max(o.GetVersionRead(), o.VersionSeen), Limit: p.Version}
	case o.VersionSeen != p.Version:
		since := &boardpb.PhaseWrite{Patch: []byte("{}"), VersionRead: &o.VersionSeen}
		return conflict(p, newest, o.VersionSeen, compare(newest, x.PhaseData(p.Id, o.VersionSeen), p.Version, since).theirs)
	}
	switch o.Strategy {
	case boardpb.PhaseStrategy_PHASE_STRATEGY_LOCAL:
		return write(x, &boardpb.PhaseWrite{Phase: o.Phase, Patch: o.Local, VersionRead: &o.VersionSeen, Replace: true, Generation: o.Generation})
	case boardpb.PhaseStrategy_PHASE_STRATEGY_ESCALATE:
		return escalate(x, p, o, compare(newest, x.PhaseData(p.Id, o.GetVersionRead()), p.Version, mine))
	}
	if _, r := board.HoldsLock(x, state.PhaseKey(p.Id), o.Generation); r != nil {
		return r
	}
	out := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: state.PhaseKey(p.Id)}
	board.DescribePhase(out, newest)
	return out
}

// escalate leaves the data as it is, and what overlaps to a supervisor.
func escalate(x *state.Txn, p *boardpb.Phase, o *boardpb.PhaseResolve, c comparison) *boardpb.Result {
	key := state.PhaseKey(p.Id)
	if p.Status == completed {
		return wrongState(p)
	}
	if _, r := board.HoldsLock(x, key, o.Generation); r != nil {
		return r
	}
	if len(c.overlap) == 0 {
		return &boardpb.Result{Code: boardpb.Code_CODE_WRONG_STATE, Key: key, Field: board.FieldNoConflict}
	}
	both := &boardpb.PhaseConflict{Id: state.ConflictID(x.Rev()), Phase: p.Id, BaseVersion: o.GetVersionRead(), CurrentVersion: p.Version,
		Overlap: c.overlap, Local: c.mine.only(c.overlap).text(), Current: c.current.only(c.overlap).text(),
		RaisedBy: board.Caller(x), ActingFor: x.Command().Actor.GetActingFor(), Loop: x.Command().Loop,
		TMs: x.T(), WallMs: x.Wall(), Rev: x.Rev()}
	if r := board.RoomFor(x, key, state.ConflictBytes(both)); r != nil {
		return r
	}
	if !x.PutPhaseConflict(both) {
		return &boardpb.Result{Code: boardpb.Code_CODE_WRONG_STATE, Key: key, Field: board.FieldConflicts, Limit: state.MaxPhaseConflicts}
	}
	next := state.ClonePhase(p)
	next.Escalated = true
	x.PutPhase(next)
	x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_PHASE_ESCALATE, Surface: boardpb.Surface_SURFACE_PHASE, Key: key,
		Version: p.Version, PriorVersion: o.GetVersionRead(), To: "role:supervisor", Reason: both.Id})
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_ESCALATED, Key: key, Version: p.Version, Field: both.Id, Overlap: few(c.overlap)}
}

// settle closes an open conflict: a supervisor says what the keys shall be (SPEC PH-16).
func settle(x *state.Txn, o *boardpb.PhaseSettle) *boardpb.Result {
	both := x.PhaseConflict(o.Conflict)
	if both == nil {
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Key: o.Conflict}
	}
	key := state.PhaseKey(both.Phase)
	if both.Resolution != "" {
		return &boardpb.Result{Code: boardpb.Code_CODE_WRONG_STATE, Key: key, Field: board.FieldDecided, Holder: both.ResolvedBy}
	}
	p, next, _, generation, r := opened(x, both.Phase, 0)
	if r != nil {
		return r
	}
	closed := closedConflict(x, both, "keep_current")
	if !o.KeepCurrent {
		closed.Resolution = "data"
		patch, _ := board.Members(o.Data)
		if r := store(x, next, parse(x.PhaseData(p.Id, p.Version)).with(patch)); r != nil {
			return r
		}
	}
	closed.ResolvedVersion = next.Version
	next.Escalated = false
	x.OpenConflicts(p.Id, func(c *boardpb.PhaseConflict) { next.Escalated = next.Escalated || c.Id != both.Id })
	x.PutPhaseConflict(closed)
	x.PutPhase(next)
	x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_PHASE_RESOLVE, Surface: boardpb.Surface_SURFACE_PHASE, Key: key, Version: next.Version,
		PriorVersion: p.Version, Generation: generation, Holder: both.RaisedBy, Reason: both.Id})
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: key, Version: next.Version, Generation: generation}
}

func closedConflict(x *state.Txn, c *boardpb.PhaseConflict, resolution string) *boardpb.PhaseConflict {
	return &boardpb.PhaseConflict{Id: c.Id, Phase: c.Phase, BaseVersion: c.BaseVersion, CurrentVersion: c.CurrentVersion,
		Overlap: c.Overlap, Local: c.Local, Current: c.Current, RaisedBy: c.RaisedBy, ActingFor: c.ActingFor, Loop: c.Loop,
		TMs: c.TMs, WallMs: c.WallMs, Rev: c.Rev, Resolution: resolution, ResolvedBy: board.Caller(x), ResolvedTMs: x.T(),
		ResolvedWallMs: x.Wall(), ResolvedRev: x.Rev()}
}

// guarded refuses a change of keys about which a supervisor was asked, unless a supervisor makes
// it (SPEC PH-16).
func guarded(x *state.Txn, p *boardpb.Phase, data object) *boardpb.Result {
	if !p.Escalated || state.HasRole(x.Command().Actor, boardpb.Role_ROLE_SUPERVISOR) {
		return nil
	}
	now, next := parse(x.PhaseData(p.Id, p.Version)).values(), data.values()
	var out *boardpb.Result
	x.OpenConflicts(p.Id, func(c *boardpb.PhaseConflict) {
		for _, name := range c.Overlap {
			if bytes.Equal(now[name], next[name]) && (now[name] == nil) == (next[name] == nil) {
				continue
			}
			if out == nil {
				out = &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_ESCALATED, Key: state.PhaseKey(p.Id), Version: p.Version, Field: c.Id}
			}
			if len(out.Overlap) < listed && !slices.Contains(out.Overlap, name) {
				out.Overlap = append(out.Overlap, name)
			}
		}
	})
	return out
}

// only are the members with these names that have a value.
func (o object) only(names []string) (out object) {
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	for _, m := range o {
		if wanted[m.Name] && m.Value != nil {
			out = append(out, m)
		}
	}
	return out
}
