package history

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/node/tracefile"
)

// maxTraceLine bounds a line: the largest command and its result, in base64.
const maxTraceLine = 16 << 20

// TraceReader records what a node wrote down in its trace file. It is fed bytes as they come,
// so that a file can be read while it grows: io.Copy from where the last one ended.
type TraceReader struct {
	log  *Log
	node string
	life int
	rest []byte // the beginning of a line
	line int
	torn error // the line before was none; only a life that begins makes that right
	err  error
}

// NewTraceReader reads the file of a node into a log. The first life in it has number first.
func NewTraceReader(log *Log, node string, first int) *TraceReader {
	return &TraceReader{log: log, node: node, life: first - 1}
}

// Life is the number of the newest life that was seen; below the first: none.
func (r *TraceReader) Life() int { return r.life }

// Write records the lines that are complete with b. The first error is final: what comes after
// a hole in a trace is worth nothing.
func (r *TraceReader) Write(b []byte) (int, error) {
	r.rest = append(r.rest, b...)
	for r.err == nil {
		text, rest, complete := bytes.Cut(r.rest, []byte{'\n'})
		if !complete {
			break
		}
		r.line++
		if err := r.take(text); err != nil {
			r.err = fmt.Errorf("trace of %s, line %d: %w", r.node, r.line, err)
		}
		r.rest = rest
	}
	if r.err == nil && len(r.rest) > maxTraceLine {
		r.err = fmt.Errorf("trace of %s, line %d: longer than %d bytes", r.node, r.line+1, maxTraceLine)
	}
	r.rest = append([]byte(nil), r.rest...)
	return len(b), r.err
}

// End says whether the file may end here. A process that was killed may leave half a line.
func (r *TraceReader) End() error {
	if r.err == nil && r.torn != nil && len(r.rest) == 0 {
		r.err = r.torn
	}
	return r.err
}

func (r *TraceReader) take(text []byte) error {
	var l tracefile.Line
	err := strict(text, &l)
	switch {
	case err == nil && l.Life != nil:
		r.torn = nil
		if l.Life.Node != r.node {
			return fmt.Errorf("a life of node %s", l.Life.Node)
		}
		r.life++
		return nil
	case r.torn != nil:
		return r.torn
	case err != nil:
		r.torn = fmt.Errorf("line %d is damaged and no life begins behind it: %w", r.line, err)
		return nil
	case r.life < 1:
		return errors.New("something happened before a life began")
	}
	return r.record(&l)
}

func (r *TraceReader) record(l *tracefile.Line) error {
	switch {
	case l.Applied != nil:
		rec, err := state(&l.Applied.State)
		if err != nil {
			return err
		}
		rec.Position, rec.Command, rec.Result = l.Applied.Position, &boardpb.Command{}, &boardpb.Result{}
		if err := errors.Join(proto.Unmarshal(l.Applied.Command, rec.Command), proto.Unmarshal(l.Applied.Result, rec.Result)); err != nil {
			return err
		}
		r.log.applied(r.node, r.life, r.at(l.Applied.At), rec)
	case l.Installed != nil:
		rec, err := state(l.Installed)
		if err != nil {
			return err
		}
		rec.Installed = true
		r.log.applied(r.node, r.life, r.at(l.Installed.At), rec)
	case l.Voided != nil:
		_, err := state(l.Voided)
		return err
	case l.Role != nil && l.Role.Missed > 0:
		return fmt.Errorf("%d changes of role were not written", l.Role.Missed)
	case l.Role != nil:
		role := Role{Node: r.node, Life: r.life, At: r.at(l.Role.At), Term: l.Role.Term, Role: l.Role.Role}
		if role.Role == "shutdown" {
			role.Role = "down"
		}
		r.log.Role(role)
	default:
		return errors.New("it says nothing")
	}
	return nil
}

// at places a clock reading of another process of this machine in the run. It may be
// negative: nodes start before.
func (r *TraceReader) at(unixNano int64) time.Duration {
	return time.Unix(0, unixNano).Sub(r.log.Began())
}

func state(s *tracefile.State) (fsm.TraceRecord, error) {
	rec := fsm.TraceRecord{Index: s.Index, Term: s.Term, T: s.T}
	if s.Digest == "" {
		return rec, nil
	}
	sum, err := hex.DecodeString(s.Digest)
	if err != nil || len(sum) != len(rec.Digest) {
		return rec, fmt.Errorf("digest %q is none", s.Digest)
	}
	rec.Digest = [16]byte(sum)
	return rec, nil
}

// ReadTrace records a whole trace file of a node, whose first life has the given number.
func ReadTrace(from io.Reader, log *Log, node string, first int) error {
	r := NewTraceReader(log, node, first)
	if _, err := io.Copy(r, from); err != nil {
		return err
	}
	return r.End()
}
