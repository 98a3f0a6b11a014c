package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"google.golang.org/protobuf/proto"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
)

// testLogger keeps what is logged.
type testLogger struct {
	hclog.Logger
	buf *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func recordingLogger() testLogger {
	buf := &lockedBuffer{}
	return testLogger{hclog.New(&hclog.LoggerOptions{Output: buf}), buf}
}

func (l testLogger) text() string {
	l.buf.mu.Lock()
	defer l.buf.mu.Unlock()
	return l.buf.b.String()
}

// failingStore fails the nth write, before it or after it.
type failingStore struct {
	*raftboltdb.BoltStore
	left  int
	after bool
	err   error
}

func (f *failingStore) hit(do func() error) error {
	if f.left--; f.left != 0 {
		return do()
	}
	if f.after {
		if err := do(); err != nil {
			return err
		}
	}
	return f.err
}

func (f *failingStore) Set(k, v []byte) error {
	return f.hit(func() error { return f.BoltStore.Set(k, v) })
}
func (f *failingStore) SetUint64(k []byte, v uint64) error {
	return f.hit(func() error { return f.BoltStore.SetUint64(k, v) })
}
func (f *failingStore) StoreLogs(l []*raft.Log) error {
	return f.hit(func() error { return f.BoltStore.StoreLogs(l) })
}

func openBolt(t *testing.T, path string) *raftboltdb.BoltStore {
	t.Helper()
	s, err := raftboltdb.New(boltOptions(path))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// vote does what raft does to grant one.
func vote(s raft.StableStore, term uint64, candidate string) error {
	if err := s.SetUint64([]byte("CurrentTerm"), term); err != nil {
		return err
	}
	if err := s.SetUint64([]byte(keyVoteTerm), term); err != nil {
		return err
	}
	return s.Set([]byte(keyVoteCand), []byte(candidate))
}

func TestP3AVoteIsAPairThatWasOnceGrantedWhereverTheCrashFalls(t *testing.T) {
	granted := map[string]bool{"2 a": true, "3 b": true}
	for write := 1; write <= 3; write++ {
		for _, after := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "stable.db")
			inner := openBolt(t, path)
			if err := vote(&guardedStable{inner: inner, s: &sentinel{}}, 2, "a"); err != nil {
				t.Fatal(err)
			}
			crash := errors.New("crash")
			var died error
			fail := &failingStore{BoltStore: inner, left: write, after: after, err: crash}
			err := vote(&guardedStable{inner: fail, s: &sentinel{die: func(e error) { died = e }}}, 3, "b")
			if write <= 2 && !errors.Is(err, crash) || write <= 2 && died == nil {
				t.Errorf("write %d: %v, died of %v", write, err, died)
			}
			if err := inner.Close(); err != nil {
				t.Fatal(err)
			}
			reopened := openBolt(t, path)
			s := &guardedStable{inner: reopened, s: &sentinel{}}
			term, err1 := s.GetUint64([]byte(keyVoteTerm))
			cand, err2 := s.Get([]byte(keyVoteCand))
			if pair := fmt.Sprintf("%d %s", term, cand); err1 != nil || err2 != nil || !granted[pair] {
				t.Errorf("write %d, crash after it %v: the vote is %q (%v, %v)", write, after, pair, err1, err2)
			}
			reopened.Close()
		}
	}
}

func TestP3AnAbsentVoteReadsAsRaftExpects(t *testing.T) {
	s := &guardedStable{inner: openBolt(t, filepath.Join(t.TempDir(), "s.db")), s: &sentinel{die: func(error) { t.Error("died") }}}
	if _, err := s.GetUint64([]byte(keyVoteTerm)); err == nil || err.Error() != "not found" {
		t.Errorf("the term answers %v", err)
	}
	if _, err := s.Get([]byte(keyVoteCand)); err == nil || err.Error() != "not found" {
		t.Errorf("the candidate answers %v", err)
	}
}

func TestP3ACandidateWithoutATermIsAProgrammingError(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it was stored")
		}
	}()
	s := &guardedStable{inner: raft.NewInmemStore(), s: &sentinel{}}
	if err := s.Set([]byte(keyVoteCand), []byte("a")); err != nil {
		t.Error(err)
	}
}

func TestP17AFailedStoreEndsTheProcessOnceAndStaysDead(t *testing.T) {
	full := &failingStore{BoltStore: openBolt(t, filepath.Join(t.TempDir(), "l.db")), left: 2,
		err: fmt.Errorf("write raft/log.db: %w", syscall.ENOSPC)}
	var died []error
	s := &sentinel{where: "/var/lib/raftboard", die: func(err error) { died = append(died, err) }}
	log := &guardedLog{inner: full, s: s, snaps: raft.NewInmemSnapshotStore()}
	if err := log.StoreLog(&raft.Log{Index: 1, Term: 1}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := log.StoreLog(&raft.Log{Index: 2, Term: 1}); err == nil {
			t.Error("a dead store took an entry")
		}
	}
	if len(died) != 1 || !strings.Contains(died[0].Error(), "/var/lib/raftboard") || !strings.Contains(died[0].Error(), "volume is full") {
		t.Fatalf("died of %v", died)
	}
	var dir *DirError
	if !errors.As(died[0], &dir) || !strings.Contains(dir.Hint, "free space") {
		t.Errorf("the way back is %+v", dir)
	}
	stable := &guardedStable{inner: full, s: s}
	if err := stable.SetUint64([]byte("CurrentTerm"), 9); err == nil {
		t.Error("the stable store of a dead node took a term")
	}
}

func TestP17ExpectedErrorsPass(t *testing.T) {
	s := &sentinel{die: func(err error) { t.Errorf("died of %v", err) }}
	log := &guardedLog{inner: raft.NewInmemStore(), s: s}
	if err := log.GetLog(7, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("a missing entry answers %v", err)
	}
	s.closing.Store(true)
	if err := s.check("x", io.ErrClosedPipe); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("after shutdown began it answers %v", err)
	}
}

type monotonic struct{ *raft.InmemStore }

func (monotonic) IsMonotonic() bool { return true }

func TestP31TheWrapperSaysWhetherItsStoreToleratesGaps(t *testing.T) {
	for _, c := range []struct {
		inner raft.LogStore
		want  bool
	}{{raft.NewInmemStore(), false}, {monotonic{raft.NewInmemStore()}, true}} {
		store := raftLog(&guardedLog{inner: c.inner, s: &sentinel{}})
		m, ok := store.(raft.MonotonicLogStore)
		if !ok || m.IsMonotonic() != c.want {
			t.Errorf("%T says %v", c.inner, ok)
		}
	}
}

func TestP18TheCacheSitsAboveTheGuardAndServesNothingThatWasNotStored(t *testing.T) {
	inner := &failingStore{BoltStore: openBolt(t, filepath.Join(t.TempDir(), "l.db")), left: 1, err: errors.New("bad sector")}
	store := raftLog(&guardedLog{inner: inner, s: &sentinel{die: func(error) {}}})
	if _, ok := store.(*raft.LogCache); !ok {
		t.Fatalf("raft gets a %T", store)
	}
	if err := store.StoreLog(&raft.Log{Index: 1, Term: 1, Data: []byte("x")}); err == nil {
		t.Fatal("the failed write was reported as done")
	}
	if err := store.GetLog(1, &raft.Log{}); err == nil {
		t.Error("the cache serves an entry that was not stored")
	}
}

// snapshots is a snapshot store of a given list.
type snapshots struct {
	raft.SnapshotStore
	metas []*raft.SnapshotMeta
}

func (s snapshots) List() ([]*raft.SnapshotMeta, error) { return s.metas, nil }

func snapshotList(bad map[string]bool, at ...uint64) (snapshots, func(string) error) {
	var s snapshots
	for _, i := range at {
		s.metas = append(s.metas, &raft.SnapshotMeta{ID: fmt.Sprint(i), Index: i, Term: 1})
	}
	return s, func(id string) error {
		if bad[id] {
			return errors.New("checksum")
		}
		return nil
	}
}

func filledLog(t *testing.T, from, to, term uint64) *raft.InmemStore {
	t.Helper()
	log := raft.NewInmemStore()
	for i := from; i <= to; i++ {
		if err := log.StoreLog(&raft.Log{Index: i, Term: term}); err != nil {
			t.Fatal(err)
		}
	}
	return log
}

func TestP21TheLogReachesBackToTheOldestKeptSnapshot(t *testing.T) {
	cases := []struct {
		name              string
		bad               map[string]bool
		from, to          uint64
		wantFirst, wantTo uint64
	}{
		{"a cut of the beginning is clipped", nil, 1, 90, 41, 100},
		{"a cut of the end passes", nil, 50, 100, 1, 49},
		{"a cut of everything passes", nil, 1, 100, 0, 0},
		{"an unreadable newest snapshot keeps the log", map[string]bool{"95": true}, 1, 90, 1, 100},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			list, verify := snapshotList(c.bad, 95, 70, 40)
			inner := filledLog(t, 1, 100, 1)
			g := &guardedLog{inner: inner, s: &sentinel{die: func(err error) { t.Error(err) }}, snaps: list, verify: verify,
				warn: func(string, ...any) {}}
			if err := g.DeleteRange(c.from, c.to); err != nil {
				t.Fatal(err)
			}
			first, _ := inner.FirstIndex()
			last, _ := inner.LastIndex()
			var e raft.Log
			missing := inner.GetLog(first, &e) != nil
			if c.wantFirst != 0 && (first != c.wantFirst || last != c.wantTo || missing) {
				t.Errorf("the log is %d to %d, expected %d to %d", first, last, c.wantFirst, c.wantTo)
			}
			if c.wantFirst == 0 && !missing {
				t.Errorf("the log still starts at %d", first)
			}
		})
	}
}

func TestP21AStartNeedsAReadableSnapshotAndTheLogBehindIt(t *testing.T) {
	cases := []struct {
		name     string
		bad      map[string]bool
		logFrom  uint64
		want     uint64 // index of the snapshot raft starts from; 0: refused
		wantSays string
	}{
		{"all readable", nil, 41, 95, ""},
		{"newest unreadable, log reaches back", map[string]bool{"95": true}, 41, 70, ""},
		{"newest unreadable, log cut behind it", map[string]bool{"95": true}, 96, 0, "lacks entry 71"},
		{"none readable", map[string]bool{"95": true, "70": true, "40": true}, 41, 0, "snapshot 40"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			list, verify := snapshotList(c.bad, 95, 70, 40)
			s := Stores{Log: filledLog(t, c.logFrom, 100, 1), Snapshots: list, Where: "/data"}
			got, _, err := checkSnapshots(s, verify, "id-1", func(string, ...any) {})
			if c.want != 0 {
				if err != nil || got.Index != c.want {
					t.Errorf("starts from %v, %v; expected %d", got, err, c.want)
				}
				return
			}
			var dir *DirError
			if !errors.As(err, &dir) || !strings.Contains(err.Error(), c.wantSays) || !strings.Contains(dir.Hint, "node remove id-1") {
				t.Errorf("answered %v; expected a refusal that says %q and the way back", err, c.wantSays)
			}
		})
	}
}

func TestP4OnlyAProvenDivergentLogIsCleared(t *testing.T) {
	snap := &raft.SnapshotMeta{Index: 50, Term: 3}
	cases := []struct {
		name    string
		log     *raft.InmemStore
		cleared bool
	}{
		{"same term at the snapshot", filledLog(t, 40, 60, 3), false},
		{"another term at the snapshot", filledLog(t, 40, 60, 2), true},
		{"compacted, first above has a lower term", filledLog(t, 51, 60, 2), true},
		{"compacted, first above has the term", filledLog(t, 51, 60, 3), false},
		{"compacted, first above has a higher term", filledLog(t, 51, 60, 4), false},
		{"everything before the snapshot", filledLog(t, 40, 49, 2), false},
		{"empty", raft.NewInmemStore(), false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, before := c.log.LastIndex()
			cleared, err := clearDivergentLog(c.log, snap)
			if err != nil || cleared != c.cleared {
				t.Errorf("cleared %v, %v (%v)", cleared, err, before)
			}
		})
	}
	if cleared, err := clearDivergentLog(filledLog(t, 1, 9, 1), nil); cleared || err != nil {
		t.Errorf("without a snapshot: cleared %v, %v", cleared, err)
	}
}

func TestP24AWrapperKeepsPreVoteAndClose(t *testing.T) {
	var tr raft.Transport = guardTransport(nil, nil)
	if _, ok := tr.(raft.WithPreVote); !ok {
		t.Error("pre-vote is lost")
	}
	if _, ok := tr.(raft.WithClose); !ok {
		t.Error("Close is lost")
	}
	// The inner transport is asked by the compiler: one without pre-vote is no Transport.
	var inmem any = &raft.NetworkTransport{}
	if _, ok := inmem.(Transport); !ok {
		t.Error("raft's own transport does not fit")
	}
}

func TestT84ASnapshotOfANewerBinaryIsRefusedWithWhatToRunAndNotPassedOver(t *testing.T) {
	list, _ := snapshotList(nil, 95, 70, 40)
	s := Stores{Log: filledLog(t, 41, 100, 1), Snapshots: list, Where: "/data"}
	newer := func(id string) error {
		if id == "95" {
			return fmt.Errorf("format 2: %w", fsm.ErrNewer)
		}
		return nil
	}
	_, _, err := checkSnapshots(s, newer, "id-1", func(string, ...any) {})
	var dir *DirError
	if !errors.As(err, &dir) || !strings.Contains(dir.Hint, "newer one") || strings.Contains(dir.Hint, "node remove") {
		t.Errorf("answered %v, with %+v", err, dir)
	}
	header, err := proto.Marshal(&boardpb.SnapshotHeader{Format: fsm.Format + 1})
	if err != nil {
		t.Fatal(err)
	}
	frame := append([]byte{byte(len(header))}, header...)
	if _, err := fsm.VerifySnapshot(bytes.NewReader(frame)); !errors.Is(err, fsm.ErrNewer) {
		t.Errorf("its header is answered with %v", err)
	}
}

// A term that cannot be saved makes raft panic: when the disk was given up meanwhile, that
// would end the process with a dump instead of with what is wrong.
func TestP17ATermThatCannotBeSavedEndsItsGoroutineAndPanicsNobody(t *testing.T) {
	failed := errors.New("the disk does not answer")
	s := &sentinel{die: func(error) {}}
	s.dead.Store(&failed)
	for _, running := range []bool{false, true} {
		g := &guardedStable{s: s, opened: func() bool { return running }}
		ended, returned := make(chan struct{}), false
		go func() {
			defer close(ended)
			if err := g.SetUint64([]byte("CurrentTerm"), 3); !errors.Is(err, failed) {
				t.Errorf("it answered %v", err)
			}
			returned = true
		}()
		if <-ended; returned == running {
			t.Errorf("raft runs: %v; and it was answered: %v", running, returned)
		}
	}
}
