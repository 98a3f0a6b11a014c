package state

import (
	"sort"

	boardpb "raftboard/fsm/pb"
)

// past is a board as it was right after a commit, made from what is retained (SPEC F-28).
// Reads go through it one by one, and it notes when one of them does not reach back that
// far: only what a read really looks at may make it fail.
type past struct {
	rev       uint64
	forgotten uint64 // below it, keys may have existed of which nothing is left
	lack      uint64 // the lowest rev at which everything looked at is known; 0: rev is
}

// At is the board as it was right after the commit rev, which must not be above the head.
// Its keys and leases are those of then; its settings, counts, loops and events are not.
// Whatever was read from it holds only if Lack is 0 afterwards. One goroutine may use it.
func (b *Board) At(rev uint64) *Board {
	then := *b
	then.past = &past{rev: rev, forgotten: b.head.forgottenRev}
	return &then
}

// Rev is the newest commit the board shows.
func (b *Board) Rev() uint64 {
	if b.past != nil {
		return b.past.rev
	}
	return b.head.rev
}

// Lack is the lowest rev at which everything that was read through this Board is retained,
// if what was read does not reach back to the rev it shows; else 0.
func (b *Board) Lack() uint64 {
	if b.past == nil {
		return 0
	}
	return b.past.lack
}

// Past tells whether the board shows an earlier commit than the newest.
func (b *Board) Past() bool { return b.past != nil }

func (p *past) miss(rev uint64) {
	if rev > p.rev {
		p.lack = max(p.lack, rev)
	}
}

// reach notes, when a Key is looked at, that it does not reach back.
type reach struct {
	past *past
	from uint64
}

func (r *reach) look() {
	if r != nil {
		r.past.miss(r.from)
	}
}

// key is what a key was at the rev, or nil if it had no record.
func (p *past) key(k *Key) *Key {
	if k == nil {
		p.miss(p.forgotten)
		return nil
	}
	n := sort.Search(len(k.versions), func(i int) bool { return k.versions[i].Rev > p.rev })
	switch oldest := k.versions[0]; {
	case n == len(k.versions):
		return k
	case n > 0:
		return &Key{versions: k.versions[:n:n], sums: k.sums[:n:n]}
	case oldest.First:
		p.miss(p.forgotten)
		return nil
	default:
		gone := &boardpb.Entry{Key: oldest.Key, Version: oldest.Version - 1, Deleted: true}
		return &Key{versions: []*boardpb.Entry{gone}, missed: &reach{p, oldest.Rev}}
	}
}

// keys passes on what keys were, leaving out those that had no record.
func (p *past) keys(each func(key string, k *Key) bool) func(key string, k *Key) bool {
	p.miss(p.forgotten)
	return func(key string, k *Key) bool {
		then := p.key(k)
		return then == nil || each(key, then)
	}
}

// lease is the state a lease record had at the rev, or nil if there was none.
func (p *past) lease(rec *leaseRecord) *boardpb.Lease {
	if rec == nil {
		p.miss(p.forgotten)
		return nil
	}
	if rec.now.Rev <= p.rev {
		return rec.now
	}
	oldest := rec.now
	for i := len(rec.past) - 1; i >= 0; i-- {
		if oldest = rec.past[i]; oldest.Rev <= p.rev {
			return oldest
		}
	}
	if oldest.First {
		p.miss(p.forgotten)
	} else {
		p.miss(oldest.Rev)
	}
	return nil
}

// leaseRecord is one lease: what it is now, and its earlier states, oldest first, each with
// the rev it began at. It is immutable; a new state shares the array.
type leaseRecord struct {
	now     *boardpb.Lease
	nowSum  Sum
	past    []*boardpb.Lease
	pastSum Sum
}

func (r *leaseRecord) lease() *boardpb.Lease {
	if r == nil {
		return nil
	}
	return r.now
}

func (r *leaseRecord) sum() Sum {
	if r == nil {
		return Sum{}
	}
	return r.nowSum.plus(r.pastSum)
}

// replacedAt is the rev that replaced the earlier state i.
func (r *leaseRecord) replacedAt(i int) uint64 {
	if i+1 < len(r.past) {
		return r.past[i+1].Rev
	}
	return r.now.Rev
}

func (b *board) lease(key string) *boardpb.Lease {
	rec, _ := b.leases.get(key)
	return rec.lease()
}

// leaseUnchanged tells whether this Txn did no more to a lease than give up earlier states.
func (x *Txn) leaseUnchanged(key string) bool {
	at := x.leases.lookup(key)
	return at == nil || at.v == x.b.lease(key)
}

// pastBytes is what the earlier states of a lease still count for against the board's cap.
func (x *Txn) pastBytes(key string) uint64 {
	rec, ok := x.b.leases.get(key)
	if !ok {
		return 0
	}
	return pastOverhead * uint64(len(rec.past)-x.lostStates[key])
}

// nextStates is a lease record after a change. A change that took a rev leaves the state
// before it behind; a renewal does not. Earlier states go when there are too many, when
// this Txn gave them up, and when the board is full: they are its oldest history.
func (x *Txn) nextStates(rec *leaseRecord, l *boardpb.Lease) *leaseRecord {
	e := &x.s.enc
	next := &leaseRecord{now: l, nowSum: e.lease(x.b.name, l)}
	if rec == nil {
		return next
	}
	next.past, next.pastSum = rec.past, rec.pastSum
	if rec.now.Rev != l.Rev {
		next.past, next.pastSum = append(rec.past, rec.now), rec.pastSum.plus(rec.nowSum)
		x.head.liveBytes += pastOverhead
	}
	lost := x.lostStates[l.Key]
	for len(next.past) > 0 && (lost > 0 || len(next.past) >= LeaseStates || x.head.liveBytes > x.b.maxBytes()) {
		if lost > 0 {
			lost--
		} else {
			x.head.liveBytes -= pastOverhead
		}
		next.pastSum = next.pastSum.minus(e.lease(x.b.name, next.past[0]))
		next.past = next.past[1:]
	}
	return next
}

// dropState gives up the oldest state of a lease that this Txn has not given up yet, if a
// given rev replaced it.
func (x *Txn) dropState(key string, replaced uint64) {
	rec, _ := x.b.leases.get(key)
	n := x.lostStates[key]
	if n >= len(rec.past) || rec.replacedAt(n) != replaced {
		return
	}
	if x.lostStates == nil {
		x.lostStates = map[string]int{}
	}
	x.lostStates[key] = n + 1
	x.head.liveBytes -= pastOverhead
	if x.leases.lookup(key) == nil {
		x.leases.put(key, rec.now, false) // so that Commit comes by
	}
}

// followStates keeps the order of earlier states of leases.
func (b *board) followStates(key string, old, rec *leaseRecord) {
	if old != nil {
		for i := range old.past {
			if rec != nil && len(rec.past) > 0 && rec.past[0].Rev <= old.past[i].Rev {
				break
			}
			b.old.Delete(oldKey(old.replacedAt(i), 0, key))
		}
	}
	if rec == nil || len(rec.past) == 0 {
		return
	}
	from := 0
	if old != nil {
		from = max(0, len(rec.past)-1) // a change adds one at most
		if n := len(old.past); n > 0 && old.past[n-1] == rec.past[len(rec.past)-1] {
			return
		}
	}
	for i := from; i < len(rec.past); i++ {
		b.old.Insert(oldKey(rec.replacedAt(i), 0, key))
	}
}
