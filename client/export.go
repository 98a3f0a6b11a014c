package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// An export is text, one JSON object a line. The first line says of which board and rev it
// is, and what digest that board had; then comes a line per record; the last line says how
// many records there were and the SHA-256 of every byte before it, so that a file that was
// cut off or changed is noticed. The value of an entry is its document as a string, byte
// for byte; all else is the record as protobuf writes it in JSON.

// exportFormat is the form of the lines. A reader refuses a form it does not know.
const exportFormat = 1

// maxExportLine bounds one line: a record holds one value at most.
const maxExportLine = 16 << 20

// exportOpening is how long a node may take until an export begins.
const exportOpening = 10 * time.Second

// Exported says what an export holds.
type Exported struct {
	Format      int    `json:"format"`
	Board       string `json:"board"`
	Incarnation string `json:"incarnation"`
	Rev         uint64 `json:"rev"`
	Digest      string `json:"digest"` // of the board at Rev, in hex
	TMs         int64  `json:"t_ms"`
	WallMs      int64  `json:"wall_ms"`
	Records     uint64 `json:"-"`
	SHA256      string `json:"-"` // of all lines but the last
}

// exportEnd is the last line.
type exportEnd struct {
	Records uint64 `json:"records"`
	SHA256  string `json:"sha256"`
}

// ErrExportDamaged is an export that is cut off or was changed.
var ErrExportDamaged = errors.New("the export is cut off or was changed")

// Export writes all that the board holds, as it was at one revision, to w: history, leases,
// loops and events too. It takes the role operator. No more than a page is in memory. Until
// the first line is written other nodes are tried; a stream that breaks later is an error:
// begin anew with an empty w.
func (b *Board) Export(ctx context.Context, w io.Writer) (Exported, error) {
	x := &exportWriter{w: bufio.NewWriterSize(w, 64<<10), sum: sha256.New()}
	opening, cancel := context.WithTimeout(ctx, b.c.cfg.Timeout)
	defer cancel()
	for n := 0; ; n++ {
		ep, err := b.c.connected(opening, anywhere)
		if err != nil {
			return Exported{}, err
		}
		err = b.export(ctx, ep, x)
		ep.exit()
		var e *Error
		if err == nil || x.begun || !errors.As(err, &e) || !tryElsewhere(e.Result, true) {
			return x.head, errors.Join(err, x.failed)
		}
		b.c.routes.failed(ep, failedSoon, errors.New(e.Result.Message), nil)
		if b.c.rest(opening, backoff(n, 50*time.Millisecond, time.Second)) != nil {
			return Exported{}, err
		}
	}
}

// export takes one stream from its header to its end.
func (b *Board) export(ctx context.Context, ep *endpoint, x *exportWriter) error {
	ctx, cancel := context.WithCancel(b.c.outgoing(ctx))
	defer cancel()
	silence := time.AfterFunc(exportOpening, cancel)
	defer silence.Stop()
	b.mu.Lock()
	req := &wirepb.ExportRequest{Board: b.name, Incarnation: b.incarnation}
	b.mu.Unlock()
	stream, err := ep.board.Export(ctx, req)
	for err == nil {
		var resp *wirepb.ExportResponse
		if resp, err = stream.Recv(); err != nil {
			break
		}
		silence.Stop()
		switch m := resp.GetMessage().(type) {
		case *wirepb.ExportResponse_Header:
			b.learned(m.Header.Incarnation, m.Header.Rev)
			x.header(m.Header)
		case *wirepb.ExportResponse_Records:
			for _, r := range m.Records.Records {
				x.record(r)
			}
		case *wirepb.ExportResponse_End:
			return x.end(m.End.Records)
		}
		if x.failed != nil {
			return nil // the caller's writer, or a record that has no line
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fromStatus(err)
}

// exportWriter writes the lines of one export.
type exportWriter struct {
	w      *bufio.Writer
	sum    hash.Hash
	head   Exported
	begun  bool
	failed error
}

func (x *exportWriter) header(h *wirepb.ExportHeader) {
	x.begun = true
	x.head = Exported{Format: exportFormat, Board: h.Board, Incarnation: h.Incarnation, Rev: h.Rev,
		Digest: hex.EncodeToString(h.Digest), TMs: h.TMs, WallMs: h.WallMs}
	x.line(map[string]any{"export": x.head})
}

func (x *exportWriter) record(r *boardpb.SnapshotRecord) {
	line, err := exportLine(r)
	if err != nil {
		x.failed = errors.Join(x.failed, err)
		return
	}
	x.head.Records++
	x.line(line)
}

// exportLine is a record as a line. A value is told apart, as the text it is.
func exportLine(r *boardpb.SnapshotRecord) (map[string]json.RawMessage, error) {
	value, said := r.GetEntry().GetValue(), r
	if r.GetEntry() != nil {
		e := proto.CloneOf(r.GetEntry())
		e.Value = nil
		said = &boardpb.SnapshotRecord{Board: r.Board, Record: &boardpb.SnapshotRecord_Entry{Entry: e}}
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(said)
	if err != nil {
		return nil, fmt.Errorf("a record that cannot be written as JSON: %w", err)
	}
	line := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &line); err != nil {
		return nil, err
	}
	if len(value) > 0 {
		if line["value"], err = json.Marshal(string(value)); err != nil {
			return nil, err
		}
	}
	delete(line, "board") // the first line names it
	return line, nil
}

func (x *exportWriter) line(v any) {
	raw, err := json.Marshal(v) // compact, members in order
	if err == nil {
		raw = append(raw, '\n')
		x.sum.Write(raw)
		_, err = x.w.Write(raw)
	}
	x.failed = errors.Join(x.failed, err)
}

func (x *exportWriter) end(sent uint64) error {
	if x.failed != nil {
		return nil
	}
	if sent != x.head.Records {
		return fmt.Errorf("%w: the node sent %d records, %d arrived", ErrExportDamaged, sent, x.head.Records)
	}
	x.head.SHA256 = hex.EncodeToString(x.sum.Sum(nil))
	x.line(map[string]any{"end": exportEnd{Records: sent, SHA256: x.head.SHA256}})
	x.failed = errors.Join(x.failed, x.w.Flush())
	return nil
}

// ReadExport reads an export to its end and calls each for every record, in order. What it
// was told counts only if it returns no error: the count and the checksum come last.
func ReadExport(r io.Reader, each func(*boardpb.SnapshotRecord) error) (Exported, error) {
	var head Exported
	sum, lines := sha256.New(), bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxExportLine)
	for n := 1; lines.Scan(); n++ {
		line := map[string]json.RawMessage{}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return head, fmt.Errorf("%w: line %d is no JSON object", ErrExportDamaged, n)
		}
		switch {
		case n == 1:
			if json.Unmarshal(line["export"], &head) != nil {
				return head, fmt.Errorf("%w: line 1 does not say of what board it is", ErrExportDamaged)
			}
			if head.Format != exportFormat {
				return head, fmt.Errorf("the export has format %d, this binary knows %d", head.Format, exportFormat)
			}
		case line["end"] != nil:
			head.SHA256 = hex.EncodeToString(sum.Sum(nil))
			return head, checkEnd(head, line["end"], lines)
		default:
			record, err := exportedRecord(line, head.Board)
			if err != nil {
				return head, fmt.Errorf("%w: line %d: %w", ErrExportDamaged, n, err)
			}
			if err := each(record); err != nil {
				return head, err
			}
			head.Records++
		}
		sum.Write(lines.Bytes())
		sum.Write([]byte{'\n'})
	}
	if err := lines.Err(); err != nil {
		return head, fmt.Errorf("%w: %w", ErrExportDamaged, err)
	}
	return head, fmt.Errorf("%w: it ends after %d records, without its last line", ErrExportDamaged, head.Records)
}

func checkEnd(head Exported, raw json.RawMessage, lines *bufio.Scanner) error {
	var end exportEnd
	switch err := json.Unmarshal(raw, &end); {
	case err != nil:
		return fmt.Errorf("%w: its last line: %w", ErrExportDamaged, err)
	case end.Records != head.Records:
		return fmt.Errorf("%w: the last line says %d records, there are %d", ErrExportDamaged, end.Records, head.Records)
	case end.SHA256 != head.SHA256:
		return fmt.Errorf("%w: the last line says %s, the lines add up to %s", ErrExportDamaged, end.SHA256, head.SHA256)
	case lines.Scan():
		return fmt.Errorf("%w: there is more behind its last line", ErrExportDamaged)
	}
	return nil
}

// exportedRecord is the record a line tells of.
func exportedRecord(line map[string]json.RawMessage, board string) (*boardpb.SnapshotRecord, error) {
	var value string
	if raw := line["value"]; raw != nil {
		if err := json.Unmarshal(raw, &value); err != nil {
			return nil, err
		}
		delete(line, "value")
	}
	raw, err := json.Marshal(line)
	if err != nil {
		return nil, err
	}
	r := &boardpb.SnapshotRecord{}
	if err := protojson.Unmarshal(bytes.TrimSpace(raw), r); err != nil {
		return nil, err
	}
	r.Board = board
	if e := r.GetEntry(); e != nil && value != "" {
		e.Value = []byte(value)
	}
	return r, nil
}
