package history

import (
	"time"
)

// Outside is one write to something that is no part of the cluster and that guards itself: it
// takes a write only under a generation that is not below the greatest one it has seen of the
// key. It is what a fencing token is for.
type Outside struct {
	Client     string        `json:"client"`
	Key        string        `json:"key"`
	Generation uint64        `json:"generation"`
	Greatest   uint64        `json:"greatest"` // that it had seen before
	Accepted   bool          `json:"accepted"`
	Place      uint64        `json:"place"` // in the count of beginnings and ends of operations
	At         time.Duration `json:"at"`
}

// Outside records one, now.
func (l *Log) Outside(o Outside) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	o.Place, o.At = l.count, l.Now()
	l.rest.Outside = append(l.rest.Outside, o)
}
