package board

import (
	"fmt"
	"strings"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// The cases of `not_ready` of a phase, and of what its data may be, in Result.Field.
const (
	FieldDependencies = "dependencies"
	FieldExpected     = "expected"
	FieldPhases       = "phases"
	FieldInputs       = "inputs"
	FieldVersionRead  = "version_read"
	FieldNoConflict   = "no_conflict"
	FieldConflicts    = "conflicts"
	FieldDecided      = "decided"
)

// phaseOp returns the operation on one phase, or nil.
func phaseOp(c *boardpb.Command) interface{ GetPhase() string } {
	switch o := c.Op.(type) {
	case *boardpb.Command_PhaseLock:
		return o.PhaseLock
	case *boardpb.Command_PhaseRenew:
		return o.PhaseRenew
	case *boardpb.Command_PhaseUnlock:
		return o.PhaseUnlock
	case *boardpb.Command_PhaseWrite:
		return o.PhaseWrite
	case *boardpb.Command_PhaseComplete:
		return o.PhaseComplete
	case *boardpb.Command_PhaseReopen:
		return o.PhaseReopen
	case *boardpb.Command_PhaseResolve:
		return o.PhaseResolve
	}
	return nil
}

// phaseKey names the phase that a command is about, or is "".
func phaseKey(c *boardpb.Command) string {
	if op := phaseOp(c); op != nil {
		return state.PhaseKey(op.GetPhase())
	}
	return ""
}

func checkPhaseOp(c *boardpb.Command) *boardpb.Result {
	if op := phaseOp(c); op != nil {
		if r := checkPhaseID("phase", op.GetPhase()); r != nil {
			return r
		}
	}
	switch o := c.Op.(type) {
	case *boardpb.Command_PhaseDefine:
		return checkPhaseDefine(o.PhaseDefine)
	case *boardpb.Command_PhaseLock:
		return checkDuration("duration_ms", o.PhaseLock.DurationMs)
	case *boardpb.Command_PhaseRenew:
		return checkDuration("duration_ms", o.PhaseRenew.DurationMs)
	case *boardpb.Command_PhaseWrite:
		return checkPhaseWrite(o.PhaseWrite)
	case *boardpb.Command_PhaseComplete:
		return checkInputs(o.PhaseComplete.Inputs)
	case *boardpb.Command_PhaseResolve:
		return checkPhaseResolve(o.PhaseResolve)
	case *boardpb.Command_PhaseSettle:
		return checkPhaseSettle(o.PhaseSettle)
	}
	return nil
}

func checkPhaseID(field, id string) *boardpb.Result {
	if why := state.CheckPhaseID(id); why != "" {
		return &boardpb.Result{Code: boardpb.Code_CODE_BAD_KEY, Field: field, Message: fmt.Sprintf("phase %+q: the id %s", clip(id), why),
			Hint: "an id is one segment of a key: 1 to 64 of A-Z a-z 0-9 . _ -"}
	}
	return nil
}

func checkPhaseDefine(o *boardpb.PhaseDefine) *boardpb.Result {
	if n := len(o.Phases); n == 0 || n > state.MaxPhaseList {
		return bad(FieldPhases, "%d phases; 1 to %d", n, state.MaxPhaseList)
	}
	seen := map[string]bool{}
	for i, p := range o.Phases {
		at := fmt.Sprintf("phases/%d", i)
		if r := firstBad(checkPhaseID(at+"/id", p.Id), checkText(at+"/name", p.Name, state.MaxText)); r != nil {
			return r
		}
		if seen[p.Id] {
			return bad(at+"/id", "phase %s stands twice", p.Id)
		}
		seen[p.Id] = true
		if r := firstBad(checkDependencies(at, p), checkExpected(at, p.Expected)); r != nil {
			return r
		}
	}
	return nil
}

func checkDependencies(at string, p *boardpb.PhaseSpec) *boardpb.Result {
	if n := len(p.Dependencies); n > state.MaxPhaseList {
		return bad(at+"/dependencies", "%d, at most %d", n, state.MaxPhaseList)
	}
	seen := map[string]bool{}
	for _, id := range p.Dependencies {
		switch {
		case id == p.Id:
			return bad(at+"/dependencies", "phase %s depends on itself", id)
		case seen[id]:
			return bad(at+"/dependencies", "phase %s stands twice", clip(id))
		}
		seen[id] = true
		if r := checkPhaseID(at+"/dependencies", id); r != nil {
			return r
		}
	}
	return nil
}

func checkExpected(at string, expected []*boardpb.ExpectedKey) *boardpb.Result {
	if n := len(expected); n > state.MaxPhaseList {
		return bad(at+"/expected", "%d keys, at most %d", n, state.MaxPhaseList)
	}
	seen := map[string]bool{}
	for _, x := range expected {
		if r := checkText(at+"/expected", x.Key, state.MaxKeyBytes); r != nil {
			return r
		}
		if seen[x.Key] {
			return bad(at+"/expected", "key %+q stands twice", clip(x.Key))
		}
		seen[x.Key] = true
		switch x.Type {
		case "array", "string", "number", "integer", "boolean", "object", "null":
		default:
			return bad(at+"/expected", "type %+q; array, string, number, integer, boolean, object or null", clip(x.Type))
		}
	}
	return nil
}

func checkPhaseWrite(o *boardpb.PhaseWrite) *boardpb.Result {
	switch {
	case o.VersionRead == nil:
		return bad(FieldVersionRead, "a write names the version it read; 0 is a phase without data")
	case len(o.DeleteKeys) > state.MaxPhaseDeletes:
		return bad("delete_keys", "%d, at most %d", len(o.DeleteKeys), state.MaxPhaseDeletes)
	}
	if r := firstBad(checkValue("patch", o.Patch), checkInputs(o.Inputs)); r != nil {
		return r
	}
	members, object := Members(o.Patch)
	if !object {
		return bad("patch", "a patch is a JSON object")
	}
	values := map[string]string{}
	for _, m := range members {
		values[m.Name] = string(m.Value)
	}
	for _, key := range o.DeleteKeys {
		if v, given := values[key]; given && v != "null" {
			return bad("delete_keys", "key %+q is deleted, and the patch gives it a value", clip(key))
		}
	}
	return nil
}

func checkPhaseResolve(o *boardpb.PhaseResolve) *boardpb.Result {
	if _, known := boardpb.PhaseStrategy_name[int32(o.Strategy)]; !known || o.Strategy == 0 {
		return bad("strategy", "it is one of merge, local, remote, escalate")
	}
	return checkPhaseWrite(&boardpb.PhaseWrite{Phase: o.Phase, Patch: o.Local, VersionRead: o.VersionRead})
}

func checkPhaseSettle(o *boardpb.PhaseSettle) *boardpb.Result {
	switch {
	case o.Conflict == "" || len(o.Conflict) > state.MaxOpaque:
		return bad("conflict", "name one: raftboard phase conflicts")
	case o.KeepCurrent == (len(o.Data) > 0):
		return bad("data", "say what the keys shall be, or keep_current")
	case o.KeepCurrent:
		return nil
	}
	zero := uint64(0)
	return checkPhaseWrite(&boardpb.PhaseWrite{Patch: o.Data, VersionRead: &zero})
}

func explainPhaseState(r *boardpb.Result) (message, hint string) {
	switch r.Field {
	case FieldNoConflict:
		return fmt.Sprintf("nothing of it overlaps with what others changed in %s", r.Key), "resolve it with the strategy merge, or write it"
	case FieldDecided:
		return fmt.Sprintf("the conflict of %s was decided already, by %s", r.Key, r.Holder), "see how: raftboard phase conflicts --decided"
	case FieldConflicts:
		return fmt.Sprintf("%d conflicts of phases of this board wait for a supervisor", r.Limit), "a supervisor decides them: raftboard phase conflicts"
	}
	return fmt.Sprintf("%s is %s, which does not allow this", r.Key, r.Field), "look at it first: raftboard phase list"
}

// Took tells whether a command was done: with the outcome ok, or escalated where that is what it
// asked for.
func Took(c *boardpb.Command, r *boardpb.Result) bool {
	return r.Outcome == boardpb.Outcome_OUTCOME_OK || r.Outcome == boardpb.Outcome_OUTCOME_ESCALATED &&
		c.GetPhaseResolve().GetStrategy() == boardpb.PhaseStrategy_PHASE_STRATEGY_ESCALATE
}

// explainEscalated is about keys that wait for a supervisor.
func explainEscalated(r *boardpb.Result) (message, hint string) {
	keys := "some keys"
	if n := len(r.Overlap); n > 0 { // given again: the list of then is not kept
		keys = fmt.Sprintf("%+q", r.Overlap[:min(n, namedInText)])
	}
	return fmt.Sprintf("%s of %s wait for a supervisor, in conflict %s; the data is as it was", clip(keys), r.Key, r.Field),
		"work on the other keys; a supervisor decides with: raftboard phase settle " + r.Field
}

func checkInputs(inputs []*boardpb.PhaseInput) *boardpb.Result {
	if n := len(inputs); n > state.MaxPhaseList {
		return bad(FieldInputs, "%d, at most %d", n, state.MaxPhaseList)
	}
	for _, in := range inputs {
		if r := checkPhaseID(FieldInputs, in.Phase); r != nil {
			return r
		}
	}
	return nil
}

func explainMissing(r *boardpb.Result) (message, hint string) {
	list := strings.Join(r.Missing, ", ")
	if list == "" { // given again: the list of then is not kept
		list = "some"
	}
	if r.Field == FieldExpected {
		return fmt.Sprintf("%s lacks expected keys: %s", r.Key, clip(list)), "write them, and complete it then"
	}
	return fmt.Sprintf("%s waits for phases that are not completed: %s", r.Key, clip(list)), "read one of them with a wait, and lock this one then"
}

func explainOverlap(r *boardpb.Result) (message, hint string) {
	both := "keys that you changed"
	if n := len(r.Overlap); n > 0 { // given again: the list of then is not kept
		both = fmt.Sprintf("%+q", r.Overlap[:min(n, namedInText)])
	}
	return fmt.Sprintf("%s is at version %d (by %s), you read %d, and others changed since: %s. Re-read and reconcile", r.Key, r.Version, r.Author, r.YourVersion, clip(both)),
		fmt.Sprintf("the answer has the data as it is: merge, and write again with version_read %d", r.Version)
}

func explainSchema(r *boardpb.Result) (message, hint string) {
	if r.Field == FieldPhases {
		return fmt.Sprintf("%d phases, at most %d on a board", r.Got, r.Limit), "use another board"
	}
	return fmt.Sprintf("key %q is not what %s expects there", clip(r.Field), r.Key), "see what it expects: raftboard phase list -o json"
}

// DescribePhase puts the current data of a phase into an answer.
func DescribePhase(r *boardpb.Result, d *boardpb.PhaseData) {
	r.Version, r.Author, r.AuthorWallMs, r.Value = d.Version, d.Author, d.WallMs, d.Data
}
