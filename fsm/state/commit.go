package state

import (
	"strings"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/planted"
)

// Commit applies what was staged: first the records with their digests, then the orders
// derived from them, then the events. It takes a rev if an event was emitted, and tells
// whether it did. A panic in here leaves half a commit behind, so the caller must not
// recover it.
func (x *Txn) Commit() (rev uint64) {
	b, at := x.b, x.s.applied
	if x.empty() {
		return b.head.rev
	}
	x.trimTombstones()
	if len(x.events) > 0 {
		x.head.rev++
	}
	for i := range x.entries.list {
		x.commitKey(at, &x.entries.list[i])
	}
	for i := range x.leases.list {
		x.commitLease(at, x.leases.list[i].key, x.leases.list[i].v)
	}
	for i := range x.loops.list {
		x.commitLoop(at, &x.loops.list[i])
	}
	for i := range x.kept.list {
		x.commitKept(at, &x.kept.list[i])
	}
	commitPlain(x, at, &x.conflicts, &b.conflicts, (*encoder).conflict)
	commitPlain(x, at, &x.rates, &b.rates, (*encoder).noteRate)
	commitPlain(x, at, &x.marks, &b.marks, (*encoder).invalidation)
	commitPlain(x, at, &x.readers, &b.readers, (*encoder).readers)
	commitPlain(x, at, &x.pairs, &b.pairs, (*encoder).readPair)
	commitPlain(x, at, &x.usage, &b.usage, (*encoder).usage)
	commitPlain(x, at, &x.phases, &b.phases, (*encoder).phase)
	commitPlain(x, at, &x.phaseData, &b.phaseData, (*encoder).phaseData)
	commitPlain(x, at, &x.disputes, &b.disputes, (*encoder).phaseConflict)
	if x.compactEvents > 0 {
		x.trimEvents(&b.changes, &x.head.trimmedChange)
		x.trimEvents(&b.notes, &x.head.trimmedNote)
	}
	for _, ev := range x.events {
		x.appendEvent(ev)
	}
	b.head = x.head
	x.s.touch(b)
	x.Discard()
	return b.head.rev
}

func (x *Txn) empty() bool {
	return len(x.events) == 0 && x.compactEvents == 0 && x.head == x.b.head &&
		len(x.entries.list) == 0 && len(x.leases.list) == 0 && len(x.loops.list) == 0 &&
		len(x.kept.list) == 0 && len(x.conflicts.list) == 0 && len(x.rates.list) == 0 && len(x.marks.list) == 0 &&
		len(x.readers.list) == 0 && len(x.pairs.list) == 0 &&
		len(x.usage.list) == 0 && len(x.phases.list) == 0 && len(x.phaseData.list) == 0 && len(x.disputes.list) == 0
}

// PendingRev is the rev an answer names: the commit's, or the board's when it takes none.
func (x *Txn) PendingRev() uint64 {
	if len(x.events) > 0 {
		return x.head.rev + 1
	}
	return x.head.rev
}

// account moves the digest from one record's sum to another's.
func (x *Txn) account(minus, plus Sum) {
	x.b.sum = x.b.sum.minus(minus).plus(plus)
	x.s.sum = x.s.sum.minus(minus).plus(plus)
}

func commitPlain[V any](x *Txn, at uint64, c *staged[V], t *Table[V], hash func(*encoder, string, V) Sum) {
	for i := range c.list {
		ch := &c.list[i]
		var minus, plus Sum
		if old, ok := t.get(ch.key); ok {
			minus = hash(&x.s.enc, x.b.name, old)
		}
		if ch.drop {
			t.drop(at, ch.key)
		} else {
			plus = hash(&x.s.enc, x.b.name, ch.v)
			t.put(at, ch.key, ch.v)
		}
		x.account(minus, plus)
	}
}

func (x *Txn) commitKey(at uint64, ch *stagedChange[*Key]) {
	b := x.b
	old, _ := b.entries.get(ch.key)
	var oldTotal, newTotal Sum
	var wasLive, isLive bool
	if old != nil {
		oldTotal, wasLive = old.total, !old.Newest().Deleted
	}
	if ch.drop {
		b.entries.drop(at, ch.key)
	} else {
		newTotal, isLive = ch.v.total, !ch.v.Newest().Deleted
		b.entries.put(at, ch.key, ch.v)
	}
	b.followVersions(ch.key, old, ch.v)
	b.followCurrent(ch.key, old, ch.v)
	b.followCites(old, ch.v)
	b.followTomb(ch.key, old, b.lease(ch.key))
	x.account(oldTotal, newTotal)
	if wasLive != isLive {
		b.count(ch.key, func(c *boardpb.NamespaceCounts) {
			if isLive {
				c.Entries++
			} else {
				c.Entries--
			}
		})
	}
}

func (b *board) setLike(key string) bool {
	space := b.schema.Find(key)
	return space == nil || space.Mode != boardpb.Mode_MODE_APPEND
}

func (x *Txn) commitLease(at uint64, key string, l *boardpb.Lease) {
	b := x.b
	rec, _ := b.leases.get(key)
	old := rec.lease()
	if old != nil {
		x.s.forgetLease(b, old)
	}
	var next *leaseRecord
	if l == nil {
		b.leases.drop(at, key)
	} else {
		next = x.nextStates(rec, l)
		b.leases.put(at, key, next)
		x.s.rememberLease(b, l)
	}
	b.followStates(key, rec, next)
	x.account(rec.sum(), next.sum())
	b.followTomb(key, oldKeyOf(b, key), old)
	if classOf(old) != classOf(l) {
		b.count(key, func(c *boardpb.NamespaceCounts) {
			countLease(c, old, -1)
			countLease(c, l, +1)
		})
	}
}

func oldKeyOf(b *board, key string) *Key {
	k, _ := b.entries.get(key)
	return k
}

// leaseDeadline is when a lease record is looked at without being asked for.
func leaseDeadline(b *board, l *boardpb.Lease) (Deadline, bool) {
	switch {
	case l.State == boardpb.LeaseState_LEASE_STATE_HELD:
		return Deadline{l.ExpiresTMs, b.name, DeadlineLease, l.Key}, true
	case l.State == boardpb.LeaseState_LEASE_STATE_FREE && l.FreeTMs > 0:
		return Deadline{l.FreeTMs, b.name, DeadlineDelay, l.Key}, true
	}
	return Deadline{}, false
}

func (s *State) rememberLease(b *board, l *boardpb.Lease) {
	if d, ok := leaseDeadline(b, l); ok {
		s.deadlines.Set(d)
		b.due.Set(d)
	}
	if l.State == boardpb.LeaseState_LEASE_STATE_HELD {
		b.holdings.Insert(holding(l))
	}
	if space := b.schema.Find(l.Key); l.QueuePos > 0 && space != nil {
		b.queues[space.Number].Set(l.QueuePos, l.Key)
	}
}

func (s *State) forgetLease(b *board, l *boardpb.Lease) {
	if d, ok := leaseDeadline(b, l); ok {
		s.deadlines.Delete(d)
		b.due.Delete(d)
	}
	if l.State == boardpb.LeaseState_LEASE_STATE_HELD {
		b.holdings.Delete(holding(l))
	}
	if space := b.schema.Find(l.Key); l.QueuePos > 0 && space != nil {
		b.queues[space.Number].Delete(l.QueuePos)
	}
}

func (x *Txn) commitLoop(at uint64, ch *stagedChange[*boardpb.Loop]) {
	b, e := x.b, &x.s.enc
	var minus, plus Sum
	old, _ := b.loops.get(ch.key)
	if old != nil {
		minus = e.loop(b.name, old)
	}
	if ch.drop {
		b.loops.drop(at, ch.key)
	} else {
		plus = e.loop(b.name, ch.v)
		b.loops.put(at, ch.key, ch.v)
	}
	x.s.followLoop(b, old, ch.v)
	x.account(minus, plus)
}

// followLoop moves a loop's deadline and its nonce with it.
func (s *State) followLoop(b *board, old, l *boardpb.Loop) {
	if old.GetCheckTMs() != l.GetCheckTMs() {
		if old.GetCheckTMs() > 0 {
			s.deadlines.Delete(Deadline{old.CheckTMs, b.name, DeadlineLoop, old.Id})
		}
		if l.GetCheckTMs() > 0 {
			s.deadlines.Set(Deadline{l.CheckTMs, b.name, DeadlineLoop, l.Id})
		}
	}
	was, is := liveNonce(old), liveNonce(l)
	if was == is {
		return
	}
	if was != "" && b.nonces[was] == old.Id {
		delete(b.nonces, was)
	}
	if is != "" {
		b.nonces[is] = l.Id
	}
}

func liveNonce(l *boardpb.Loop) string {
	if l == nil || l.Nonce == "" || l.State == boardpb.LoopState_LOOP_STATE_ENDED {
		return ""
	}
	return l.Principal + "\x00" + l.Nonce
}

func (x *Txn) commitKept(at uint64, ch *stagedChange[*boardpb.Kept]) {
	b, e := x.b, &x.s.enc
	var minus, plus Sum
	if old, ok := b.kept.get(ch.key); ok {
		minus = e.kept(b.name, old)
		b.idem.follow(old, -1)
	}
	if ch.drop {
		b.kept.drop(at, ch.key)
	} else {
		plus = e.kept(b.name, ch.v)
		b.kept.put(at, ch.key, ch.v)
		b.idem.follow(ch.v, +1)
	}
	if planted.Bug("M6") { // the bug: the window is in no snapshot, and so in no digest
		return
	}
	x.account(minus, plus)
}

// follow keeps the order and the counts of idempotency keys; a loop's window has neither.
func (o *idemOrder) follow(k *boardpb.Kept, n int) {
	i := strings.IndexAny(k.Id, "!/")
	if i < 0 || k.Id[i] == '/' {
		return
	}
	principal := k.Id[:i]
	if o.count[principal] += n; o.count[principal] == 0 {
		delete(o.count, principal)
	}
	at := revKey(uint64(k.KeptTMs), k.Id)
	if n > 0 {
		o.byTime.Set(at, k.Id)
		o.byOwner.Set(principal+"\x00"+at, k.Id)
	} else {
		o.byTime.Delete(at)
		o.byOwner.Delete(principal + "\x00" + at)
	}
}

// appendEvent adds an event to its log and lets the oldest go that may go: when enough
// newer ones of its class exist, or when it is old. At most a few go per event, so the
// cost stays even; which ones depends on the state alone.
func (x *Txn) appendEvent(ev *boardpb.Event) {
	b := x.b
	log, most, trimmed := &b.changes, uint64(MaxChanges), &x.head.trimmedChange
	if IsNote(ev.Kind) {
		log, most, trimmed = &b.notes, MaxNotes, &x.head.trimmedNote
	}
	sum := x.s.enc.event(b.name, ev)
	log.append(ev, sum)
	x.account(Sum{}, sum)
	for n := 0; n < 4 && log.len() > 1; n++ {
		if log.len() <= most && log.at(log.first).TMs+MaxEventAgeMs > x.T() {
			return
		}
		gone, sum := log.dropFirst()
		*trimmed = gone.Rev
		x.account(sum, Sum{})
	}
}

// IsNote tells a note from a change (SPEC F-32): notes never push changes out.
func IsNote(k boardpb.Kind) bool { return k >= boardpb.Kind_KIND_CONFLICT }
