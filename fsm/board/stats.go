package board

import (
	"fmt"
	"strings"

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
	PersistentConflicts []*boardpb.Event    // the newest, oldest of them first
	Spaces              []SpaceNumbers      // in the order of the table
	ReadPairs           []*boardpb.ReadPair // those that read most first
	Advice              []string
}

const (
	conflictsShown = 20
	pairsShown     = 100
	// Before so many writes by two, and so long, it is too early to miss readers.
	readersMissedWrites = 20
	readersMissedMs     = 60_000
)

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
	n.Spaces = spaces(b)
	n.ReadPairs = b.ReadPairs()
	n.ReadPairs = n.ReadPairs[:min(len(n.ReadPairs), pairsShown)]
	n.Advice = append(advise(b, n.Spaces), adviseReaders(b)...)
	return n
}

// SpaceNumbers are those of one namespace.
type SpaceNumbers struct {
	Usage   *boardpb.Usage
	Samples uint64 // completions
	P95Ms   int64  // of the time from claim to complete; the upper edge of a bucket
	LeaseMs int64  // of a claim that names no duration; 0: nothing is leased here
}

func spaces(b *state.Board) (out []SpaceNumbers) {
	for _, s := range b.Schema().Spaces() {
		n := SpaceNumbers{Usage: b.Usage(s)}
		if n.Usage == nil {
			n.Usage = &boardpb.Usage{Pattern: s.Pattern.String()}
		}
		if s.Mode == boardpb.Mode_MODE_LEASED {
			n.P95Ms, n.Samples = state.WorkTime(n.Usage)
			n.LeaseMs = b.LeaseDefault(s)
		}
		out = append(out, n)
	}
	return out
}

// advise reads the numbers as SPEC §2.8 does: many reclaims mean leases too short or workers
// dying, and whether an old holder was heard from afterwards tells which.
func advise(b *state.Board, all []SpaceNumbers) (out []string) {
	for _, n := range all {
		u := n.Usage
		if u.Expiries >= 5 && u.Expiries*10 >= u.Expiries+n.Samples {
			if u.Heard*2 >= u.Expiries {
				out = append(out, fmt.Sprintf("%s: %d leases expired, and %d of their holders were heard from afterwards: leases are too short, claim for longer%s",
					u.Pattern, u.Expiries, u.Heard, workText(n)))
			} else {
				out = append(out, fmt.Sprintf("%s: %d leases expired, and %d of their holders were heard from afterwards: workers are dying, look at them",
					u.Pattern, u.Expiries, u.Heard))
			}
		}
		if u.Conflicts < 10 {
			continue
		}
		if writes := written(b, u.Pattern) + u.Conflicts; u.Conflicts*5 >= writes {
			out = append(out, fmt.Sprintf("%s is contended: %d of %d writes met a conflict: give each worker keys of its own, or append",
				u.Pattern, u.Conflicts, writes))
		}
	}
	return out
}

// adviseReaders says when nobody reads what others write: then no board is needed. It says so
// only if no receipt was lost (SPEC F-26).
func adviseReaders(b *state.Board) []string {
	c := b.Head().GetCounters()
	writes := c.GetSets() + c.GetAppends() + c.GetCompletes()
	switch {
	case c.GetCrossReads() > 0, writes < readersMissedWrites, b.Authors() < 2, b.Wall()-b.Head().GetCreatedWallMs() < readersMissedMs:
		return nil
	case c.GetReadsDropped() > 0:
		return []string{fmt.Sprintf("whether anybody reads what others write is not known: the receipts of %d reads were lost", c.GetReadsDropped())}
	}
	return []string{fmt.Sprintf("nobody reads anybody: %d writes by %d principals, and no read of what another wrote: this work needs no board",
		writes, b.Authors())}
}

func workText(n SpaceNumbers) string {
	if n.Samples == 0 {
		return ""
	}
	return fmt.Sprintf(" (95 of 100 items were done within %s, a lease lasts %s)", span(n.P95Ms), span(n.LeaseMs))
}

// written counts the accepted writes of a namespace by the versions of its keys.
func written(b *state.Board, pattern string) (n uint64) {
	p, _ := state.ParsePattern(pattern)
	b.Keys(p.Prefix(), func(key string, k *state.Key) bool {
		if p.Match(key) {
			n += k.Newest().Version
		}
		return strings.HasPrefix(key, p.Prefix())
	})
	return n
}
