package fsm

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/jepsen/planted"
)

// A snapshot is a stream of frames, each a length (uvarint) and a message: one header,
// then records, then a frame of length 0 and the SHA-256 of every byte before it. A
// reader trusts nothing until it has seen the checksum, and the state it built must have
// the digest that the header names.

const maxFrame = 8 << 20 // a record holds one value at most

// errTruncated and its kind make a reader refuse; raft then takes an older snapshot, or
// the node refuses to start and says so.
var (
	errTruncated = errors.New("the snapshot is cut off")
	errChecksum  = errors.New("the snapshot's checksum does not match: a bit of it changed")
)

// ErrNewer says that a newer binary wrote it: nothing is damaged, and this one cannot read it.
var ErrNewer = errors.New("it was written by a newer one; upgrade this node")

// snapshot is a pinned View. Persist streams it while later entries are applied.
type snapshot struct{ view *state.View }

func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	planted.Point("snapshot-write")
	if planted.Bug("M22") { // the bug: what is written is the state as it has become
		s.view = planted.Noted(s).(*FSM).View()
	}
	if err := writeView(sink, s.view); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (s *snapshot) Release() { s.view = nil }

type frameWriter struct {
	w   *bufio.Writer
	sum hash.Hash
	buf []byte
}

func (f *frameWriter) frame(m proto.Message) error {
	body, err := proto.MarshalOptions{}.MarshalAppend(f.buf[:0], m)
	if err != nil {
		return err
	}
	f.buf = body
	if len(body) > maxFrame {
		return fmt.Errorf("a record of %d bytes, at most %d: a reader would refuse the snapshot", len(body), maxFrame)
	}
	return errors.Join(f.bytes(binary.AppendUvarint(nil, uint64(len(body)))), f.bytes(body))
}

func (f *frameWriter) bytes(b []byte) error {
	f.sum.Write(b)
	_, err := f.w.Write(b)
	return err
}

func writeView(w io.Writer, v *state.View) error {
	f := &frameWriter{w: bufio.NewWriterSize(w, 256<<10), sum: sha256.New()}
	digest := v.Digest()
	header := &boardpb.SnapshotHeader{Format: Format, Applied: v.Applied(), Term: v.Term(), Digest: digest[:], Cluster: v.Cluster()}
	if err := f.frame(header); err != nil {
		return err
	}
	if err := v.Export(func(r *boardpb.SnapshotRecord) error { return f.frame(r) }); err != nil {
		return err
	}
	if err := f.bytes([]byte{0}); err != nil {
		return err
	}
	if _, err := f.w.Write(f.sum.Sum(nil)); err != nil {
		return err
	}
	return f.w.Flush()
}

// ReadSnapshot reads a snapshot to its end and calls each for every record. What it was
// told counts only if it returns no error: the checksum comes last.
func ReadSnapshot(r io.Reader, each func(*boardpb.SnapshotRecord) error) (*boardpb.SnapshotHeader, error) {
	sum := sha256.New()
	in := &hashingReader{r: bufio.NewReaderSize(r, 256<<10), sum: sum}
	header := &boardpb.SnapshotHeader{}
	if more, err := in.frame(header); err != nil || !more {
		return nil, errors.Join(errTruncated, err)
	}
	if header.Format != Format {
		return nil, fmt.Errorf("the snapshot has format %d, this binary knows %d: %w", header.Format, Format, ErrNewer)
	}
	for {
		record := &boardpb.SnapshotRecord{}
		more, err := in.frame(record)
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		if err := each(record); err != nil {
			return nil, err
		}
	}
	want := sum.Sum(nil)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(in.r, got); err != nil {
		return nil, errTruncated
	}
	if !bytes.Equal(got, want) {
		return nil, errChecksum
	}
	return header, nil
}

// VerifySnapshot reads a whole snapshot and checks its checksum.
func VerifySnapshot(r io.Reader) (*boardpb.SnapshotHeader, error) {
	return ReadSnapshot(r, func(*boardpb.SnapshotRecord) error { return nil })
}

type hashingReader struct {
	r   *bufio.Reader
	sum hash.Hash
	buf []byte
}

func (h *hashingReader) ReadByte() (byte, error) {
	b, err := h.r.ReadByte()
	if err == nil {
		h.sum.Write([]byte{b})
	}
	return b, err
}

// frame reads one message; false is the mark of the end.
func (h *hashingReader) frame(m proto.Message) (more bool, err error) {
	n, err := binary.ReadUvarint(h)
	switch {
	case err != nil:
		return false, errTruncated
	case n == 0:
		return false, nil
	case n > maxFrame:
		return false, fmt.Errorf("a frame of %d bytes: %w", n, errChecksum)
	}
	if uint64(cap(h.buf)) < n {
		h.buf = make([]byte, n)
	}
	body := h.buf[:n]
	if _, err := io.ReadFull(h.r, body); err != nil {
		return false, errTruncated
	}
	h.sum.Write(body)
	if err := proto.Unmarshal(body, m); err != nil {
		return false, fmt.Errorf("%w (%w)", errChecksum, err)
	}
	return true, nil
}

// readState builds a state from a snapshot. It is complete and proved, or there is none.
func readState(r io.Reader) (*state.State, error) {
	loader := state.NewLoader()
	header, err := ReadSnapshot(r, loader.Load)
	if err != nil {
		return nil, err
	}
	return loader.Finish(header)
}
