package check_test

import (
	"testing"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

func TestTheOutsideTakesNoOlderGeneration(t *testing.T) {
	write := func(client string, generation, greatest uint64, accepted bool, place uint64) history.Outside {
		return history.Outside{Client: client, Key: "claims/i", Generation: generation, Greatest: greatest, Accepted: accepted, Place: place}
	}
	for _, c := range []struct {
		name, want string
		writes     []history.Outside
	}{
		{"good: the late one is turned away", "", []history.Outside{write("b", 2, 0, true, 10), write("a", 1, 2, false, 11)}},
		{"good: both in their order, and one repeats", "", []history.Outside{
			write("a", 1, 0, true, 10), write("b", 2, 1, true, 11), write("b", 2, 2, true, 12)}},
		{"Q2: a lower generation is taken after a higher one", "Q2", []history.Outside{write("b", 2, 0, true, 10), write("a", 1, 2, true, 11)}},
		{"Q2: a lower generation is taken after a completion", "Q2", []history.Outside{write("a", 1, 0, true, 51)}},
		{"L1: the holder is turned away for a generation that is not newer", "L1", []history.Outside{
			write("a", 1, 0, true, 10), write("b", 2, 1, false, 11)}},
		{"L1: the outside was shown a generation that nobody was granted", "L1", []history.Outside{write("b", 2, 7, false, 10)}},
		{"L1: somebody shows a generation that nobody was granted", "L1", []history.Outside{write("x", 3, 4, false, 10)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newTrace().lead(2).at(20_000).open("a", 1).open("b", 2).post(1, "claims/i", 3).claim("a", 1, "claims/i", 1, 3000, 4)
			b.at(24_000).claim("b", 1, "claims/i", 2, 3000, 6, expired("a", 1))
			windows, found := check.Leases(b.agreed(t))
			h := &history.History{Run: history.Run{Board: theBoard}, Outside: c.writes,
				Ops: []history.Op{{ID: 1, Kind: history.Complete, Key: "claims/i", Outcome: history.OK, Args: history.Args{Generation: 2}, Ended: 50}}}
			fires(t, c.want, append(found, check.Outside(h, windows)...))
		})
	}
}

func TestFiguresAreCountedFromWhatWasApplied(t *testing.T) {
	h, b := eventful()
	h.Outside = []history.Outside{{Accepted: true}, {}}
	h.Faults = append(h.Faults, history.Fault{Name: "crash", Targets: []string{"a"}}, history.Fault{Name: "pause", Targets: []string{"b"}})
	got := check.FiguresOf(h, b.agreed(t))
	want := check.Figures{Sets: 1, Posted: 1, Completed: 1, Grants: 2, Reclaims: 1, FenceRefusals: 1, OutsideRefusals: 1, Crashes: 1, Pauses: 1}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestALeaseMayRunOutWhereItsHolderWasKeptFromTheLeader: L9 is about elections. A holder
// whose link was slow, or who starved, is no witness.
func TestALeaseMayRunOutWhereItsHolderWasKeptFromTheLeader(t *testing.T) {
	for _, c := range []struct {
		nemesis, want string
	}{{"N7", "L9"}, {"N1", "L9"}, {"N5", ""}, {"N15", ""}} {
		t.Run(c.nemesis, func(t *testing.T) {
			w := newWork()
			w.h.Faults = []history.Fault{{Name: "f", Nemesis: c.nemesis, Targets: []string{"n1"}, End: time.Second}}
			fires(t, c.want, w.judge(t))
		})
	}
}
