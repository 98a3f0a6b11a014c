package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

const (
	// epsilon is how much faster than ours a clock of the cluster may run, as a part of one.
	epsilon = 0.05
	// tick is how long a due deadline may wait for a command that expires it (SPEC F-4), and
	// tickLate how late the leader may come to that, both in board time.
	tick, tickLate = time.Second, 5 * time.Second
)

// HolderFigures are what W4 shows beside its verdict.
type HolderFigures struct {
	Beliefs int `json:"beliefs"` // of clients to hold a lease
	// Overlaps counts pairs of clients who believed to hold one key at once (L8): one of them
	// was paused, or an operator had taken it the key without telling it. Nothing else may
	// be the reason.
	Overlaps      int           `json:"overlaps"`
	OverlapPaused int           `json:"overlap_paused"`
	OverlapForced int           `json:"overlap_forced"`
	Longest       time.Duration `json:"longest"`  // overlap
	Refused       int           `json:"refused"`  // writes of holders that were holders no more
	Expired       int           `json:"expired"`  // leases
	Earliest      float64       `json:"earliest"` // least time from a renewal to the expiry, in durations of the lease; 0: none expired
	Latest        time.Duration `json:"latest"`   // most time that an expiry came after it was due, in board time
}

// lease is what W4 is judged by beside the account of leases.
func (e *evidence) lease() []Finding {
	figures, found := Holders(e.History, e.order, e.windows)
	e.holders = figures
	found = append(found, Outside(e.History, e.windows)...)
	return append(found, Feed(e.History, e.order, e.windows)...)
}

// tenancy is one window with what clients know of it.
type tenancy struct {
	*Window
	at      time.Duration // when it ended in real time, at the latest; 0: it did not, or nobody knows
	asked   []asking      // the renewals that are operations
	renewed time.Duration // when the last one of these was answered, at board time t
	t       int64
	belief  *history.Belief // the last one
}

// asking is a renewal as its client knows it: called at sent, good for so long.
type asking struct {
	op    uint64
	sent  time.Duration
	lasts time.Duration
}

// Holders checks W4 in real time and by what clients believed. L2: what a lease guards never
// goes back to an older generation. L5: no lease expires earlier than its duration after its
// last renewal was sent. L6: one that nobody renews ends. L7: an acknowledged write was under
// the generation that was live at its rev. L8: two believe to hold one key at once only where
// one was paused, or was not told. L9: a holder that renews loses nothing by an election.
func Holders(h *history.History, a *Order, windows []*Window) (*HolderFigures, []Finding) {
	figures := &HolderFigures{Beliefs: len(h.Beliefs)}
	byName := map[leaseName]*tenancy{}
	var all []*tenancy
	for _, w := range windows {
		if w.Board == h.Run.Board {
			t := &tenancy{Window: w}
			byName[leaseName{w.Key, w.Generation}], all = t, append(all, t)
		}
	}
	for i := range h.Beliefs {
		if t := byName[leaseName{h.Beliefs[i].Key, h.Beliefs[i].Generation}]; t != nil {
			t.belief = &h.Beliefs[i]
		}
	}
	ended(h, all)
	renewals(h, all)
	var found []Finding
	for _, t := range all {
		found = append(found, t.early(figures)...)
		found = append(found, t.forEver(h, figures)...)
		found = append(found, t.faithful(h)...)
	}
	for i := range a.Records {
		if r := &a.Records[i]; r.Command.Board == h.Run.Board && lost(r.Result) {
			figures.Refused++
		}
	}
	found = append(found, inGrace(h, a, byName)...)
	found = append(found, lawful(h, a, byName)...)
	found = append(found, guardedData(h)...)
	return figures, append(found, together(h, byName, figures)...)
}

// ended finds when each window ended: when the first node applied what ended it.
func ended(h *history.History, all []*tenancy) {
	at := map[place]time.Duration{}
	for _, t := range all {
		if t.Cause != "" {
			at[t.ended] = 0
		}
	}
	for i := range h.Applied {
		r := &h.Applied[i]
		if was, asked := at[placeOf(r)]; asked && r.At != 0 && (was == 0 || r.At < was) {
			at[placeOf(r)] = r.At
		}
	}
	for _, t := range all {
		t.at = at[t.ended]
	}
}

// renewals finds the renewals of each window that are operations.
func renewals(h *history.History, all []*tenancy) {
	ops := make(map[uint64]*history.Op, len(h.Ops))
	for i := range h.Ops {
		ops[h.Ops[i].ID] = &h.Ops[i]
	}
	for _, t := range all {
		for _, r := range t.Window.renewals {
			op := ops[history.OpOf(r.by.Command.CallId)]
			if op == nil {
				continue
			}
			t.asked = append(t.asked, asking{op.ID, op.Invoke, time.Duration(r.ms) * time.Millisecond})
			if op.Outcome == history.OK && op.Return > t.renewed {
				t.renewed, t.t = op.Return, r.by.T
			}
		}
	}
}

func (t *tenancy) lasts() time.Duration { return time.Duration(t.duration) * time.Millisecond }

// early is L5: by the renewals that are operations, and by the clock of the client, which
// knows when it sent those that it made by itself.
func (t *tenancy) early(figures *HolderFigures) []Finding {
	if t.Cause != causeExpired && t.Cause != causeOverlap || t.at == 0 {
		return nil // an overlap is an expiry that the account knows nothing of
	}
	figures.Expired++
	for _, a := range t.asked {
		part := float64(t.at-a.sent) / float64(a.lasts)
		if figures.Earliest == 0 || part < figures.Earliest {
			figures.Earliest = part
		}
		if part < 1-epsilon {
			return []Finding{violation("L5", "generation %d of %s expired %v after a renewal was sent, it was to live for %v",
				t.Generation, t.Key, t.at-a.sent, a.lasts).at(t.ended.index).of(a.op)}
		}
	}
	if b := t.belief; b != nil && float64(b.Until-t.at) > epsilon*float64(t.lasts()) {
		return []Finding{violation("L5", "generation %d of %s expired %v before its holder's own clock says that it may",
			t.Generation, t.Key, b.Until-t.at).at(t.ended.index).of(t.ops()...)}
	}
	return nil
}

func (t *tenancy) ops() []uint64 {
	if t.Op == 0 {
		return nil
	}
	return []uint64{t.Op}
}

// forEver is L6: in board time an expiry comes with the next command or tick, and board time
// goes on but for what was done to the cluster.
func (t *tenancy) forEver(h *history.History, figures *HolderFigures) (found []Finding) {
	if t.Cause != causeExpired && t.Cause != "" {
		return nil
	}
	if t.Cause != "" {
		late := time.Duration(t.To-t.Due) * time.Millisecond
		figures.Latest = max(figures.Latest, late)
		if late > tick+tickLate {
			found = append(found, violation("L6", "generation %d of %s was due at %d and expired at %d", t.Generation, t.Key, t.Due, t.To).
				at(t.ended.index).of(t.ops()...))
		}
	}
	at := t.at
	if t.Cause == "" {
		at = h.Run.Ended
	}
	if at == 0 || t.renewed == 0 {
		return found
	}
	budget := cmp.Or(h.Run.Failover, failover)
	stalled := stalledBetween(h, t.renewed, at, budget)
	allowed := time.Duration(t.Due-t.t)*time.Millisecond + tick + budget + stalled
	if took := at - t.renewed; float64(took) > float64(allowed)*(1+epsilon) {
		how := "expired"
		if t.Cause == "" {
			how = "had not ended"
		}
		found = append(found, violation("L6", "generation %d of %s %s %v after a renewal; it was due after %v, with %v for ticks, elections and faults",
			t.Generation, t.Key, how, took, time.Duration(t.Due-t.t)*time.Millisecond, tick+budget+stalled).of(t.ops()...))
	}
	return found
}

// stalledBetween is how long board time may have stood still: while something was done to the
// cluster, and until it was over it.
func stalledBetween(h *history.History, from, to, budget time.Duration) (sum time.Duration) {
	var spans []span
	for _, f := range h.Faults {
		if f.Nemesis != "" || f.Name == history.NoMajority {
			spans = append(spans, span{f.Start, f.End + budget})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, s := range spans {
		s.from, s.to = max(s.from, from), min(s.to, to)
		if s.to > s.from {
			sum, from = sum+s.to-s.from, s.to
		}
	}
	return sum
}

// faithful is L9 where nothing was done to the cluster: whoever renews keeps its lease.
func (t *tenancy) faithful(h *history.History) []Finding {
	b := t.belief
	if t.Cause != causeExpired || t.at == 0 || b == nil || b.Manual || !keepsOn(b) {
		return nil
	}
	budget := cmp.Or(h.Run.Failover, failover)
	for _, f := range h.Faults {
		if (f.Nemesis != "" || f.Name == history.NoMajority) && f.Start <= t.at && f.End+budget >= t.at-t.lasts() {
			return nil
		}
	}
	return []Finding{violation("L9", "%s renewed generation %d of %s, nothing was done to the cluster, and it ran out",
		b.Client, t.Generation, t.Key).at(t.ended.index).of(t.ops()...)}
}

// keepsOn: nothing kept the client from renewing, as far as it is concerned.
func keepsOn(b *history.Belief) bool {
	return !b.Paused && (b.Why == history.BeliefTold || b.Why == history.BeliefClock || b.Why == history.BeliefRunning)
}

// inGrace is L9 after an election: what would have kept every lease alive did not keep this
// one. The next grant says that it followed an expiry, or the feed tells of one.
func inGrace(h *history.History, a *Order, byName map[leaseName]*tenancy) (found []Finding) {
	told := map[leaseName]bool{}
	expired := func(name leaseName, at int64, index uint64) {
		t := byName[name]
		if t == nil || told[name] || t.belief == nil || !keepsOn(t.belief) {
			return
		}
		for _, s := range t.spared {
			if at >= s.from && at < s.to {
				told[name] = true
				found = append(found, violation("L9", "%s renewed generation %d of %s, and it expired at %d; after the election at %d it was to live until %d",
					t.belief.Client, name.generation, name.key, at, s.from, s.to).at(index).of(t.ops()...))
				return
			}
		}
	}
	for i := range a.Records {
		r := &a.Records[i]
		if p := r.Result.Previous; r.Command.Board == h.Run.Board && r.OK() && len(p) > 0 && p[0].EndedBy == boardpb.EndedBy_ENDED_BY_EXPIRED {
			expired(leaseName{r.Result.Key, p[0].Generation}, p[0].EndedTMs, r.Index)
		}
	}
	for _, w := range h.Feed {
		if w.Board == h.Run.Board && w.Event.GetKind() == boardpb.Kind_KIND_LEASE_EXPIRED {
			expired(leaseName{w.Event.Key, w.Event.Generation}, w.Event.TMs, 0)
		}
	}
	return found
}

// lawful is L7 by what clients were told.
func lawful(h *history.History, a *Order, byName map[leaseName]*tenancy) (found []Finding) {
	for i := range h.Ops {
		op := &h.Ops[i]
		key := cmp.Or(op.Args.ForClaim, op.Key)
		if op.Outcome != history.OK || op.Args.Generation == 0 || op.Kind.Reads() {
			continue
		}
		for _, r := range a.ByCall(op.CallID()) {
			if !r.OK() {
				continue
			}
			t := byName[leaseName{key, op.Args.Generation}]
			at := placeOf(r)
			if t == nil || at.compare(t.granted) <= 0 || t.Cause != "" && at.compare(t.ended) > 0 {
				found = append(found, violation("L7", "%s was told ok for a %s under generation %d of %s, which was not live at rev %d",
					op.Client, op.Kind, op.Args.Generation, key, op.Result.Rev).at(r.Index).of(op.ID))
			}
		}
	}
	return found
}

// guardedData is L2 by the data that leases guard, whatever the leases say: in a list that is
// appended to only under a lease, generations never fall, and nothing is there that was refused.
func guardedData(h *history.History) (found []Finding) {
	sent := map[string]*history.Op{}
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Kind == history.Fenced {
			sent[op.Key+" "+op.Args.Value] = op
		}
	}
	for _, reader := range finalReaders(h) {
		for _, key := range slices.Sorted(maps.Keys(reader.keys)) {
			var last *history.Op
			for _, item := range reader.items(key) {
				op := sent[key+" "+item]
				if op == nil {
					continue
				}
				switch {
				case op.Outcome == history.Failed:
					found = append(found, violation("L2", "%s sees %s in %s, which was answered %s", reader.name, item, key, op.Result.Answer).of(op.ID))
				case last != nil && op.Args.Generation < last.Args.Generation:
					found = append(found, violation("L2", "%s sees what generation %d wrote to %s behind what generation %d wrote",
						reader.name, op.Args.Generation, key, last.Args.Generation).of(last.ID, op.ID))
				}
				last = op
			}
		}
	}
	return found
}

// knew is until when a client believed: one that ran knew what its clock said.
func knew(b *history.Belief) time.Duration {
	if b.Paused {
		return b.To
	}
	return min(b.To, b.Until)
}

// together is L8.
func together(h *history.History, byName map[leaseName]*tenancy, figures *HolderFigures) (found []Finding) {
	drifts := slices.ContainsFunc(h.Faults, func(f history.Fault) bool { return f.Nemesis == "N12" })
	byKey := map[string][]*history.Belief{}
	for i := range h.Beliefs {
		b := &h.Beliefs[i]
		byKey[b.Key] = append(byKey[b.Key], b)
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		list := byKey[key]
		slices.SortFunc(list, func(a, b *history.Belief) int { return cmp.Compare(a.Generation, b.Generation) })
		for i, older := range list {
			for _, newer := range list[i+1:] {
				overlap := min(knew(older), knew(newer)) - max(older.From, newer.From)
				if overlap <= 0 || older.Client == newer.Client {
					continue
				}
				figures.Overlaps++
				figures.Longest = max(figures.Longest, overlap)
				t := byName[leaseName{older.Key, older.Generation}]
				switch {
				case older.Paused:
					figures.OverlapPaused++
				case t != nil && (t.Cause == "forced" || t.Cause == causeTakeover):
					figures.OverlapForced++
				case drifts && float64(overlap) <= epsilon*float64(older.Duration):
				default:
					found = append(found, violation("L8", "%s (generation %d) and %s (generation %d) both held %s for their own for %v, from %v on, and none was paused",
						older.Client, older.Generation, newer.Client, newer.Generation, older.Key, overlap, max(older.From, newer.From)))
				}
			}
		}
	}
	return found
}

// String is the contrast that L8 is for, in a sentence.
func (f *HolderFigures) String() string {
	return fmt.Sprintf("%d leases were held; %d times two clients believed to hold one key, at the longest for %v: %d times one was paused, %d times it had been taken from it; %d writes of those who held nothing were refused",
		f.Beliefs, f.Overlaps, f.Longest, f.OverlapPaused, f.OverlapForced, f.Refused)
}
