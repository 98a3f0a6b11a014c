package state

import (
	boardpb "raftboard/fsm/pb"
)

// Fork makes a board of what another held right after the commit rev (SPEC F-34): its keys
// with their versions up to there, its leases with their states up to there, its phases with
// their data up to there, and its marks.
// Its next commit is rev+1. Loops, remembered results, counters, usage and events stay
// behind. Nothing is given twice: what a key reached in the source since then is its floor.
// If something of it is no longer kept, nothing is made, and lack is the oldest rev that
// works. It costs what is carried over: an operator's act.
func (s *State) Fork(source, name, incarnation string, rev uint64) (lack uint64) {
	src := s.boards[source]
	then := (&Board{published: src.publish(s.applied)}).At(rev)
	then.Keys("", func(_ string, k *Key) bool { k.Newest(); return true })
	then.Leases("", func(string, *boardpb.Lease) bool { return true })
	lack = then.Lack()
	src.phases.index.Scan(func(_ string, r *Record[*boardpb.Phase]) bool {
		if p := r.newest(); p.Rev > rev { // of a phase only the newest state is kept
			lack = max(lack, p.Rev)
		}
		return true
	})
	if lack > 0 {
		return lack
	}
	b := newBoard(s, name)
	b.head = head{rev: rev, incarnation: incarnation, createdWall: s.Wall(), versionFloor: src.head.versionFloor,
		generationFloor: src.head.generationFloor, nextQueuePos: src.head.nextQueuePos, compactedRev: min(src.head.compactedRev, rev),
		forgottenRev: src.head.forgottenRev, trimmedChange: rev, trimmedNote: rev}
	b.setSettings(src.settings, src.schema, 1)
	then.Keys("", func(_ string, k *Key) bool {
		for _, e := range k.versions {
			b.sum = b.sum.plus(b.loadEntry(&s.enc, e))
			b.head.liveBytes += EntryBytes(e)
		}
		if !k.Newest().Deleted {
			b.head.keys++
		}
		return true
	})
	src.leases.index.Scan(func(_ string, r *Record[*leaseRecord]) bool {
		rec := r.newest()
		for _, l := range append(rec.past[:len(rec.past):len(rec.past)], rec.now) {
			if l.Rev > rev {
				break
			}
			if _, more := b.leases.get(l.Key); more {
				b.head.liveBytes += pastOverhead
			} else {
				b.head.liveBytes += leaseOverhead
			}
			b.sum = b.sum.plus(s.loadLease(b, l))
		}
		return true
	})
	src.marks.index.Scan(func(ref string, r *Record[*boardpb.Invalidation]) bool {
		if v := r.newest(); v.Rev <= rev {
			b.marks.put(0, ref, v)
			b.sum = b.sum.plus(s.enc.invalidation(name, v))
			b.head.liveBytes += MarkBytes(v)
		}
		return true
	})
	s.forkPhases(b, src)
	s.inheritFloors(b, src)
	b.recount()
	s.boards[name] = b
	s.sum = s.sum.plus(b.sum)
	s.touch(b)
	return 0
}

// forkPhases carries the phases over, none of which changed since the fork's rev. Their locks
// are leases, and came with those.
func (s *State) forkPhases(b, src *board) {
	src.phases.index.Scan(func(id string, r *Record[*boardpb.Phase]) bool {
		b.phases.put(0, id, r.newest())
		b.sum = b.sum.plus(s.enc.phase(b.name, r.newest()))
		b.head.liveBytes += phaseOverhead
		return true
	})
	src.phaseData.index.Scan(func(key string, r *Record[*boardpb.PhaseData]) bool {
		b.phaseData.put(0, key, r.newest())
		b.sum = b.sum.plus(s.enc.phaseData(b.name, r.newest()))
		b.head.liveBytes += PhaseBytes(r.newest())
		return true
	})
	src.disputes.index.Scan(func(id string, r *Record[*boardpb.PhaseConflict]) bool {
		b.disputes.put(0, id, r.newest())
		b.sum = b.sum.plus(s.enc.phaseConflict(b.name, r.newest()))
		b.head.liveBytes += ConflictBytes(r.newest())
		return true
	})
}

// inheritFloors keeps, for each key that the source gave higher numbers than the fork
// shows, how far it got.
func (s *State) inheritFloors(b, src *board) {
	raise := func(key string, version, generation uint64) {
		f, _ := b.floors.get(key)
		next := &boardpb.Floor{Key: key, Version: max(version, f.GetVersion()), Generation: max(generation, f.GetGeneration())}
		if k, ok := b.entries.get(key); (!ok || k.Newest().Version < next.Version) && next.Version > f.GetVersion() ||
			b.lease(key).GetGeneration() < next.Generation && next.Generation > f.GetGeneration() {
			if f != nil {
				b.sum = b.sum.minus(s.enc.floor(b.name, f))
			}
			b.floors.put(0, key, next)
			b.sum = b.sum.plus(s.enc.floor(b.name, next))
		}
	}
	src.floors.index.Scan(func(key string, r *Record[*boardpb.Floor]) bool {
		raise(key, r.newest().Version, r.newest().Generation)
		return true
	})
	src.entries.index.Scan(func(key string, r *Record[*Key]) bool {
		raise(key, r.newest().Newest().Version, 0)
		return true
	})
	src.leases.index.Scan(func(key string, r *Record[*leaseRecord]) bool {
		raise(key, 0, r.newest().now.Generation)
		return true
	})
}

// floor is what a key got to in the board that this one was forked from, or nil.
func (x *Txn) floor(key string) *boardpb.Floor {
	if x.b.floors.len() == 0 {
		return nil
	}
	f, _ := x.b.floors.get(key)
	return f
}

// Held lists the keys of all leases that are held, in order. Linear in the leases: an
// operator's act. What this Txn staged does not show.
func (x *Txn) Held() (keys []string) {
	x.b.leases.index.Scan(func(key string, r *Record[*leaseRecord]) bool {
		if r.newest().now.State == boardpb.LeaseState_LEASE_STATE_HELD {
			keys = append(keys, key)
		}
		return true
	})
	return keys
}
