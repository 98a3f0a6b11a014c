package board

import (
	"fmt"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// Numbers are what a board's users look at to see how a run goes.
type Numbers struct {
	Counters            *boardpb.Counters
	Namespaces          []*boardpb.NamespaceCounts
	Keys                uint64 // live ones
	LoopsActive         uint64
	LiveBytes           uint64
	OldestRev           uint64
	PersistentConflicts []*boardpb.Event // the newest, oldest of them first
	Advice              []string
}

const conflictsShown = 20

// Stats reports the counters of a board and what they advise.
func Stats(b *state.Board) *Numbers {
	head := b.Head()
	n := &Numbers{Counters: head.GetCounters(), Namespaces: b.Counts(), Keys: head.GetKeys(), LiveBytes: head.GetLiveBytes(),
		OldestRev: b.OldestRev()}
	b.Loops(func(_ string, l *boardpb.Loop) bool {
		if l.State == boardpb.LoopState_LOOP_STATE_ACTIVE {
			n.LoopsActive++
		}
		return true
	})
	b.Events(b.OldestRev(), 0, false, func(ev *boardpb.Event) bool {
		if ev.Kind == boardpb.Kind_KIND_PERSISTENT_CONFLICT {
			if len(n.PersistentConflicts) == conflictsShown {
				n.PersistentConflicts = n.PersistentConflicts[1:]
			}
			n.PersistentConflicts = append(n.PersistentConflicts, ev)
		}
		return true
	})
	n.Advice = advice(n.Counters)
	return n
}

// advice reads the counters as SPEC §2.8 does: many reclaims mean leases too short or
// workers dying, and whether an old holder was heard from afterwards tells which.
func advice(c *boardpb.Counters) []string {
	var out []string
	if n := c.GetExpiries(); n >= 5 && c.GetReclaims()*10 >= c.GetClaims() {
		if c.GetLateRenewals()*2 >= n {
			out = append(out, fmt.Sprintf("%d leases expired, and %d of their holders were heard from afterwards: leases are too short, claim for longer",
				n, c.GetLateRenewals()))
		} else {
			out = append(out, fmt.Sprintf("%d leases expired, and only %d of their holders were heard from afterwards: workers are dying, look at them",
				n, c.GetLateRenewals()))
		}
	}
	if writes := c.GetSets() + c.GetConflicts(); c.GetConflicts() >= 10 && c.GetConflicts()*5 >= writes {
		out = append(out, fmt.Sprintf("%d of %d versioned writes met a conflict: give each worker keys of its own, or append",
			c.GetConflicts(), writes))
	}
	return out
}
