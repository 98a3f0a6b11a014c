package board

import (
	"slices"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/jepsen/planted"
)

// windowID names a remembered result of a loop: the seq in 16 hex digits, so that a
// loop's results stand in order.
func windowID(loop string, seq uint64) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 0, 64)
	b = append(append(b, loop...), '/')
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, digits[seq>>shift&15])
	}
	return string(b)
}

func idempotencyID(principal, key string) string { return principal + "!" + key }

// Identity is who a command says it is: the seq of a loop, or an idempotency key. It
// answers nil when the command may run; else the first answer again, or a refusal
// (SPEC F-7, F-13).
func Identity(x *state.Txn, hash [16]byte) *boardpb.Result {
	c := x.Command()
	if c.Loop != "" {
		if r := ownLoop(x, c); r != nil {
			return r
		}
	}
	switch {
	case c.Seq > 0:
		return windowed(x, c, hash)
	case c.IdempotencyKey != "":
		if r := keyed(x, c, hash); r != nil {
			return r
		}
	}
	if x.Loop(c.Loop).GetState() == ended && !closes(c) {
		return &boardpb.Result{Code: boardpb.Code_CODE_LOOP_ENDED, Loop: c.Loop}
	}
	return nil
}

// closes: closing a loop twice is answered by the operation itself.
func closes(c *boardpb.Command) bool {
	_, ok := c.Op.(*boardpb.Command_LoopClose)
	return ok
}

func ownLoop(x *state.Txn, c *boardpb.Command) *boardpb.Result {
	switch l := x.Loop(c.Loop); {
	case l == nil:
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Loop: c.Loop}
	case l.Principal != state.Principal(c.Actor):
		return &boardpb.Result{Code: boardpb.Code_CODE_FORBIDDEN, Loop: c.Loop, Field: fieldLoop}
	}
	return nil
}

func windowed(x *state.Txn, c *boardpb.Command, hash [16]byte) *boardpb.Result {
	l := x.Loop(c.Loop)
	floor := max(l.Floor, c.Floor)
	if c.Seq < floor {
		return &boardpb.Result{Code: boardpb.Code_CODE_EXPIRED_REQUEST, Got: c.Seq, Limit: floor}
	}
	if k := x.Kept(windowID(c.Loop, c.Seq)); k != nil && !planted.Bug("M5") {
		return again(x, k, hash)
	}
	if l.State == ended {
		return &boardpb.Result{Code: boardpb.Code_CODE_LOOP_ENDED, Loop: c.Loop}
	}
	if c.Seq >= floor+state.InFlight {
		return &boardpb.Result{Code: boardpb.Code_CODE_LIMIT_IN_FLIGHT, Got: c.Seq, Limit: state.InFlight, RetryAfterMs: 50}
	}
	return nil
}

func keyed(x *state.Txn, c *boardpb.Command, hash [16]byte) *boardpb.Result {
	me := state.Principal(c.Actor)
	lapsed := func(k *boardpb.Kept) bool { return x.T() >= k.KeptTMs+state.IdemKeptMs }
	if k := x.Kept(idempotencyID(me, c.IdempotencyKey)); k != nil && !lapsed(k) && !planted.Bug("M5") {
		return again(x, k, hash)
	}
	board, own := x.IdemCount(me)
	oldest, mine := x.OldestIdem(me, 4)
	// A few that lapsed go with every new one, so the memory never grows past its use.
	for _, k := range append(mine, oldest...) {
		if lapsed(k) && x.Kept(k.Id) != nil {
			x.DropKept(k.Id)
			board--
			if isOf(k.Id, me) {
				own--
			}
		}
	}
	switch {
	case own >= state.IdemPerPrincipal:
		return tooManyKeys(x, own, state.IdemPerPrincipal, mine[0])
	case board >= state.IdemPerBoard:
		return tooManyKeys(x, board, state.IdemPerBoard, oldest[0])
	}
	return nil
}

// tooManyKeys refuses a new key; the oldest of those that count tells how long.
func tooManyKeys(x *state.Txn, got, limit int, oldest *boardpb.Kept) *boardpb.Result {
	return &boardpb.Result{Code: boardpb.Code_CODE_LIMIT_IDEMPOTENCY_KEYS, Got: uint64(got), Limit: uint64(limit),
		RetryAfterMs: max(1, oldest.KeptTMs+state.IdemKeptMs-x.T())}
}

func isOf(id, principal string) bool {
	return len(id) > len(principal) && id[:len(principal)+1] == principal+"!"
}

// again gives the first answer to an identity, unless it comes with another body.
func again(x *state.Txn, k *boardpb.Kept, hash [16]byte) *boardpb.Result {
	if string(k.BodyHash) != string(hash[:]) {
		return &boardpb.Result{Code: boardpb.Code_CODE_REQUEST_ID_REUSED}
	}
	if planted.Bug("M7") { // any answer will do
		return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: bodyKey(x.Command()), Replayed: true}
	}
	return recall(x, k)
}

const (
	keptRenewed = 1 << iota
	keptLate
	keptGuard
	keptOp
	keptMerged
	keptDuplicate
)

// Remember keeps an answer under the command's identity, if it has one, without any value.
func Remember(x *state.Txn, r *boardpb.Result, hash [16]byte) {
	c := x.Command()
	k := &boardpb.Kept{BodyHash: hash[:], Outcome: r.Outcome, Code: r.Code, Rev: r.Rev, Version: r.Version,
		Generation: r.Generation, Who: firstOfAll(r.Holder, r.Author, r.Incarnation), ExpiresTMs: r.ExpiresTMs, Field: r.Field, Got: r.Got,
		Number: max(r.Limit, r.Next, r.OldestRev), KeptTMs: x.T()}
	switch {
	case c.Seq > 0:
		k.Id = windowID(c.Loop, c.Seq)
	case c.IdempotencyKey != "":
		k.Id = idempotencyID(state.Principal(c.Actor), c.IdempotencyKey)
	default:
		return
	}
	if named := firstOfAll(r.Key, r.Loop); named != bodyKey(c) {
		k.Key = named
	}
	for i, one := range r.Results {
		// One number per operation, or 64 of them would not fit: what the body does not say.
		number := one.Version
		if c.GetClaim() != nil || c.GetTxn().GetOps()[i].GetClaim() != nil {
			number = one.Generation
		}
		k.Numbers = append(k.Numbers, number)
	}
	k.Numbers = append(k.Numbers, placesOf(c.GetClaim().GetKeys(), r.InTheWay)...)
	k.Flags = flag(r.Renewed, keptRenewed) | flag(r.Late, keptLate) | flag(r.Merged, keptMerged) |
		flag(r.DuplicateOf != "", keptDuplicate)
	switch {
	case r.FailedGuard != nil:
		k.Flags, k.Failed = k.Flags|keptGuard, *r.FailedGuard
	case r.FailedOp != nil:
		k.Flags, k.Failed = k.Flags|keptOp, *r.FailedOp
	case r.DurationMs > 0:
		k.Got = uint64(r.DurationMs)
	}
	switch r.Outcome {
	case boardpb.Outcome_OUTCOME_HELD:
		k.Field = r.HolderLoop
	case boardpb.Outcome_OUTCOME_NOT_READY:
		k.ExpiresTMs = x.T() + r.RetryAfterMs
	}
	planted.Point("dedupe-insert")
	x.PutKept(k)
}

// placesOf tells where in a list of keys some of them stand.
func placesOf(keys, some []string) (places []uint64) {
	for _, key := range some {
		places = append(places, uint64(slices.Index(keys, key)))
	}
	return places
}

func flag(set bool, bit uint32) uint32 {
	if set {
		return bit
	}
	return 0
}

func firstOfAll(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// Touch does for the calling loop what every command does: its floor rises, it lives on
// if the command was accepted, and it is told what it lost (SPEC F-13, LS-20).
func Touch(x *state.Txn, r *boardpb.Result) {
	c := x.Command()
	l := x.Loop(c.Loop)
	if c.Loop == "" || l == nil || l.Principal != state.Principal(c.Actor) {
		return
	}
	next := raiseFloor(x, l, c.Floor)
	r.Ended = append(r.Ended, next.Untold...)
	if l.State == ended { // its window still answers repeats (F-7), and no command revives it
		x.PutLoop(next)
		return
	}
	if r.Code == boardpb.Code_CODE_UNSPECIFIED {
		next.LastTMs = x.T()
		wake(x, next)
	}
	if c.Seq > 0 && len(next.Untold) > 0 {
		markTold(x, next, c.Seq)
	}
	x.PutLoop(next)
}

// markTold notes which answer told an ending first. A holder who hears of an expiry was
// alive: the lease was too short for the work, and the worker did not die.
func markTold(x *state.Txn, l *boardpb.Loop, seq uint64) {
	told := make([]*boardpb.Ended, len(l.Untold))
	for i, e := range l.Untold {
		told[i] = e
		if e.ToldSeq == 0 {
			if e.Cause == boardpb.EndedBy_ENDED_BY_EXPIRED {
				x.Counters().LateRenewals++
				x.Use(e.Key, func(u *boardpb.Usage) { u.Heard++ })
			}
			told[i] = state.CloneEnded(e)
			told[i].ToldSeq = seq
		}
	}
	l.Untold = told
}

// Keeps tells whether an answer is remembered: those that say that the command never ran
// are not, nor those of a keepalive, which may run again.
func Keeps(c *boardpb.Command, r *boardpb.Result) bool {
	if c.GetLoopKeepalive() != nil {
		return false
	}
	switch r.Code {
	case boardpb.Code_CODE_EXPIRED_REQUEST, boardpb.Code_CODE_REQUEST_ID_REUSED, boardpb.Code_CODE_LOOP_ENDED,
		boardpb.Code_CODE_LIMIT_IN_FLIGHT, boardpb.Code_CODE_LIMIT_IDEMPOTENCY_KEYS, boardpb.Code_CODE_RESET, boardpb.Code_CODE_STOPPING:
		return false
	}
	return true
}
