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

// opened is a phase whose data the caller may change: under the lock, or with the lock taken for
// this one commit (SPEC PH-8). held is the generation the caller holds, 0 if none; generation
// the one under which it writes.
func opened(x *state.Txn, id string, claimed uint64) (p, next *boardpb.Phase, held, generation uint64, r *boardpb.Result) {
	if p, r = find(x, id); r != nil {
		return nil, nil, 0, 0, r
	}
	if p.Status == completed {
		return nil, nil, 0, 0, wrongState(p)
	}
	if held, r = board.HoldsLock(x, state.PhaseKey(id), claimed); r != nil {
		return nil, nil, 0, 0, r
	}
	next, generation = state.ClonePhase(p), held
	if held == 0 {
		if next, generation, r = pass(x, p, state.PhaseKey(id)); r != nil {
			return nil, nil, 0, 0, r
		}
	}
	return p, next, held, generation, nil
}

// write changes data (SPEC PH-12).
func write(x *state.Txn, o *boardpb.PhaseWrite) *boardpb.Result {
	p, next, held, generation, r := opened(x, o.Phase, o.Generation)
	if r != nil {
		return r
	}
	key := state.PhaseKey(p.Id)
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
	c := compare(newest, x.PhaseData(p.Id, o.GetVersionRead()), p.Version, o)
	if len(c.overlap) > 0 {
		return nil, conflict(p, newest, o.GetVersionRead(), c.overlap)
	}
	out.Merged, out.Theirs = len(c.theirs) > 0, few(c.theirs)
	return c.current.with(c.mine), nil
}

func conflict(p *boardpb.Phase, newest *boardpb.PhaseData, read uint64, overlap []string) *boardpb.Result {
	r := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_CONFLICT, Key: state.PhaseKey(p.Id), YourVersion: read, Overlap: few(overlap)}
	board.DescribePhase(r, newest)
	return r
}

// comparison is a change laid beside what others changed since its base.
type comparison struct {
	current object
	mine    object   // what the change sets; a deleted key has no value
	theirs  []string // keys that others changed since
	overlap []string // those of them that the change changes otherwise
}

// compare lays a change of one version beside the newest one. A base that is no longer kept
// makes every key theirs.
func compare(newest, read *boardpb.PhaseData, version uint64, o *boardpb.PhaseWrite) comparison {
	c := comparison{current: parse(newest)}
	base, kept, older := c.current, true, o.GetVersionRead() < version
	if older {
		base, kept = parse(read), read != nil || o.GetVersionRead() == 0
	}
	c.mine = changesOf(o, base, kept)
	now, then, want := c.current.values(), base.values(), c.mine.values()
	other := func(name string) {
		if kept && bytes.Equal(now[name], then[name]) && (now[name] == nil) == (then[name] == nil) {
			return
		}
		c.theirs = append(c.theirs, name)
		if v, both := want[name]; both && !bytes.Equal(v, now[name]) {
			c.overlap = append(c.overlap, name)
		}
	}
	if older {
		for _, m := range c.current {
			other(m.Name)
		}
		for _, m := range base {
			if now[m.Name] == nil {
				other(m.Name)
			}
		}
	}
	return c
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
	if r := guarded(x, p, data); r != nil {
		return r
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
