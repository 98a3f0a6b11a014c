package phase

import (
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
