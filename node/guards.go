package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/hashicorp/raft"
)

// sentinel turns the first unexpected error of a store into the end of the process. A failed
// write leaves raft's picture of its log wrong, and raft goes on; the way back is a restart
// and replay (RAFT P17). After the first error every call fails: what cannot write must not
// pretend.
type sentinel struct {
	where   string
	die     func(error)
	closing atomic.Bool // set when shutdown begins: errors from then on are expected
	dead    atomic.Pointer[error]
}

// check passes an error on and, when it is not an expected one, ends the process.
func (s *sentinel) check(what string, err error) error {
	if err == nil || errors.Is(err, raft.ErrLogNotFound) || err.Error() == notFound || s.closing.Load() {
		return err
	}
	failed := fmt.Errorf("%s: %w", what, storeError(s.where, err))
	if s.dead.CompareAndSwap(nil, &failed) {
		s.die(failed)
	}
	return failed
}

func (s *sentinel) alive() error {
	if e := s.dead.Load(); e != nil {
		return *e
	}
	return nil
}

// storeError names the directory and the way back.
func storeError(dir string, err error) error {
	e := &DirError{Dir: dir, What: err.Error(), Cause: err,
		Hint: "acknowledged data is safe; check the disk, then start the node again: it replays its log"}
	if errors.Is(err, errDamaged) {
		e.Hint = "the other nodes hold what was acknowledged; run `raftboard node remove` for this node against a healthy one, " +
			"move this directory aside, and start again with an empty one and --join: the node comes back as a new member"
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		e.What = "the volume is full: " + err.Error()
		e.Hint = "acknowledged data is safe; free space on the volume of this directory, then start the node again"
	}
	return e
}

// guardedLog is the log store as raft sees it, below raft's cache.
type guardedLog struct {
	inner raft.LogStore
	s     *sentinel
	snaps raft.SnapshotStore
	// verify reads a whole snapshot; the log is cut only behind one that can be read.
	verify func(id string) error
	warn   func(msg string, args ...any)
}

// IsMonotonic forwards what the store says of itself (RAFT P31).
func (g *guardedLog) IsMonotonic() bool {
	m, ok := g.inner.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

func (g *guardedLog) FirstIndex() (uint64, error) {
	if err := g.s.alive(); err != nil {
		return 0, err
	}
	i, err := g.inner.FirstIndex()
	return i, g.s.check("first index of the log", err)
}

func (g *guardedLog) LastIndex() (uint64, error) {
	if err := g.s.alive(); err != nil {
		return 0, err
	}
	i, err := g.inner.LastIndex()
	return i, g.s.check("last index of the log", err)
}

func (g *guardedLog) GetLog(index uint64, log *raft.Log) error {
	if err := g.s.alive(); err != nil {
		return err
	}
	return g.s.check(fmt.Sprintf("read log entry %d", index), g.inner.GetLog(index, log))
}

func (g *guardedLog) StoreLog(log *raft.Log) error { return g.StoreLogs([]*raft.Log{log}) }

func (g *guardedLog) StoreLogs(logs []*raft.Log) error {
	if err := g.s.alive(); err != nil {
		return err
	}
	return g.s.check("write to the log", g.inner.StoreLogs(logs))
}

// DeleteRange clips a cut of the log's beginning, so that the log reaches back to the oldest
// snapshot that is kept: when the newest one turns out unreadable, an older one and the log
// are enough (RAFT P21). A cut of the end and a cut of everything pass as they are.
func (g *guardedLog) DeleteRange(from, to uint64) error {
	if err := g.s.alive(); err != nil {
		return err
	}
	first, err := g.inner.FirstIndex()
	if err == nil {
		var last uint64
		if last, err = g.inner.LastIndex(); err == nil && from == first && to < last {
			if to = min(to, g.cutLimit()); to < from {
				return nil
			}
		}
	}
	if err == nil {
		err = g.inner.DeleteRange(from, to)
	}
	return g.s.check(fmt.Sprintf("cut log entries %d to %d", from, to), err)
}

// cutLimit is the highest index that may go: that of the oldest kept snapshot, and nothing
// when the newest snapshot cannot be read back.
func (g *guardedLog) cutLimit() uint64 {
	metas, err := g.snaps.List()
	if err != nil || len(metas) == 0 {
		return 0
	}
	if err := g.verify(metas[0].ID); err != nil {
		g.warn("the newest snapshot cannot be read back; the log is kept", "snapshot", metas[0].ID, "error", err)
		return 0
	}
	limit := metas[0].Index
	for _, m := range metas {
		limit = min(limit, m.Index)
	}
	return limit
}

// The keys raft uses for its vote, ours, and the text raft compares for "no such key".
const (
	keyVoteTerm = "LastVoteTerm"
	keyVoteCand = "LastVoteCand"
	keyVote     = "Vote"
	notFound    = "not found"
)

var errNotFound = errors.New(notFound)

// guardedStable keeps the term and the candidate of a vote in one key, written in one
// transaction. In two, a crash between them leaves the new term with the old candidate, who
// can then get a vote although its log is behind (RAFT P3, hashicorp/raft#661).
type guardedStable struct {
	inner raft.StableStore
	s     *sentinel

	mu      sync.Mutex
	term    uint64 // of the vote that is being written
	pending bool
}

func (g *guardedStable) SetUint64(key []byte, v uint64) error {
	if err := g.s.alive(); err != nil {
		return err
	}
	if string(key) != keyVoteTerm {
		return g.s.check("write "+string(key), g.inner.SetUint64(key, v))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.term, g.pending = v, true
	return nil
}

func (g *guardedStable) Set(key, value []byte) error {
	if err := g.s.alive(); err != nil {
		return err
	}
	if string(key) != keyVoteCand {
		return g.s.check("write "+string(key), g.inner.Set(key, value))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.pending {
		panic("node: a vote's candidate was stored without its term")
	}
	g.pending = false
	record := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(value)), g.term)
	return g.s.check("write a vote", g.inner.Set([]byte(keyVote), append(record, value...)))
}

func (g *guardedStable) GetUint64(key []byte) (uint64, error) {
	if err := g.s.alive(); err != nil {
		return 0, err
	}
	if string(key) != keyVoteTerm {
		v, err := g.inner.GetUint64(key)
		return v, g.s.check("read "+string(key), err)
	}
	term, _, err := g.vote()
	return term, err
}

func (g *guardedStable) Get(key []byte) ([]byte, error) {
	if err := g.s.alive(); err != nil {
		return nil, err
	}
	if string(key) != keyVoteCand {
		v, err := g.inner.Get(key)
		return v, g.s.check("read "+string(key), err)
	}
	_, candidate, err := g.vote()
	return candidate, err
}

func (g *guardedStable) vote() (uint64, []byte, error) {
	record, err := g.inner.Get([]byte(keyVote))
	if err != nil {
		return 0, nil, g.s.check("read a vote", err)
	}
	if len(record) == 0 {
		return 0, nil, errNotFound
	}
	if len(record) < 8 {
		return 0, nil, g.s.check("read a vote", fmt.Errorf("the record has %d bytes", len(record)))
	}
	return binary.BigEndian.Uint64(record), record[8:], nil
}

// guardedSnapshots ends the process when a snapshot cannot be written. Reading is left to the
// start checks: an unreadable snapshot is not the end while an older one and the log are there.
type guardedSnapshots struct {
	raft.SnapshotStore
	s *sentinel
}

func (g *guardedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration,
	confIndex uint64, tr raft.Transport) (raft.SnapshotSink, error) {
	if err := g.s.alive(); err != nil {
		return nil, err
	}
	sink, err := g.SnapshotStore.Create(version, index, term, conf, confIndex, tr)
	if err != nil {
		return nil, g.s.check("create a snapshot", err)
	}
	return &guardedSink{SnapshotSink: sink, s: g.s}, nil
}

type guardedSink struct {
	raft.SnapshotSink
	s *sentinel
}

func (g *guardedSink) Write(b []byte) (int, error) {
	n, err := g.SnapshotSink.Write(b)
	return n, g.s.check("write a snapshot", err)
}

func (g *guardedSink) Close() error {
	return g.s.check("close a snapshot", g.SnapshotSink.Close())
}

// verifier answers a function that reads a whole snapshot back.
func verifier(snaps raft.SnapshotStore, verify func(io.Reader) error) func(id string) error {
	return func(id string) error {
		_, r, err := snaps.Open(id)
		if err != nil {
			return err
		}
		return errors.Join(verify(r), r.Close())
	}
}
