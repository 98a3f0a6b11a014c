package tracefile

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"raftboard/fsm"
	"raftboard/node"
)

// Line is one line of a file; one of its fields is set.
type Line struct {
	Life      *Life    `json:"life,omitempty"`
	Applied   *Applied `json:"applied,omitempty"`
	Installed *State   `json:"installed,omitempty"`
	Voided    *State   `json:"voided,omitempty"`
	Role      *Role    `json:"role,omitempty"`
}

// Life is the beginning of a process.
type Life struct {
	At      int64  `json:"at"`
	Node    string `json:"node"`
	PID     int    `json:"pid"`
	Version string `json:"version"`
}

// State is a position in the log and the state there.
type State struct {
	At     int64  `json:"at"`
	Index  uint64 `json:"index"`
	Term   uint64 `json:"term"`
	T      int64  `json:"t"`
	Digest string `json:"digest,omitempty"` // hex
}

// Applied is one command.
type Applied struct {
	State
	Position int    `json:"position"`
	Command  []byte `json:"command"`
	Result   []byte `json:"result"`
}

// Role is a change of role.
type Role struct {
	At     int64  `json:"at"`
	Term   uint64 `json:"term"`
	Role   string `json:"role"`
	Missed int    `json:"missed,omitempty"`
}

// Writer appends to a file. Its methods may be called from several goroutines.
type Writer struct {
	fatal func(error)
	told  sync.Once

	mu   sync.Mutex
	file *os.File
	err  error
}

// Open opens the file of a node, or makes it, and writes the line of a new life. What cannot
// be written later is told to fatal, once: it must end the process, because a trace with a
// hole proves nothing. The Writer is silent from then on.
func Open(path string, life Life, fatal func(error)) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	w := &Writer{file: file, fatal: fatal}
	head, err := unended(file)
	if err == nil {
		err = w.write(head, Line{Life: &life}, &life.At)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write to %s: %w", path, err), file.Close())
	}
	return w, nil
}

// unended answers what ends a line that a former life was killed in, if there is one.
func unended(file *os.File) (end string, err error) {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return "", err
	}
	last := make([]byte, 1)
	if _, err := file.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return "", err
	}
	return "\n", nil
}

// write writes one line behind head; at is the field of it that holds the time.
func (w *Writer) write(head string, l Line, at *int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	*at = time.Now().UnixNano()
	text, err := json.Marshal(l)
	if err == nil {
		_, err = w.file.Write(append(append([]byte(head), text...), '\n'))
	}
	w.err = err
	return err
}

func (w *Writer) must(l Line, at *int64) { w.check(w.write("", l, at)) }

func (w *Writer) check(err error) {
	if err != nil {
		w.told.Do(func() { w.fatal(fmt.Errorf("the trace cannot be written: %w", err)) })
	}
}

// Trace writes what was applied; it fits node.Config.Trace.
func (w *Writer) Trace(r fsm.TraceRecord) {
	s := State{Index: r.Index, Term: r.Term, T: r.T}
	if r.Digest != [16]byte{} {
		s.Digest = hex.EncodeToString(r.Digest[:])
	}
	switch {
	case r.Installed:
		w.must(Line{Installed: &s}, &s.At)
		return
	case r.Voided:
		w.must(Line{Voided: &s}, &s.At)
		return
	}
	a := &Applied{State: s, Position: r.Position}
	var err, err2 error
	a.Command, err = proto.MarshalOptions{Deterministic: true}.Marshal(r.Command)
	a.Result, err2 = proto.MarshalOptions{Deterministic: true}.Marshal(r.Result)
	if err := errors.Join(err, err2); err != nil {
		w.check(fmt.Errorf("entry %d: %w", r.Index, err))
		return
	}
	w.must(Line{Applied: a}, &a.At)
}

// Roles writes what the node became; it fits node.Config.Roles.
func (w *Writer) Roles(c node.RoleChange) {
	r := &Role{Term: c.Term, Role: c.Role, Missed: c.Missed}
	w.must(Line{Role: r}, &r.At)
}

// Close closes the file. Nothing may be written after it.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = os.ErrClosed
	return w.file.Close()
}
