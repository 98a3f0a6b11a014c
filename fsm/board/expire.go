package board

import (
	"strings"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/jepsen/planted"
)

// Expire ends what a deadline is about, if it is due, or corrects the deadline: it is a
// lower bound, and a keepalive may have moved the true one (SPEC F-4).
func Expire(x *state.Txn, kind state.DeadlineKind, id string) {
	switch kind {
	case state.DeadlineLease:
		expireLease(x, id)
	case state.DeadlineDelay:
		endDelay(x, id)
	case state.DeadlineLoop:
		expireLoop(x, id)
	}
}

func expireLease(x *state.Txn, key string) {
	l := x.Lease(key)
	if l == nil || l.State != held || !x.Passed(l.ExpiresTMs) {
		return
	}
	if expires := EffectiveExpiry(l, x.Loop(l.Loop)); !x.Passed(expires) {
		next := state.CloneLease(l)
		next.ExpiresTMs = expires
		x.PutLease(next)
		return
	}
	if planted.Bug("M33") { // the bug: what the worker stored goes with its lease
		l = state.CloneLease(l)
		for _, ref := range l.PartialRefs {
			x.PutEntry(&boardpb.Entry{Key: ref[:strings.IndexByte(ref, '@')], Deleted: true}, false)
		}
		l.PartialRefs = nil
	}
	next := endLease(x, l, free, boardpb.EndedBy_ENDED_BY_EXPIRED, "")
	x.Counters().Expiries++
	x.Use(key, func(u *boardpb.Usage) { u.Expiries++ })
	emitEnd(x, boardpb.Kind_KIND_LEASE_EXPIRED, next, next.Previous[0])
}

// endDelay puts a failed item back into the queue, behind those that wait already.
func endDelay(x *state.Txn, key string) {
	l := x.Lease(key)
	if l == nil || l.State != free || l.FreeTMs == 0 || !x.Passed(l.FreeTMs) {
		return
	}
	next := state.CloneLease(l)
	next.FreeTMs = 0
	x.PutLease(next)
}

func expireLoop(x *state.Txn, id string) {
	l := x.Loop(id)
	if l == nil || l.CheckTMs == 0 || !x.Passed(l.CheckTMs) {
		return
	}
	if l.State == ended {
		x.DropLoop(id)
		return
	}
	if silent := max(l.LastTMs, l.RenewedTMs) + l.TtlMs; !x.Passed(silent) {
		next := state.CloneLoop(l)
		next.CheckTMs = silent
		x.PutLoop(next)
		return
	}
	if l.Holds == 0 {
		endLoop(x, l, "silent")
		return
	}
	next := state.CloneLoop(l)
	next.State, next.CheckTMs = inactive, 0 // it ends with its last lease
	x.PutLoop(next)
}

// ExpireCandidates expires what is due among the items that a claim_next may be offered,
// before anything else of the board: at most as many as it scans.
func ExpireCandidates(x *state.Txn, pattern string, due []state.Deadline) {
	p, why := state.ParsePattern(pattern)
	if why != "" {
		return
	}
	for _, d := range due {
		if p.Match(d.ID) {
			Expire(x, d.Kind, d.ID)
		}
	}
}

// ExpireNamed expires what a command names, if due, before the command runs: its loop
// and that loop's leases, and each key it touches.
func ExpireNamed(x *state.Txn, c *boardpb.Command) {
	keys, loops := names(c)
	for _, key := range keys {
		expireLease(x, key)
		endDelay(x, key)
	}
	for _, loop := range loops {
		for _, key := range x.Holdings(loop, state.MaxLeases, true) {
			expireLease(x, key)
		}
		expireLoop(x, loop)
	}
}

// names lists the keys and loops a command is about.
func names(c *boardpb.Command) (keys, loops []string) {
	if c.Loop != "" {
		loops = append(loops, c.Loop)
	}
	switch o := c.Op.(type) {
	case *boardpb.Command_Heartbeat:
		keys = append(keys, o.Heartbeat.Key)
	case *boardpb.Command_Reopen:
		keys = append(keys, o.Reopen.Key)
	case *boardpb.Command_Unpark:
		keys = append(keys, o.Unpark.Key)
	case *boardpb.Command_ForceRelease:
		keys = append(keys, o.ForceRelease.Key)
	case *boardpb.Command_LoopKeepalive:
		for _, l := range o.LoopKeepalive.Loops {
			loops = append(loops, l.Loop)
		}
		for _, l := range o.LoopKeepalive.LetGo {
			keys = append(keys, l.Key)
		}
	case *boardpb.Command_LoopClose:
		if o.LoopClose.Loop != "" {
			loops = append(loops, o.LoopClose.Loop)
		}
	case *boardpb.Command_LoopOpen:
		if o.LoopOpen.ParentLoop != "" {
			loops = append(loops, o.LoopOpen.ParentLoop)
		}
	case *boardpb.Command_Txn:
		for _, g := range o.Txn.Guards {
			if key, ok := guardKey(g); ok {
				keys = append(keys, key)
			}
		}
		for _, op := range o.Txn.Ops {
			keys = append(keys, opKeys(txnOp(op))...)
		}
	default:
		if keys = opKeys(plainOp(c)); keys == nil && phaseKey(c) != "" {
			keys = []string{phaseKey(c)}
		}
	}
	return keys, loops
}

// opKeys lists the keys of one operation, those of its references too.
func opKeys(op any) []string {
	switch o := op.(type) {
	case *boardpb.Set:
		return refKeys(o.Key, o.Fence, o.ForClaim)
	case *boardpb.Append:
		return refKeys(o.Key, o.Fence, o.ForClaim)
	case *boardpb.Claim:
		if len(o.Keys) > 0 {
			return o.Keys
		}
		return []string{o.Key}
	case interface{ GetKey() string }:
		return []string{o.GetKey()}
	}
	return nil
}

func refKeys(key string, refs ...*boardpb.LeaseRef) []string {
	keys := []string{key}
	for _, r := range refs {
		if r != nil {
			keys = append(keys, r.Key)
		}
	}
	return keys
}
