package board

import (
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// recall rebuilds an answer from what was kept of it, the command, which is the same
// again, and the values at the versions named, as far as they are retained.
func recall(x *state.Txn, k *boardpb.Kept) *boardpb.Result {
	c := x.Command()
	if r := Check(c); r != nil {
		r.Replayed = true // refused by its body alone, which is the same
		return r
	}
	r := &boardpb.Result{Outcome: k.Outcome, Code: k.Code, Rev: k.Rev, Version: k.Version, Generation: k.Generation,
		ExpiresTMs: k.ExpiresTMs, Field: k.Field, Got: k.Got, Limit: k.Number, Replayed: true,
		Renewed: k.Flags&keptRenewed != 0, Late: k.Flags&keptLate != 0, Merged: k.Flags&keptMerged != 0, Key: firstOfAll(k.Key, bodyKey(c))}
	if k.Flags&keptDuplicate != 0 {
		r.DuplicateOf = refOf(r.Key, r.Version)
	}
	switch {
	case k.Flags&keptGuard != 0:
		r.FailedGuard = &k.Failed
	case k.Flags&keptOp != 0:
		r.FailedOp = &k.Failed
	}
	if r.ExpiresTMs > 0 {
		r.ExpiresInMs = max(0, r.ExpiresTMs-x.T())
	}
	recallOp(x, c, k, r)
	return r
}

// recallOp adds what depends on the operation.
func recallOp(x *state.Txn, c *boardpb.Command, k *boardpb.Kept, r *boardpb.Result) {
	ok := k.Outcome == boardpb.Outcome_OUTCOME_OK
	if !ok {
		named := numbersNamed(c, r)
		r.YourVersion, r.YourGeneration = named.version, named.generation
	}
	switch c.Op.(type) {
	case *boardpb.Command_PhaseLock, *boardpb.Command_PhaseRenew:
		if ok {
			r.DurationMs, r.Got = int64(k.Got), 0
		}
	case *boardpb.Command_Heartbeat:
		if ok {
			r.DurationMs, r.Got = int64(k.Got), 0
			recallAttempts(x, r)
		}
	case *boardpb.Command_LoopOpen:
		r.Loop, r.Key = r.Key, ""
		r.TtlMs = x.Loop(r.Loop).GetTtlMs()
		return
	case *boardpb.Command_LoopClose:
		r.Loop, r.Key = r.Key, ""
		return
	case *boardpb.Command_Claim, *boardpb.Command_ClaimNext:
		if keys := c.GetClaim().GetKeys(); len(keys) > 0 {
			recallClaims(x, keys, k.Numbers, r)
		} else if ok {
			r.DurationMs, r.Got, r.Limit = int64(k.Got), 0, 0
			recallClaim(x, r)
			return
		}
	case *boardpb.Command_Txn:
		for i, number := range k.Numbers {
			r.Results = append(r.Results, recallOne(txnOp(c.GetTxn().Ops[i]), number))
		}
	case *boardpb.Command_PhaseResolve:
		if ok && c.GetPhaseResolve().Strategy == boardpb.PhaseStrategy_PHASE_STRATEGY_REMOTE {
			recallValue(x, r)
		}
	case *boardpb.Command_BoardCreate, *boardpb.Command_BoardFork:
		r.Incarnation = k.Who
		return
	case *boardpb.Command_BoardCompact:
		r.OldestRev, r.Limit = r.Limit, 0
		return
	case *boardpb.Command_BoardSet:
		r.Key = "settings"
		r.YourVersion = c.GetBoardSet().IfSettingsVersion
		return
	case *boardpb.Command_ForceRelease:
		r.Holder = k.Who
	case *boardpb.Command_Fail:
		if ok {
			r.RetryAfterMs = c.GetFail().RetryAfterMs
		}
	case *boardpb.Command_Complete:
		r.ResultRef = resultRef(c.GetComplete(), r.Version)
	}
	if k.Code == boardpb.Code_CODE_WRONG_MODE {
		if space := x.Schema().Find(r.Key); space != nil {
			r.Namespace = space.Pattern.String()
		}
	}
	recallOutcome(x, k, r)
}

// recallOutcome adds what depends on the outcome.
func recallOutcome(x *state.Txn, k *boardpb.Kept, r *boardpb.Result) {
	switch k.Outcome {
	case boardpb.Outcome_OUTCOME_CONFLICT:
		r.Author = k.Who
		recallValue(x, r)
	case boardpb.Outcome_OUTCOME_HELD:
		r.Holder, r.HolderLoop, r.Field = k.Who, k.Field, ""
	case boardpb.Outcome_OUTCOME_NOT_READY:
		r.RetryAfterMs, r.ExpiresTMs, r.ExpiresInMs = max(0, k.ExpiresTMs-x.T()), 0, 0
		r.Reason = x.Lease(r.Key).GetReason()
	case boardpb.Outcome_OUTCOME_TIMEOUT:
		r.Next, r.Limit = r.Limit, 0
	case boardpb.Outcome_OUTCOME_DONE:
		r.Holder = k.Who
		if l := x.Lease(r.Key); l.GetGeneration() == r.Generation {
			r.ResultRef = l.GetResultRef()
		}
	case boardpb.Outcome_OUTCOME_UNSPECIFIED:
		r.Holder = k.Who
	}
}

// recallOne rebuilds the answer to one operation of a txn.
func recallOne(op any, number uint64) *boardpb.Result {
	r := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: opKeys(op)[0]}
	if g, ok := op.(interface{ GetGeneration() uint64 }); ok {
		r.Generation, r.Version = g.GetGeneration(), number
		if o, ok := op.(*boardpb.Complete); ok {
			r.ResultRef = resultRef(o, number)
		}
	} else {
		r.Generation = number // a claim
	}
	return r
}

// recallClaims rebuilds the answer to a claim of several keys: what each was granted, as far
// as its record still tells it, or which of them something was in the way of.
func recallClaims(x *state.Txn, keys []string, numbers []uint64, r *boardpb.Result) {
	if r.Outcome != boardpb.Outcome_OUTCOME_OK {
		for _, i := range numbers {
			r.InTheWay = append(r.InTheWay, keys[i])
		}
		return
	}
	size := 0
	for i, generation := range numbers {
		one := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: keys[i], Generation: generation}
		if l := x.Lease(one.Key); l.GetState() == held && l.Generation == generation {
			one = granted(x, l)
		} else {
			one.ValueGone = true
		}
		size = spare(one, size)
		r.Results = append(r.Results, one)
	}
}

func recallClaim(x *state.Txn, r *boardpb.Result) {
	recallValue(x, r)
	recallAttempts(x, r)
	for _, p := range x.Lease(r.Key).GetPrevious() {
		if p.Generation < r.Generation {
			r.Previous = append(r.Previous, p)
		}
	}
}

func recallAttempts(x *state.Txn, r *boardpb.Result) {
	if l := x.Lease(r.Key); l.GetGeneration() == r.Generation {
		r.Attempts = l.GetAttempts()
	}
}

func recallValue(x *state.Txn, r *boardpb.Result) {
	if r.Version == 0 {
		return
	}
	if id, phase := state.PhaseOf(r.Key); phase {
		if d := x.PhaseData(id, r.Version); d != nil {
			DescribePhase(r, d)
			return
		}
	}
	if key := x.Key(r.Key); key != nil {
		if e := key.Version(r.Version); e != nil {
			describe(r, e)
			return
		}
	}
	r.ValueGone = true
}

type numbers struct{ version, generation uint64 }

// numbersNamed finds the version and generation that the caller named for the key of
// the answer.
func numbersNamed(c *boardpb.Command, r *boardpb.Result) numbers {
	op := plainOp(c)
	if t := c.GetTxn(); t != nil {
		switch {
		case r.FailedGuard != nil:
			g := t.Guards[*r.FailedGuard]
			return numbers{g.GetVersion().GetVersion(), g.GetLease().GetGeneration()}
		case r.FailedOp != nil:
			op = txnOp(t.Ops[*r.FailedOp])
		}
	}
	if h := c.GetHeartbeat(); h != nil {
		op = h
	}
	if p := phaseOp(c); p != nil {
		op = p
	}
	var n numbers
	if v, ok := op.(interface{ GetIfVersion() uint64 }); ok {
		n.version = v.GetIfVersion()
	}
	if v, ok := op.(interface{ GetVersionRead() uint64 }); ok {
		n.version = v.GetVersionRead()
	}
	if g, ok := op.(interface{ GetGeneration() uint64 }); ok {
		n.generation = g.GetGeneration()
	}
	if w, ok := op.(interface{ GetForClaim() *boardpb.LeaseRef }); ok && w.GetForClaim().GetKey() == r.Key {
		n.generation = w.GetForClaim().GetGeneration()
	}
	return n
}

// bodyKey is the key that a command's body names, if it is one.
func bodyKey(c *boardpb.Command) string {
	switch o := c.Op.(type) {
	case *boardpb.Command_Txn, *boardpb.Command_ClaimNext, *boardpb.Command_LoopOpen, *boardpb.Command_LoopKeepalive:
		return ""
	case *boardpb.Command_Heartbeat:
		return o.Heartbeat.Key
	case *boardpb.Command_Reopen:
		return o.Reopen.Key
	case *boardpb.Command_Unpark:
		return o.Unpark.Key
	case *boardpb.Command_ForceRelease:
		return o.ForceRelease.Key
	case *boardpb.Command_ReportConflict:
		return o.ReportConflict.Key
	}
	if len(c.GetClaim().GetKeys()) > 0 {
		return ""
	}
	if keys := opKeys(plainOp(c)); len(keys) > 0 {
		return keys[0]
	}
	return phaseKey(c)
}
