package check

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// The states that only feeds lead to.
const (
	SaidCompacted State = "feed compacted, and said so"
	SlowReader    State = "slow reader cut off"
	AboveHead     State = "start above the head refused"
)

// refusals counts them.
func refusals(h *history.History, n map[State]int) {
	for _, t := range h.Feed {
		switch t.Code {
		case "compacted":
			n[SaidCompacted]++
		case "slow_reader":
			n[SlowReader]++
		case "bad_request":
			n[AboveHead]++
		}
	}
}

// Feed checks what watchers were told, stream by stream: each stream owes exactly what A did
// that matches its patterns, from its start to where it got.
//
//	F1  in order                               F7   nothing that A does not have
//	F2  nothing twice                          F8   a start above the head is refused, and no other
//	F3  no gap                                 F9   what was compacted is said with the oldest rev
//	F4  it begins with its start               F10  what is told to the end is told in time
//	F5  bookmarks are true, and never fall     F11  who is cut off hears why and where to go on
//	F6  no rev is split                        F12  revs are equal on all nodes, also in a snapshot
//
// L3: a lease is said to expire exactly when its window ended.
//
// What A leaves in a feed is known of every accepted command; of notes and of what time does
// only what was told is known, so all streams are held against all that any of them was told.
func Feed(h *history.History, a *Order, windows []*Window) (found []Finding) {
	streams := streamsOf(h)
	if len(streams) == 0 {
		return []Finding{invalid("nobody watched the feed")}
	}
	x := newExpected(h.Run.Board, a, windows)
	for _, s := range streams {
		found = append(found, x.gather(s)...)
	}
	x.goals = slices.ContainsFunc(streams, func(s *stream) bool { return s.goal > 0 })
	told := map[string]map[spot]bool{} // by watcher, in its streams so far
	for _, s := range streams {
		if told[s.watcher] == nil {
			told[s.watcher] = map[spot]bool{}
		}
		found = append(found, x.inOrder(s, told[s.watcher])...)
		found = append(found, x.exact(s)...)
		found = append(found, x.atTheEnd(s)...)
		found = append(found, x.snapshot(s)...)
	}
	return found
}

// spot is the place of an event in a feed.
type spot struct {
	rev uint64
	sub uint32
}

func spotOf(e *boardpb.Event) spot { return spot{e.Rev, e.Sub} }

func (p spot) before(q spot) bool { return p.rev < q.rev || p.rev == q.rev && p.sub < q.sub }

// expected is what A says a feed holds, and what any stream was told of it.
type expected struct {
	byRev   map[uint64][]*history.Applied
	must    []must // in the order of revs
	expired map[leaseName]int64
	parked  map[leaseName]int64
	last    uint64 // the last rev that a command of the board names
	order   *Order
	board   string
	oldest  []uint64 // what compactions left as the oldest rev, in order

	told  map[spot]*boardpb.Event
	spots []spot // of told, sorted once they are asked for
	head  uint64 // the highest rev that anybody heard of
	goals bool   // the harness says how far watchers must get

	values map[string][]held // for snapshots: what each key held
}

// must is an event that an accepted command leaves.
type must struct {
	by                  *history.Applied
	kinds               []boardpb.Kind
	key, loop           string
	version, generation uint64 // 0: whatever it is
}

type leaseName struct {
	key        string
	generation uint64
}

func (n leaseName) compare(m leaseName) int {
	return cmp.Or(cmp.Compare(n.key, m.key), cmp.Compare(n.generation, m.generation))
}

func newExpected(board string, a *Order, windows []*Window) *expected {
	x := &expected{byRev: map[uint64][]*history.Applied{}, expired: map[leaseName]int64{}, parked: map[leaseName]int64{}, order: a, board: board,
		told: map[spot]*boardpb.Event{}}
	for i := range a.Records {
		r := &a.Records[i]
		compact := r.Command.GetBoardCompact()
		if r.Command.Board != board && compact.GetName() != board || r.Result.Replayed {
			continue
		}
		x.byRev[r.Result.Rev] = append(x.byRev[r.Result.Rev], r)
		x.last = max(x.last, r.Result.Rev)
		if !r.OK() {
			continue
		}
		if compact != nil {
			x.oldest = append(x.oldest, r.Result.OldestRev)
		}
		x.must = append(x.must, leaves(r)...)
	}
	x.head = x.last
	for _, w := range windows {
		if w.Board == board && w.Cause == causeExpired {
			x.expired[leaseName{w.Key, w.Generation}] = w.To
		}
		if w.Board == board && w.Parked {
			x.parked[leaseName{w.Key, w.Generation}] = w.To
		}
	}
	return x
}

// leaves lists the events that an accepted command is about, and none beside them.
func leaves(r *history.Applied) []must {
	switch o := r.Command.Op.(type) {
	case *boardpb.Command_Txn:
		var all []must
		for i, one := range o.Txn.Ops {
			if i < len(r.Result.Results) {
				all = append(all, leavesOne(r, one.Op, r.Result.Results[i])...)
			}
		}
		return all
	case *boardpb.Command_Claim:
		if len(o.Claim.Keys) == 0 {
			return leavesOne(r, o, r.Result)
		}
		var all []must
		for _, one := range r.Result.Results {
			all = append(all, leavesOne(r, o, one)...)
		}
		return all
	case *boardpb.Command_LoopOpen:
		if r.Result.Renewed {
			return nil
		}
		return []must{{by: r, kinds: []boardpb.Kind{boardpb.Kind_KIND_LOOP_OPEN}, loop: r.Result.Loop}}
	case *boardpb.Command_LoopClose:
		return []must{{by: r, kinds: []boardpb.Kind{boardpb.Kind_KIND_LOOP_CLOSE}, loop: r.Result.Loop}}
	case *boardpb.Command_BoardCompact:
		return []must{{by: r, kinds: []boardpb.Kind{boardpb.Kind_KIND_COMPACTION}}}
	}
	return leavesOne(r, r.Command.Op, r.Result)
}

// leavesOne is of an operation that stands alone or in a txn.
func leavesOne(r *history.Applied, op any, res *boardpb.Result) []must {
	m := must{by: r, key: res.Key}
	switch op.(type) {
	case *boardpb.Command_Set, *boardpb.TxnOp_Set:
		m.kinds, m.version = []boardpb.Kind{boardpb.Kind_KIND_SET, boardpb.Kind_KIND_POST}, res.Version
	case *boardpb.Command_Append, *boardpb.TxnOp_Append:
		m.kinds, m.version = []boardpb.Kind{boardpb.Kind_KIND_APPEND, boardpb.Kind_KIND_POST}, res.Version
	case *boardpb.Command_Delete, *boardpb.TxnOp_Delete:
		m.kinds, m.version = []boardpb.Kind{boardpb.Kind_KIND_DELETE}, res.Version
	case *boardpb.Command_ReportConflict:
		m.kinds = []boardpb.Kind{boardpb.Kind_KIND_PERSISTENT_CONFLICT}
	case *boardpb.Command_Claim, *boardpb.Command_ClaimNext, *boardpb.TxnOp_Claim:
		if res.Renewed {
			return nil
		}
		m.kinds, m.generation = []boardpb.Kind{boardpb.Kind_KIND_CLAIM, boardpb.Kind_KIND_RECLAIM}, res.Generation
	case *boardpb.Command_Complete, *boardpb.TxnOp_Complete:
		m.kinds, m.generation = []boardpb.Kind{boardpb.Kind_KIND_COMPLETE}, res.Generation
	case *boardpb.Command_Fail, *boardpb.TxnOp_Fail:
		m.kinds, m.generation = []boardpb.Kind{boardpb.Kind_KIND_FAIL}, res.Generation
	case *boardpb.Command_Release, *boardpb.TxnOp_Release:
		m.kinds, m.generation = []boardpb.Kind{boardpb.Kind_KIND_RELEASE}, res.Generation
	case *boardpb.Command_Reopen:
		m.kinds, m.generation = []boardpb.Kind{boardpb.Kind_KIND_REOPEN}, res.Generation
	case *boardpb.Command_Unpark:
		m.kinds, m.generation = []boardpb.Kind{boardpb.Kind_KIND_UNPARK}, res.Generation
	case *boardpb.Command_ForceRelease:
		m.kinds, m.generation = []boardpb.Kind{boardpb.Kind_KIND_FORCE_RELEASE}, res.Generation
	default:
		return nil
	}
	return []must{m}
}

// is says that an event is the one.
func (m *must) is(e *boardpb.Event) bool {
	return slices.Contains(m.kinds, e.Kind) && e.Key == m.key && caused(m.by, e) && (m.loop == "" || e.Loop == m.loop) &&
		(m.version == 0 || e.Version == m.version) && (m.generation == 0 || e.Generation == m.generation)
}

// ofTime events are not from the command that made time pass.
func ofTime(k boardpb.Kind) bool {
	switch k {
	case boardpb.Kind_KIND_LEASE_EXPIRED, boardpb.Kind_KIND_PARK, boardpb.Kind_KIND_LOOP_END, boardpb.Kind_KIND_BOARD_CREATE,
		boardpb.Kind_KIND_BOARD_SET, boardpb.Kind_KIND_COMPACTION:
		return true
	}
	return false
}

// caused: the event names the command as its author's.
func caused(r *history.Applied, e *boardpb.Event) bool {
	c := r.Command
	loop := e.Loop == c.Loop
	if c.GetLoopOpen() != nil || c.GetLoopClose() != nil {
		loop = loop || e.Loop == r.Result.Loop // the event may be of the loop concerned
	}
	return e.Author == c.Actor.GetPrincipal() && loop && e.Seq == c.Seq && e.CallId == c.CallId
}

// gather takes over what a stream was told. F7: what A does not have; F12: what another stream
// was told otherwise.
func (x *expected) gather(s *stream) (found []Finding) {
	for _, t := range s.log {
		x.head = max(x.head, t.Bookmark, t.Seam)
		e := t.Event
		if e == nil {
			continue
		}
		x.head = max(x.head, e.Rev)
		if !ofTime(e.Kind) && !slices.ContainsFunc(x.byRev[e.Rev], func(r *history.Applied) bool { return caused(r, e) }) {
			found = append(found, violation("F7", "watcher %s was told of a %v of %s at rev %d that was never applied", s.watcher, kindWord(e.Kind), e.Key, e.Rev))
			continue
		}
		was := x.told[spotOf(e)]
		if was != nil && !proto.Equal(was, e) {
			found = append(found, violation("F12", "%d.%d is a %v of %q for watcher %s, and a %v of %q for another", e.Rev, e.Sub,
				kindWord(e.Kind), e.Key, s.watcher, kindWord(was.Kind), was.Key))
		} else if was == nil {
			x.told[spotOf(e)] = e
		}
	}
	return found
}

// between lists what is known to be in the feed from one rev to another, in order.
func (x *expected) between(from, to uint64) []spot {
	if len(x.spots) != len(x.told) {
		x.spots = x.spots[:0]
		for p := range x.told {
			x.spots = append(x.spots, p)
		}
		slices.SortFunc(x.spots, func(a, b spot) int {
			if a.before(b) {
				return -1
			}
			return 1
		})
	}
	at := func(rev uint64) int {
		i, _ := slices.BinarySearchFunc(x.spots, rev, func(p spot, rev uint64) int {
			if p.rev < rev {
				return -1
			}
			return 1
		})
		return i
	}
	if to < from {
		return nil
	}
	return x.spots[at(from):at(to+1)]
}

// compactedBelow says that a compaction gave up what lies below its oldest rev, this too.
func (x *expected) compactedBelow(rev uint64) bool {
	return len(x.oldest) > 0 && rev < slices.Max(x.oldest)
}

// missing is a gap: what was compacted away is another sin (it must be said) than what was not.
func (x *expected) missing(s *stream, rev uint64, format string, args ...any) Finding {
	if x.compactedBelow(rev) {
		return violation("F9", "watcher %s %s, which was compacted away, and nobody said so", s.watcher, fmt.Sprintf(format, args...))
	}
	return violation("F3", "watcher %s %s", s.watcher, fmt.Sprintf(format, args...))
}
