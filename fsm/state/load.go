package state

import (
	"bytes"
	"fmt"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/planted"
)

// Export calls each for every record the View shows, in an order that Loader takes. Each
// must not keep the record.
func (v *View) Export(each func(*boardpb.SnapshotRecord) error) error {
	names := append([]string{ClusterBoard}, v.BoardNames()...)
	for _, name := range names {
		if err := v.boards[name].export(each); err != nil {
			return err
		}
	}
	for _, d := range v.digests[max(0, len(v.digests)-DigestsKept):] {
		sum := d.sum.Bytes()
		r := &boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_Digest{Digest: &boardpb.DigestAt{Index: d.index, Digest: sum[:]}}}
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

func (p *published) export(each func(*boardpb.SnapshotRecord) error) (err error) {
	put := func(r *boardpb.SnapshotRecord) bool {
		r.Board = p.name
		err = each(r)
		return err == nil
	}
	put(&boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_Head{Head: p.headRecord()}})
	p.entries.ascend("", p.at, func(_ string, k *Key) bool {
		for _, e := range k.versions {
			if err == nil {
				put(&boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_Entry{Entry: e}})
			}
		}
		return err == nil
	})
	walk(p.leases, p.at, &err, func(rec *leaseRecord) bool {
		for _, l := range rec.past {
			if !put(&boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_Lease{Lease: l}}) {
				return false
			}
		}
		return put(&boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_Lease{Lease: rec.now}})
	})
	walk(p.loops, p.at, &err, func(l *boardpb.Loop) bool {
		return put(&boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_Loop{Loop: l}})
	})
	walk(p.kept, p.at, &err, func(k *boardpb.Kept) bool {
		return planted.Bug("M6") || put(&boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_Kept{Kept: k}})
	})
	walk(p.conflicts, p.at, &err, func(c *boardpb.ConflictCount) bool {
		return put(&boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_Conflict{Conflict: c}})
	})
	walk(p.rates, p.at, &err, func(r *boardpb.NoteRate) bool {
		return put(&boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_NoteRate{NoteRate: r}})
	})
	walk(p.marks, p.at, &err, func(v *boardpb.Invalidation) bool {
		return put(&boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_Invalidation{Invalidation: v}})
	})
	walk(p.floors, p.at, &err, func(f *boardpb.Floor) bool {
		return put(&boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_Floor{Floor: f}})
	})
	walk(p.readers, p.at, &err, func(v *boardpb.Readers) bool {
		return put(&boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_Readers{Readers: v}})
	})
	walk(p.pairs, p.at, &err, func(v *boardpb.ReadPair) bool {
		return put(&boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_ReadPair{ReadPair: v}})
	})
	walk(p.usage, p.at, &err, func(u *boardpb.Usage) bool {
		return put(&boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_Usage{Usage: u}})
	})
	walk(p.phases, p.at, &err, func(v *boardpb.Phase) bool {
		return put(&boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_Phase{Phase: v}})
	})
	walk(p.phaseData, p.at, &err, func(d *boardpb.PhaseData) bool {
		return put(&boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_PhaseData{PhaseData: d}})
	})
	walk(p.disputes, p.at, &err, func(c *boardpb.PhaseConflict) bool {
		return put(&boardpb.SnapshotRecord{Record: &boardpb.SnapshotRecord_PhaseConflict{PhaseConflict: c}})
	})
	for _, log := range []*eventLog{&p.changes, &p.notes} {
		for o := log.first; o < log.next && err == nil; o++ {
			put(&boardpb.SnapshotRecord{Note: log == &p.notes, Record: &boardpb.SnapshotRecord_Event{Event: log.at(o)}})
		}
	}
	return err
}

func walk[V any](x Index[V], at uint64, err *error, each func(V) bool) {
	if *err == nil {
		x.ascend("", at, func(_ string, v V) bool { return each(v) })
	}
}

// Head is the numbers of a board as a record.
func (b *Board) Head() *boardpb.BoardHead { return b.headRecord() }

func (p *published) headRecord() *boardpb.BoardHead {
	h := &p.head
	return &boardpb.BoardHead{
		Name: p.name, Incarnation: h.incarnation, Rev: h.rev, SettingsVersion: h.settingsVersion, Settings: p.settings,
		LiveBytes: h.liveBytes, VersionFloor: h.versionFloor, GenerationFloor: h.generationFloor,
		NextQueuePos: h.nextQueuePos, CompactedRev: h.compactedRev, CreatedWallMs: h.createdWall, ForgottenRev: h.forgottenRev,
		TrimmedChangeRev: h.trimmedChange, TrimmedNoteRev: h.trimmedNote, NoteSecond: h.noteSecond, Keys: h.keys, ClosedRev: h.closedRev,
		OldestChange: p.changes.first, NextChange: p.changes.next, OldestNote: p.notes.first, NextNote: p.notes.next,
		Counters: h.counters.message(),
	}
}

func (c *Counters) message() *boardpb.Counters {
	return &boardpb.Counters{
		Sets: c.Sets, Appends: c.Appends, Deletes: c.Deletes, Conflicts: c.Conflicts,
		PersistentConflicts: c.PersistentConflicts, Claims: c.Claims, Reclaims: c.Reclaims, Expiries: c.Expiries,
		FenceRejections: c.FenceRejections, Refusals: c.Refusals, NotesSuppressed: c.NotesSuppressed,
		Completes: c.Completes, LateRenewals: c.LateRenewals,
		CrossReads: c.CrossReads, ReadsDropped: c.ReadsDropped, ReadsUnpaired: c.ReadsUnpaired, Parks: c.Parks,
	}
}

// Loader builds a state from the records of a snapshot.
type Loader struct {
	s    *State
	seen map[string]bool
}

// NewLoader starts with nothing.
func NewLoader() *Loader { return &Loader{s: New(), seen: map[string]bool{}} }

// Load takes one record.
func (l *Loader) Load(r *boardpb.SnapshotRecord) error {
	if d := r.GetDigest(); d != nil {
		return l.loadDigest(d)
	}
	if h := r.GetHead(); h != nil {
		return l.loadHead(h)
	}
	if !l.seen[r.Board] {
		return fmt.Errorf("a record of board %q before its head", r.Board)
	}
	s, b := l.s, l.s.boards[r.Board]
	e := &s.enc
	var sum Sum
	switch v := r.Record.(type) {
	case *boardpb.SnapshotRecord_Entry:
		sum = b.loadEntry(e, v.Entry)
	case *boardpb.SnapshotRecord_Lease:
		sum = s.loadLease(b, v.Lease)
	case *boardpb.SnapshotRecord_Loop:
		sum = e.loop(b.name, v.Loop)
		b.loops.put(0, v.Loop.Id, v.Loop)
		s.followLoop(b, nil, v.Loop)
	case *boardpb.SnapshotRecord_Kept:
		sum = e.kept(b.name, v.Kept)
		b.kept.put(0, v.Kept.Id, v.Kept)
		b.idem.follow(v.Kept, +1)
	case *boardpb.SnapshotRecord_Conflict:
		sum = e.conflict(b.name, v.Conflict)
		b.conflicts.put(0, v.Conflict.Key, v.Conflict)
	case *boardpb.SnapshotRecord_NoteRate:
		sum = e.noteRate(b.name, v.NoteRate)
		b.rates.put(0, v.NoteRate.Principal, v.NoteRate)
	case *boardpb.SnapshotRecord_Invalidation:
		sum = e.invalidation(b.name, v.Invalidation)
		b.marks.put(0, v.Invalidation.Ref, v.Invalidation)
	case *boardpb.SnapshotRecord_Readers:
		sum = e.readers(b.name, v.Readers)
		b.readers.put(0, v.Readers.Ref, v.Readers)
	case *boardpb.SnapshotRecord_ReadPair:
		sum = e.readPair(b.name, v.ReadPair)
		b.pairs.put(0, pairID(v.ReadPair.Reader, v.ReadPair.Author), v.ReadPair)
	case *boardpb.SnapshotRecord_Usage:
		sum = e.usage(b.name, v.Usage)
		b.usage.put(0, v.Usage.Pattern, v.Usage)
	case *boardpb.SnapshotRecord_Phase:
		sum = e.phase(b.name, v.Phase)
		b.phases.put(0, v.Phase.Id, v.Phase)
	case *boardpb.SnapshotRecord_PhaseData:
		sum = e.phaseData(b.name, v.PhaseData)
		b.phaseData.put(0, phaseVersion(v.PhaseData.Phase, v.PhaseData.Version), v.PhaseData)
	case *boardpb.SnapshotRecord_PhaseConflict:
		sum = e.phaseConflict(b.name, v.PhaseConflict)
		b.disputes.put(0, conflictKey(v.PhaseConflict.Id), v.PhaseConflict)
	case *boardpb.SnapshotRecord_Floor:
		sum = e.floor(b.name, v.Floor)
		b.floors.put(0, v.Floor.Key, v.Floor)
	case *boardpb.SnapshotRecord_Event:
		sum = e.event(b.name, v.Event)
		log := &b.changes
		if r.Note {
			log = &b.notes
		}
		log.append(v.Event, sum)
	default:
		return fmt.Errorf("a record of a kind this binary does not know (%T): upgrade this node", r.Record)
	}
	b.sum, s.sum = b.sum.plus(sum), s.sum.plus(sum)
	return nil
}

func (l *Loader) loadDigest(d *boardpb.DigestAt) error {
	if len(d.Digest) != 16 {
		return fmt.Errorf("a digest of %d bytes", len(d.Digest))
	}
	l.s.digests = append(l.s.digests, digestAt{d.Index, sumOf(d.Digest)})
	return nil
}

func (l *Loader) loadHead(h *boardpb.BoardHead) error {
	if l.seen[h.Name] {
		return fmt.Errorf("board %q twice", h.Name)
	}
	l.seen[h.Name] = true
	schema, bad := CompileSchema(h.GetSettings().GetNamespaces())
	if bad != nil {
		return fmt.Errorf("board %q: %s", h.Name, bad.Message)
	}
	if h.Name != ClusterBoard {
		l.s.CreateBoard(h.Name, h.Incarnation, h.Settings, schema)
	}
	b, c := l.s.boards[h.Name], h.GetCounters()
	b.head = head{
		rev: h.Rev, incarnation: h.Incarnation, settingsVersion: h.SettingsVersion, liveBytes: h.LiveBytes,
		versionFloor: h.VersionFloor, generationFloor: h.GenerationFloor, nextQueuePos: h.NextQueuePos,
		compactedRev: h.CompactedRev, forgottenRev: h.ForgottenRev, createdWall: h.CreatedWallMs, trimmedChange: h.TrimmedChangeRev,
		trimmedNote: h.TrimmedNoteRev, noteSecond: h.NoteSecond, keys: h.Keys, closedRev: h.ClosedRev,
		counters: Counters{
			Sets: c.GetSets(), Appends: c.GetAppends(), Deletes: c.GetDeletes(), Conflicts: c.GetConflicts(),
			PersistentConflicts: c.GetPersistentConflicts(), Claims: c.GetClaims(), Reclaims: c.GetReclaims(),
			Expiries: c.GetExpiries(), FenceRejections: c.GetFenceRejections(), Refusals: c.GetRefusals(),
			NotesSuppressed: c.GetNotesSuppressed(), Completes: c.GetCompletes(), LateRenewals: c.GetLateRenewals(),
			CrossReads: c.GetCrossReads(), ReadsDropped: c.GetReadsDropped(), ReadsUnpaired: c.GetReadsUnpaired(),
			Parks: c.GetParks(),
		},
	}
	b.changes.first, b.changes.next = h.OldestChange, h.OldestChange
	b.notes.first, b.notes.next = h.OldestNote, h.OldestNote
	return nil
}

// loadEntry adds one version; those of a key come together, oldest first.
func (b *board) loadEntry(e *encoder, v *boardpb.Entry) Sum {
	sum := e.entry(b.name, v)
	k, ok := b.entries.get(v.Key)
	if !ok {
		k = &Key{}
		b.entries.put(0, v.Key, k)
	}
	k.versions, k.sums, k.total = append(k.versions, v), append(k.sums, sum), k.total.plus(sum)
	return sum
}

// loadLease adds one state of a lease; those of a key come together, oldest first.
func (s *State) loadLease(b *board, l *boardpb.Lease) Sum {
	sum := s.enc.lease(b.name, l)
	next := &leaseRecord{now: l, nowSum: sum}
	if rec, ok := b.leases.get(l.Key); ok {
		s.forgetLease(b, rec.now)
		next.past, next.pastSum = append(rec.past, rec.now), rec.pastSum.plus(rec.nowSum)
	}
	b.leases.put(0, l.Key, next)
	s.rememberLease(b, l)
	return sum
}

// Finish derives the orders, and proves that the state is the one that was written.
func (l *Loader) Finish(h *boardpb.SnapshotHeader) (*State, error) {
	s := l.s
	if h.Cluster == nil {
		return nil, fmt.Errorf("the snapshot has no cluster record")
	}
	s.cluster, s.applied, s.term = h.Cluster, h.Applied, h.Term
	s.hashRecord()
	for _, b := range s.boards {
		if planted.Bug("M18") {
			planted.Note(b.schema, b.changes.next)
		}
		b.recount()
		s.touch(b)
	}
	if got := s.Digest().Bytes(); h.Applied > 0 && !bytes.Equal(got[:], h.Digest) {
		return nil, fmt.Errorf("the snapshot at index %d does not add up to its digest: it was written by a broken node or binary", h.Applied)
	}
	return s, nil
}
