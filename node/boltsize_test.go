package node

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// usedDir is a data directory whose files hold a log that was written and cut, and how many
// bytes of each file are in use by bbolt's own word.
func usedDir(t *testing.T) (d *Dir, inUse map[string]int64) {
	t.Helper()
	d = openDir(t, t.TempDir(), Want{NodeName: "n1"})
	s, err := OpenStores(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= 200; i += 10 {
		var batch []*raft.Log
		for j := i; j < i+10; j++ {
			batch = append(batch, &raft.Log{Index: j, Term: 1, Data: make([]byte, 3000)})
		}
		if err := errors.Join(s.Log.StoreLogs(batch), s.Stable.SetUint64([]byte("CurrentTerm"), i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Log.DeleteRange(1, 50), s.Log.DeleteRange(191, 200), s.Close()); err != nil {
		t.Fatal(err)
	}
	inUse = map[string]int64{}
	for _, name := range []string{logFileName, stableFileName} {
		db, err := bbolt.Open(filepath.Join(d.path, raftDirName, name), 0o600, &bbolt.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.View(func(tx *bbolt.Tx) error { inUse[name] = tx.Size(); return nil }), db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return d, inUse
}

// refused tells whether opening ends with the file's name, what is the matter and the way back.
func refused(t *testing.T, d *Dir, how, file, says string) {
	t.Helper()
	s, err := OpenStores(d, nil)
	if err == nil {
		t.Errorf("%s: it was opened", how)
		s.Close()
		return
	}
	var dir *DirError
	if !errors.As(err, &dir) || !strings.Contains(dir.What, file) || !strings.Contains(dir.What, says) ||
		!strings.Contains(dir.Hint, "node remove "+d.Identity().NodeID) {
		t.Errorf("%s: answered %v; expected %q, %q and the way back", how, err, file, says)
	}
}

func TestARaftFileThatWasCutShortIsRefusedWithTheWayBack(t *testing.T) {
	for _, name := range []string{logFileName, stableFileName} {
		d, inUse := usedDir(t)
		page, end := int64(os.Getpagesize()), inUse[name]
		for _, at := range []int64{end - 1, end - page/2, end - page, end - 2*page - 7, end / 2, 3 * page, 2 * page, page + 100, page, 100, 1, 0} {
			path := filepath.Join(d.path, raftDirName, name)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, at); err != nil {
				t.Fatal(err)
			}
			refused(t, d, fmt.Sprintf("cut at %d of %d", at, end), name, "cut short")
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestARaftFileThatHoldsAllThatIsInUseIsOpened(t *testing.T) {
	for _, cut := range []bool{false, true} { // what lies behind is room to grow
		d, inUse := usedDir(t)
		for name, end := range inUse {
			if path := filepath.Join(d.path, raftDirName, name); cut {
				if err := os.Truncate(path, end); err != nil {
					t.Fatal(err)
				}
			}
		}
		s, err := OpenStores(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		last, err := s.Log.LastIndex()
		if err != nil || last != 190 {
			t.Errorf("the log ends at %d, %v", last, err)
		}
		next := &raft.Log{Index: last + 1, Term: 1, Data: make([]byte, 300000)}
		if err := errors.Join(s.Log.StoreLog(next), s.Close()); err != nil {
			t.Error(err)
		}
		if s, err = OpenStores(d, nil); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Log.GetLog(191, &raft.Log{}), s.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestAFirstStartThatWasCutShortMayLeaveEmptyRaftFiles(t *testing.T) {
	d := openDir(t, t.TempDir(), Want{NodeName: "n1"})
	if err := os.Mkdir(filepath.Join(d.path, raftDirName), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{logFileName, stableFileName} {
		rewrite(filepath.Join(raftDirName, name), "")(t, d.path)
	}
	s, err := OpenStores(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// A bit is flipped in the first bytes of some page, its header and the begin of its table. The
// start is refused, or bbolt can open it; no panic gets out, on whatever goroutine.
func TestAFlippedBitInAPageOfARaftFileIsNoPanic(t *testing.T) {
	d, inUse := usedDir(t)
	path := filepath.Join(d.path, raftDirName, logFileName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var opened, refusals int
	dice := rand.New(rand.NewPCG(1, 2))
	page := int64(os.Getpagesize())
	for range 400 {
		raw := bytes.Clone(whole)
		bit := dice.Int64N(inUse[logFileName]/page)*page*8 + dice.Int64N(8*48)
		raw[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkBolt(path, true); err != nil {
			refusals++
			if !errors.Is(err, errDamaged) {
				t.Errorf("bit %d: answered %v", bit, err)
			}
			continue
		}
		if opened++; opened > 10 { // each syncs a few times
			continue
		}
		if s, err := OpenStores(d, nil); err == nil {
			s.Close()
		} else if dir := (*DirError)(nil); !errors.As(err, &dir) || !strings.Contains(dir.What, logFileName) {
			t.Errorf("bit %d: answered %v", bit, err)
		}
	}
	if opened == 0 || refusals < 5 {
		t.Errorf("%d passed and %d refused: the test shows nothing", opened, refusals)
	}
}

// Bbolt finds such a thing too, and ends the process from a goroutine of its own.
func TestKeysOutOfOrderInARaftFileAreRefusedWithTheWayBack(t *testing.T) {
	for name, keys := range map[string][2]string{
		"two buckets":                {"conf", "zonf"},
		"an entry below its sibling": {"\x00\x00\x00\x00\x00\x00\x00\x67", "\x00\x00\x00\x00\x00\x00\x00\x03"},
		"an entry above its page":    {"\x00\x00\x00\x00\x00\x00\x00\x6e", "\x00\x00\x00\x00\x00\x00\x01\x6e"},
	} {
		d, _ := usedDir(t)
		path := filepath.Join(d.path, raftDirName, logFileName)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, bytes.ReplaceAll(raw, []byte(keys[0]), []byte(keys[1])), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, d, name, logFileName, "not in order")
	}
}

// What the walk does not look at is bbolt's to find: a list of free pages, which this program
// never writes and another tool may have written.
func TestAPanicOfBboltAtTheStartIsARefusalWithTheWayBack(t *testing.T) {
	d, _ := usedDir(t)
	path := filepath.Join(d.path, raftDirName, logFileName)
	db, err := bbolt.Open(path, 0o600, nil) // writes the list
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	meta, ok := newestBoltMeta(bytes.NewReader(raw), int64(len(raw)))
	if !ok {
		t.Fatal("no meta page")
	}
	at := int64(boltHeader + 32) // of the list's page
	if other, valid := readBoltMeta(bytes.NewReader(raw), meta.page); valid && other.tx == meta.tx {
		at += meta.page
	}
	raw[int64(binary.NativeEndian.Uint64(raw[at:]))*meta.page+8] = boltLeaf // instead of a list
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkBolt(path, true); err != nil {
		t.Errorf("the walk refuses it already: %v", err)
	}
	for range 2 { // the first one keeps no lock
		refused(t, d, "a list that is none", logFileName, "bbolt cannot read it")
	}
}
