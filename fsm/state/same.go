package state

import (
	"bytes"
	"hash/maphash"

	boardpb "raftboard/fsm/pb"
)

// sameIndex finds the items of one append key by what they say. It is derived, and made when
// it is first asked for: an answer compares the bytes, so the hash decides nothing.
type sameIndex struct {
	upto     uint64              // the newest version it knows
	versions map[uint64][]uint64 // by hash of the value
	size     int
}

// SameItem returns the newest current item of an append key with that value, or nil. What was
// invalidated does not count.
func (x *Txn) SameItem(key string, value []byte) *boardpb.Entry {
	b := x.b
	current := x.current(key)
	if len(current) == 0 {
		return nil
	}
	committed, _ := b.entries.get(key)
	s := b.sameOf(key, committed)
	oldest := current[0].Version
	is := func(e *boardpb.Entry) bool {
		return bytes.Equal(e.Value, value) && x.Invalidation(EntryRef(e)) == nil
	}
	for i := len(current) - 1; i >= 0 && current[i].Version > s.upto; i-- { // of this very transaction
		if is(current[i]) {
			return current[i]
		}
	}
	found := s.versions[maphash.Bytes(b.seed, value)]
	for i := len(found) - 1; i >= 0 && found[i] >= oldest; i-- {
		if e := current[found[i]-oldest]; is(e) {
			return e
		}
	}
	return nil
}

func (x *Txn) current(key string) []*boardpb.Entry {
	if k := x.Key(key); k != nil {
		return k.Current(x.b.schema.Find(key))
	}
	return nil
}

// sameOf brings the index of a key up to what is committed. One that mostly knows versions
// which are gone is made again.
func (b *board) sameOf(key string, k *Key) *sameIndex {
	var versions []*boardpb.Entry
	if k != nil {
		versions = k.versions
	}
	s := b.same[key]
	if s == nil || s.size > 2*len(versions)+64 {
		s = &sameIndex{versions: map[uint64][]uint64{}}
		b.same[key] = s
	}
	first := len(versions)
	for first > 0 && versions[first-1].Version > s.upto {
		first--
	}
	for _, e := range versions[first:] {
		h := maphash.Bytes(b.seed, e.Value)
		s.versions[h] = append(s.versions[h], e.Version)
		s.upto = e.Version
		s.size++
	}
	return s
}
