package board

import (
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// Txn runs several operations on one board, all or nothing, at one rev (SPEC KV-9). Each
// operation is checked against what the ones before it left.
func Txn(x *state.Txn, o *boardpb.Txn) *boardpb.Result {
	for i, g := range o.Guards {
		if r := holdsGuard(x, g); r != nil {
			n := uint32(i)
			r.FailedGuard = &n
			return r
		}
	}
	out := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK}
	values := 0
	for i, op := range o.Ops {
		r := Apply(x, txnOp(op))
		if r.Outcome != boardpb.Outcome_OUTCOME_OK {
			n := uint32(i)
			r.FailedOp = &n
			return r
		}
		// Up to 64 claims with their values would not fit into one answer.
		if size := len(r.Value); values+size > state.MaxTxnValues {
			r.Value, r.ValueGone = nil, true
		} else {
			values += size
		}
		r.Previous = nil
		out.Results = append(out.Results, r)
	}
	return out
}

// Apply runs one operation that may also stand in a txn.
func Apply(x *state.Txn, op any) *boardpb.Result {
	switch o := op.(type) {
	case *boardpb.Set:
		return Set(x, o)
	case *boardpb.Append:
		return Append(x, o)
	case *boardpb.Delete:
		return Delete(x, o)
	case *boardpb.Claim:
		return Claim(x, o)
	case *boardpb.Release:
		return Release(x, o)
	case *boardpb.Complete:
		return Complete(x, o)
	case *boardpb.Fail:
		return Fail(x, o)
	}
	panic("board: an operation without a case passed Check")
}

// holdsGuard answers nil if the guard holds, else what is there.
func holdsGuard(x *state.Txn, g *boardpb.Guard) *boardpb.Result {
	key, _ := guardKey(g)
	if _, r := spaceOf(x, key); r != nil {
		return r
	}
	cur := x.Entry(key)
	var wanted uint64
	var field string
	switch t := g.Test.(type) {
	case *boardpb.Guard_Lease:
		if _, r := leasedSpace(x, key); r != nil {
			return r
		}
		_, r := fence(x, key, t.Lease.Generation)
		return r
	case *boardpb.Guard_Version:
		if cur.GetVersion() == t.Version.Version {
			return nil
		}
		wanted = t.Version.Version
	case *boardpb.Guard_Exists:
		if live(cur) {
			return nil
		}
		field = fieldExists
	case *boardpb.Guard_Absent:
		if !live(cur) {
			return nil
		}
		field = fieldAbsent
	}
	r := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_CONFLICT, Key: key, YourVersion: wanted}
	describe(r, cur)
	if field != "" {
		r.Field = field
	}
	return r
}
