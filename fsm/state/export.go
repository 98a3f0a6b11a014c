package state

import (
	boardpb "raftboard/fsm/pb"
)

// Export calls each for every record of the board, its head first, in an order that
// Replay takes. Each must not keep the record. A board that shows an earlier rev exports
// what it is now.
func (b *Board) Export(each func(*boardpb.SnapshotRecord) error) error {
	if b.implicit {
		return nil
	}
	return b.export(each)
}

// Digest is of all that the board holds, its own share of the state's. It is zero before
// the first write to "default".
func (b *Board) Digest() [16]byte {
	if b.implicit {
		return Sum{}.Bytes()
	}
	return b.sum.plus(headSum(b.name, &b.head, &b.changes, &b.notes, b.settSum)).Bytes()
}

// Replay folds what Export gave into a board again, without a cluster. The board it gives
// has the digest of the exported one, or the records are not all of it.
type Replay struct{ loader *Loader }

// NewReplay starts with nothing.
func NewReplay() *Replay { return &Replay{NewLoader()} }

// Take takes one record.
func (r *Replay) Take(record *boardpb.SnapshotRecord) error { return r.loader.Load(record) }

// Board is what the records taken add up to, shown as of board time 0; nil if there was
// no such board among them.
func (r *Replay) Board(name string) (*Board, error) {
	s, err := r.loader.Finish(&boardpb.SnapshotHeader{Cluster: &boardpb.ClusterRecord{Level: 1}})
	if err != nil || !s.BoardExists(name) {
		return nil, err
	}
	return s.Publish(nil).Board(name), nil
}
