package state

import (
	"sort"

	"github.com/tidwall/btree"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/planted"
)

// View is the whole state after one entry of the log. It never changes and may be held
// for any time: what it shows stays in memory while it is reachable.
type View struct {
	applied, term uint64
	cluster       *boardpb.ClusterRecord
	boards        map[string]*published
	digests       []digestAt // oldest first, by index
	next          int64
	pending       bool
	overdue       bool
}

// published is what a View holds of one board: copies of indexes, which share their
// records with the state, and the event blocks up to an ordinal.
type published struct {
	name     string
	at       uint64
	head     head
	settings *boardpb.BoardSettings
	schema   *Schema
	sum      Sum // of its records
	settSum  Sum

	entries   Index[*Key]
	leases    Index[*leaseRecord]
	loops     Index[*boardpb.Loop]
	kept      Index[*boardpb.Kept]
	conflicts Index[*boardpb.ConflictCount]
	rates     Index[*boardpb.NoteRate]
	marks     Index[*boardpb.Invalidation]
	readers   Index[*boardpb.Readers]
	pairs     Index[*boardpb.ReadPair]
	citing    *btree.Set[string]
	usage     Index[*boardpb.Usage]
	phases    Index[*boardpb.Phase]
	phaseData Index[*boardpb.PhaseData]
	disputes  Index[*boardpb.PhaseConflict]
	floors    Index[*boardpb.Floor]
	changes   eventLog
	notes     eventLog
	counts    []*boardpb.NamespaceCounts
	current   *order
	authors   *btree.Map[string, uint32]
}

// Publish makes the View of the state now. Boards that no entry touched since the last
// publication are shared with that one.
func (s *State) Publish(last *View) *View {
	v := &View{applied: s.applied, term: s.term, cluster: s.cluster, digests: s.digests}
	v.boards = make(map[string]*published, len(s.boards))
	for name, b := range s.boards {
		if last != nil && s.touched[name] == nil && last.boards[name] != nil {
			v.boards[name] = last.boards[name]
			continue
		}
		v.boards[name] = b.publish(s.applied)
	}
	clear(s.touched)
	if d, ok := s.deadlines.Min(); ok {
		v.next, v.pending = d.T, true
		v.overdue = s.Passed(d.T)
	}
	return v
}

func (b *board) publish(at uint64) *published {
	return &published{
		name: b.name, at: at, head: b.head, settings: b.settings, schema: b.schema, sum: b.sum, settSum: b.settSum,
		entries: b.entries.publish(), leases: b.leases.publish(), loops: b.loops.publish(),
		kept: b.kept.publish(), conflicts: b.conflicts.publish(), rates: b.rates.publish(), marks: b.marks.publish(),
		readers: b.readers.publish(), pairs: b.pairs.publish(),
		phases: b.phases.publish(), phaseData: b.phaseData.publish(), disputes: b.disputes.publish(),
		usage: b.usage.publish(), floors: b.floors.publish(),
		changes: b.changes, notes: b.notes, counts: b.counts, current: b.current.Copy(),
		authors: b.authors.index.Copy(), citing: b.citations(),
	}
}

// citations are copied only when they changed: most boards cite nothing for long stretches.
func (b *board) citations() *btree.Set[string] {
	if b.shared == nil {
		b.shared = b.citing.Copy()
	}
	return b.shared
}

// Applied is the index of the newest entry the View shows, Term that entry's term.
func (v *View) Applied() uint64 { return v.applied }
func (v *View) Term() uint64    { return v.term }

// T is board time, Wall wall time, both of the newest stamp applied.
func (v *View) T() int64    { return v.cluster.TMs }
func (v *View) Wall() int64 { return v.cluster.WallMs }

// Cluster is the cluster's record. Callers must not change it.
func (v *View) Cluster() *boardpb.ClusterRecord { return v.cluster }

// Digest is the digest after the newest entry; DigestAt is known for the last 1,024.
func (v *View) Digest() [16]byte {
	sum, _ := v.DigestAt(v.applied)
	return sum
}

func (v *View) DigestAt(index uint64) ([16]byte, bool) {
	i := sort.Search(len(v.digests), func(i int) bool { return v.digests[i].index >= index })
	if i == len(v.digests) || v.digests[i].index != index {
		return [16]byte{}, false
	}
	return v.digests[i].sum.Bytes(), true
}

// Deadline is the earliest pending one, a lower bound in board time.
func (v *View) Deadline() (next int64, pending bool) { return v.next, v.pending }

// Overdue tells that deadlines are due which the bounded step left: tick at once.
func (v *View) Overdue() bool { return v.overdue }

// BoardNames lists the boards in order, without the implicit default.
func (v *View) BoardNames() []string {
	var names []string
	for name := range v.boards {
		if name != ClusterBoard {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// StateBytes is the live state of all boards, as their caps count it.
func (v *View) StateBytes() uint64 {
	var n uint64
	for _, b := range v.boards {
		n += b.head.liveBytes
	}
	return n
}

// DefaultBoard is the board that exists by itself.
const DefaultBoard = "default"

// Board returns a board as the View shows it, or nil. Until its first write "default"
// reads as an empty board at rev 0 with the default table (SPEC F-33).
func (v *View) Board(name string) *Board {
	if p := v.boards[name]; p != nil && name != ClusterBoard {
		return &Board{published: p, view: v}
	}
	if name == DefaultBoard {
		p := v.boards[ClusterBoard] // empty but for idempotency keys, with the default table
		return &Board{published: &published{name: name, at: p.at, settings: p.settings,
			schema: p.schema, head: head{settingsVersion: 1}, counts: p.counts, current: &order{},
			authors: &btree.Map[string, uint32]{}, citing: p.citing}, view: v, implicit: true}
	}
	return nil
}

// Board is one board in a View. All methods are reads of one consistent state.
type Board struct {
	*published
	view     *View
	implicit bool
	past     *past // not nil: the board as it was at a rev
}

func (b *Board) Name() string                     { return b.name }
func (b *Board) Incarnation() string              { return b.head.incarnation }
func (b *Board) Implicit() bool                   { return b.implicit }
func (b *Board) Schema() *Schema                  { return b.schema }
func (b *Board) Settings() *boardpb.BoardSettings { return b.settings }
func (b *Board) T() int64                         { return b.view.T() }
func (b *Board) Wall() int64                      { return b.view.Wall() }
func (b *Board) View() *View                      { return b.view }

// Counts are those of the namespaces, in the order of the table. Callers must not change them.
func (b *Board) Counts() []*boardpb.NamespaceCounts { return b.counts }

// Key returns the versions of a key, or nil if it has no record.
func (b *Board) Key(key string) *Key {
	k, _ := b.entries.get(key, b.at)
	if b.past != nil {
		return b.past.key(k)
	}
	return k
}

// EntryAt returns one retained version of a key, or nil.
func (b *Board) EntryAt(key string, version uint64) *boardpb.Entry {
	if k := b.Key(key); k != nil {
		return k.Version(version)
	}
	return nil
}

// Keys calls each for the keys from `from` on, in order, tombstones included.
func (b *Board) Keys(from string, each func(key string, k *Key) bool) {
	if b.past != nil {
		each = b.past.keys(each)
	}
	b.entries.ascend(from, b.at, each)
}

// Lease returns a lease record, or nil; Leases walks those of keys, in their order. The lock
// of a phase is the lease of its PhaseKey.
func (b *Board) Lease(key string) *boardpb.Lease {
	rec, _ := b.leases.get(key, b.at)
	if b.past != nil {
		return b.past.lease(rec)
	}
	return rec.lease()
}

func (b *Board) Leases(from string, each func(key string, l *boardpb.Lease) bool) {
	b.leases.ascend(from, b.at, func(key string, rec *leaseRecord) bool {
		if _, lock := PhaseOf(key); lock {
			return true
		}
		if b.past == nil {
			return each(key, rec.now)
		}
		l := b.past.lease(rec)
		return l == nil || each(key, l)
	})
}

// Loop returns a loop, or nil; Loops walks them.
func (b *Board) Loop(id string) *boardpb.Loop {
	l, _ := b.loops.get(id, b.at)
	return l
}

// ConflictCount is who met conflicts on a key, or nil.
func (b *Board) ConflictCount(key string) *boardpb.ConflictCount {
	c, _ := b.conflicts.get(key, b.at)
	return c
}

func (b *Board) Loops(each func(id string, l *boardpb.Loop) bool) { b.loops.ascend("", b.at, each) }

// OldestRev is the oldest rev a reader of changes may still start at.
func (b *Board) OldestRev() uint64 { return b.head.oldestRev() }

func (h *head) oldestRev() uint64 { return max(h.trimmedChange, h.compactedRevMinusOne()) + 1 }

func (h *head) compactedRevMinusOne() uint64 {
	if h.compactedRev == 0 {
		return 0
	}
	return h.compactedRev - 1
}

// Events calls each for the events at (rev, sub) and behind it, changes and notes merged
// in order. It tells the oldest rev from which the kinds asked for are complete.
func (b *Board) Events(rev uint64, sub uint32, withNotes bool, each func(*boardpb.Event) bool) (oldest uint64) {
	oldest = b.head.trimmedChange + 1
	if withNotes {
		oldest = max(oldest, b.head.trimmedNote+1)
	}
	if rev < oldest {
		return oldest
	}
	c, n := b.changes.seekOr(rev, sub), b.notes.seekOr(rev, sub)
	if planted.Bug("M18") { // the bug: nothing is told of what a snapshot brought
		restored, _ := planted.Noted(b.schema).(uint64)
		c = max(c, restored)
	}
	for {
		var change, note *boardpb.Event
		if c < b.changes.next {
			change = b.changes.at(c)
		}
		if withNotes && n < b.notes.next {
			note = b.notes.at(n)
		}
		switch {
		case change == nil && note == nil:
			return oldest
		case note == nil || change != nil && eventBefore(change, note):
			c++
			if !each(change) {
				return oldest
			}
		default:
			n++
			if !each(note) {
				return oldest
			}
		}
	}
}

func (l *eventLog) seekOr(rev uint64, sub uint32) uint64 {
	if l.len() == 0 {
		return l.next
	}
	return l.seek(rev, sub)
}

func eventBefore(a, b *boardpb.Event) bool {
	return a.Rev < b.Rev || a.Rev == b.Rev && a.Sub < b.Sub
}
