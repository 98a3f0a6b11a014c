package client

import (
	"context"
	"time"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// DefinePhases makes phases, or changes name and expected keys of those that have data
// (orchestrator).
func (w writes) DefinePhases(ctx context.Context, phases ...*boardpb.PhaseSpec) (*boardpb.Result, error) {
	return w.send(ctx, &boardpb.Command{Op: &boardpb.Command_PhaseDefine{PhaseDefine: &boardpb.PhaseDefine{Phases: phases}}})
}

// WritePhase changes top-level keys of a phase's data. VersionRead of the write is mandatory.
// Without a generation the lock is taken for this one commit, unless the loop holds it. The
// outcome is conflict where somebody changed one of the keys since: the Result then carries
// the current data and the keys that overlap.
func (w writes) WritePhase(ctx context.Context, write *boardpb.PhaseWrite) (*boardpb.Result, error) {
	return w.send(ctx, &boardpb.Command{Op: &boardpb.Command_PhaseWrite{PhaseWrite: write}})
}

// CompletePhase ends a phase (its owner). Inputs are versions of its dependencies that were
// read since its lock was granted.
func (w writes) CompletePhase(ctx context.Context, phase string, generation uint64, inputs ...*boardpb.PhaseInput) (*boardpb.Result, error) {
	op := &boardpb.PhaseComplete{Phase: phase, Generation: generation, Inputs: inputs}
	return w.send(ctx, &boardpb.Command{Op: &boardpb.Command_PhaseComplete{PhaseComplete: op}})
}

// ReopenPhase takes a completed phase up again (supervisor, or its owner while no phase that
// depends on it is in progress).
func (w writes) ReopenPhase(ctx context.Context, phase string) (*boardpb.Result, error) {
	return w.send(ctx, &boardpb.Command{Op: &boardpb.Command_PhaseReopen{PhaseReopen: &boardpb.PhaseReopen{Phase: phase}}})
}

// LockPhase takes the lock of a phase for this loop; duration 0 is 30 minutes. Keepalives of
// the loop renew it. Held by another, or not ready, is an outcome.
func (l *Loop) LockPhase(ctx context.Context, phase string, duration time.Duration) (*boardpb.Result, error) {
	op := &boardpb.PhaseLock{Phase: phase}
	if duration != 0 {
		ms := duration.Milliseconds()
		op.DurationMs = &ms
	}
	return l.send(ctx, &boardpb.Command{Op: &boardpb.Command_PhaseLock{PhaseLock: op}})
}

// RenewPhase extends a lock of this loop; duration 0 is that of the grant.
func (l *Loop) RenewPhase(ctx context.Context, phase string, generation uint64, duration time.Duration) (*boardpb.Result, error) {
	op := &boardpb.PhaseRenew{Phase: phase, Generation: generation}
	if duration != 0 {
		ms := duration.Milliseconds()
		op.DurationMs = &ms
	}
	return l.send(ctx, &boardpb.Command{Op: &boardpb.Command_PhaseRenew{PhaseRenew: op}})
}

// UnlockPhase gives a lock of this loop back.
func (l *Loop) UnlockPhase(ctx context.Context, phase string, generation uint64) (*boardpb.Result, error) {
	op := &boardpb.PhaseUnlock{Phase: phase, Generation: generation}
	return l.send(ctx, &boardpb.Command{Op: &boardpb.Command_PhaseUnlock{PhaseUnlock: op}})
}

// Phase reads one phase. Before it is completed only its owner, the holder of its lock, an
// orchestrator and a supervisor see its data; to others the answer says NotReady, at the
// latest after wait, which is at most a minute.
func (b *Board) Phase(ctx context.Context, id string, wait time.Duration, opts ReadOptions) (*wirepb.PhaseAnswer, Read, error) {
	for until := time.Now().Add(wait); ; {
		asked := time.Now()
		q := &wirepb.PhaseQuery{Phase: id, WaitMs: max(0, until.Sub(asked).Milliseconds())}
		resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_Phase{Phase: q}})
		got := resp.GetPhase()
		// One attempt waits no longer than a call may take. An answer that came at once is
		// the caller's own phase, for which the server does not wait.
		if err != nil || got.GetPhase().GetStatus() == boardpb.PhaseStatus_PHASE_STATUS_COMPLETED ||
			!time.Now().Before(until) || time.Since(asked) < time.Second/2 {
			return got, at, err
		}
	}
}

// Phases lists phases without their data; limit 0 is 200, at most 1,000. The answer's Next,
// given as after, continues.
func (b *Board) Phases(ctx context.Context, after string, limit uint32, opts ReadOptions) (*wirepb.PhasesAnswer, Read, error) {
	q := &wirepb.PhasesQuery{After: after, Limit: limit}
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_Phases{Phases: q}})
	return resp.GetPhases(), at, err
}

// ResolvePhase says what becomes of data that met a conflict: merge, local, remote or escalate.
// VersionSeen is the version that the conflict was with; if there is another one by now, the
// outcome is a conflict again. Escalated is an outcome: a supervisor decides, and until then only
// a supervisor changes the keys that overlap. The Result's Field is the id of the conflict.
func (w writes) ResolvePhase(ctx context.Context, resolve *boardpb.PhaseResolve) (*boardpb.Result, error) {
	return w.send(ctx, &boardpb.Command{Op: &boardpb.Command_PhaseResolve{PhaseResolve: resolve}})
}

// SettleConflict closes a conflict (supervisor): data, a JSON object, is laid over the phase's
// data; nil keeps what is there. ErrWrongState tells that it was decided already.
func (w writes) SettleConflict(ctx context.Context, id string, data []byte) (*boardpb.Result, error) {
	op := &boardpb.PhaseSettle{Conflict: id, Data: data, KeepCurrent: data == nil}
	return w.send(ctx, &boardpb.Command{Op: &boardpb.Command_PhaseSettle{PhaseSettle: op}})
}

// PhaseConflicts lists conflicts that wait for a supervisor, the oldest first. The answer's Next,
// given as after, continues.
func (b *Board) PhaseConflicts(ctx context.Context, q *wirepb.ConflictsQuery, opts ReadOptions) (*wirepb.ConflictsAnswer, Read, error) {
	if q == nil {
		q = &wirepb.ConflictsQuery{}
	}
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_Conflicts{Conflicts: q}})
	return resp.GetConflicts(), at, err
}

// DetectConflict asks what a write of some keys that was made from a version would meet; without
// keys, of any. It is advice: the write looks again.
func (b *Board) DetectConflict(ctx context.Context, phase string, versionRead uint64, keys []string, opts ReadOptions) (*wirepb.DetectAnswer, Read, error) {
	q := &wirepb.DetectQuery{Phase: phase, VersionRead: versionRead, Keys: keys}
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_Detect{Detect: q}})
	return resp.GetDetect(), at, err
}
