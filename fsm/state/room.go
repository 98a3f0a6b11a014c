package state

import (
	boardpb "raftboard/fsm/pb"
)

// MakeRoom tells whether need more bytes fit under the board's cap. If they don't, it
// first gives up the oldest history of set-like keys (SPEC F-32), at most CompactPerWrite
// versions; what it gave up is said by one compaction event.
func (x *Txn) MakeRoom(need uint64) bool {
	limit := x.b.maxBytes()
	full := func(uint64) bool { return x.head.liveBytes+need > limit }
	if !full(0) {
		return true
	}
	if highest := x.dropOld(CompactPerWrite, full); highest > 0 {
		x.head.compactedRev = max(x.head.compactedRev, highest+1)
		x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_COMPACTION, Surface: boardpb.Surface_SURFACE_BOARD,
			OldestRev: highest + 1, Reason: "the board is full"})
	}
	return !full(0)
}

// dropOld gives up to limit replaced versions, the oldest first, while more says so of
// the next one's rev. It returns the highest rev it gave up, or 0.
func (x *Txn) dropOld(limit int, more func(rev uint64) bool) (highest uint64) {
	x.b.old.Scan(func(at string) bool {
		rev, rest := splitRevKey(at)
		version, key := splitRevKey(rest)
		if limit == 0 || !more(rev) {
			return false
		}
		limit--
		k := x.Key(key)
		if k.versions[0].Version != version {
			return true // given up in this Txn already
		}
		next := *k
		x.dropOldest(&next)
		x.entries.put(key, &next, false)
		highest = rev
		return true
	})
	return highest
}

// CompactBefore gives up replaced versions and events before a rev. It costs what it
// gives up: an operator's act.
func (x *Txn) CompactBefore(rev uint64) {
	x.dropOld(1<<31, func(r uint64) bool { return r < rev })
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

// followVersions keeps the order of replaced versions of set-like keys, oldest first.
func (b *board) followVersions(key string, old, k *Key) {
	var oldest, known uint64 = 1<<64 - 1, 0
	if k != nil {
		oldest = k.versions[0].Version
	}
	if old != nil {
		known = old.Newest().Version
		for _, e := range old.versions[:len(old.versions)-1] {
			if e.Version >= oldest {
				break
			}
			b.old.Delete(oldKey(e))
		}
		if old.Newest().Deleted {
			b.tombs.Delete(revKey(old.Newest().Rev, key))
		}
	}
	if k == nil {
		return
	}
	if k.Newest().Deleted {
		b.tombs.Insert(revKey(k.Newest().Rev, key))
	}
	if !b.setLike(key) {
		return
	}
	for i := len(k.versions) - 2; i >= 0 && k.versions[i].Version >= known; i-- {
		b.old.Insert(oldKey(k.versions[i]))
	}
}
