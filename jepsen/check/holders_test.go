package check_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// tenants is the story every bad one departs from, in which board time and real time are one: a
// is granted lease/1 at 20 s for 3 s, writes under it at 21 s, and is lost; it runs out at 24 s;
// b is granted it at 25 s, writes, and gives it back at 27 s.
type tenants struct {
	b *traceOf
	h *history.History

	expiresAt time.Duration // when the nodes wrote the expiry down
	electedAt int64         // board time of an election in between; 0: none
	idle      int64         // ms for which nothing expires anything
	unended   bool          // nothing does
	before    []*boardpb.Previous
}

const tenanted = "lease/1"

func newTenants() *tenants {
	s := &tenants{b: newTrace(), h: &history.History{Run: history.Run{Board: theBoard, Ended: 30 * time.Second, Failover: 5 * time.Second}},
		expiresAt: 24 * time.Second}
	op := func(id uint64, client string, kind history.Kind, at time.Duration, generation uint64) history.Op {
		o := history.Op{ID: id, Client: client, Kind: kind, Key: tenanted, Invoke: at, Return: at + 10*time.Millisecond, Outcome: history.OK,
			Began: 2 * id, Ended: 2*id + 1}
		if kind != history.Claim {
			o.Args = history.Args{Generation: generation, Value: client + "'s"}
		}
		o.Result = history.Result{Answer: "ok", Generation: generation}
		return o
	}
	s.h.Ops = []history.Op{
		op(201, "a", history.Claim, 20*time.Second, 1), op(101, "a", history.Guarded, 21*time.Second, 1),
		op(202, "b", history.Claim, 25*time.Second, 2), op(102, "b", history.Guarded, 26*time.Second, 2),
		op(103, "b", history.Release, 27*time.Second, 2),
	}
	s.h.Beliefs = []history.Belief{
		{Client: "a", Board: theBoard, Key: tenanted, Generation: 1, Duration: 3 * time.Second, From: 20 * time.Second, To: 24 * time.Second,
			Until: 24 * time.Second, Why: history.BeliefClock},
		{Client: "b", Board: theBoard, Key: tenanted, Generation: 2, Duration: 3 * time.Second, From: 25 * time.Second, To: 27 * time.Second,
			Until: 29 * time.Second, Why: history.BeliefGiven},
	}
	// What was done to the cluster, or to a, explains nothing here.
	s.h.Faults = []history.Fault{{Name: "slow", Nemesis: "N5", Start: 20 * time.Second, End: 22 * time.Second, Witness: "?"}}
	return s
}

func (s *tenants) op(id uint64) *history.Op {
	return &s.h.Ops[slices.IndexFunc(s.h.Ops, func(o history.Op) bool { return o.ID == id })]
}

func (s *tenants) guarded(w string, id uint64, generation uint64) {
	r := ok(0, id)
	r.Key, r.Generation = tenanted, generation
	s.b.do(w, id, &boardpb.Command{CallId: history.CallID(id), Op: &boardpb.Command_Set{Set: &boardpb.Set{
		Key: tenanted, Value: []byte(w), Generation: generation, Overwrite: true}}}, r)
}

func (s *tenants) judge(t *testing.T) (*check.HolderFigures, []check.Finding) {
	t.Helper()
	b := s.b.lead(2).at(19_000).open("a", 1).open("b", 2)
	b.at(20_000).claim("a", 1, tenanted, 1, 3000, 3)
	b.at(21_000)
	s.guarded("a", 101, 1)
	if s.electedAt > 0 {
		b.at(s.electedAt).lead(3)
	}
	if !s.unended {
		s.successor()
	}
	for i := range b.records {
		if a := &b.records[i]; a.At == 0 {
			a.At = time.Duration(a.T) * time.Millisecond
		}
	}
	s.h.Applied = b.records
	order := b.agreed(t)
	windows, _ := check.Leases(order) // what it finds is tested elsewhere
	return check.Holders(s.h, order, windows)
}

// successor is the second half of the story.
func (s *tenants) successor() {
	b := s.b
	b.at(24_000+s.idle).open("tick", 5)
	b.records[len(b.records)-1].At = s.expiresAt
	b.at(25_000+s.idle).claim("b", 1, tenanted, 2, 3000, 6, s.before...)
	b.at(26_000 + s.idle)
	s.guarded("b", 102, 2)
	r := ok(8, 0)
	r.Key, r.Generation = tenanted, 2
	b.at(27_000+s.idle).do("b", 3, &boardpb.Command{CallId: history.CallID(103),
		Op: &boardpb.Command_Release{Release: &boardpb.Release{Key: tenanted, Generation: 2}}}, r)
}

func (s *tenants) paused(from, to time.Duration) {
	s.h.Beliefs[0].Paused, s.h.Beliefs[0].To = true, to
	s.h.Faults = append(s.h.Faults, history.Fault{Name: "pause", Targets: []string{"a"}, Start: from, End: to, Witness: "?"})
}

// appendedBy is a list that is guarded by the lease, as a reader saw it at the end.
func (s *tenants) appendedBy(generations ...uint64) {
	for i, g := range generations {
		value := string(rune('a' + i))
		s.h.Ops = append(s.h.Ops, history.Op{ID: uint64(300 + i), Client: "a", Kind: history.Fenced, Key: "log/1", Outcome: history.Info,
			Args: history.Args{Value: value, Generation: g, ForClaim: tenanted}})
		s.h.Finals = append(s.h.Finals, history.Final{Reader: "n1", Entry: &boardpb.Entry{Key: "log/1", Version: uint64(i + 1), Value: []byte(value)}})
	}
}

func TestTheHoldersCheckerJudgesHandWrittenHistories(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(s *tenants)
	}{
		{"good: lost, and held by another one afterwards", "", func(*tenants) {}},
		{"good: what it guards rises", "", func(s *tenants) { s.appendedBy(1, 1, 2, 2) }},
		{"good: it believed for too long, for it was paused", "", func(s *tenants) { s.paused(22*time.Second, 28*time.Second) }},
		{"good: it noticed late that its own clock had said so", "", func(s *tenants) { s.h.Beliefs[0].To = 28 * time.Second }},
		{"good: a clock ran fast, by less than a twentieth", "", func(s *tenants) {
			s.h.Faults[0].Nemesis = "N12"
			s.h.Beliefs[0].To, s.h.Beliefs[0].Until = 25*time.Second+100*time.Millisecond, 25*time.Second+100*time.Millisecond
			s.op(101).Invoke = 21 * time.Second
			s.expiresAt = 25 * time.Second
		}},
		{"good: the expiry came late, while the cluster was hurt", "", func(s *tenants) {
			s.h.Run.Ended = 3 * time.Minute
			s.h.Faults[0].End = 2 * time.Minute
			s.expiresAt = 100 * time.Second
		}},

		{"L2: what is guarded falls to an older generation", "L2", func(s *tenants) { s.appendedBy(1, 2, 1) }},
		{"L2: a refused write is in what is guarded", "L2", func(s *tenants) {
			s.appendedBy(1)
			s.h.Ops[len(s.h.Ops)-1].Outcome, s.h.Ops[len(s.h.Ops)-1].Result.Answer = history.Failed, "stale_lease"
		}},
		{"L5: expired early in real time", "L5", func(s *tenants) { s.expiresAt = 23*time.Second + 800*time.Millisecond }},
		{"L5: expired early, after a renewal that only the client knows of", "L5", func(s *tenants) {
			s.h.Beliefs[0].Until = 24*time.Second + 500*time.Millisecond
		}},
		{"L6: expired late in board time", "L6", func(s *tenants) {
			s.idle, s.expiresAt = 8_000, 32*time.Second
			s.h.Beliefs[0].Why = history.BeliefSilent
		}},
		{"L6: expired late in real time", "L6", func(s *tenants) {
			s.expiresAt = 40 * time.Second
			s.h.Beliefs[0].Why = history.BeliefSilent
		}},
		{"L6: it never ends", "L6", func(s *tenants) { s.unended, s.h.Run.Ended = true, 5*time.Minute }},
		{"L7: acknowledged under a generation that was over", "L7", func(s *tenants) { s.op(102).Args.Generation = 1 }},
		{"L7: acknowledged under a generation that never was", "L7", func(s *tenants) { s.op(102).Args.Generation = 9 }},
		{"L8: two believe, and none was paused", "L8", func(s *tenants) {
			s.h.Beliefs[0].To, s.h.Beliefs[0].Until = 26*time.Second, 26*time.Second
			s.op(101).Invoke, s.expiresAt = 23*time.Second, 26*time.Second
		}},
		{"L9: it renewed, nothing was done, and it ran out", "L9", func(s *tenants) { s.h.Faults = nil }},
		{"L9: expired within the grace, as the next grant says", "L9", func(s *tenants) {
			s.electedAt = 22_000
			s.before = []*boardpb.Previous{expired("a", 1)}
			s.before[0].EndedTMs = 24_500
		}},
		{"L9: expired within the grace, as the feed says", "L9", func(s *tenants) {
			s.electedAt = 22_000
			s.h.Feed = []history.Told{{Watcher: "w", Board: theBoard, Event: &boardpb.Event{Kind: boardpb.Kind_KIND_LEASE_EXPIRED,
				Key: tenanted, Generation: 1, TMs: 24_500}}}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newTenants()
			c.spoil(s)
			_, found := s.judge(t)
			fires(t, c.want, found)
		})
	}
}

func TestTheFiguresTellPausesFromLosses(t *testing.T) {
	s := newTenants()
	s.paused(22*time.Second, 28*time.Second)
	figures, _ := s.judge(t)
	if figures.Beliefs != 2 || figures.Overlaps != 1 || figures.OverlapPaused != 1 || figures.Longest != 2*time.Second || figures.Expired != 1 {
		t.Errorf("got %+v", figures)
	}
	if figures.Earliest < 0.99 || figures.Earliest > 1.01 {
		t.Errorf("the lease lived for %v of its duration", figures.Earliest)
	}
}

// A history is judged again offline: what is told first must not depend on the order of a map.
func TestAHistoryJudgedAgainTellsTheSameInTheSameOrder(t *testing.T) {
	told := func() (all []string) {
		s := newTenants()
		for i := range 8 {
			key := fmt.Sprintf("log/%d", i)
			for n, generation := range []uint64{2, 1} {
				value := fmt.Sprintf("%s.%d", key, n)
				s.h.Ops = append(s.h.Ops, history.Op{ID: uint64(500 + 2*i + n), Kind: history.Fenced, Key: key, Outcome: history.OK,
					Args: history.Args{Value: value, Generation: generation}})
				s.h.Finals = append(s.h.Finals, history.Final{Reader: "n1", Entry: &boardpb.Entry{Key: key, Version: uint64(n + 1), Value: []byte(value)}})
			}
			for n, client := range []string{"c", "d"} {
				s.h.Beliefs = append(s.h.Beliefs, history.Belief{Client: client, Board: theBoard, Key: key, Generation: uint64(n + 1),
					Duration: time.Second, To: time.Second, Until: time.Second, Why: history.BeliefGiven})
			}
		}
		_, found := check.Holders(s.h, s.b.agreed(t), nil)
		for _, f := range found {
			all = append(all, f.String())
		}
		return all
	}
	first := told()
	if len(first) != 16 {
		t.Fatalf("%d findings: %q", len(first), first)
	}
	for range 5 {
		if again := told(); !slices.Equal(first, again) {
			t.Fatalf("first %q\nagain %q", first, again)
		}
	}
}
