package check_test

import (
	"testing"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
)

const (
	stale   = boardpb.Code_CODE_STALE_LEASE
	overdue = boardpb.Code_CODE_LEASE_EXPIRED
)

// leaseTraces begin with a leader at board time 0 and the default grace of 10 s.
var leaseTraces = []struct {
	name, want string
	write      func(b *traceOf)
}{
	{"good: expired, claimed again, the late one refused", "", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		b.at(23_000).claim("b", 1, "claims/i", 2, 3000, 5, expired("a", 1))
		b.at(24_000).complete("a", 2, "claims/i", 1, "x", refused(stale, 1, 2))
		b.complete("b", 2, "claims/i", 2, "y", done(6, 2, "r@1"))
	}},
	{"good: a keepalive covers what was acknowledged", "", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		b.at(22_000).keepalive("a", 2)
		b.at(24_500).complete("a", 2, "claims/i", 1, "x", done(4, 1, "r@1"))
	}},
	{"good: the grace of an election keeps a lease", "", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		b.at(21_000).lead(3)
		b.at(30_999).complete("a", 2, "claims/i", 1, "x", done(4, 1, "r@1"))
	}},
	{"good: elections together delay by a minute at most", "", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		for t := int64(21_000); t <= 83_000; t += 2000 {
			b.at(t).lead(uint64(t))
		}
		b.at(83_000).claim("b", 1, "claims/i", 2, 3000, 5, expired("a", 1))
	}},

	{"L1: a generation is given twice", "L1", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		b.at(24_000).claim("b", 1, "claims/i", 1, 3000, 5, expired("a", 1))
	}},
	{"L1: generations begin anew after a delete", "L1", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 4, 3000, 3)
		b.at(24_000).do("", 0, &boardpb.Command{Op: &boardpb.Command_Delete{Delete: &boardpb.Delete{Key: "claims/i"}}}, ok(5, 2))
		b.claim("b", 1, "claims/i", 1, 3000, 6)
	}},
	{"good: tried out, parked, unparked, granted again", "", func(b *traceOf) {
		twice(b)
		try(b.at(28_000), "b", 4, 2, 2, parkedNow(2))
		unpark(b)
		try(b, "b", 5, 3, 1, nil)
	}},
	{"Q7: granted while it is parked", "Q7", func(b *traceOf) {
		twice(b)
		try(b.at(28_000), "b", 4, 3, 3, nil)
	}},
	{"Q7: an attempt is not counted", "Q7", func(b *traceOf) {
		limited(b)
		try(b.at(20_000), "a", 1, 1, 1, nil)
		try(b.at(24_000), "b", 3, 2, 1, nil)
	}},
	{"Q7: parked before it was tried out", "Q7", func(b *traceOf) {
		limited(b)
		try(b.at(20_000), "a", 1, 1, 1, nil)
		try(b.at(24_000), "b", 3, 1, 2, parkedNow(1))
	}},
	{"Q7: unparked, and it was not parked", "Q7", func(b *traceOf) {
		limited(b)
		try(b.at(20_000), "a", 1, 1, 1, nil)
		unpark(b)
	}},
	{"L3: two hold at once", "L3", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		b.at(22_999).claim("b", 1, "claims/i", 2, 3000, 4)
	}},
	{"L3: a lease is given away although its loop was renewed", "L3", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		b.at(22_000).keepalive("a", 2)
		b.at(24_000).claim("b", 1, "claims/i", 2, 3000, 4)
	}},
	{"L3: a lease is given away within the grace of an election", "L3", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		b.at(22_000).lead(3)
		b.at(26_000).claim("b", 1, "claims/i", 2, 3000, 4)
	}},
	{"L3: a claim is told another end than it has", "L3", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		r := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: "claims/i", Generation: 1, ExpiresTMs: 999_000}
		b.at(21_000).do("a", 2, &boardpb.Command{Op: &boardpb.Command_Heartbeat{Heartbeat: &boardpb.Heartbeat{Key: "claims/i", Generation: 1}}}, r)
	}},
	{"L4: board time falls", "L4", func(b *traceOf) {
		b.at(20_000).open("c", 3)
		b.at(19_999).open("d", 4)
	}},
	{"L2: a guarded write of an older generation is accepted", "L2", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		b.at(24_000).claim("b", 1, "claims/i", 2, 3000, 5, expired("a", 1))
		b.do("a", 2, &boardpb.Command{Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "claims/i", Generation: 1, Overwrite: true}}}, ok(6, 2))
	}},
	{"L2: a write after the window, before anybody claimed", "L2", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		b.at(23_000).do("a", 2, &boardpb.Command{Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "claims/i", Generation: 1, Overwrite: true}}}, ok(6, 2))
	}},
	{"L2: a write under the right generation by another loop", "L2", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		b.at(21_000).do("b", 1, &boardpb.Command{Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "claims/i", Generation: 1, Overwrite: true}}}, ok(6, 2))
	}},
	{"L2: a write elsewhere under an older generation is accepted", "L2", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		b.at(24_000).claim("b", 1, "claims/i", 2, 3000, 5, expired("a", 1))
		b.do("a", 2, &boardpb.Command{Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/f",
			Fence: &boardpb.LeaseRef{Key: "claims/i", Generation: 1}}}}, ok(6, 1))
	}},
	{"L2: a transaction guarded by a lease that is over is done", "L2", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		r := ok(6, 0)
		r.Results = []*boardpb.Result{ok(0, 1)}
		b.at(24_000).do("a", 2, &boardpb.Command{Op: &boardpb.Command_Txn{Txn: &boardpb.Txn{
			Guards: []*boardpb.Guard{{Test: &boardpb.Guard_Lease{Lease: &boardpb.LeaseRef{Key: "claims/i", Generation: 1}}}},
			Ops:    []*boardpb.TxnOp{{Op: &boardpb.TxnOp_Append{Append: &boardpb.Append{Key: "facts/f"}}}}}}}, r)
	}},
	{"good: a write elsewhere under a live lease renews nothing", "", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		b.at(22_000).do("a", 2, &boardpb.Command{Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/f",
			Fence: &boardpb.LeaseRef{Key: "claims/i", Generation: 1}}}}, ok(6, 1))
		b.at(23_000).claim("b", 1, "claims/i", 2, 3000, 7, expired("a", 1))
	}},
	{"Q2: a complete of an older generation is accepted", "Q2", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		b.at(24_000).claim("b", 1, "claims/i", 2, 3000, 5, expired("a", 1))
		b.complete("a", 2, "claims/i", 1, "x", done(6, 1, "r@1"))
	}},
	{"Q2: a complete of an item nobody holds", "Q2", func(b *traceOf) {
		b.at(20_000).complete("a", 2, "claims/i", 1, "x", done(6, 1, "r@1"))
	}},
	{"L7: a live holder is refused", "L7", func(b *traceOf) {
		b.at(20_000).claim("a", 1, "claims/i", 1, 3000, 3)
		b.at(22_000).keepalive("a", 2)
		b.at(24_500).complete("a", 2, "claims/i", 1, "x", refused(overdue, 1, 1))
	}},
}

func TestTheAccountOfLeasesJudgesHandWrittenTraces(t *testing.T) {
	for _, h := range leaseTraces {
		t.Run(h.name, func(t *testing.T) {
			b := newTrace().lead(2).open("a", 1).open("b", 2)
			h.write(b)
			_, found := check.Leases(b.agreed(t))
			fires(t, h.want, found)
		})
	}
}
