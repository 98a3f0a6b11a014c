package check_test

import (
	"testing"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

func TestTheAnswersCheckerJudgesHandWrittenHistories(t *testing.T) {
	acked := func() history.Op {
		return history.Op{ID: 1, Client: "a", Kind: history.Set, Key: "k", Outcome: history.OK, Args: history.Args{Value: "x"},
			Result: history.Result{Answer: "ok", Rev: 5, Version: 1}}
	}
	for _, c := range []struct {
		name, want string
		run        func(b *traceOf, o *history.Op)
	}{
		{"good: applied as it was told", "", func(b *traceOf, o *history.Op) { b.do("a", 1, writeOf(*o), ok(5, 1)) }},
		{"good: a repeat gets the first answer", "", func(b *traceOf, o *history.Op) {
			b.do("a", 1, writeOf(*o), ok(5, 1))
			b.do("a", 1, writeOf(*o), again(ok(5, 1)))
		}},
		{"good: unknown, and done", "", func(b *traceOf, o *history.Op) {
			o.Outcome = history.Info
			b.do("a", 1, writeOf(*o), ok(5, 1))
		}},
		{"G3: acknowledged and never applied", "G3", func(*traceOf, *history.Op) {}},
		{"R2: told another version", "R2", func(b *traceOf, o *history.Op) { b.do("a", 1, writeOf(*o), ok(5, 2)) }},
		{"R2: told another rev", "R2", func(b *traceOf, o *history.Op) { b.do("a", 1, writeOf(*o), ok(6, 1)) }},
		{"R3: a write that failed was done", "R3", func(b *traceOf, o *history.Op) {
			o.Outcome, o.Result.Answer = history.Failed, "unavailable"
			b.do("a", 1, writeOf(*o), ok(5, 1))
		}},
		{"S1: resent under the same identity, done twice", "S1", func(b *traceOf, o *history.Op) {
			b.do("a", 1, writeOf(*o), ok(5, 1))
			b.do("a", 1, writeOf(*o), ok(6, 2))
		}},
		{"S1: resent under a new identity, done twice", "S1", func(b *traceOf, o *history.Op) {
			b.do("a", 1, writeOf(*o), ok(5, 1))
			b.do("a", 2, writeOf(*o), ok(6, 2))
		}},
		{"S2: the repeat is answered otherwise", "S2", func(b *traceOf, o *history.Op) {
			b.do("a", 1, writeOf(*o), ok(5, 1))
			b.do("a", 1, writeOf(*o), again(ok(5, 2)))
		}},
		{"S2: an answer given again that was never given", "S2", func(b *traceOf, o *history.Op) {
			o.Outcome = history.Info
			b.do("a", 1, writeOf(*o), again(ok(5, 1)))
		}},
		{"R4: five attempts", "R4", func(b *traceOf, o *history.Op) {
			o.Kind = history.Mutate
			for seq := uint64(1); seq <= 4; seq++ {
				b.do("a", seq, writeOf(*o), &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_CONFLICT, Version: seq})
			}
			b.do("a", 5, writeOf(*o), ok(5, 1))
		}},
		{"R4: given up without a report", "R4", func(b *traceOf, o *history.Op) {
			o.Kind, o.Outcome, o.Result.Answer = history.Mutate, history.Failed, "conflict"
			b.do("a", 1, writeOf(*o), &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_CONFLICT, Version: 3})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, o := newTrace(), acked()
			c.run(b, &o)
			fires(t, c.want, check.Answers([]history.Op{o}, b.agreed(t)))
		})
	}
}

// eventful is a run that met what W5 under a killed leader must meet.
func eventful() (*history.History, *traceOf) {
	b := newTrace().lead(2).at(20_000).open("a", 1).post(1, "claims/i", 2)
	b.claim("a", 1, "claims/i", 1, 3000, 3).lead(3).at(34_000).claim("b", 1, "claims/i", 2, 3000, 5, expired("a", 1))
	b.complete("a", 2, "claims/i", 1, "x", refused(stale, 1, 2)).complete("b", 2, "claims/i", 2, "y", done(6, 2, "r@1"))
	h := &history.History{Run: history.Run{Board: theBoard},
		Ops: []history.Op{
			{ID: 1, Client: "p", Kind: history.Post, Outcome: history.OK, Began: 1, Ended: 2, Return: time.Second},
			{ID: 102, Client: "b", Kind: history.Complete, Outcome: history.OK, Began: 3, Ended: 4, Return: time.Minute},
		},
		Faults: []history.Fault{{Name: "kill", Nemesis: "N7", Start: 2 * time.Second, Witness: "term 3"}},
	}
	return h, b
}

func TestARunThatProvesNothingIsInvalid(t *testing.T) {
	demand := check.Demand{
		States: []check.State{check.LeaderChange, check.Reclaim, check.FencedWrite},
		Kinds:  []history.Kind{history.Post, history.Complete}, BeforeFault: 1,
		Faults: [][]string{{"kill"}},
	}
	for _, c := range []struct {
		name  string
		valid bool
		spoil func(*history.History, *traceOf)
	}{
		{"everything happened", true, func(*history.History, *traceOf) {}},
		{"no leader change", false, func(_ *history.History, b *traceOf) { b.records = without(b.records, 4) }},
		{"no reclaim", false, func(_ *history.History, b *traceOf) { b.records = without(b.records, 5) }},
		{"no fenced write", false, func(_ *history.History, b *traceOf) { b.records = without(b.records, 6) }},
		{"nothing completed", false, func(h *history.History, _ *traceOf) { h.Ops[1].Outcome = history.Info }},
		{"nothing before the fault", false, func(h *history.History, _ *traceOf) { h.Faults[0].Start = 0 }},
		{"a worker crashed at once", true, func(h *history.History, _ *traceOf) {
			h.Faults = append(h.Faults, history.Fault{Name: "crash", Targets: []string{"a"}, Witness: "held an item"})
		}},
		{"only a client was killed, and no node", false, func(h *history.History, _ *traceOf) {
			h.Faults[0].Name = "isolate"
			h.Faults = append(h.Faults, history.Fault{Name: "kill", Targets: []string{"a"}, Witness: "held an item"})
		}},
		{"a fault without a witness", false, func(h *history.History, _ *traceOf) {
			h.Faults = append(h.Faults, history.Fault{Name: "kill", Nemesis: "N7", Start: time.Minute})
		}},
		{"a client did two things at once", false, func(h *history.History, _ *traceOf) { h.Ops[1].Client, h.Ops[0].Ended = "p", 5 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, b := eventful()
			c.spoil(h, b)
			found := check.Valid(h, b.agreed(t), demand)
			want := check.INVALID
			if c.valid {
				want = check.VALID
			}
			if got := check.Judge(found); got != want || !c.valid && len(found) != 1 {
				t.Errorf("got %s: %v", got, found)
			}
		})
	}
}

func without(records []history.Applied, i int) []history.Applied {
	return append(append([]history.Applied{}, records[:i]...), records[i+1:]...)
}

func TestTheGravestFindingDecides(t *testing.T) {
	broken, hollow, open := check.Finding{Class: check.Violation}, check.Finding{Class: check.Invalid}, check.Finding{Class: check.Undecided}
	for _, c := range []struct {
		found []check.Finding
		want  check.Verdict
	}{
		{nil, check.VALID}, {[]check.Finding{open}, check.UNKNOWN}, {[]check.Finding{open, hollow}, check.INVALID},
		{[]check.Finding{hollow, open}, check.INVALID}, {[]check.Finding{open, hollow, broken}, check.FAILED},
	} {
		if got := check.Judge(c.found); got != c.want {
			t.Errorf("%v: got %s, want %s", c.found, got, c.want)
		}
	}
}
