package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/raft"
)

// errDamaged says that an entry is not what was stored.
var errDamaged = errors.New("it is not what was stored")

// Sealed is a log store whose entries carry a checksum.
func Sealed(inner raft.LogStore) raft.LogStore { return sealedLog{inner} }

// sealedLog gives every stored entry a checksum, and reads no entry without looking at it. The
// log file has none of its own: one flipped bit in a command would be applied as another
// command on this node alone, and sent on as the truth when it leads. The seal lies in the
// entry's extensions; it is this store's own and goes neither to raft nor over the wire.
type sealedLog struct{ inner raft.LogStore }

const sealSize = 4 // CRC-32C

func seal(e *raft.Log) []byte {
	table := crc32.MakeTable(crc32.Castagnoli)
	var head [17]byte
	binary.BigEndian.PutUint64(head[0:], e.Index)
	binary.BigEndian.PutUint64(head[8:], e.Term)
	head[16] = byte(e.Type)
	return binary.BigEndian.AppendUint32(nil, crc32.Update(crc32.Checksum(head[:], table), table, e.Data))
}

// IsMonotonic forwards what the store says of itself (RAFT P31).
func (s sealedLog) IsMonotonic() bool {
	m, ok := s.inner.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

func (s sealedLog) FirstIndex() (uint64, error) { return s.inner.FirstIndex() }
func (s sealedLog) LastIndex() (uint64, error)  { return s.inner.LastIndex() }

func (s sealedLog) DeleteRange(from, to uint64) error { return s.inner.DeleteRange(from, to) }

func (s sealedLog) StoreLog(e *raft.Log) error { return s.StoreLogs([]*raft.Log{e}) }

// StoreLogs stores copies: raft goes on using the entries it gave.
func (s sealedLog) StoreLogs(entries []*raft.Log) error {
	copies, sealed := make([]raft.Log, len(entries)), make([]*raft.Log, len(entries))
	for i, e := range entries {
		copies[i] = *e
		copies[i].Extensions = seal(e)
		sealed[i] = &copies[i]
	}
	return s.inner.StoreLogs(sealed)
}

func (s sealedLog) GetLog(index uint64, e *raft.Log) error {
	if err := s.inner.GetLog(index, e); err != nil {
		return err
	}
	if e.Index != index || len(e.Extensions) != sealSize || string(e.Extensions) != string(seal(e)) {
		return fmt.Errorf("log entry %d is damaged: %w", index, errDamaged)
	}
	e.Extensions = nil
	return nil
}
