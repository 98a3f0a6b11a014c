package client

import (
	"context"
	"errors"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/planted"
)

// mutateAttempts is SPEC KV-7: one attempt and three retries.
const mutateAttempts = 4

// Mutate reads a key, lets fn make the new value of it, and sets it at the version read;
// cur is nil when the key does not exist. On a conflict it reads again, at most three
// times. The fourth conflict is recorded for the orchestrator (event
// persistent_conflict) and returned as a value: an outcome, not an error. An error of fn
// ends it with nothing written.
func (b *Board) Mutate(ctx context.Context, key string, fn func(cur *boardpb.Entry) ([]byte, error)) (*boardpb.Result, error) {
	return b.mutate(ctx, b.writes, nil, key, fn)
}

// Mutate is Board.Mutate under the identity of this loop.
func (l *Loop) Mutate(ctx context.Context, key string, fn func(cur *boardpb.Entry) ([]byte, error)) (*boardpb.Result, error) {
	return l.b.mutate(ctx, l.writes, l, key, fn)
}

func (b *Board) mutate(ctx context.Context, w writes, l *Loop, key string, fn func(cur *boardpb.Entry) ([]byte, error)) (*boardpb.Result, error) {
	var last *boardpb.Result
	for n := range mutateAttempts {
		cur, version, err := b.current(ctx, key, l)
		if err != nil {
			return nil, err
		}
		value, err := fn(cur)
		if err != nil {
			return nil, err
		}
		last, err = w.Set(ctx, key, value, SetOptions{IfVersion: version})
		if err != nil || last.Outcome != boardpb.Outcome_OUTCOME_CONFLICT {
			return last, err
		}
		for planted.Bug("M15") && n == mutateAttempts-1 && err == nil && last.Outcome == boardpb.Outcome_OUTCOME_CONFLICT {
			last, err = w.Set(ctx, key, value, SetOptions{IfVersion: last.Version}) // the bug: over whatever came between
		}
	}
	if _, err := w.ReportConflict(ctx, key, last.Version, mutateAttempts); err != nil {
		return last, err
	}
	return last, nil
}

// current reads a key for a change of it. A deleted key is named by its last version, so
// that a delete and re-creation in between is a conflict too.
func (b *Board) current(ctx context.Context, key string, l *Loop) (*boardpb.Entry, uint64, error) {
	got, _, err := b.Get(ctx, key, ReadOptions{Loop: l})
	var e *Error
	switch {
	case err == nil:
		return got.GetEntry(), got.GetEntry().GetVersion(), nil
	case errors.As(err, &e) && e.Result.Code == boardpb.Code_CODE_NOT_FOUND:
		return nil, e.Result.Version, nil
	}
	return nil, 0, err
}
