package phase

import (
	"slices"
	"strings"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// define makes phases. One that exists takes the new words; once it has data, only its name
// and what is expected of it may change (SPEC PH-4).
func define(x *state.Txn, o *boardpb.PhaseDefine) *boardpb.Result {
	count := x.PhaseCount()
	for _, spec := range o.Phases {
		p := x.Phase(spec.Id)
		if p == nil {
			if count++; count > state.MaxPhases {
				return &boardpb.Result{Code: boardpb.Code_CODE_LIMIT_SCHEMA, Field: board.FieldPhases, Got: uint64(count), Limit: state.MaxPhases}
			}
			if r := board.FitsBoard(x, state.PhaseKey(spec.Id), nil); r != nil {
				return r
			}
			p = &boardpb.Phase{Id: spec.Id, Status: pending}
		} else if p.Version > 0 && (p.Strict != spec.Strict || !slices.Equal(p.Dependencies, spec.Dependencies)) {
			return &boardpb.Result{Code: boardpb.Code_CODE_WRONG_STATE, Key: state.PhaseKey(p.Id), Field: "begun"}
		}
		next := state.ClonePhase(p)
		next.Name, next.Dependencies, next.Expected, next.Strict = spec.Name, spec.Dependencies, spec.Expected, spec.Strict
		x.PutPhase(next)
	}
	if bad := unsound(x, o.Phases); bad != "" {
		return &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Key: state.PhaseKey(bad), Field: board.FieldDependencies}
	}
	for _, spec := range o.Phases {
		p := x.Phase(spec.Id)
		emit(x, boardpb.Kind_KIND_PHASE_DEFINE, p, p.Version, 0)
	}
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK}
}

// unsound names a phase that depends on one that is unknown, or on itself in the end. Each
// dependency is looked at once, however many phases are defined together.
func unsound(x *state.Txn, specs []*boardpb.PhaseSpec) string {
	const open, sound = 1, 2
	seen := map[string]int{}
	var walk func(id string) bool
	walk = func(id string) bool {
		p := x.Phase(id)
		if p == nil || seen[id] == open {
			return false
		}
		if seen[id] == sound {
			return true
		}
		seen[id] = open
		for _, d := range p.Dependencies {
			if !walk(d) {
				return false
			}
		}
		seen[id] = sound
		return true
	}
	for _, spec := range specs {
		if !walk(spec.Id) {
			return spec.Id
		}
	}
	return ""
}

// StatusName is a status as it is written in answers: "in_progress".
func StatusName(s boardpb.PhaseStatus) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "PHASE_STATUS_"))
}
