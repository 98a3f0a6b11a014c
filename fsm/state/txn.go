package state

import (
	"strings"

	boardpb "raftboard/fsm/pb"
)

// Txn is the only mutator. It collects changes to one board and applies them at Commit;
// until then nothing is written, so a refused command leaves nothing behind.
type Txn struct {
	s    *State
	b    *board
	cmd  *boardpb.Command
	head head

	entries   staged[*Key]
	leases    staged[*boardpb.Lease]
	loops     staged[*boardpb.Loop]
	kept      staged[*boardpb.Kept]
	conflicts staged[*boardpb.ConflictCount]
	rates     staged[*boardpb.NoteRate]
	marks     staged[*boardpb.Invalidation]
	readers   staged[*boardpb.Readers]
	pairs     staged[*boardpb.ReadPair]
	usage     staged[*boardpb.Usage]
	phases    staged[*boardpb.Phase]
	phaseData staged[*boardpb.PhaseData]
	disputes  staged[*boardpb.PhaseConflict]
	events    []*boardpb.Event

	newPairs      int            // of those staged
	compactEvents uint64         // events before this rev go at Commit
	lostStates    map[string]int // earlier states that go at Commit, by lease
}

// staged is the changes to one table: few nearly always, so a list is searched first.
type staged[V any] struct {
	list []stagedChange[V]
	find map[string]int // from stagedList changes on
}

type stagedChange[V any] struct {
	key  string
	v    V
	drop bool
}

const stagedList = 12

func (c *staged[V]) lookup(key string) *stagedChange[V] {
	if c.find != nil {
		if i, ok := c.find[key]; ok {
			return &c.list[i]
		}
		return nil
	}
	for i := range c.list {
		if c.list[i].key == key {
			return &c.list[i]
		}
	}
	return nil
}

func (c *staged[V]) put(key string, v V, drop bool) {
	if at := c.lookup(key); at != nil {
		at.v, at.drop = v, drop
		return
	}
	c.list = append(c.list, stagedChange[V]{key, v, drop})
	switch {
	case c.find != nil:
		c.find[key] = len(c.list) - 1
	case len(c.list) > stagedList:
		c.find = make(map[string]int, 4*stagedList)
		for i := range c.list {
			c.find[c.list[i].key] = i
		}
	}
}

func (c *staged[V]) reset() {
	clear(c.list)
	c.list, c.find = c.list[:0], nil
}

func lookup[V any](c *staged[V], t *Table[V], key string) (V, bool) {
	if at := c.lookup(key); at != nil {
		return at.v, !at.drop
	}
	return t.get(key)
}

// BeginTxn opens the one Txn on a board, which must exist. The command names whom events
// are from; nil stands for the board itself (expiry).
func (s *State) BeginTxn(boardName string, cmd *boardpb.Command) *Txn {
	x := &s.txn
	x.s, x.b, x.cmd = s, s.boards[boardName], cmd
	x.Discard()
	return x
}

// Discard forgets everything staged. The Txn may go on.
func (x *Txn) Discard() {
	x.entries.reset()
	x.leases.reset()
	x.loops.reset()
	x.kept.reset()
	x.conflicts.reset()
	x.rates.reset()
	x.marks.reset()
	x.readers.reset()
	x.pairs.reset()
	x.usage.reset()
	x.phases.reset()
	x.phaseData.reset()
	x.disputes.reset()
	clear(x.events)
	x.events = x.events[:0]
	x.head, x.newPairs, x.compactEvents, x.lostStates = x.b.head, 0, 0, nil
}

// T is board time, Wall wall time; Passed and When are the rule of expiry.
func (x *Txn) T() int64            { return x.s.T() }
func (x *Txn) Wall() int64         { return x.s.Wall() }
func (x *Txn) Passed(e int64) bool { return x.s.Passed(e) }
func (x *Txn) When(e int64) int64  { return x.s.When(e) }

// Rev is the revision this commit takes if it emits an event; Head is the one before.
func (x *Txn) Rev() uint64  { return x.head.rev + 1 }
func (x *Txn) Head() uint64 { return x.head.rev }

// BoardName, Incarnation, Settings and Schema describe the board.
func (x *Txn) BoardName() string                        { return x.b.name }
func (x *Txn) Incarnation() string                      { return x.b.head.incarnation }
func (x *Txn) Settings() *boardpb.BoardSettings         { return x.b.settings }
func (x *Txn) SettingsVersion() uint64                  { return x.b.head.settingsVersion }
func (x *Txn) Schema() *Schema                          { return x.b.schema }
func (x *Txn) Command() *boardpb.Command                { return x.cmd }
func (x *Txn) Counters() *Counters                      { return &x.head.counters }
func (x *Txn) Counts(s *Space) *boardpb.NamespaceCounts { return x.b.counts[s.Number] }
func (x *Txn) LiveBytes() uint64                        { return x.head.liveBytes }
func (x *Txn) OldestRev() uint64                        { return x.head.oldestRev() }
func (x *Txn) ClosedRev() uint64                        { return x.head.closedRev }

// Close makes this commit the one that closed the board.
func (x *Txn) Close() { x.head.closedRev = x.Rev() }

// Key returns the versions of a key, or nil if it has no record.
func (x *Txn) Key(key string) *Key {
	k, _ := lookup(&x.entries, &x.b.entries, key)
	return k
}

// Entry returns the newest version of a key, which may be a tombstone, or nil.
func (x *Txn) Entry(key string) *boardpb.Entry {
	if k := x.Key(key); k != nil {
		return k.Newest()
	}
	return nil
}

// NextVersion is the version a write to the key gets. A key without a record starts
// above the floor that dropped tombstones left, one of a fork above what it was in the source.
func (x *Txn) NextVersion(key string) uint64 {
	from := x.floor(key).GetVersion()
	if e := x.Entry(key); e != nil {
		return max(e.Version, from) + 1
	}
	return max(x.head.versionFloor, from) + 1
}

// FirstGeneration is what the first grant of a key without a lease record exceeds.
func (x *Txn) FirstGeneration(key string) uint64 {
	return max(x.head.generationFloor, x.floor(key).GetGeneration())
}

// NextGeneration is the one after a generation of a key.
func (x *Txn) NextGeneration(key string, after uint64) uint64 {
	return max(after, x.floor(key).GetGeneration()) + 1
}

// PutEntry appends a version. The caller fills in what was written; who, when and the
// numbers are filled in here.
func (x *Txn) PutEntry(e *boardpb.Entry, keepAll bool) {
	e.Version = x.NextVersion(e.Key)
	e.Rev, e.TMs, e.WallMs = x.Rev(), x.T(), x.Wall()
	e.Author, e.ActingFor = Principal(x.cmd.GetActor()), x.actingBy()
	e.Loop = x.cmd.GetLoop()
	k := x.Key(e.Key)
	e.First = k == nil
	wasLive := k != nil && !k.Newest().Deleted
	next := &Key{}
	if k != nil {
		*next = *k
	}
	sum := x.s.enc.entry(x.b.name, e)
	next.versions, next.sums = append(next.versions, e), append(next.sums, sum)
	next.total = next.total.plus(sum)
	x.head.liveBytes += EntryBytes(e)
	for !keepAll && len(next.versions) > x.b.maxHistory() {
		x.dropOldest(next)
	}
	switch {
	case wasLive && e.Deleted:
		x.head.keys--
	case !wasLive && !e.Deleted:
		x.head.keys++
	}
	x.entries.put(e.Key, next, false)
}

func (x *Txn) dropOldest(k *Key) {
	x.head.liveBytes -= EntryBytes(k.versions[0])
	k.dropOldest()
}

// actingBy is the operator behind a command that acts for somebody.
func (x *Txn) actingBy() string {
	if a := x.cmd.GetActor(); a.GetActingFor() != "" {
		return a.Principal
	}
	return ""
}

// Lease returns the lease record of a key, or nil. Callers must not change it: they put
// a changed copy.
func (x *Txn) Lease(key string) *boardpb.Lease {
	if at := x.leases.lookup(key); at != nil {
		return at.v
	}
	return x.b.lease(key)
}

// PutLease replaces a lease record. Its place in the queue follows from its state, and
// the number of live leases of the loops concerned is kept.
func (x *Txn) PutLease(l *boardpb.Lease) {
	old := x.Lease(l.Key)
	ready := l.State == boardpb.LeaseState_LEASE_STATE_FREE && l.Posted && l.FreeTMs == 0
	switch {
	case !ready:
		l.QueuePos = 0
	case l.QueuePos == 0:
		l.QueuePos = x.head.nextQueuePos
		x.head.nextQueuePos++
	}
	if old == nil {
		x.head.liveBytes += leaseOverhead
	}
	l.First = old == nil || old.First && old.Rev == l.Rev
	if was, is := holder(old), holder(l); was != is {
		x.addHold(was, -1)
		x.addHold(is, +1)
	}
	x.leases.put(l.Key, l, false)
}

func holder(l *boardpb.Lease) string {
	if l != nil && l.State == boardpb.LeaseState_LEASE_STATE_HELD {
		return l.Loop
	}
	return ""
}

func (x *Txn) addHold(loop string, n int) {
	if old := x.Loop(loop); old != nil {
		l := CloneLoop(old)
		l.Holds = uint32(int(l.Holds) + n)
		x.PutLoop(l)
	}
}

// Loop returns a loop, or nil; PutLoop replaces it; DropLoop forgets it and its window.
func (x *Txn) Loop(id string) *boardpb.Loop {
	l, _ := lookup(&x.loops, &x.b.loops, id)
	return l
}

func (x *Txn) PutLoop(l *boardpb.Loop) { x.loops.put(l.Id, l, false) }

func (x *Txn) DropLoop(id string) {
	x.loops.put(id, nil, true)
	x.b.kept.index.Ascend(id+"/", func(key string, _ *Record[*boardpb.Kept]) bool {
		if !strings.HasPrefix(key, id+"/") {
			return false
		}
		x.kept.put(key, nil, true)
		return true
	})
}

// KeepOnlyNewest gives up the history of a key that this Txn wrote.
func (x *Txn) KeepOnlyNewest(key string) {
	next := *x.Key(key)
	for len(next.versions) > 1 {
		x.dropOldest(&next)
	}
	x.entries.put(key, &next, false)
}

// LoopCount is how many loops the board remembers.
func (x *Txn) LoopCount() int { return x.b.loops.len() }

// LoopByNonce finds the live loop a nonce of a principal opened.
func (x *Txn) LoopByNonce(principal, nonce string) *boardpb.Loop {
	return x.Loop(x.b.nonces[principal+"\x00"+nonce])
}

// Holdings lists up to limit leases a loop holds, those whose own expiry is next first;
// due asks only for those whose own expiry has passed. What this Txn staged does not show.
func (x *Txn) Holdings(loop string, limit int, due bool) []string {
	var keys []string
	mineFrom := holdings(loop)
	x.b.holdings.Ascend(mineFrom, func(h string) bool {
		rest, mine := strings.CutPrefix(h, mineFrom)
		if !mine || len(keys) == limit {
			return false
		}
		expires, key := splitRevKey(rest)
		if due && !x.Passed(int64(expires)) {
			return false
		}
		keys = append(keys, key)
		return true
	})
	return keys
}

// Kept returns a remembered result, or nil; PutKept and DropKept change the memory.
func (x *Txn) Kept(id string) *boardpb.Kept {
	k, _ := lookup(&x.kept, &x.b.kept, id)
	return k
}
func (x *Txn) PutKept(k *boardpb.Kept) { x.kept.put(k.Id, k, false) }
func (x *Txn) DropKept(id string)      { x.kept.put(id, nil, true) }

// IdemCount is how many idempotency keys the board and the principal have.
func (x *Txn) IdemCount(principal string) (board, own int) {
	return x.b.idem.byTime.Len(), x.b.idem.count[principal]
}

// OldestIdem lists up to limit idempotency keys of the board, the oldest first, and up to
// limit of the principal.
func (x *Txn) OldestIdem(principal string, limit int) (board, own []*boardpb.Kept) {
	x.b.idem.byTime.Scan(func(_, id string) bool {
		board = append(board, x.Kept(id))
		return len(board) < limit
	})
	x.b.idem.byOwner.Ascend(principal+"\x00", func(at, id string) bool {
		if !strings.HasPrefix(at, principal+"\x00") {
			return false
		}
		own = append(own, x.Kept(id))
		return len(own) < limit
	})
	return board, own
}

// Conflicts returns the running conflicts on a key, or nil; PutConflicts replaces them
// and drops an empty list.
func (x *Txn) Conflicts(key string) *boardpb.ConflictCount {
	c, _ := lookup(&x.conflicts, &x.b.conflicts, key)
	return c
}
func (x *Txn) PutConflicts(c *boardpb.ConflictCount) { x.conflicts.put(c.Key, c, len(c.By) == 0) }

// NoteAllowed counts one refusal note of a principal, and tells whether it may be kept.
func (x *Txn) NoteAllowed(principal string) bool {
	if second := uint64(x.T() / 1000); second != x.head.noteSecond {
		x.head.noteSecond = second
		x.b.rates.index.Scan(func(name string, _ *Record[*boardpb.NoteRate]) bool {
			x.rates.put(name, nil, true)
			return true
		})
	}
	var n uint32
	if r, ok := lookup(&x.rates, &x.b.rates, principal); ok {
		n = r.Count
	}
	if n >= NotesPerSecond {
		return false
	}
	x.rates.put(principal, &boardpb.NoteRate{Principal: principal, Count: n + 1}, false)
	return true
}

// NextQueued is the first claimable item of a namespace behind a position; 0 is none.
// What this Txn staged does not show.
func (x *Txn) NextQueued(s *Space, after uint64) (pos uint64, key string) {
	x.b.queues[s.Number].Ascend(after+1, func(p uint64, k string) bool {
		pos, key = p, k
		return false
	})
	return pos, key
}

// Emit stages an event: who, when and the number are filled in here.
func (x *Txn) Emit(ev *boardpb.Event) {
	ev.Rev, ev.Sub, ev.TMs, ev.WallMs = x.Rev(), uint32(len(x.events)), x.T(), x.Wall()
	if c := x.cmd; c != nil {
		ev.Author, ev.ActingFor = Principal(c.Actor), x.actingBy()
		if ev.Loop == "" {
			ev.Loop = c.Loop
		}
		ev.Seq, ev.IdempotencyKey, ev.CallId = c.Seq, c.IdempotencyKey, c.CallId
		if l := x.Loop(c.Loop); l != nil {
			ev.Label = l.Label
		}
	}
	x.events = append(x.events, ev)
}
