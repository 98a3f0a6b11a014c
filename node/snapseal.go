package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/hashicorp/raft"
)

// sealedSnapshots ties the content of a snapshot to its index and term. Both have checksums of
// their own, so a content in the place of another one's, whole in itself, would be restored as
// the state at an index at which it is not, and entries would be missing in silence. The seal
// lies before the content; it is this store's own and goes neither to raft nor over the wire.
type sealedSnapshots struct{ raft.SnapshotStore }

const (
	snapSealMagic = "RBS1"
	snapSealSize  = len(snapSealMagic) + 8 + 8 + 4 // index, term, CRC-32C
)

func snapSeal(index, term uint64) []byte {
	b := append(make([]byte, 0, snapSealSize), snapSealMagic...)
	b = binary.BigEndian.AppendUint64(b, index)
	b = binary.BigEndian.AppendUint64(b, term)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// Create begins a snapshot with its seal.
func (s sealedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration,
	confIndex uint64, tr raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, conf, confIndex, tr)
	if err != nil {
		return nil, err
	}
	if _, err := sink.Write(snapSeal(index, term)); err != nil {
		return nil, errors.Join(err, sink.Cancel())
	}
	return sink, nil
}

// List answers sizes without the seals.
func (s sealedSnapshots) List() ([]*raft.SnapshotMeta, error) {
	metas, err := s.SnapshotStore.List()
	for _, m := range metas {
		m.Size -= int64(snapSealSize)
	}
	return metas, err
}

// Open opens a snapshot behind its seal, and none in the place of another one.
func (s sealedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, rc, err := s.SnapshotStore.Open(id)
	if err != nil {
		return nil, nil, err
	}
	seal := make([]byte, snapSealSize)
	if _, err = io.ReadFull(rc, seal); err != nil {
		err = fmt.Errorf("snapshot %s is cut off: %w", id, err)
	} else if meta.ID != id || string(seal) != string(snapSeal(meta.Index, meta.Term)) {
		err = fmt.Errorf("snapshot %s is of another entry than it says (%d): %w", id, meta.Index, errDamaged)
	}
	if err != nil {
		return nil, nil, errors.Join(err, rc.Close())
	}
	meta.Size -= int64(snapSealSize)
	return meta, rc, nil
}
