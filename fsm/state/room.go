package state

import (
	boardpb "raftboard/fsm/pb"
)

// MakeRoom tells whether need more bytes fit under the board's cap. If they don't, it
// first gives up the oldest history of set-like keys (SPEC F-32), then the numbers of
// keys that are long gone, at most CompactPerWrite of each; lost history is said by one
// compaction event. The key that is about to be written keeps its numbers.
func (x *Txn) MakeRoom(key string, need uint64) bool {
	limit := x.b.maxBytes()
	full := func(uint64) bool { return x.head.liveBytes+need > limit }
	if !full(0) {
		return true
	}
	if highest := x.dropOld(CompactPerWrite, full); highest > 0 {
		x.head.compactedRev = max(x.head.compactedRev, highest)
		x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_COMPACTION, Surface: boardpb.Surface_SURFACE_BOARD,
			OldestRev: highest, Reason: "the board is full"})
	}
	if full(0) {
		x.dropTombs(key, CompactPerWrite, func() bool { return full(0) })
	}
	return !full(0)
}

// dropTombs forgets keys of which only numbers are left, the oldest first, while more
// says so. Their numbers become the board's floors, above which a key without a record
// starts: no version and no generation is given twice.
func (x *Txn) dropTombs(except string, limit int, more func() bool) {
	var oldest []string
	x.b.tombs.Scan(func(rk string) bool {
		_, key := splitRevKey(rk)
		if key != except && x.entries.lookup(key) == nil && x.leaseUnchanged(key) {
			oldest = append(oldest, key)
		}
		return len(oldest) < limit
	})
	for _, key := range oldest {
		if !more() {
			return
		}
		at, _ := tombAt(key, x.Key(key), x.Lease(key))
		rev, _ := splitRevKey(at)
		x.head.forgottenRev = max(x.head.forgottenRev, rev)
		if k := x.Key(key); k != nil {
			x.head.versionFloor = max(x.head.versionFloor, k.Newest().Version)
			for _, e := range k.versions {
				x.head.liveBytes -= EntryBytes(e)
			}
			x.entries.put(key, nil, true)
		}
		if l := x.Lease(key); l != nil {
			x.head.generationFloor = max(x.head.generationFloor, l.Generation)
			x.head.liveBytes -= leaseOverhead + x.pastBytes(key)
			x.leases.put(key, nil, true)
		}
		if x.Conflicts(key) != nil {
			x.conflicts.put(key, nil, true)
		}
		x.forgetReaders(key)
	}
}

// trimTombstones keeps the number of keys that are long gone under its limit.
func (x *Txn) trimTombstones() {
	surplus := x.b.tombs.Len() - MaxTombstones
	x.dropTombs("", 4, func() bool { surplus--; return surplus >= 0 })
}

// followTomb keeps the order of keys of which only numbers are left: no live entry, and a
// lease that is free or none. old and oldLease are the records before the change.
func (b *board) followTomb(key string, old *Key, oldLease *boardpb.Lease) {
	if at, was := tombAt(key, old, oldLease); was {
		b.tombs.Delete(at)
	}
	k, _ := b.entries.get(key)
	if at, is := tombAt(key, k, b.lease(key)); is {
		b.tombs.Insert(at)
	}
}

func tombAt(key string, k *Key, l *boardpb.Lease) (at string, is bool) {
	var rev uint64
	if k != nil {
		if !k.Newest().Deleted {
			return "", false
		}
		rev = k.Newest().Rev
	}
	if l != nil {
		if l.State != boardpb.LeaseState_LEASE_STATE_FREE {
			return "", false
		}
		rev = max(rev, l.Rev)
	}
	return revKey(rev, key), k != nil || l != nil
}

// dropOld gives up to limit replaced versions and earlier states of leases, those first
// that were replaced first, while more says so of the rev that replaced the next one. It
// returns the highest such rev: from it on, all that is left is whole. 0 is none.
func (x *Txn) dropOld(limit int, more func(rev uint64) bool) (highest uint64) {
	x.b.old.Scan(func(at string) bool {
		rev, rest := splitRevKey(at)
		version, key := splitRevKey(rest)
		if limit == 0 || !more(rev) {
			return false
		}
		limit--
		switch {
		case version == 0:
			x.dropState(key, rev)
		case x.Key(key).versions[0].Version != version:
			return true // given up in this Txn already
		default:
			next := *x.Key(key)
			x.dropOldest(&next)
			x.entries.put(key, &next, false)
		}
		highest = rev
		return true
	})
	return highest
}

// CompactBefore gives up what no read at a rev or above needs: versions and states that it
// or an earlier one replaced, and events before it. It costs what it gives up: an operator's act.
func (x *Txn) CompactBefore(rev uint64) {
	x.dropOld(1<<31, func(replaced uint64) bool { return replaced <= rev })
	x.compactEvents = rev
	x.head.compactedRev = max(x.head.compactedRev, rev)
}

// trimEvents carries out at Commit what CompactBefore announced.
func (x *Txn) trimEvents(log *eventLog, trimmed *uint64) {
	for log.len() > 0 && log.at(log.first).Rev < x.compactEvents {
		gone, sum := log.dropFirst()
		*trimmed = gone.Rev
		x.account(sum, Sum{})
	}
}

// followVersions keeps the order of replaced versions of set-like keys.
func (b *board) followVersions(key string, old, k *Key) {
	var oldest, known uint64 = 1<<64 - 1, 0
	if k != nil {
		oldest = k.versions[0].Version
	}
	if old != nil {
		known = old.Newest().Version
		for i, e := range old.versions[:len(old.versions)-1] {
			if e.Version >= oldest {
				break
			}
			b.old.Delete(oldKey(old.versions[i+1].Rev, e.Version, key))
		}
	}
	if k == nil || !b.setLike(key) {
		return
	}
	for i := len(k.versions) - 2; i >= 0 && k.versions[i].Version >= known; i-- {
		b.old.Insert(oldKey(k.versions[i+1].Rev, k.versions[i].Version, key))
	}
}
