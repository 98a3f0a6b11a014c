package state

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sort"

	"github.com/tidwall/btree"

	boardpb "raftboard/fsm/pb"
)

// board is one board as the apply goroutine holds it: its records, and beside them the
// orders that are derived from the records and never stored.
type board struct {
	name     string
	head     head
	settings *boardpb.BoardSettings
	schema   *Schema
	settSum  Sum

	entries   Table[*Key]
	leases    Table[*leaseRecord]
	loops     Table[*boardpb.Loop]
	kept      Table[*boardpb.Kept]
	conflicts Table[*boardpb.ConflictCount]
	rates     Table[*boardpb.NoteRate]
	marks     Table[*boardpb.Invalidation]
	same      map[string]*sameIndex // by append key, as far as it was asked for
	seed      maphash.Seed
	readers   Table[*boardpb.Readers]
	pairs     Table[*boardpb.ReadPair]
	usage     Table[*boardpb.Usage] // by the pattern of the namespace
	phases    Table[*boardpb.Phase]
	phaseData Table[*boardpb.PhaseData]
	disputes  Table[*boardpb.PhaseConflict] // conflicts of phases, by id
	floors    Table[*boardpb.Floor]         // of a fork: never changed
	changes   eventLog
	notes     eventLog
	sum       Sum // of all of these
	counted   Sum // of the head, as it is in the state's sum
	isStale   bool

	counts   []*boardpb.NamespaceCounts // by namespace; replaced on change
	queues   []btree.Map[uint64, string]
	holdings btree.Set[string]       // loop NUL own-expiry key, of live leases
	current  order                   // what the keys hold now, by rev
	authors  authors                 // of those items
	old      btree.Set[string]       // see oldKey: what a newer version or state replaced
	citing   btree.Set[string]       // cited NUL citing: refs
	shared   *btree.Set[string]      // the copy of citing that Views hold; nil: it has changed
	tombs    btree.Set[string]       // rev key: keys of which only numbers are left
	due      *btree.BTreeG[Deadline] // of leases and delays of this board
	idem     idemOrder
	nonces   map[string]string // principal NUL nonce → loop that lives
}

// head holds the numbers of a board. A Txn works on a copy.
type head struct {
	rev             uint64
	incarnation     string
	settingsVersion uint64
	liveBytes       uint64
	versionFloor    uint64
	generationFloor uint64
	nextQueuePos    uint64
	compactedRev    uint64
	createdWall     int64
	forgottenRev    uint64
	closedRev       uint64
	trimmedChange   uint64
	trimmedNote     uint64
	noteSecond      uint64
	keys            uint64
	counters        Counters
}

// Counters is boardpb.Counters by value: it changes with nearly every command.
type Counters struct {
	Sets, Appends, Deletes, Conflicts, PersistentConflicts, Claims, Reclaims, Expiries,
	FenceRejections, Refusals, NotesSuppressed, Completes, LateRenewals, CrossReads, ReadsDropped, ReadsUnpaired, Parks uint64
}

func newBoard(s *State, name string) *board {
	g := &s.garbage
	return &board{
		name:      name,
		entries:   newTable[*Key](g),
		leases:    newTable[*leaseRecord](g),
		loops:     newTable[*boardpb.Loop](g),
		kept:      newTable[*boardpb.Kept](g),
		conflicts: newTable[*boardpb.ConflictCount](g),
		rates:     newTable[*boardpb.NoteRate](g),
		marks:     newTable[*boardpb.Invalidation](g),
		same:      map[string]*sameIndex{},
		seed:      maphash.MakeSeed(),
		readers:   newTable[*boardpb.Readers](g),
		pairs:     newTable[*boardpb.ReadPair](g),
		usage:     newTable[*boardpb.Usage](g),
		phases:    newTable[*boardpb.Phase](g),
		phaseData: newTable[*boardpb.PhaseData](g),
		disputes:  newTable[*boardpb.PhaseConflict](g),
		floors:    newTable[*boardpb.Floor](g),
		head:      head{nextQueuePos: 1},
		idem:      newIdemOrder(),
		nonces:    map[string]string{},
		authors:   newAuthors(),
		due:       newDeadlines(),
	}
}

// Key is the retained versions of one key, oldest first. It is immutable: a new version
// makes a new Key that shares the array.
type Key struct {
	versions []*boardpb.Entry
	sums     []Sum
	total    Sum
	waste    int    // dropped versions that the array still holds
	missed   *reach // of a Key as of a rev that it does not reach back to
}

// dropOldest gives up the oldest version. The array is shared with Keys that readers may
// hold, so it is not cleared but copied, when a quarter of it is dead.
func (k *Key) dropOldest() {
	k.total = k.total.minus(k.sums[0])
	k.versions, k.sums = k.versions[1:], k.sums[1:]
	if k.waste++; k.waste*4 > len(k.versions) {
		k.versions, k.sums, k.waste = slices.Clone(k.versions), slices.Clone(k.sums), 0
	}
}

// Newest is the current version, which may be a tombstone.
func (k *Key) Newest() *boardpb.Entry {
	k.missed.look()
	return k.versions[len(k.versions)-1]
}

// Versions are the retained ones, oldest first. Callers must not change the slice.
func (k *Key) Versions() []*boardpb.Entry {
	k.missed.look()
	return k.versions
}

// Version returns one retained version, or nil. Numbers have no gap but one in a fork, above
// what it was forked from.
func (k *Key) Version(n uint64) *boardpb.Entry {
	if i := k.Find(n); i < len(k.versions) && k.versions[i].Version == n {
		return k.versions[i]
	}
	return nil
}

// Find is the place of the first retained version that is n or above.
func (k *Key) Find(n uint64) int {
	k.missed.look()
	return FindVersion(k.versions, n)
}

// FindVersion is the place of the first version that is n or above.
func FindVersion(versions []*boardpb.Entry, n uint64) int {
	oldest := versions[0].Version
	if n <= oldest {
		return 0
	}
	if i := n - oldest; i < uint64(len(versions)) && versions[i].Version == n {
		return int(i) // nearly always
	}
	return sort.Search(len(versions), func(i int) bool { return versions[i].Version >= n })
}

// EntryBytes is what a version counts for against the board's cap. A tombstone counts for
// nothing: there are at most MaxTombstones, and a delete must make room for its like.
func EntryBytes(e *boardpb.Entry) uint64 {
	if e.Deleted {
		return 0
	}
	return uint64(entryOverhead + len(e.Key) + len(e.Value) + len(e.Source) + len(e.Summary) + len(e.Author) + textBytes(e.Cites))
}

func textBytes(texts []string) (n int) {
	for _, s := range texts {
		n += len(s)
	}
	return n
}

func revKey(rev uint64, key string) string {
	b := make([]byte, 8, 8+len(key))
	binary.BigEndian.PutUint64(b, rev)
	return string(append(b, key...))
}

// oldKey places a replaced version by the rev that replaced it: what a compaction gives up
// first is what the fewest revs need. A txn may write one key several times at one rev. An
// earlier state of a lease has version 0, which no entry has.
func oldKey(replaced, version uint64, key string) string {
	return revKey(replaced, revKey(version, key))
}

func splitRevKey(rk string) (uint64, string) {
	return binary.BigEndian.Uint64([]byte(rk[:8])), rk[8:]
}

func holdings(loop string) string { return loop + "\x00" }

func holding(l *boardpb.Lease) string {
	return holdings(l.Loop) + revKey(uint64(l.ExpiresTMs), l.Key)
}

func (b *board) setSettings(settings *boardpb.BoardSettings, schema *Schema, version uint64) {
	b.settings, b.schema = settings, schema
	b.head.settingsVersion = version
	var e encoder
	e.start('T', b.name)
	e.message(settings, nil)
	b.settSum = e.sum()
	b.recount()
}

// recount derives the counts and queues of a table that changed. Linear in the board: an
// operator's act, or a restore.
func (b *board) recount() {
	b.counts = make([]*boardpb.NamespaceCounts, len(b.schema.spaces))
	b.queues = make([]btree.Map[uint64, string], len(b.schema.spaces))
	for i, space := range b.schema.spaces {
		b.counts[i] = &boardpb.NamespaceCounts{Pattern: space.Pattern.String()}
	}
	b.old, b.tombs, b.current, b.citing = btree.Set[string]{}, btree.Set[string]{}, order{}, btree.Set[string]{}
	b.authors, b.shared = newAuthors(), nil
	b.entries.index.Scan(func(key string, r *Record[*Key]) bool {
		k := r.newest()
		if !k.Newest().Deleted {
			b.count(key, func(c *boardpb.NamespaceCounts) { c.Entries++ })
		}
		b.followVersions(key, nil, k)
		b.followCurrent(key, nil, k)
		b.followCites(nil, k)
		b.followTomb(key, nil, nil)
		return true
	})
	b.leases.index.Scan(func(key string, r *Record[*leaseRecord]) bool {
		rec := r.newest()
		l := rec.now
		b.followStates(key, nil, rec)
		b.count(key, func(c *boardpb.NamespaceCounts) { countLease(c, l, 1) })
		if space := b.schema.Find(key); space != nil && l.QueuePos > 0 {
			b.queues[space.Number].Set(l.QueuePos, key)
		}
		b.followTomb(key, nil, nil)
		return true
	})
}

// count changes the counts of a key's namespace through a copy: Views hold the old ones.
func (b *board) count(key string, change func(c *boardpb.NamespaceCounts)) {
	space := b.schema.Find(key)
	if space == nil {
		return
	}
	c := cloneCounts(b.counts[space.Number])
	change(c)
	b.counts = slices.Clone(b.counts)
	b.counts[space.Number] = c
}

// countLease adds or takes away one lease where it is counted.
func countLease(c *boardpb.NamespaceCounts, l *boardpb.Lease, sign int) {
	n := uint64(sign) // -1 wraps, and adding it subtracts
	switch classOf(l) {
	case classHeld:
		c.Held += n
	case classParked:
		c.Parked += n
	case classDone:
		c.Done += n
	case classDelayed:
		c.Delayed += n
	case classReady:
		c.Ready += n
	}
}

// leaseClass is what a lease counts as.
type leaseClass uint8

const (
	classNone leaseClass = iota
	classHeld
	classParked
	classDone
	classDelayed
	classReady
)

func classOf(l *boardpb.Lease) leaseClass {
	switch {
	case l == nil:
	case l.State == boardpb.LeaseState_LEASE_STATE_HELD:
		return classHeld
	case l.State == boardpb.LeaseState_LEASE_STATE_PARKED:
		return classParked
	case l.State == boardpb.LeaseState_LEASE_STATE_DONE:
		return classDone
	case l.FreeTMs > 0:
		return classDelayed
	case l.QueuePos > 0:
		return classReady
	}
	return classNone
}

func (b *board) headSum() Sum { return headSum(b.name, &b.head, &b.changes, &b.notes, b.settSum) }

func headSum(board string, h *head, changes, notes *eventLog, settSum Sum) Sum {
	var e encoder
	e.start('H', board)
	e.str(h.incarnation)
	e.u64s([]uint64{h.rev, h.settingsVersion, h.liveBytes, h.versionFloor, h.generationFloor,
		h.nextQueuePos, h.compactedRev, h.forgottenRev, h.trimmedChange, h.trimmedNote, h.noteSecond, h.keys,
		h.closedRev})
	e.i64(h.createdWall)
	c := &h.counters
	e.u64s([]uint64{c.Sets, c.Appends, c.Deletes, c.Conflicts, c.PersistentConflicts, c.Claims, c.Reclaims,
		c.Expiries, c.FenceRejections, c.Refusals, c.NotesSuppressed, c.Completes, c.LateRenewals, c.CrossReads,
		c.ReadsDropped, c.ReadsUnpaired, c.Parks})
	e.u64s([]uint64{changes.first, changes.next, notes.first, notes.next})
	return e.sum().plus(settSum)
}

func (b *board) maxHistory() int {
	if n := b.settings.GetHistoryVersions(); n > 0 {
		return int(n)
	}
	return DefaultHistoryVersions
}

func (b *board) maxBytes() uint64 {
	if n := b.settings.GetMaxBoardBytes(); n > 0 {
		return n
	}
	return DefaultBoardBytes
}

// idemOrder finds the idempotency keys that lapse first, and counts them per principal.
type idemOrder struct {
	byTime  btree.Map[string, string] // time id → id
	byOwner btree.Map[string, string] // principal NUL time id → id
	count   map[string]int            // by principal
}

func newIdemOrder() idemOrder { return idemOrder{count: map[string]int{}} }

// Stranded counts the keys with a live entry, or a lease that is not free, which a new
// table would leave without a namespace or under another mode. Linear in the board: an
// operator's act.
func (x *Txn) Stranded(schema *Schema) (first string, n int) {
	check := func(key string) {
		old, next := x.b.schema.Find(key), schema.Find(key)
		if next == nil || old != nil && old.Mode != next.Mode {
			if n++; first == "" {
				first = key
			}
		}
	}
	x.b.entries.index.Scan(func(key string, r *Record[*Key]) bool {
		if !r.newest().Newest().Deleted {
			check(key)
		}
		return true
	})
	x.b.leases.index.Scan(func(key string, r *Record[*leaseRecord]) bool {
		l := r.newest().now
		if _, lock := PhaseOf(key); lock {
			return true // a phase is in no namespace
		}
		if l.State != boardpb.LeaseState_LEASE_STATE_FREE && !l.Posted {
			check(key)
		}
		return true
	})
	return first, n
}

// SetSettings replaces the settings; the Txn must commit.
func (x *Txn) SetSettings(settings *boardpb.BoardSettings, schema *Schema) uint64 {
	version := x.head.settingsVersion + 1
	x.forgetUsage(schema)
	x.b.setSettings(settings, schema, version)
	x.head.settingsVersion = version
	return version
}
