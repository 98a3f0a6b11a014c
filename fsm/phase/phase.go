package phase

import (
	"slices"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

const (
	pending    = boardpb.PhaseStatus_PHASE_STATUS_PENDING
	inProgress = boardpb.PhaseStatus_PHASE_STATUS_IN_PROGRESS
	completed  = boardpb.PhaseStatus_PHASE_STATUS_COMPLETED
)

// Apply runs an operation on phases; it is nil for any other command.
func Apply(x *state.Txn, c *boardpb.Command) *boardpb.Result {
	switch o := c.Op.(type) {
	case *boardpb.Command_PhaseDefine:
		return define(x, o.PhaseDefine)
	case *boardpb.Command_PhaseLock:
		return lock(x, o.PhaseLock)
	case *boardpb.Command_PhaseRenew:
		return renew(x, o.PhaseRenew)
	case *boardpb.Command_PhaseUnlock:
		return unlock(x, o.PhaseUnlock)
	case *boardpb.Command_PhaseWrite:
		return write(x, o.PhaseWrite)
	case *boardpb.Command_PhaseComplete:
		return complete(x, o.PhaseComplete)
	case *boardpb.Command_PhaseReopen:
		return reopen(x, o.PhaseReopen)
	case *boardpb.Command_PhaseResolve:
		return resolve(x, o.PhaseResolve)
	case *boardpb.Command_PhaseSettle:
		return settle(x, o.PhaseSettle)
	}
	return nil
}

func find(x *state.Txn, id string) (*boardpb.Phase, *boardpb.Result) {
	if p := x.Phase(id); p != nil {
		return p, nil
	}
	return nil, &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Key: state.PhaseKey(id)}
}

func wrongState(p *boardpb.Phase) *boardpb.Result {
	return &boardpb.Result{Code: boardpb.Code_CODE_WRONG_STATE, Key: state.PhaseKey(p.Id), Field: StatusName(p.Status)}
}

func emit(x *state.Txn, kind boardpb.Kind, p *boardpb.Phase, prior, generation uint64) {
	x.Emit(&boardpb.Event{Kind: kind, Surface: boardpb.Surface_SURFACE_PHASE, Key: state.PhaseKey(p.Id),
		Version: p.Version, PriorVersion: prior, Generation: generation, Holder: p.Owner})
}

// lock grants the lock of a phase whose dependencies are completed, and makes the caller its
// owner (SPEC PH-7).
func lock(x *state.Txn, o *boardpb.PhaseLock) *boardpb.Result {
	p, r := find(x, o.Phase)
	if r == nil {
		r = ready(x, p)
	}
	if r != nil {
		return r
	}
	r = board.Lock(x, state.PhaseKey(p.Id), o.DurationMs)
	if r.Outcome != boardpb.Outcome_OUTCOME_OK {
		return r
	}
	if !r.Renewed {
		next := begun(x, p)
		next.Owner = board.Caller(x)
		x.PutPhase(next)
	}
	r.Version = p.Version
	return r
}

// ready refuses what may not be worked on: a completed phase, or one whose dependencies are not.
func ready(x *state.Txn, p *boardpb.Phase) *boardpb.Result {
	if p.Status == completed {
		return wrongState(p)
	}
	var missing []string
	for _, id := range p.Dependencies {
		if x.Phase(id).GetStatus() != completed {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_NOT_READY, Key: state.PhaseKey(p.Id), Field: board.FieldDependencies, Missing: missing}
}

// begun is a phase as the grant of its lock leaves it: built from its dependencies of now.
func begun(x *state.Txn, p *boardpb.Phase) *boardpb.Phase {
	next := state.ClonePhase(p)
	next.Status, next.StaleInputs, next.Inputs = inProgress, false, nil
	for _, id := range p.Dependencies {
		next.Inputs = append(next.Inputs, &boardpb.PhaseInput{Phase: id, Version: x.Phase(id).GetVersion()})
	}
	return next
}

// renew and unlock: a phase without a lock record was never locked.
func renew(x *state.Txn, o *boardpb.PhaseRenew) *boardpb.Result {
	p, r := find(x, o.Phase)
	if r != nil {
		return r
	}
	r = board.RenewLock(x, state.PhaseKey(o.Phase), o.Generation, o.DurationMs)
	if r.Outcome == boardpb.Outcome_OUTCOME_OK {
		r.Version = p.Version
	}
	return r
}

func unlock(x *state.Txn, o *boardpb.PhaseUnlock) *boardpb.Result {
	p, r := find(x, o.Phase)
	if r != nil {
		return r
	}
	r = board.Unlock(x, state.PhaseKey(o.Phase), o.Generation)
	if r.Outcome == boardpb.Outcome_OUTCOME_OK {
		r.Version = p.Version
	}
	return r
}

// complete ends a phase: its owner says that it is whole.
func complete(x *state.Txn, o *boardpb.PhaseComplete) *boardpb.Result {
	p, r := find(x, o.Phase)
	if r != nil {
		return r
	}
	generation, r := board.HoldsLock(x, state.PhaseKey(p.Id), o.Generation)
	if r != nil {
		return r
	}
	next, r := withInputs(x, state.ClonePhase(p), o.Inputs)
	if r == nil {
		r = finish(x, next, generation)
	}
	if r != nil {
		return r
	}
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: state.PhaseKey(p.Id), Version: p.Version, Generation: generation}
}

// finish completes a phase that the caller may change, gives its lock back, and stores it.
func finish(x *state.Txn, p *boardpb.Phase, generation uint64) *boardpb.Result {
	key := state.PhaseKey(p.Id)
	switch {
	case p.Status != inProgress:
		return wrongState(p)
	case p.Owner != board.Caller(x):
		return &boardpb.Result{Code: boardpb.Code_CODE_FORBIDDEN, Key: key, Field: "owner", Holder: p.Owner}
	}
	if missing := lacking(p, x.PhaseData(p.Id, p.Version).GetData()); len(missing) > 0 {
		return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_NOT_READY, Key: key, Field: board.FieldExpected, Missing: missing}
	}
	if generation > 0 {
		if r := board.Unlock(x, key, generation); r.Outcome != boardpb.Outcome_OUTCOME_OK {
			return r
		}
	}
	p.Status = completed
	x.PutPhase(p)
	emit(x, boardpb.Kind_KIND_PHASE_COMPLETE, p, p.Version, generation)
	return nil
}

// withInputs notes versions of dependencies that the caller read since. A phase built from
// completed dependencies as they are now is not stale.
func withInputs(x *state.Txn, p *boardpb.Phase, inputs []*boardpb.PhaseInput) (*boardpb.Phase, *boardpb.Result) {
	if len(inputs) == 0 {
		return p, nil
	}
	p.Inputs = slices.Clone(p.Inputs)
	for _, in := range inputs {
		dependency := x.Phase(in.Phase)
		at := slices.IndexFunc(p.Inputs, func(known *boardpb.PhaseInput) bool { return known.Phase == in.Phase })
		if !slices.Contains(p.Dependencies, in.Phase) || in.Version > dependency.GetVersion() {
			return nil, &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Key: state.PhaseKey(p.Id), Field: board.FieldInputs,
				Got: in.Version, Limit: dependency.GetVersion()}
		}
		switch {
		case at < 0:
			p.Inputs = append(p.Inputs, in)
		case in.Version > p.Inputs[at].Version:
			p.Inputs[at] = in
		}
	}
	fresh := true
	for _, in := range p.Inputs {
		dependency := x.Phase(in.Phase)
		fresh = fresh && dependency.GetStatus() == completed && dependency.GetVersion() == in.Version
	}
	p.StaleInputs = p.StaleInputs && !fresh
	return p, nil
}

// reopen takes a completed phase up again; what was built from it is stale.
func reopen(x *state.Txn, o *boardpb.PhaseReopen) *boardpb.Result {
	p, r := find(x, o.Phase)
	if r != nil {
		return r
	}
	if p.Status != completed {
		return wrongState(p)
	}
	var dependents []*boardpb.Phase
	busy := ""
	x.Phases(func(d *boardpb.Phase) {
		if slices.Contains(d.Dependencies, p.Id) && d.Status != pending {
			dependents = append(dependents, d)
			if d.Status == inProgress {
				busy = d.Id
			}
		}
	})
	if !state.HasRole(x.Command().Actor, boardpb.Role_ROLE_SUPERVISOR) && (p.Owner != board.Caller(x) || busy != "") {
		return &boardpb.Result{Code: boardpb.Code_CODE_FORBIDDEN, Key: state.PhaseKey(p.Id), Field: "supervisor"}
	}
	next := state.ClonePhase(p)
	next.Status = inProgress
	x.PutPhase(next)
	emit(x, boardpb.Kind_KIND_PHASE_REOPEN, next, next.Version, 0)
	for _, d := range dependents {
		if !d.StaleInputs {
			stale := state.ClonePhase(d)
			stale.StaleInputs = true
			x.PutPhase(stale)
		}
	}
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: state.PhaseKey(p.Id), Version: p.Version}
}
