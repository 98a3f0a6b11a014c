package check

import (
	"path"

	boardpb "raftboard/fsm/pb"
)

// trials is the naive second opinion on attempts: how often each item was granted since it
// was posted or unparked, and what became of it when that was often enough.
type trials struct {
	most   map[string][]*boardpb.Namespace // by board: the namespaces that say how often
	tries  map[slot]uint32
	parked map[slot]bool
}

func newTrials() trials {
	return trials{most: map[string][]*boardpb.Namespace{}, tries: map[slot]uint32{}, parked: map[slot]bool{}}
}

// declared takes over the table of a board.
func (tr *trials) declared(board string, s *boardpb.BoardSettings) {
	if len(s.GetNamespaces()) == 0 {
		return
	}
	tr.most[board] = nil
	for _, ns := range s.Namespaces {
		if ns.MaxAttempts > 0 {
			tr.most[board] = append(tr.most[board], ns)
		}
	}
}

// limit is how often an item may be granted; 0: as often as anybody likes.
func (tr *trials) limit(s slot) uint32 {
	for _, ns := range tr.most[s.board] {
		if ok, err := path.Match(ns.Pattern, s.key); err == nil && ok {
			return ns.MaxAttempts
		}
	}
	return 0
}

// tried: a grant counts, and a parked item is given to nobody.
func (acc *account) tried(s slot, r *boardpb.Result) {
	most := acc.trials.limit(s)
	if most == 0 {
		return
	}
	acc.trials.tries[s]++
	switch {
	case acc.trials.parked[s]:
		acc.say("Q7", "%s was granted as generation %d, and it is parked", s.key, r.Generation)
		acc.trials.parked[s] = false
	case r.Attempts != acc.trials.tries[s]:
		acc.say("Q7", "generation %d of %s is said to be attempt %d, and it is attempt %d", r.Generation, s.key, r.Attempts, acc.trials.tries[s])
	}
}

// gaveBack: an item that was tried out is parked.
func (acc *account) gaveBack(s slot, w *Window) {
	switch w.Cause {
	case causeExpired, "failed", "released", "loop closed":
		if most := acc.trials.limit(s); most > 0 && acc.trials.tries[s] >= most {
			acc.trials.parked[s], w.Parked = true, true
		}
	}
}

func (acc *account) unparked(s slot) {
	if !acc.trials.parked[s] {
		acc.say("Q7", "%s was unparked, and it was not parked", s.key)
	}
	acc.trials.parked[s], acc.trials.tries[s] = false, 0
}

// saidParked: who is told that an item is parked was told the truth.
func (acc *account) saidParked(s slot, r *boardpb.Result) {
	if r.Outcome == boardpb.Outcome_OUTCOME_NOT_READY && r.RetryAfterMs == 0 && r.Field == "parked" && !acc.trials.parked[s] {
		acc.say("Q7", "%s is said to be parked after %d attempts, of %d", s.key, acc.trials.tries[s], acc.trials.limit(s))
	}
}
