package state

import (
	"strings"

	boardpb "raftboard/fsm/pb"
)

// phasePrefix makes the key of a phase's lock. No key holds a colon, so the lock is a lease
// like any other, with the same generations and deadlines, and in no namespace.
const phasePrefix = "phase:"

// PhaseKey names a phase where keys stand: in events, answers and lease records.
func PhaseKey(id string) string { return phasePrefix + id }

// PhaseOf is the id of the phase that such a key names, if it is one.
func PhaseOf(key string) (id string, ok bool) { return strings.CutPrefix(key, phasePrefix) }

func phaseVersion(id string, version uint64) string { return id + "\x00" + revKey(version, "") }

// Phase returns a phase, or nil. Callers must not change it: they put a changed copy.
func (x *Txn) Phase(id string) *boardpb.Phase {
	p, _ := lookup(&x.phases, &x.b.phases, id)
	return p
}

// PhaseCount is how many phases the board had before this Txn.
func (x *Txn) PhaseCount() int { return x.b.phases.len() }

// Phases calls each for the phases the board had before this Txn, as they are now, in order.
func (x *Txn) Phases(each func(p *boardpb.Phase)) {
	x.b.phases.index.Scan(func(id string, _ *Record[*boardpb.Phase]) bool {
		each(x.Phase(id))
		return true
	})
}

// PutPhase replaces a phase. Who and when are filled in here.
func (x *Txn) PutPhase(p *boardpb.Phase) {
	if x.Phase(p.Id) == nil {
		p.CreatedWallMs = x.Wall()
		x.head.liveBytes += phaseOverhead
	}
	p.Author, p.ActingFor, p.Loop = Principal(x.cmd.GetActor()), x.actingBy(), x.cmd.GetLoop()
	p.TMs, p.WallMs, p.Rev = x.T(), x.Wall(), x.Rev()
	x.phases.put(p.Id, p, false)
}

// PhaseData returns one retained version of a phase's data, or nil; version 0 has none.
func (x *Txn) PhaseData(id string, version uint64) *boardpb.PhaseData {
	d, _ := lookup(&x.phaseData, &x.b.phaseData, phaseVersion(id, version))
	return d
}

// PutPhaseData keeps a new version of a phase's data, and lets the oldest go.
func (x *Txn) PutPhaseData(d *boardpb.PhaseData) {
	d.Author, d.ActingFor, d.Loop = Principal(x.cmd.GetActor()), x.actingBy(), x.cmd.GetLoop()
	d.TMs, d.WallMs, d.Rev = x.T(), x.Wall(), x.Rev()
	x.head.liveBytes += PhaseBytes(d)
	x.phaseData.put(phaseVersion(d.Phase, d.Version), d, false)
	if d.Version <= PhaseVersions {
		return
	}
	if old := x.PhaseData(d.Phase, d.Version-PhaseVersions); old != nil {
		x.head.liveBytes -= PhaseBytes(old)
		x.phaseData.put(phaseVersion(d.Phase, old.Version), nil, true)
	}
}

// PhaseBytes is what a version of a phase's data counts for against the board's cap.
func PhaseBytes(d *boardpb.PhaseData) uint64 {
	return uint64(entryOverhead + len(d.Phase) + len(d.Data) + len(d.Author))
}

// ClonePhase copies a phase before it is changed; its lists are shared.
func ClonePhase(p *boardpb.Phase) *boardpb.Phase {
	return &boardpb.Phase{
		Id: p.Id, Name: p.Name, Status: p.Status, Owner: p.Owner, Version: p.Version, Dependencies: p.Dependencies,
		Expected: p.Expected, Strict: p.Strict, Inputs: p.Inputs, StaleInputs: p.StaleInputs, Author: p.Author,
		ActingFor: p.ActingFor, Loop: p.Loop, TMs: p.TMs, WallMs: p.WallMs, Rev: p.Rev, CreatedWallMs: p.CreatedWallMs,
		Escalated: p.Escalated,
	}
}

// Phase returns a phase, or nil; Phases walks them in the order of their ids.
func (b *Board) Phase(id string) *boardpb.Phase {
	p, _ := b.phases.get(id, b.at)
	return p
}

func (b *Board) Phases(from string, each func(id string, p *boardpb.Phase) bool) {
	b.phases.ascend(from, b.at, each)
}

// PhaseData returns one retained version of a phase's data, or nil.
func (b *Board) PhaseData(id string, version uint64) *boardpb.PhaseData {
	d, _ := b.phaseData.get(phaseVersion(id, version), b.at)
	return d
}

func (e *encoder) phase(board string, v *boardpb.Phase) Sum {
	e.start('P', board)
	e.str(v.Id)
	e.str(v.Name)
	e.u64(uint64(v.Status))
	e.str(v.Owner)
	e.u64(v.Version)
	e.strs(v.Dependencies)
	e.u64(uint64(len(v.Expected)))
	for _, x := range v.Expected {
		e.str(x.Key)
		e.str(x.Type)
	}
	e.flag(v.Strict)
	e.u64(uint64(len(v.Inputs)))
	for _, in := range v.Inputs {
		e.str(in.Phase)
		e.u64(in.Version)
	}
	e.flag(v.StaleInputs)
	e.str(v.Author)
	e.str(v.ActingFor)
	e.str(v.Loop)
	e.i64(v.TMs)
	e.i64(v.WallMs)
	e.u64(v.Rev)
	e.i64(v.CreatedWallMs)
	e.flag(v.Escalated)
	return e.sum()
}

func (e *encoder) phaseData(board string, v *boardpb.PhaseData) Sum {
	e.start('D', board)
	e.str(v.Phase)
	e.u64(v.Version)
	e.bytes(v.Data)
	e.str(v.Author)
	e.str(v.ActingFor)
	e.str(v.Loop)
	e.i64(v.TMs)
	e.i64(v.WallMs)
	e.u64(v.Rev)
	return e.sum()
}
