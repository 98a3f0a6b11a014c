package fsm

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/jepsen/planted"
)

// Format is the format of batches and snapshots that this binary writes.
const Format = state.Format

// MaxLevel is the highest feature level this binary knows.
const MaxLevel = 1

// Options vary an FSM. Every function is called on the apply goroutine and must not block.
type Options struct {
	// Trace is told of every command after it was applied, of every snapshot that took the
	// state's place, and of every voided entry; nil is off and costs nothing.
	Trace func(TraceRecord)
	// Fatal is told of what this replica must not go on from: an entry it does not
	// understand, a commit that broke. After it, nothing more is applied. Nil panics.
	Fatal func(error)
	// Diverged is told that a tick carried another digest than ours for an entry.
	Diverged func(index uint64, ours, theirs [16]byte)
}

// TraceRecord is one applied command, for the fault harness; or, when one of the last two is
// set, something that was no command: its Command and Result are nil then.
type TraceRecord struct {
	Index, Term uint64
	Position    int // within the batch
	Command     *boardpb.Command
	Result      *boardpb.Result
	T           int64
	Digest      [16]byte // of the state after the entry; on the last command of it only
	// Installed: a snapshot became the state. Index, Term, T and Digest are the state's.
	Installed bool
	// Voided: the entry was stamped in another term than its own, and nothing of it ran.
	Voided bool
}

// Applied is what a log entry answers: one result per command.
type Applied struct {
	Results []*boardpb.Result
	// Voided: the batch was stamped in another term than the entry's (a second line
	// behind RAFT P1). Nothing ran; every command in it is not done.
	Voided bool
}

// FSM is raft's state machine: it decodes entries, steps the state and publishes Views.
type FSM struct {
	opts    Options
	machine *machine
	view    atomic.Pointer[state.View]
	changed atomic.Pointer[chan struct{}]
	pins    pins
	broken  atomic.Bool
}

var (
	_ raft.BatchingFSM        = (*FSM)(nil)
	_ raft.ConfigurationStore = (*FSM)(nil)
)

// New returns an FSM before its first entry.
func New(opts Options) *FSM {
	f := &FSM{opts: opts, machine: newMachine(state.New())}
	ch := make(chan struct{})
	f.changed.Store(&ch)
	f.publish(nil)
	return f
}

// View is the newest published state. It never blocks and is never nil.
func (f *FSM) View() *state.View { return f.view.Load() }

// Changed is closed at the next publication. To wait for something, take it before
// looking at View.
func (f *FSM) Changed() <-chan struct{} { return *f.changed.Load() }

// Applied is the index of the newest entry whose effect is published: the number that
// everything which waits must wait for, and not raft.AppliedIndex (RAFT P6).
func (f *FSM) Applied() uint64 { return f.View().Applied() }

// Apply is ApplyBatch for one entry; raft calls it only without batching.
func (f *FSM) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch applies entries in order and publishes one View for all of them. It gets
// configuration entries too, which only move the index (RAFT P6).
func (f *FSM) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	last := f.view.Load()
	for i, l := range logs {
		planted.Point("apply-before")
		answers[i] = f.apply(l)
		planted.Point("apply-after")
	}
	if !f.broken.Load() {
		f.publish(last)
	}
	return answers
}

func (f *FSM) apply(l *raft.Log) *Applied {
	if f.broken.Load() {
		return &Applied{Voided: true}
	}
	s := f.machine.state
	s.Begin(l.Index, l.Term, f.pins.lowest())
	defer func() {
		if !f.broken.Load() {
			s.End()
		}
	}()
	if l.Type != raft.LogCommand {
		return &Applied{}
	}
	batch := &boardpb.Batch{}
	if err := proto.Unmarshal(l.Data, batch); err != nil {
		return f.fatal(fmt.Errorf("entry %d (term %d) is no batch of commands: %w", l.Index, l.Term, err))
	}
	if batch.Format != Format {
		return f.fatal(fmt.Errorf("entry %d has format %d, this binary knows %d: it is older than what wrote the entry; upgrade it",
			l.Index, batch.Format, Format))
	}
	if batch.GetStamp().GetTerm() != l.Term {
		if f.opts.Trace != nil {
			f.opts.Trace(TraceRecord{Voided: true, Index: l.Index, Term: l.Term, T: s.T(), Digest: s.Digest().Bytes()})
		}
		return &Applied{Voided: true}
	}
	return f.run(l, batch)
}

func (f *FSM) run(l *raft.Log, batch *boardpb.Batch) *Applied {
	applied := &Applied{Results: make([]*boardpb.Result, len(batch.Commands))}
	if planted.Error("state-alter") != nil { // as a broken memory would, for D1
		x := f.machine.state.BeginTxn(state.ClusterBoard, nil)
		x.Counters().Refusals++
		x.Commit()
	}
	for i, c := range batch.Commands {
		if tick := c.GetTick(); tick != nil {
			f.compare(tick)
		}
		r, err := f.machine.step(batch.Stamp, c)
		if err != nil {
			return f.fatal(fmt.Errorf("entry %d, command %d: %w", l.Index, i, err))
		}
		applied.Results[i] = r
		if f.opts.Trace != nil {
			rec := TraceRecord{Index: l.Index, Term: l.Term, Position: i, Command: c, Result: r, T: f.machine.state.T()}
			if i == len(batch.Commands)-1 {
				rec.Digest = f.machine.state.Digest().Bytes()
			}
			f.opts.Trace(rec)
		}
	}
	return applied
}

// compare checks the digest a tick carries against the one remembered here. What follows
// from a difference is decided outside, with the other voters' values.
func (f *FSM) compare(tick *boardpb.Tick) {
	if planted.Bug("M34b") || tick.CheckIndex == 0 || len(tick.CheckDigest) != 16 || f.opts.Diverged == nil {
		return
	}
	ours, known := f.View().DigestAt(tick.CheckIndex)
	theirs := [16]byte(tick.CheckDigest)
	if known && ours != theirs {
		f.opts.Diverged(tick.CheckIndex, ours, theirs)
	}
}

func (f *FSM) fatal(err error) *Applied {
	f.broken.Store(true)
	if f.opts.Fatal == nil {
		panic(err)
	}
	f.opts.Fatal(err)
	return &Applied{Voided: true}
}

// StoreConfiguration moves the index for a configuration entry, should batching ever be
// switched off.
func (f *FSM) StoreConfiguration(index uint64, _ raft.Configuration) {
	s := f.machine.state
	if f.broken.Load() || index <= s.Applied() {
		return
	}
	s.Begin(index, s.Term(), f.pins.lowest())
	s.End()
	f.publish(f.view.Load())
}

// Snapshot pins the newest View; Persist streams it beside later entries (RAFT P13).
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) {
	if f.broken.Load() {
		return nil, errors.New("this replica stopped applying; it must not be snapshotted")
	}
	s := &snapshot{view: f.View()}
	if planted.Bug("M22") {
		planted.Note(s, f)
	}
	return s, nil
}

// Restore replaces the whole state. On an error the old state stays.
func (f *FSM) Restore(rc io.ReadCloser) error {
	defer rc.Close()
	s, err := readState(rc)
	if err != nil {
		return err
	}
	if planted.Bug("M23") && f.Applied() > 0 { // the bug: what is there stays
		s = f.machine.state
	}
	f.machine = newMachine(s)
	f.publish(nil)
	if f.opts.Trace != nil {
		f.opts.Trace(TraceRecord{Installed: true, Index: s.Applied(), Term: s.Term(), T: s.T(), Digest: s.Digest().Bytes()})
	}
	return nil
}

func (f *FSM) publish(last *state.View) {
	v := f.machine.state.Publish(last)
	at := v.Applied()
	f.pins.add(at)
	runtime.AddCleanup(v, f.pins.drop, at)
	f.view.Store(v)
	f.wake()
}

// pins knows which Views may still be read: a View is pinned while it is reachable, so
// that no reader has to release one, and the garbage collector tells when it is not.
type pins struct {
	mu   sync.Mutex
	live []uint64 // indexes in order from head on; several Views may have one
	head int
	gone map[uint64]int // dropped, but not yet at the head
}

func (p *pins) add(at uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.head > 1024 && p.head*2 > len(p.live) {
		p.live, p.head = append([]uint64(nil), p.live[p.head:]...), 0
	}
	p.live = append(p.live, at)
}

func (p *pins) drop(at uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone == nil {
		p.gone = map[uint64]int{}
	}
	p.gone[at]++
	for p.head < len(p.live) && p.gone[p.live[p.head]] > 0 {
		first := p.live[p.head]
		if p.gone[first]--; p.gone[first] == 0 {
			delete(p.gone, first)
		}
		p.head++
	}
}

// lowest is the index of the oldest View that may still be read.
func (p *pins) lowest() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.head == len(p.live) {
		return 0
	}
	return p.live[p.head]
}
