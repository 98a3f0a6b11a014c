package phase

import (
	"slices"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// Row is a phase with its lock as a reader is shown it.
type Row struct {
	Phase       *boardpb.Phase
	Data        *boardpb.PhaseData // nil where there is none, or the reader may not see it
	Foreign     bool               // it is not completed, and is not the reader's
	NotReady    bool               // so it is, and no role lets the reader see it all the same
	LockedBy    string
	LockedUntil int64 // board time
	Generation  uint64
}

// Read shows one phase. Until it is completed only its owner, who holds its lock, an
// orchestrator and a supervisor see its data (SPEC PH-10).
func Read(b *state.Board, actor *boardpb.Actor, id string) (Row, *boardpb.Result) {
	if why := state.CheckPhaseID(id); why != "" {
		return Row{}, &boardpb.Result{Code: boardpb.Code_CODE_BAD_KEY, Field: "phase", Message: "the id of a phase " + why}
	}
	p := b.Phase(id)
	if p == nil {
		return Row{}, &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Key: state.PhaseKey(id)}
	}
	row := rowOf(b, p)
	me := state.Principal(actor)
	row.Foreign = p.Status != completed && p.Owner != me && row.LockedBy != me
	if !row.Foreign || state.HasRole(actor, boardpb.Role_ROLE_ORCHESTRATOR) || state.HasRole(actor, boardpb.Role_ROLE_SUPERVISOR) {
		row.Data = b.PhaseData(id, p.Version)
	} else {
		row.NotReady = true
	}
	return row, nil
}

func rowOf(b *state.Board, p *boardpb.Phase) Row {
	row := Row{Phase: p}
	l := b.Lease(state.PhaseKey(p.Id))
	row.Generation = l.GetGeneration()
	if l.GetState() == boardpb.LeaseState_LEASE_STATE_HELD {
		row.LockedBy, row.LockedUntil = l.Owner, board.EffectiveExpiry(l, b.Loop(l.Loop))
	}
	return row
}

// List shows phases without their data, in the order of their ids; limit 0 is 200, at most
// 1,000. next continues, if it is not "".
func List(b *state.Board, after string, limit uint32) (rows []Row, next string) {
	if limit == 0 {
		limit = 200
	}
	limit = min(limit, 1000)
	b.Phases(after, func(id string, p *boardpb.Phase) bool {
		if id == after && after != "" {
			return true
		}
		if uint32(len(rows)) == limit {
			next = rows[len(rows)-1].Phase.Id
			return false
		}
		rows = append(rows, rowOf(b, p))
		return true
	})
	return rows, next
}

// ConflictFilter asks for conflicts that a supervisor was asked about.
type ConflictFilter struct {
	Phase   string // "": of all phases
	Decided bool   // the decided ones too
	After   string // an id
	Limit   uint32 // 0: 50, at most 200
}

// Conflicts lists them, the oldest first. What the overlapping keys say is left out for who may not
// read the phase, unless it raised the conflict. next continues, if it is not "". It answers
// bad_key for a phase that cannot be, or not_found for one that is not there.
func Conflicts(b *state.Board, actor *boardpb.Actor, f ConflictFilter) (rows []*boardpb.PhaseConflict, next string, r *boardpb.Result) {
	if f.Phase != "" {
		if _, r := Read(b, actor, f.Phase); r != nil {
			return nil, "", r
		}
	}
	most, behind := 50, f.After == ""
	if f.Limit > 0 {
		most = min(int(f.Limit), 200)
	}
	b.PhaseConflicts(func(c *boardpb.PhaseConflict) bool {
		switch {
		case !behind:
			behind = c.Id == f.After
			return true
		case f.Phase != "" && c.Phase != f.Phase, c.Resolution != "" && !f.Decided:
			return true
		case len(rows) == most:
			next = rows[most-1].Id
			return false
		}
		if row, r := Read(b, actor, c.Phase); (r != nil || row.NotReady) && c.RaisedBy != state.Principal(actor) {
			c = withoutValues(c)
		}
		rows = append(rows, c)
		return true
	})
	return rows, next, nil
}

func withoutValues(c *boardpb.PhaseConflict) *boardpb.PhaseConflict {
	return &boardpb.PhaseConflict{Id: c.Id, Phase: c.Phase, BaseVersion: c.BaseVersion, CurrentVersion: c.CurrentVersion,
		Overlap: c.Overlap, RaisedBy: c.RaisedBy, ActingFor: c.ActingFor, Loop: c.Loop, TMs: c.TMs, WallMs: c.WallMs, Rev: c.Rev,
		Resolution: c.Resolution, ResolvedBy: c.ResolvedBy, ResolvedVersion: c.ResolvedVersion, ResolvedTMs: c.ResolvedTMs,
		ResolvedWallMs: c.ResolvedWallMs, ResolvedRev: c.ResolvedRev}
}

// Detected is what a write of some keys would meet.
type Detected struct {
	Phase      *boardpb.Phase
	ModifiedBy string   // who wrote the current version
	Theirs     []string // keys that others changed since
	Overlap    []string // those of them that are asked about
	NotReady   bool     // the caller may not look at the phase
}

// Detect says what a write that was made from a version would meet (SPEC PH-14). Without keys it
// asks about all of them. It is advice: the write looks again. It answers bad_key, not_found, or
// bad_request for a version that never was.
func Detect(b *state.Board, actor *boardpb.Actor, id string, read uint64, keys []string) (Detected, *boardpb.Result) {
	row, r := Read(b, actor, id)
	if r != nil || row.NotReady {
		return Detected{Phase: row.Phase, NotReady: row.NotReady}, r
	}
	p := row.Phase
	if read > p.Version {
		return Detected{}, &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Key: state.PhaseKey(id), Field: board.FieldVersionRead, Got: read, Limit: p.Version}
	}
	newest := b.PhaseData(id, p.Version)
	c := compare(newest, b.PhaseData(id, read), p.Version, &boardpb.PhaseWrite{VersionRead: &read, Patch: []byte("{}")})
	out := Detected{Phase: p, ModifiedBy: newest.GetAuthor(), Theirs: few(c.theirs)}
	for _, name := range out.Theirs {
		if len(keys) == 0 || slices.Contains(keys, name) {
			out.Overlap = append(out.Overlap, name)
		}
	}
	return out, nil
}
