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
