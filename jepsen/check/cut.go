package check

import (
	"cmp"
	"math"
	"slices"

	"raftboard/jepsen/history"
)

// Cut decides operations of any kind whose outcome nobody knows, with what A says of them: one
// that had no effect by the end is left out, one that had is given its answer, and ends where
// the first operation ends that saw it. Reads that got no answer say nothing and are left out.
// It may be used only on a history in which Agree and Answers found nothing against A (G1 to
// G3). It takes time in proportion to the operations, but for sorting them.
func Cut(ops []history.Op, a *Order) []history.Op {
	seen := sightsOf(ops)
	out := make([]history.Op, 0, len(ops))
	for _, op := range ops {
		if op.Outcome != history.Info {
			out = append(out, op)
			continue
		}
		if op.Kind.Reads() {
			continue
		}
		for _, r := range a.ByCall(op.CallID()) {
			if r.OK() && r.Command.GetReportConflict() == nil {
				op.Outcome, op.Result = history.OK, answerOf(r, op.Key == "")
				op.Ended = seen.first(&op)
				out = append(out, op)
				break
			}
		}
	}
	return out
}

// trusted says whether A is what happened: it is one, every answer is in it, and what clients
// were told of its numbers is right.
func trusted(found []Finding) bool {
	return !slices.ContainsFunc(found, func(f Finding) bool {
		switch f.Checker {
		case "G1", "G2", "G3", "R2", "R3", "S1":
			return true
		}
		return f.Class == Invalid // a trace with a hole
	})
}

// answerOf is what the client would have been told.
func answerOf(r *history.Applied, keyless bool) history.Result {
	res := history.Result{Answer: name(r.Result), Rev: r.Result.Rev, Version: r.Result.Version, Generation: r.Result.Generation}
	if keyless {
		res.Key = r.Result.Key
	}
	return res
}

// sights are where the answers of a history first show something: a revision of a board, or a
// version of a key.
type sights struct {
	revs map[string]steps // by board
	keys map[[2]string]steps
}

// steps says for a number when the first answer ended that showed it or more: the numbers
// rise, and so do the ends.
type steps []step

type step struct{ number, ended uint64 }

func sightsOf(ops []history.Op) *sights {
	s := &sights{revs: map[string]steps{}, keys: map[[2]string]steps{}}
	for _, op := range ops {
		if op.Outcome == history.Info || op.Ended == 0 {
			continue
		}
		key := cmp.Or(op.Key, op.Result.Key)
		if op.Result.Rev > 0 {
			s.revs[op.Board] = append(s.revs[op.Board], step{op.Result.Rev, op.Ended})
		}
		if key != "" && op.Result.Version > 0 {
			at := [2]string{op.Board, key}
			s.keys[at] = append(s.keys[at], step{op.Result.Version, op.Ended})
		}
	}
	for board, all := range s.revs {
		s.revs[board] = all.rising()
	}
	for key, all := range s.keys {
		s.keys[key] = all.rising()
	}
	return s
}

func (all steps) rising() steps {
	slices.SortFunc(all, func(a, b step) int { return cmp.Compare(a.number, b.number) })
	for i := len(all) - 2; i >= 0; i-- {
		all[i].ended = min(all[i].ended, all[i+1].ended)
	}
	return all
}

// first is when the first answer ended that showed a number or more.
func (all steps) first(number uint64) uint64 {
	i, _ := slices.BinarySearchFunc(all, number, func(s step, number uint64) int { return cmp.Compare(s.number, number) })
	if i == len(all) {
		return math.MaxUint64
	}
	return all[i].ended
}

// first is where a write that did happen was first seen by somebody; without an end if nobody
// saw it, or if somebody claims to have seen it before it was sent, which only a checker of
// answers may judge.
func (s *sights) first(w *history.Op) uint64 {
	ended := s.revs[w.Board].first(w.Result.Rev)
	if w.Key != "" && w.Result.Version > 0 {
		ended = min(ended, s.keys[[2]string{w.Board, w.Key}].first(w.Result.Version))
	}
	if ended <= w.Began {
		return math.MaxInt64
	}
	return min(ended, math.MaxInt64)
}
