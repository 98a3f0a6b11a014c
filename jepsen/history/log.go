package history

import (
	"cmp"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"raftboard/fsm"
)

// Log records a run. It is safe for all goroutines of it. It has no bound of its own: a run
// has one, in operations and in time.
type Log struct {
	began time.Time

	mu    sync.Mutex
	count uint64 // of beginnings and ends
	ops   []*Op
	rest  History
}

// NewLog begins a run.
func NewLog(run Run) *Log {
	began := time.Now()
	run.Began = began.UTC().Round(0)
	return &Log{began: began, rest: History{Run: run}}
}

// Now is the time since the run began.
func (l *Log) Now() time.Duration { return time.Since(l.began) }

// Begin records that an operation is about to be called, and gives it its id. The caller
// fills the rest in and ends it with End; nobody else touches it before.
func (l *Log) Begin(op Op) *Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	op.ID, op.Began, op.Invoke = uint64(len(l.ops)+1), l.count, l.Now()
	op.Outcome = undecided
	l.ops = append(l.ops, &op)
	return &op
}

// End records that an operation returned with what done is filled in.
func (l *Log) End(op *Op, done func(*Op)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	done(op)
	l.count++
	op.Ended, op.Return = l.count, l.Now()
}

// Fault records one.
func (l *Log) Fault(f Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest.Faults = append(l.rest.Faults, f)
}

// Applied records what a node's trace says, now: a command it applied, or a snapshot it went
// on from. A voided entry is no command and is left out.
func (l *Log) Applied(node string, life int, r fsm.TraceRecord) { l.applied(node, life, l.Now(), r) }

func (l *Log) applied(node string, life int, at time.Duration, r fsm.TraceRecord) {
	switch {
	case r.Voided:
		return
	case r.Installed:
		l.Installed(Installed{Node: node, Life: life, At: at, Index: r.Index, Term: r.Term, T: r.T,
			Digest: hex.EncodeToString(r.Digest[:])})
		return
	}
	a := Trace(node, life, r)
	a.At = at
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest.Applied = append(l.rest.Applied, a)
}

// Installed records a snapshot that a node went on from, now unless At says when.
func (l *Log) Installed(i Installed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i.At == 0 {
		i.At = l.Now()
	}
	l.rest.Install = append(l.rest.Install, i)
}

// Role records what a node became, now unless At says when.
func (l *Log) Role(r Role) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.At == 0 {
		r.At = l.Now()
	}
	l.rest.Roles = append(l.rest.Roles, r)
}

// Began is the wall clock at which the run began: what other processes of this machine
// wrote down is placed by it.
func (l *Log) Began() time.Time { return l.began }

// Tail is the newest n records of what was applied anywhere.
func (l *Log) Tail(n int) []Applied {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.rest.Applied[max(0, len(l.rest.Applied)-n):])
}

// Told records what a watcher was told, now.
func (l *Log) Told(t Told) {
	if t.Event != nil {
		t.Event = proto.CloneOf(t.Event)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.At = l.Now()
	l.rest.Feed = append(l.rest.Feed, t)
}

// Final records one thing the board held at the end.
func (l *Log) Final(f Final) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest.Finals = append(l.rest.Finals, f)
}

// Healed records that the last fault is over, and how long everything may take from here.
func (l *Log) Healed(bound time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest.Run.Healed, l.rest.Run.Bound = l.Now(), bound
}

// History ends the run: a copy of all that was recorded. An operation that has not returned
// is one whose outcome nobody knows.
func (l *Log) History() *History {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.rest
	h.Run.Ended = l.Now()
	h.Faults, h.Applied = slices.Clone(h.Faults), slices.Clone(h.Applied)
	h.Install, h.Roles, h.Notes = slices.Clone(h.Install), slices.Clone(h.Roles), slices.Clone(h.Notes)
	h.Feed, h.Finals, h.Outside = slices.Clone(h.Feed), slices.Clone(h.Finals), slices.Clone(h.Outside)
	h.Beliefs = slices.Clone(h.Beliefs)
	for _, op := range l.ops {
		o := *op
		if o.Outcome == undecided {
			o.Outcome = Info
		}
		h.Ops = append(h.Ops, o)
	}
	complete(&h)
	return &h
}

// complete gives operations the numbers that only the nodes saw: loop and seq, and of a
// mutate the version that its last attempt named.
func complete(h *History) {
	byOp := map[uint64][]*Applied{}
	for i := range h.Applied {
		if id := OpOf(h.Applied[i].Command.GetCallId()); id != 0 {
			byOp[id] = append(byOp[id], &h.Applied[i])
		}
	}
	for i := range h.Ops {
		op := &h.Ops[i]
		for _, a := range byOp[op.ID] {
			op.Loop, op.Seq = cmp.Or(op.Loop, a.Command.Loop), cmp.Or(op.Seq, a.Command.Seq)
			if set := a.Command.GetSet(); set != nil && op.Kind == Mutate && string(set.Value) == op.Args.Value {
				op.Args.IfVersion = set.IfVersion
			}
		}
	}
}
