package nodetest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

const (
	snapshotsKept   = 3               // as the file store of a real node keeps
	writeBack       = 5 * time.Second // after this what was never synced has reached the disk by itself
	checkpointEvery = 2 * time.Second // how far apart the copies are that Older goes back to
	checkpointsKept = 4
)

// content is what is stored: a log, keys with values, snapshots. Entries, values and snapshots
// are never changed in place, so that a copy shares them.
type content struct {
	log   map[uint64]*raft.Log
	first uint64 // 0: the log is empty
	last  uint64
	keys  map[string][]byte
	snaps []*snapshot // newest first
}

// snapshot is one that was closed. The sum is of what was written.
type snapshot struct {
	meta raft.SnapshotMeta
	data []byte
	sum  uint32
}

func newContent() content {
	return content{log: map[uint64]*raft.Log{}, keys: map[string][]byte{}}
}

func (c *content) clone() content {
	return content{log: maps.Clone(c.log), first: c.first, last: c.last, keys: maps.Clone(c.keys), snaps: slices.Clone(c.snaps)}
}

// undo takes one write back.
type undo struct {
	at   time.Time
	back func(*content)
}

func (c *content) storeLogs(entries []*raft.Log) (back func(*content)) {
	first, last := c.first, c.last
	before := make(map[uint64]*raft.Log, len(entries))
	for _, e := range entries {
		before[e.Index] = c.log[e.Index]
		stored := *e
		c.log[e.Index] = &stored
		if c.first == 0 || e.Index < c.first {
			c.first = e.Index
		}
		c.last = max(c.last, e.Index)
	}
	return func(c *content) { c.put(before, first, last) }
}

// put sets entries as they were; nil is one that was not there.
func (c *content) put(entries map[uint64]*raft.Log, first, last uint64) {
	for i, e := range entries {
		if e == nil {
			delete(c.log, i)
		} else {
			c.log[i] = e
		}
	}
	c.first, c.last = first, last
}

func (c *content) deleteRange(from, to uint64) (back func(*content)) {
	first, last := c.first, c.last
	before := map[uint64]*raft.Log{}
	for i := max(from, first); i <= min(to, last); i++ {
		if e := c.log[i]; e != nil {
			before[i] = e
			delete(c.log, i)
		}
	}
	if len(c.log) == 0 {
		c.first, c.last = 0, 0
	}
	for c.first != 0 && c.log[c.first] == nil {
		c.first++
	}
	for c.last != 0 && c.log[c.last] == nil {
		c.last--
	}
	return func(c *content) { c.put(before, first, last) }
}

func (c *content) set(key string, value []byte) (back func(*content)) {
	before, was := c.keys[key]
	c.keys[key] = bytes.Clone(value)
	return func(c *content) {
		if c.keys[key] = before; !was {
			delete(c.keys, key)
		}
	}
}

// keep is never lost: snapshots are synced whatever becomes of the log.
func (c *content) keep(s *snapshot) {
	c.snaps = append([]*snapshot{s}, c.snaps...)
	slices.SortStableFunc(c.snaps, func(a, b *snapshot) int {
		return cmp.Or(cmp.Compare(b.meta.Term, a.meta.Term), cmp.Compare(b.meta.Index, a.meta.Index))
	})
	c.snaps = c.snaps[:min(len(c.snaps), snapshotsKept)]
}

// store is the disk as one process has it open.
type store struct {
	d    *Disk
	gone chan struct{} // closed when the process has died
}

var (
	_ raft.LogStore      = (*store)(nil)
	_ raft.StableStore   = (*store)(nil)
	_ raft.SnapshotStore = (*store)(nil)
)

func (s *store) FirstIndex() (uint64, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return s.d.now.first, nil
}

func (s *store) LastIndex() (uint64, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return s.d.now.last, nil
}

func (s *store) GetLog(index uint64, entry *raft.Log) error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	e := s.d.now.log[index]
	if e == nil {
		return raft.ErrLogNotFound
	}
	*entry = *e
	return nil
}

func (s *store) StoreLog(e *raft.Log) error { return s.StoreLogs([]*raft.Log{e}) }

func (s *store) StoreLogs(entries []*raft.Log) error {
	return s.d.write(s.gone, func(c *content) func(*content) { return c.storeLogs(entries) },
		func(c *content) func(*content) { return c.storeLogs(entries[:len(entries)/2]) })
}

func (s *store) DeleteRange(from, to uint64) error {
	return s.d.write(s.gone, func(c *content) func(*content) { return c.deleteRange(from, to) }, nil)
}

func (s *store) Set(key, value []byte) error {
	return s.d.write(s.gone, func(c *content) func(*content) { return c.set(string(key), value) }, nil)
}

func (s *store) SetUint64(key []byte, v uint64) error {
	err := s.Set(key, binary.BigEndian.AppendUint64(nil, v))
	if errors.Is(err, errGone) {
		runtime.Goexit() // raft would panic over a term it cannot store, and what is dead does nothing more
	}
	return err
}

var errNoKey = errors.New("not found") // raft compares the text

func (s *store) Get(key []byte) ([]byte, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	v, ok := s.d.now.keys[string(key)]
	if !ok {
		return nil, errNoKey
	}
	return bytes.Clone(v), nil
}

func (s *store) GetUint64(key []byte) (uint64, error) {
	v, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("%s has %d bytes", key, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

func (s *store) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64,
	_ raft.Transport) (raft.SnapshotSink, error) {
	s.d.mu.Lock()
	s.d.serial++
	id := fmt.Sprintf("%d-%d-%d", term, index, s.d.serial)
	s.d.mu.Unlock()
	return &sink{store: s, snap: &snapshot{meta: raft.SnapshotMeta{Version: version, ID: id, Index: index, Term: term,
		Configuration: conf, ConfigurationIndex: confIndex}}}, nil
}

func (s *store) List() (metas []*raft.SnapshotMeta, _ error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	for _, snap := range s.d.now.snaps {
		m := snap.meta
		metas = append(metas, &m)
	}
	return metas, nil
}

func (s *store) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	for _, snap := range s.d.now.snaps {
		if snap.meta.ID != id {
			continue
		}
		if crc32.ChecksumIEEE(snap.data) != snap.sum {
			return nil, nil, fmt.Errorf("snapshot %s: CRC mismatch", id)
		}
		m := snap.meta
		return &m, io.NopCloser(bytes.NewReader(snap.data)), nil
	}
	return nil, nil, fmt.Errorf("there is no snapshot %s", id)
}

// sink is a snapshot that is being written. Nothing of it is there before it is closed.
type sink struct {
	store *store
	snap  *snapshot
	done  bool
}

func (k *sink) ID() string { return k.snap.meta.ID }

func (k *sink) Write(b []byte) (int, error) {
	err := k.store.d.write(k.store.gone, func(*content) func(*content) { return nil }, nil)
	if err != nil {
		return 0, err
	}
	k.snap.data = append(k.snap.data, b...)
	return len(b), nil
}

func (k *sink) Cancel() error {
	k.done = true
	return nil
}

func (k *sink) Close() error {
	if k.done {
		return nil
	}
	k.done = true
	k.snap.meta.Size, k.snap.sum = int64(len(k.snap.data)), crc32.ChecksumIEEE(k.snap.data)
	return k.store.d.write(k.store.gone, func(c *content) func(*content) {
		c.keep(k.snap)
		return nil
	}, nil)
}
