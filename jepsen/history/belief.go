package history

import (
	"time"
)

// Belief is a stretch of time in which a client took itself for the holder of a lease: from
// the answer to its claim until it gave the lease back, heard that it is lost, or its own clock
// said so, whichever came first. A client that is paused can do none of these.
type Belief struct {
	Client     string        `json:"client"`
	Board      string        `json:"board"`
	Key        string        `json:"key"`
	Generation uint64        `json:"generation"`
	Duration   time.Duration `json:"duration"` // of the lease
	From       time.Duration `json:"from"`
	To         time.Duration `json:"to"`
	// Until is when its own clock ends the lease: Duration after the last acknowledged renewal
	// was sent. A client that ran may have noticed later than that, but it knew.
	Until  time.Duration `json:"until"`
	Paused bool          `json:"paused,omitempty"` // for a part of the time: it noticed nothing until it ran again
	Manual bool          `json:"manual,omitempty"` // its renewals are operations
	Why    string        `json:"why"`              // it ended: one of the words below
}

// The ends of a belief.
const (
	BeliefGiven   = "given back" // by a release, a failure or the end of its loop, as soon as that was sent
	BeliefSilent  = "let go"     // on purpose, telling nobody
	BeliefCrashed = "crashed"
	BeliefTold    = "told"      // by an answer
	BeliefClock   = "own clock" // nobody had been heard of in time
	BeliefRunning = "the run"   // was over
)

// Believed records one, when it is over.
func (l *Log) Believed(b Belief) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest.Beliefs = append(l.rest.Beliefs, b)
}
