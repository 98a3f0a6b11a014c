package node

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"raftboard/fsm"
)

// The sign of a follower that installs the same snapshot for ever (RAFT P4, hashicorp/raft#697):
// so many restores within the time, none of a later entry than the first.
const (
	loopRestores = 3
	loopWithin   = time.Minute
)

// watchedFSM is the state machine as raft sees it, with an eye on restores.
type watchedFSM struct {
	*fsm.FSM
	n *Node

	mu       sync.Mutex
	installs []install     // the newest loopRestores of a snapshot the log contradicts
	took     time.Duration // of the newest restore; -1: none
}

var (
	_ raft.BatchingFSM        = (*watchedFSM)(nil)
	_ raft.ConfigurationStore = (*watchedFSM)(nil)
)

type install struct {
	at    time.Duration // monotonic
	index uint64        // of the snapshot
}

// Restore replaces the state, and ends the process when this has become a loop. What raft
// restores at the start does not count: the log was compared with it.
func (w *watchedFSM) Restore(rc io.ReadCloser) error {
	mono := w.n.clock.source.Mono
	began := mono()
	index, known := snapshotIndex(rc)
	if err := w.FSM.Restore(rc); err != nil {
		return err
	}
	w.mu.Lock()
	w.took = mono() - began
	looping := known && w.n.opened.Load() && w.n.logReaches(index) && w.note(install{at: mono(), index: index})
	w.mu.Unlock()
	if looping {
		w.n.fail(&DirError{Dir: w.n.stores.Where,
			What: fmt.Sprintf("the snapshot of entry %d was installed %d times within a minute and led no further: the log holds entries "+
				"that never committed, and the Raft library does not get past them (hashicorp/raft#697)", index, loopRestores),
			Hint: "start the node again: at its start it empties such a log, and then it catches up; nothing acknowledged is lost"})
	}
	return nil
}

// note adds an install and tells whether the newest ones are a loop.
func (w *watchedFSM) note(i install) bool {
	w.installs = append(w.installs, i)
	if extra := len(w.installs) - loopRestores; extra > 0 {
		w.installs = w.installs[extra:]
	}
	first := w.installs[0]
	for _, later := range w.installs {
		if later.index > first.index {
			return false
		}
	}
	return len(w.installs) == loopRestores && i.at-first.at <= loopWithin
}

// restoreTook is how long the newest restore took; -1: there was none.
func (w *watchedFSM) restoreTook() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.took
}

// logReaches tells whether the log has entries at or above a snapshot's. Without any the
// snapshot came again because an answer was lost, which a working network ends.
func (n *Node) logReaches(index uint64) bool {
	last, err := n.stores.Log.LastIndex()
	return err != nil || last >= index || n.raft.LastIndex() > index
}

// snapshotIndex finds the snapshot behind what raft hands to Restore.
func snapshotIndex(rc io.ReadCloser) (index uint64, known bool) {
	if outer, ok := rc.(raft.ReadCloserWrapper); ok {
		rc = outer.WrappedReadCloser()
	}
	opened, ok := rc.(*openedSnapshot)
	if !ok {
		return 0, false
	}
	return opened.index, true
}
