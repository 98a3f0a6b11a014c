package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// sentinel turns the first unexpected error of a store into the end of the process. A failed
// write leaves raft's picture of its log wrong, and raft goes on; the way back is a restart
// and replay (RAFT P17). After the first error every call fails: what cannot write must not
// pretend.
type sentinel struct {
	where   string
	die     func(error)
	stall   *stallWatch // nil: calls may last as long as they like
	closing atomic.Bool // set when shutdown begins: errors from then on are expected
	dead    atomic.Pointer[error]
}

// call makes one call of a store, which may last extra longer than others.
func (s *sentinel) call(what string, extra time.Duration, do func() error) error {
	if err := s.alive(); err != nil {
		return err
	}
	end := s.stall.begin(what, extra)
	err := do()
	end()
	if err := s.check(what, err); err != nil {
		return err
	}
	return s.alive() // the end may have come while the call hung
}

// hung is told of a call that lasts too long.
func (s *sentinel) hung(what string, lasts time.Duration) {
	err := storeHangs(s.where, what, lasts)
	if !s.closing.Load() && s.dead.CompareAndSwap(nil, &err) {
		s.die(err)
	}
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

func (g *guardedLog) FirstIndex() (index uint64, err error) {
	err = g.s.call("first index of the log", 0, func() (err error) {
		index, err = g.inner.FirstIndex()
		return err
	})
	return index, err
}

func (g *guardedLog) LastIndex() (index uint64, err error) {
	err = g.s.call("last index of the log", 0, func() (err error) {
		index, err = g.inner.LastIndex()
		return err
	})
	return index, err
}

func (g *guardedLog) GetLog(index uint64, log *raft.Log) error {
	return g.s.call("read log entry "+strconv.FormatUint(index, 10), 0, func() error { return g.inner.GetLog(index, log) })
}

func (g *guardedLog) StoreLog(log *raft.Log) error { return g.StoreLogs([]*raft.Log{log}) }

func (g *guardedLog) StoreLogs(logs []*raft.Log) error {
	return g.s.call("write to the log", 0, func() error { return g.inner.StoreLogs(logs) })
}

// DeleteRange clips a cut of the log's beginning, so that the log reaches back to the oldest
// snapshot that is kept: when the newest one turns out unreadable, an older one and the log
// are enough (RAFT P21). A cut of the end and a cut of everything pass as they are.
func (g *guardedLog) DeleteRange(from, to uint64) error {
	if err := g.s.alive(); err != nil {
		return err
	}
	first, err := g.FirstIndex()
	if err != nil {
		return err
	}
	last, err := g.LastIndex()
	if err != nil {
		return err
	}
	if from == first && to < last {
		if to = min(to, g.cutLimit()); to < from {
			return nil
		}
	}
	return g.s.call(fmt.Sprintf("cut log entries %d to %d", from, to), time.Duration(to-from)*perCutEntry,
		func() error { return g.inner.DeleteRange(from, to) })
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
	inner  raft.StableStore
	s      *sentinel
	opened func() bool // raft runs: no caller of ours waits for an error any more; nil: it never does

	mu      sync.Mutex
	term    uint64 // of the vote that is being written
	pending bool
}

func (g *guardedStable) SetUint64(key []byte, v uint64) error {
	if string(key) != keyVoteTerm {
		err := g.s.call("write "+string(key), 0, func() error { return g.inner.SetUint64(key, v) })
		if err != nil && g.opened != nil && g.opened() {
			runtime.Goexit() // raft panics over a term it cannot save, and this process is ending in order
		}
		return err
	}
	if err := g.s.alive(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.term, g.pending = v, true
	return nil
}

func (g *guardedStable) Set(key, value []byte) error {
	if string(key) != keyVoteCand {
		return g.s.call("write "+string(key), 0, func() error { return g.inner.Set(key, value) })
	}
	if err := g.s.alive(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.pending {
		panic("node: a vote's candidate was stored without its term")
	}
	g.pending = false
	record := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(value)), g.term)
	return g.s.call("write a vote", 0, func() error { return g.inner.Set([]byte(keyVote), append(record, value...)) })
}

func (g *guardedStable) GetUint64(key []byte) (v uint64, err error) {
	if string(key) == keyVoteTerm {
		v, _, err = g.vote()
		return v, err
	}
	err = g.s.call("read "+string(key), 0, func() (err error) {
		v, err = g.inner.GetUint64(key)
		return err
	})
	return v, err
}

func (g *guardedStable) Get(key []byte) (v []byte, err error) {
	if string(key) == keyVoteCand {
		_, v, err = g.vote()
		return v, err
	}
	err = g.s.call("read "+string(key), 0, func() (err error) {
		v, err = g.inner.Get(key)
		return err
	})
	return v, err
}

func (g *guardedStable) vote() (term uint64, candidate []byte, err error) {
	var record []byte
	err = g.s.call("read a vote", 0, func() (err error) {
		if record, err = g.inner.Get([]byte(keyVote)); err == nil && len(record) > 0 && len(record) < 8 {
			err = fmt.Errorf("the record has %d bytes", len(record))
		}
		return err
	})
	switch {
	case err != nil:
		return 0, nil, err
	case len(record) == 0:
		return 0, nil, errNotFound
	}
	return binary.BigEndian.Uint64(record), record[8:], nil
}

// guardedSnapshots ends the process when a snapshot cannot be written. Reading is left to the
// start checks: an unreadable snapshot is not the end while an older one and the log are there.
type guardedSnapshots struct {
	raft.SnapshotStore
	s          *sentinel
	sends      *sendWatch
	unreadable map[string]bool // found at the start
}

func (g *guardedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration,
	confIndex uint64, tr raft.Transport) (sink raft.SnapshotSink, err error) {
	err = g.s.call("create a snapshot", 0, func() (err error) {
		sink, err = g.SnapshotStore.Create(version, index, term, conf, confIndex, tr)
		return err
	})
	if err != nil {
		return nil, err
	}
	k := &guardedSink{SnapshotSink: sink, s: g.s}
	if g.sends != nil {
		k.progress = &progress{n: g.sends.n, doing: "writing a snapshot"}
	}
	return k, nil
}

type guardedSink struct {
	raft.SnapshotSink
	s        *sentinel
	bytes    int64
	progress *progress
}

func (g *guardedSink) Write(b []byte) (n int, err error) {
	err = g.s.call("write a snapshot", 0, func() (err error) {
		n, err = g.SnapshotSink.Write(b)
		return err
	})
	g.bytes += int64(n)
	g.progress.moved(n)
	return n, err
}

// Close makes the snapshot durable, which takes as long as its bytes.
func (g *guardedSink) Close() error {
	return g.s.call("close a snapshot", time.Duration(g.bytes/bytesPerMiB)*perSnapshotMiB, g.SnapshotSink.Close)
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
