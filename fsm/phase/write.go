package phase

import (
	"bytes"
	"slices"
	"strings"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// listed bounds the keys that an answer names.
const listed = 64

// object is the top-level members of a phase's data, in their order.
type object []board.Member

func parse(d *boardpb.PhaseData) object {
	if d == nil {
		return nil // version 0
	}
	members, _ := board.Members(d.Data)
	return members
}

// values finds members by name; a name that is not there has nil.
func (o object) values() map[string][]byte {
	out := make(map[string][]byte, len(o))
	for _, m := range o {
		out[m.Name] = m.Value
	}
	return out
}

// text writes an object; names and values stay as they were written.
func (o object) text() []byte {
	out := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, m.Raw...), ':'), m.Value...)
	}
	return append(out, '}')
}

// write changes data under the lock, or takes the lock for this one commit (SPEC PH-8, PH-12).
func write(x *state.Txn, o *boardpb.PhaseWrite) *boardpb.Result {
	p, r := find(x, o.Phase)
	if r != nil {
		return r
	}
	if p.Status == completed {
		return wrongState(p)
	}
	key := state.PhaseKey(p.Id)
	held, r := board.HoldsLock(x, key, o.Generation)
	if r != nil {
		return r
	}
	next, generation := state.ClonePhase(p), held
	if held == 0 {
		if next, generation, r = pass(x, p, key); r != nil {
			return r
		}
	}
	if o.GetVersionRead() > p.Version {
		return &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Key: key, Field: board.FieldVersionRead, Got: o.GetVersionRead(), Limit: p.Version}
	}
	out := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: key, Generation: generation}
	data, r := merge(x, p, o, out)
	if r == nil {
		r = store(x, next, data)
	}
	if r == nil {
		next, r = withInputs(x, next, o.Inputs)
	}
	if r != nil {
		return r
	}
	out.Version = next.Version
	x.PutPhase(next)
	emit(x, boardpb.Kind_KIND_PHASE_WRITE, next, p.Version, generation)
	if o.Complete {
		if r := finish(x, state.ClonePhase(next), held); r != nil {
			return r
		}
	}
	return out
}

// pass takes the lock for one commit. It makes an owner only where there was none: a write
// never takes a phase from somebody.
func pass(x *state.Txn, p *boardpb.Phase, key string) (*boardpb.Phase, uint64, *boardpb.Result) {
	if r := ready(x, p); r != nil {
		return nil, 0, r
	}
	generation, r := board.PassLock(x, key)
	if r != nil {
		return nil, 0, r
	}
	next := begun(x, p)
	if p.Status == inProgress {
		next.Inputs, next.StaleInputs = p.Inputs, p.StaleInputs
	}
	if next.Owner == "" {
		next.Owner = board.Caller(x)
	}
	return next, generation, nil
}

// merge lays the patch over the current data: three ways, key by key (SPEC PH-13).
func merge(x *state.Txn, p *boardpb.Phase, o *boardpb.PhaseWrite, out *boardpb.Result) (object, *boardpb.Result) {
	newest := x.PhaseData(p.Id, p.Version)
	current := parse(newest)
	base, kept := current, true
	if v := o.GetVersionRead(); v < p.Version {
		d := x.PhaseData(p.Id, v)
		base, kept = parse(d), d != nil || v == 0
	}
	mine := changesOf(o, base, kept)
	now, then, want := current.values(), base.values(), mine.values()
	var theirs, overlap []string
	other := func(name string) {
		if kept && bytes.Equal(now[name], then[name]) && (now[name] == nil) == (then[name] == nil) {
			return
		}
		theirs = append(theirs, name)
		if v, both := want[name]; both && !bytes.Equal(v, now[name]) {
			overlap = append(overlap, name)
		}
	}
	if o.GetVersionRead() < p.Version {
		for _, m := range current {
			other(m.Name)
		}
		for _, m := range base {
			if now[m.Name] == nil {
				other(m.Name)
			}
		}
	}
	if len(overlap) > 0 {
		r := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_CONFLICT, Key: state.PhaseKey(p.Id), YourVersion: o.GetVersionRead(), Overlap: few(overlap)}
		board.DescribePhase(r, newest)
		return nil, r
	}
	out.Merged, out.Theirs = len(theirs) > 0, few(theirs)
	return current.with(mine), nil
}

// changesOf is what the patch changes of the base, in its order; a deleted key has no value.
func changesOf(o *boardpb.PhaseWrite, base object, kept bool) (mine object) {
	patch, _ := board.Members(o.Patch)
	then, given := base.values(), map[string]bool{}
	for _, m := range patch {
		given[m.Name] = true
		if !slices.Contains(o.DeleteKeys, m.Name) && !(kept && bytes.Equal(m.Value, then[m.Name])) {
			mine = append(mine, m)
		}
	}
	for _, name := range o.DeleteKeys {
		mine = append(mine, board.Member{Name: name})
	}
	if o.Replace {
		for _, m := range base {
			if !given[m.Name] && !slices.Contains(o.DeleteKeys, m.Name) {
				mine = append(mine, board.Member{Name: m.Name})
			}
		}
	}
	return mine
}

// with is an object after changes: a key keeps its place, a new one goes to the end.
func (o object) with(changes object) object {
	next, at := slices.Clone(o), map[string]int{}
	for i, m := range o {
		at[m.Name] = i
	}
	for _, m := range changes {
		i, known := at[m.Name]
		switch {
		case known:
			next[i].Value = m.Value
		case m.Value != nil:
			at[m.Name] = len(next)
			next = append(next, m)
		}
	}
	return slices.DeleteFunc(next, func(m board.Member) bool { return m.Value == nil })
}

// store checks data against what the phase expects, and keeps it as the next version if it
// is another than the current one.
func store(x *state.Txn, p *boardpb.Phase, data object) *boardpb.Result {
	key := state.PhaseKey(p.Id)
	if name := misfit(p, data); name != "" {
		return &boardpb.Result{Code: boardpb.Code_CODE_LIMIT_SCHEMA, Key: key, Field: clip(name)}
	}
	text := data.text()
	if d := x.PhaseData(p.Id, p.Version); d != nil && bytes.Equal(d.Data, text) {
		return nil
	}
	if r := board.FitsBoard(x, key, text); r != nil {
		return r
	}
	p.Version++
	x.PutPhaseData(&boardpb.PhaseData{Phase: p.Id, Version: p.Version, Data: text})
	return nil
}

// misfit names a key whose value is not of the expected type, or that is not expected.
func misfit(p *boardpb.Phase, data object) string {
	expected := map[string]string{}
	for _, x := range p.Expected {
		expected[x.Key] = x.Type
	}
	for _, m := range data {
		want, known := expected[m.Name]
		is := board.TypeOf(m.Value)
		if !known && p.Strict || known && is != want && !(is == "integer" && want == "number") {
			return m.Name
		}
	}
	return ""
}

// lacking lists the expected keys that are not there.
func lacking(p *boardpb.Phase, data []byte) (missing []string) {
	members, _ := board.Members(data)
	have := object(members).values()
	for _, x := range p.Expected {
		if have[x.Key] == nil {
			missing = append(missing, x.Key)
		}
	}
	return few(missing)
}

// clip keeps a name that an agent made from filling an answer.
func clip(name string) string {
	if len(name) > 80 {
		return strings.ToValidUTF8(name[:80], "") + "…"
	}
	return name
}

func few(names []string) []string { return names[:min(len(names), listed)] }
