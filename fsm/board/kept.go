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
	k.Flags = flag(r.Renewed, keptRenewed) | flag(r.Late, keptLate)
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
		Renewed: k.Flags&keptRenewed != 0, Late: k.Flags&keptLate != 0, Key: firstOfAll(k.Key, bodyKey(c))}
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
	case *boardpb.Command_BoardCreate:
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
	var n numbers
	if v, ok := op.(interface{ GetIfVersion() uint64 }); ok {
		n.version = v.GetIfVersion()
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
