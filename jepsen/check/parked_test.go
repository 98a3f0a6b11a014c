package check_test

import boardpb "raftboard/fsm/pb"

// limited declares claims/* with two attempts.
func limited(b *traceOf) {
	b.raw(&boardpb.Command{Op: &boardpb.Command_BoardSet{BoardSet: &boardpb.BoardSet{Name: theBoard, Settings: &boardpb.BoardSettings{
		Namespaces: []*boardpb.Namespace{{Pattern: "claims/*", Mode: boardpb.Mode_MODE_LEASED, MaxAttempts: 2}}}}}}, ok(2, 2))
}

// twice is an item of which two grants of 3 s ran out.
func twice(b *traceOf) {
	limited(b)
	try(b.at(20_000), "a", 1, 1, 1, nil)
	try(b.at(24_000), "b", 3, 2, 2, nil)
}

// try is a claim of claims/i: granted as so many attempts, or answered otherwise.
func try(b *traceOf, w string, seq, generation uint64, attempts uint32, otherwise *boardpb.Result) {
	ms, r := int64(3000), otherwise
	if r == nil {
		r = &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: "claims/i", Generation: generation, DurationMs: ms,
			ExpiresTMs: b.t + ms, Attempts: attempts}
	}
	r.Rev = seq + 2
	b.do(w, seq, &boardpb.Command{Op: &boardpb.Command_Claim{Claim: &boardpb.Claim{Key: "claims/i", DurationMs: &ms}}}, r)
}

func unpark(b *traceOf) {
	b.do("", 0, &boardpb.Command{Op: &boardpb.Command_Unpark{Unpark: &boardpb.Unpark{Key: "claims/i"}}}, ok(7, 0))
}

func parkedNow(generation uint64) *boardpb.Result {
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_NOT_READY, Key: "claims/i", Generation: generation, Field: "parked"}
}
