package history

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
)

// Applied is one command as one node applied it in one of its lives. The hashes are taken
// when it is recorded, so that nothing that happens to the messages later can hide.
type Applied struct {
	Node        string           `json:"node"`
	Life        int              `json:"life"` // 1, 2 … of the node's process
	Index       uint64           `json:"index"`
	Term        uint64           `json:"term"`
	Position    int              `json:"position"` // within the entry
	T           int64            `json:"t"`        // board time
	At          time.Duration    `json:"at"`       // when it was recorded; 0: nobody knows
	Command     *boardpb.Command `json:"-"`
	Result      *boardpb.Result  `json:"-"`
	CommandHash string           `json:"command_hash"`
	ResultHash  string           `json:"result_hash"`
	Digest      string           `json:"digest,omitempty"` // of the state; on the last command of an entry
}

// Trace makes the record of a node's trace.
func Trace(node string, life int, r fsm.TraceRecord) Applied {
	a := Applied{
		Node: node, Life: life, Index: r.Index, Term: r.Term, Position: r.Position, T: r.T,
		Command: proto.CloneOf(r.Command), Result: proto.CloneOf(r.Result),
		CommandHash: hash(r.Command), ResultHash: hash(r.Result),
	}
	if r.Digest != [16]byte{} {
		a.Digest = hex.EncodeToString(r.Digest[:])
	}
	return a
}

// Installed is a snapshot that took the place of a node's state: at its start, or because it
// had fallen behind what the leader still keeps. What the node applies next is above Index.
type Installed struct {
	Node   string        `json:"node"`
	Life   int           `json:"life"`
	At     time.Duration `json:"at"`
	Index  uint64        `json:"index"` // of the last entry in it
	Term   uint64        `json:"term"`
	T      int64         `json:"t"` // board time in it
	Digest string        `json:"digest"`
}

// Role is what raft said a node is from now on.
type Role struct {
	Node string        `json:"node"`
	Life int           `json:"life"`
	At   time.Duration `json:"at"`
	Term uint64        `json:"term"`
	Role string        `json:"role"` // "leader", "follower", "candidate", "down"
}

// hash is of the wire form, which one build writes in one way.
func hash(m proto.Message) string {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return "unmarshalable: " + err.Error()
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// OK says that the command was done, here and now: not refused, and not an earlier answer
// given again.
func (a *Applied) OK() bool {
	return a.Result.GetOutcome() == boardpb.Outcome_OUTCOME_OK && !a.Result.GetReplayed()
}

type plainApplied Applied

type appliedLine struct {
	plainApplied
	Command json.RawMessage `json:"command"`
	Result  json.RawMessage `json:"result"`
}

// MarshalJSON writes the messages in their own JSON form.
func (a Applied) MarshalJSON() ([]byte, error) {
	line := appliedLine{plainApplied: plainApplied(a)}
	var err error
	if line.Command, err = protojson.Marshal(a.Command); err != nil {
		return nil, err
	}
	if line.Result, err = protojson.Marshal(a.Result); err != nil {
		return nil, err
	}
	return json.Marshal(line)
}

// UnmarshalJSON is the way back. Nodes are compared by the hashes and judged by the messages, so
// they must belong together.
func (a *Applied) UnmarshalJSON(b []byte) error {
	var line appliedLine
	if err := strict(b, &line); err != nil {
		return err
	}
	*a = Applied(line.plainApplied)
	a.Command, a.Result = &boardpb.Command{}, &boardpb.Result{}
	if err := protojson.Unmarshal(line.Command, a.Command); err != nil {
		return err
	}
	if err := protojson.Unmarshal(line.Result, a.Result); err != nil {
		return err
	}
	if a.CommandHash != hash(a.Command) || a.ResultHash != hash(a.Result) {
		return fmt.Errorf("entry %d of node %s (life %d) is not what was hashed when it was recorded", a.Index, a.Node, a.Life)
	}
	return nil
}

// Told is one thing a watcher was told: an event, a record, a bookmark, or how it was cut off.
// Asked begins a stream, and everything up to the next one is of it; a watcher without any
// asked once, for everything from rev 1.
type Told struct {
	Watcher  string         `json:"watcher"`
	Board    string         `json:"board"`
	At       time.Duration  `json:"at"`
	Asked    *Asked         `json:"asked,omitempty"`
	Opened   uint64         `json:"opened,omitempty"` // the first rev that the stream will tell of
	Event    *boardpb.Event `json:"-"`
	Batch    int            `json:"batch,omitempty"` // which message of the stream brought the event; 0: nobody knows
	Record   *Record        `json:"record,omitempty"`
	Seam     uint64         `json:"seam,omitempty"` // the records are all there, and show this rev
	Bookmark uint64         `json:"bookmark,omitempty"`
	Cut      string         `json:"cut,omitempty"`    // why a stream ended; the watch went on elsewhere
	Ended    string         `json:"ended,omitempty"`  // why the watch ended
	Code     string         `json:"code,omitempty"`   // of the refusal that cut or ended it: "slow_reader", "compacted" …
	Resume   uint64         `json:"resume,omitempty"` // the rev that the refusal names to go on from
	Oldest   uint64         `json:"oldest,omitempty"` // the oldest rev that it names as still served
	Goal     uint64         `json:"goal,omitempty"`   // by now the watcher must have been told of all up to this rev
}

// Asked is how a stream was asked for.
type Asked struct {
	Node     string   `json:"node,omitempty"` // the one asked; "": the client goes from one to the other by itself
	Mode     string   `json:"mode"`           // "from", "now", "snapshot"; "pages" is not a stream but reads of the feed
	From     uint64   `json:"from,omitempty"` // of "from" and "pages": the first rev wanted
	Patterns []string `json:"patterns"`
	Known    uint64   `json:"known,omitempty"` // a rev that was acknowledged to somebody before
}

// Record is what a snapshot told of one version of a key.
type Record struct {
	Key     string `json:"key"`
	Version uint64 `json:"version"`
	Rev     uint64 `json:"rev"`
}

// strict refuses what it does not know, as Read does.
func strict(b []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if dec.More() {
		return errors.New("more than one value")
	}
	return nil
}

type plainTold Told

type toldLine struct {
	plainTold
	Event json.RawMessage `json:"event,omitempty"`
}

// MarshalJSON writes the event in its own JSON form.
func (w Told) MarshalJSON() ([]byte, error) {
	line := toldLine{plainTold: plainTold(w)}
	if w.Event != nil {
		var err error
		if line.Event, err = protojson.Marshal(w.Event); err != nil {
			return nil, err
		}
	}
	return json.Marshal(line)
}

// UnmarshalJSON is the way back.
func (w *Told) UnmarshalJSON(b []byte) error {
	var line toldLine
	if err := strict(b, &line); err != nil {
		return err
	}
	*w = Told(line.plainTold)
	if line.Event == nil {
		return nil
	}
	w.Event = &boardpb.Event{}
	return protojson.Unmarshal(line.Event, w.Event)
}

// FinalReader names the reader who reads everything through a node at the end.
func FinalReader(node string) string { return "reader-of-" + node }

// Final is one thing a board held at the end, as one reader saw it.
type Final struct {
	Reader string         `json:"reader"`
	Node   string         `json:"node"` // who answered
	Board  string         `json:"board"`
	Rev    uint64         `json:"rev"`
	Entry  *boardpb.Entry `json:"-"`
	Lease  *boardpb.Lease `json:"-"`
}

type plainFinal Final

type finalLine struct {
	plainFinal
	Entry json.RawMessage `json:"entry,omitempty"`
	Lease json.RawMessage `json:"lease,omitempty"`
}

// MarshalJSON writes the record in its own JSON form.
func (f Final) MarshalJSON() (_ []byte, err error) {
	line := finalLine{plainFinal: plainFinal(f)}
	switch {
	case f.Entry != nil:
		line.Entry, err = protojson.Marshal(f.Entry)
	case f.Lease != nil:
		line.Lease, err = protojson.Marshal(f.Lease)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(line)
}

// UnmarshalJSON is the way back.
func (f *Final) UnmarshalJSON(b []byte) error {
	var line finalLine
	if err := strict(b, &line); err != nil {
		return err
	}
	*f = Final(line.plainFinal)
	switch {
	case line.Entry != nil:
		f.Entry = &boardpb.Entry{}
		return protojson.Unmarshal(line.Entry, f.Entry)
	case line.Lease != nil:
		f.Lease = &boardpb.Lease{}
		return protojson.Unmarshal(line.Lease, f.Lease)
	}
	return nil
}
