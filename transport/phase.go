package transport

import (
	"context"
	"fmt"
	"time"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/phase"
	"raftboard/fsm/state"
	"raftboard/node"
	wirepb "raftboard/transport/pb"
)

// maxPhaseWait bounds how long a read of a phase waits for its completion.
const maxPhaseWait = time.Minute

func phaseAnswer(b *state.Board, row phase.Row) *wirepb.PhaseAnswer {
	out := &wirepb.PhaseAnswer{Phase: row.Phase, Data: row.Data, NotReady: row.NotReady, LockedBy: row.LockedBy, LockGeneration: row.Generation}
	if row.LockedBy != "" {
		out.LockedUntilTMs, out.LockedUntilWallMs = row.LockedUntil, b.Wall()+row.LockedUntil-b.T()
	}
	return out
}

func readPhase(b *state.Board, actor *boardpb.Actor, q *wirepb.PhaseQuery, answer *wirepb.ReadResponse) *boardpb.Result {
	row, refused := phase.Read(b, actor, q.Phase)
	if refused != nil {
		return board.Explain(refused)
	}
	answer.Answer = &wirepb.ReadResponse_Phase{Phase: phaseAnswer(b, row)}
	return nil
}

func listPhases(b *state.Board, q *wirepb.PhasesQuery, answer *wirepb.ReadResponse) {
	rows, next := phase.List(b, q.After, q.Limit)
	out := &wirepb.PhasesAnswer{Next: next}
	for _, row := range rows {
		out.Phases = append(out.Phases, phaseAnswer(b, row))
	}
	answer.Answer = &wirepb.ReadResponse_Phases{Phases: out}
}

func phaseConflicts(b *state.Board, actor *boardpb.Actor, q *wirepb.ConflictsQuery, answer *wirepb.ReadResponse) *boardpb.Result {
	rows, next, refused := phase.Conflicts(b, actor, phase.ConflictFilter{Phase: q.Phase, Decided: q.Decided, After: q.After, Limit: q.Limit})
	if refused != nil {
		return board.Explain(refused)
	}
	answer.Answer = &wirepb.ReadResponse_Conflicts{Conflicts: &wirepb.ConflictsAnswer{Conflicts: rows, Next: next}}
	return nil
}

func detect(b *state.Board, actor *boardpb.Actor, q *wirepb.DetectQuery, answer *wirepb.ReadResponse) *boardpb.Result {
	found, refused := phase.Detect(b, actor, q.Phase, q.VersionRead, q.Keys)
	if refused != nil {
		return board.Explain(refused)
	}
	out := &wirepb.DetectAnswer{VersionRead: q.VersionRead, VersionCurrent: found.Phase.GetVersion(), NotReady: found.NotReady}
	if !found.NotReady {
		out.Conflict, out.Mergeable = len(found.Overlap) > 0, len(found.Overlap) == 0
		out.ModifiedBy, out.Theirs, out.Overlap = found.ModifiedBy, found.Theirs, found.Overlap
		switch {
		case out.Conflict:
			out.Suggested = "escalate"
		case len(found.Theirs) > 0:
			out.Suggested = "merge"
		default:
			out.Suggested = "write"
		}
	}
	answer.Answer = &wirepb.ReadResponse_Detect{Detect: out}
	return nil
}

func checkPhaseWait(request *wirepb.ReadRequest) *boardpb.Result {
	q, ok := request.Query.(*wirepb.ReadRequest_Phase)
	if !ok || q.Phase.GetWaitMs() >= 0 && q.Phase.GetWaitMs() <= maxPhaseWait.Milliseconds() {
		return nil
	}
	return badField("wait_ms", fmt.Sprintf("%d ms; 0 to %d", q.Phase.WaitMs, maxPhaseWait.Milliseconds()), "wait again when the time is up")
}

// awaitPhase waits, where the caller asked for it, until a phase that is another's is completed
// or the time is up; who may read it before by a role is not spared the wait it asked for. It looks at what this node applies: later than the View that the read began with.
func (s *service) awaitPhase(ctx context.Context, n *node.Node, actor *boardpb.Actor, request *wirepb.ReadRequest, view *state.View) *state.View {
	q, ok := request.Query.(*wirepb.ReadRequest_Phase)
	if !ok || q.Phase.GetWaitMs() == 0 {
		return view
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(q.Phase.WaitMs)*time.Millisecond)
	defer cancel()
	for {
		changed := n.Changed()
		if newest := n.View(); newest.Applied() > view.Applied() {
			view = newest
		}
		b := view.Board(request.Board)
		if b == nil || request.Incarnation != "" && b.Incarnation() != request.Incarnation {
			return view
		}
		if row, refused := phase.Read(b, actor, q.Phase.Phase); refused != nil || !row.Foreign {
			return view
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return view
		}
	}
}
