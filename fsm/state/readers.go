package state

import (
	"slices"

	boardpb "raftboard/fsm/pb"
)

// Readers is who was shown what others wrote in a record, or nil. The ref has no number.
func (x *Txn) Readers(ref string) *boardpb.Readers {
	r, _ := lookup(&x.readers, &x.b.readers, ref)
	return r
}

// PutReaders replaces the readers of a record.
func (x *Txn) PutReaders(r *boardpb.Readers) { x.readers.put(r.Ref, r, false) }

// AddReads counts reads of one principal of what another wrote. Where more pairs were seen
// than are counted one by one, the board's sum still has them.
func (x *Txn) AddReads(reader, author string, n uint64) {
	x.head.counters.CrossReads += n
	id := pairID(reader, author)
	p, known := lookup(&x.pairs, &x.b.pairs, id)
	if !known && x.b.pairs.len()+x.newPairs >= MaxReadPairs {
		x.head.counters.ReadsUnpaired += n
		return
	}
	if !known {
		x.newPairs++
	}
	x.pairs.put(id, &boardpb.ReadPair{Reader: reader, Author: author, Count: p.GetCount() + n}, false)
}

func pairID(reader, author string) string { return reader + "\x00" + author }

// forgetReaders drops who read a key, when its record goes.
func (x *Txn) forgetReaders(key string) {
	for _, kind := range []RefKind{RefKey, RefLease} {
		if ref := (Ref{Kind: kind, Key: key}).String(); x.Readers(ref) != nil {
			x.readers.put(ref, nil, true)
		}
	}
}

// Readers is who was shown what others wrote in a record, or nil. The ref has no number.
func (b *Board) Readers(ref string) *boardpb.Readers {
	r, _ := b.readers.get(ref, b.at)
	return r
}

// Authors is how many principals wrote what the board holds now.
func (b *Board) Authors() int { return b.authors.Len() }

// Closed tells whether the board takes no more writes.
func (b *Board) Closed() bool { return b.head.closedRev > 0 }

// ReadPairs are the pairs of reader and author, those that read most first.
func (b *Board) ReadPairs() (pairs []*boardpb.ReadPair) {
	b.pairs.ascend("", b.at, func(_ string, p *boardpb.ReadPair) bool {
		pairs = append(pairs, p)
		return true
	})
	slices.SortStableFunc(pairs, func(p, q *boardpb.ReadPair) int {
		switch {
		case p.Count > q.Count:
			return -1
		case p.Count < q.Count:
			return 1
		}
		return 0
	})
	return pairs
}
