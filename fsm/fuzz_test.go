package fsm

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
)

// seedScripts runs scripts and returns what they left: machines with something in them.
func seedScripts(tb testing.TB, names ...string) []*script {
	tb.Helper()
	var out []*script
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		if err != nil {
			tb.Fatal(err)
		}
		s := newScript(1)
		for _, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(line, "@") || strings.HasPrefix(line, "actor ") || strings.HasPrefix(line, "board ") {
				if err := s.line(line); err != nil {
					tb.Fatal(err)
				}
			}
		}
		out = append(out, s)
	}
	return out
}

// FuzzEntry feeds any bytes as a log entry to a machine that has something in it. It may
// refuse, or stop with an error; it may not panic, and what it made of the entry must
// survive a snapshot and be the same on a second machine.
func FuzzEntry(f *testing.F) {
	scripts := seedScripts(f, "s2.9_38_txn", "boards", "cluster", "t30_every_end_is_an_event", "s2.9_40_keepalive_covers_what_was_acknowledged")
	for _, s := range scripts {
		for _, l := range s.log {
			f.Add(l.Data)
		}
	}
	f.Add([]byte{})
	f.Add([]byte{0xff, 0xff})
	var image bytes.Buffer
	if err := writeView(&image, scripts[0].main.View()); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		batch := &boardpb.Batch{}
		if proto.Unmarshal(data, batch) == nil && batch.Stamp != nil {
			batch.Stamp.Term = 9 // else nothing of it would run
			if len(batch.Commands) > 8 {
				return
			}
			if again, err := proto.Marshal(batch); err == nil {
				data = again
			}
		}
		var first [16]byte
		for run := range 2 {
			stopped := false
			m, err := readState(bytes.NewReader(image.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			c := New(Options{Fatal: func(error) { stopped = true }})
			c.machine = newMachine(m)
			c.publish(nil)
			c.Apply(&raft.Log{Index: c.Applied() + 1, Term: 9, Type: raft.LogCommand, Data: data})
			if stopped {
				return
			}
			if run == 0 {
				first = c.View().Digest()
				if got := restored(c).View().Digest(); got != first {
					t.Fatalf("restored digest %x, want %x", got, first)
				}
			} else if got := c.View().Digest(); got != first {
				t.Fatalf("a second machine has digest %x, want %x", got, first)
			}
		}
	})
}

// FuzzSnapshot feeds any bytes as a snapshot, once as they are and once with a right
// checksum, so that the records themselves are reached. There is an error or a state
// whose digest is the header's, and no panic.
func FuzzSnapshot(f *testing.F) {
	for _, s := range seedScripts(f, "s2.9_38_txn", "boards", "cluster", "feed") {
		var image bytes.Buffer
		if err := writeView(&image, s.main.View()); err != nil {
			f.Fatal(err)
		}
		f.Add(image.Bytes())
		f.Add(image.Bytes()[:image.Len()/2])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<20 {
			return
		}
		tryRestore(t, data)
		if len(data) > sha256.Size {
			body := data[:len(data)-sha256.Size]
			sum := sha256.Sum256(body)
			tryRestore(t, append(bytes.Clone(body), sum[:]...))
		}
	})
}

func tryRestore(t *testing.T, data []byte) {
	s, err := readState(bytes.NewReader(data))
	if err != nil {
		return
	}
	header, err := VerifySnapshot(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("restored, but not verified: %v", err)
	}
	sum := s.Digest().Bytes()
	if !bytes.Equal(sum[:], header.Digest) {
		t.Fatalf("restored with digest %x, the header says %x", sum, header.Digest)
	}
}

func TestASnapshotWithOneBitChangedIsRefused(t *testing.T) {
	var image bytes.Buffer
	s := seedScripts(t, "s2.9_37_results_key")[0]
	if err := writeView(&image, s.main.View()); err != nil {
		t.Fatal(err)
	}
	whole := image.Bytes()
	if _, err := readState(bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		broken := bytes.Clone(whole)
		broken[i] ^= 1 << (i % 8)
		if _, err := readState(bytes.NewReader(broken)); err == nil {
			t.Fatalf("a changed bit in byte %d of %d went unnoticed", i, len(whole))
		}
		if _, err := readState(bytes.NewReader(whole[:i])); err == nil {
			t.Fatalf("cut after %d of %d bytes, and unnoticed", i, len(whole))
		}
	}
	if _, err := readState(bytes.NewReader(append(bytes.Clone(whole), 0))); err != nil {
		t.Logf("bytes behind the checksum: %v", err)
	}
}
