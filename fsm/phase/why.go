package phase

import (
	"fmt"
	"slices"
	"strings"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// Why explains how a phase stands: who works on it, what it waits for, what waits for it, and what
// a supervisor has to decide. It answers bad_key or not_found.
func Why(b *state.Board, id string) (rows []board.WhyRow, r *boardpb.Result) {
	if why := state.CheckPhaseID(id); why != "" {
		return nil, &boardpb.Result{Code: boardpb.Code_CODE_BAD_KEY, Field: "phase", Message: "the id of a phase " + why}
	}
	p := b.Phase(id)
	if p == nil {
		return nil, &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Key: state.PhaseKey(id)}
	}
	stands := board.WhyRow{What: StatusName(p.Status), Who: p.Owner, Since: p.WallMs, About: fmt.Sprintf("version %d", p.Version)}
	if p.Status == completed {
		stands.Command = "raftboard phase reopen " + id
	}
	rows = append(rows, stands)
	if l := b.Lease(state.PhaseKey(id)); l.GetState() == boardpb.LeaseState_LEASE_STATE_HELD {
		rows = append(rows, board.WhyRow{What: "locked", Who: l.Owner, Since: l.AcquiredWallMs,
			EndsIn:  max(1, board.EffectiveExpiry(l, b.Loop(l.Loop))-b.T()),
			About:   fmt.Sprintf("generation %d, loop %s", l.Generation, l.Loop),
			Command: fmt.Sprintf("raftboard phase unlock %s --gen %d --loop %s --as %s", id, l.Generation, l.Loop, l.Owner)})
	}
	for _, name := range p.Dependencies {
		if d := b.Phase(name); d.GetStatus() != completed {
			rows = append(rows, board.WhyRow{What: "waits", Who: d.GetOwner(), Since: d.GetWallMs(), About: "for " + name + ", which is " + StatusName(d.GetStatus()),
				Command: "raftboard phase complete " + name + asOwner(d)})
		}
	}
	if p.Status == inProgress {
		if missing := lacking(p, b.PhaseData(id, p.Version).GetData()); len(missing) > 0 {
			rows = append(rows, board.WhyRow{What: "lacks", Who: p.Owner, Since: p.WallMs, About: "expected keys " + strings.Join(missing, ", "),
				Command: fmt.Sprintf("raftboard phase write %s PATCH --read %d", id, p.Version)})
		}
	}
	if p.StaleInputs {
		rows = append(rows, board.WhyRow{What: "stale", About: "a phase that it was built from was reopened since", Command: "raftboard phase reopen " + id})
	}
	if p.Status != completed {
		b.Phases("", func(other string, o *boardpb.Phase) bool {
			if slices.Contains(o.Dependencies, id) && o.Status != completed {
				rows = append(rows, board.WhyRow{What: "blocks", Who: o.Owner, Since: p.WallMs, About: other + " waits for it",
					Command: "raftboard phase complete " + id + asOwner(p)})
			}
			return len(rows) < listed
		})
	}
	b.PhaseConflicts(func(c *boardpb.PhaseConflict) bool {
		if c.Phase == id && c.Resolution == "" {
			rows = append(rows, board.WhyRow{What: "disputed", Who: c.RaisedBy, Since: c.WallMs, About: "keys " + strings.Join(few(c.Overlap), ", "),
				Command: "raftboard phase settle " + c.Id + " DATA"})
		}
		return len(rows) < listed
	})
	return rows, nil
}

func asOwner(p *boardpb.Phase) string {
	if p.GetOwner() == "" {
		return ""
	}
	return " --as " + p.Owner
}
