package history

import (
	"time"
)

// Note is something that a driver noticed beside its logs, and that must not happen whatever
// was done to the cluster. What a fault made a process do, as planned, is no Note.
type Note struct {
	Kind string        `json:"kind"` // one of the kinds below
	Node string        `json:"node,omitempty"`
	At   time.Duration `json:"at"`
	Text string        `json:"text"` // what it said, shortened
}

// The kinds of notes.
const (
	NotePanic = "panic" // a goroutine panicked
	NoteFatal = "fatal" // a fatal line, of raftboard or of the runtime
	NoteRace  = "race"  // the race detector reported
	NoteLeak  = "leak"  // goroutines or descriptors were left when a process or a run ended
	NoteStuck = "stuck" // after everything was mended the cluster was not well within its bound
	NoteDied  = "died"  // a process ended by itself, and no fault was made to that end
)

// Note records one, now unless At says when.
func (l *Log) Note(n Note) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.At == 0 {
		n.At = l.Now()
	}
	l.rest.Notes = append(l.rest.Notes, n)
}
