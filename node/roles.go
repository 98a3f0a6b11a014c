package node

import (
	"sync"

	"github.com/hashicorp/raft"
)

// rolesKept is how many role changes may wait for Config.Roles.
const rolesKept = 256

// RoleChange is what raft made of this node, for the fault harness.
type RoleChange struct {
	Role string // leader, follower, candidate, shutdown
	// Term is that of the node when it took the role. A candidate raises it right after,
	// and a follower may: only a leader's is the term it acts in.
	Term uint64
	// Missed counts the changes before this one that were not told, because too many waited.
	Missed int
}

// roles passes role changes on from raft to Config.Roles. The filter of an observer is called
// on the goroutine that makes the change, so that role and term belong together; raft never
// waits for who is told. Its own goroutine ends with end.
type roles struct {
	tell    func(RoleChange)
	raft    *raft.Raft
	waiting chan RoleChange
	watch   *raft.Observer
	ended   chan struct{}

	mu     sync.Mutex
	missed int
}

// watchRoles begins to tell, first what the node is now; nil tells nobody and costs nothing.
func watchRoles(r *raft.Raft, tell func(RoleChange)) *roles {
	if tell == nil {
		return nil
	}
	w := &roles{tell: tell, raft: r, waiting: make(chan RoleChange, rolesKept), ended: make(chan struct{})}
	w.watch = raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		if _, ok := o.Data.(raft.RaftState); ok {
			w.changed()
		}
		return false
	})
	r.RegisterObserver(w.watch)
	w.changed() // not a change, but what it is; a change that came first is told twice
	go w.run()
	return w
}

func (w *roles) changed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.waiting <- w.now():
		w.missed = 0
	default:
		w.missed++
	}
}

func (w *roles) now() RoleChange {
	return RoleChange{Role: roleName(w.raft.State()), Term: w.raft.CurrentTerm(), Missed: w.missed}
}

func (w *roles) run() {
	defer close(w.ended)
	for change := range w.waiting {
		w.tell(change)
	}
}

// end tells what is left, after raft was shut down: nothing changes any more.
func (w *roles) end() {
	if w == nil {
		return
	}
	w.raft.DeregisterObserver(w.watch)
	if w.missed > 0 {
		w.waiting <- w.now() // or nobody would hear of it
	}
	close(w.waiting)
	<-w.ended
}

func roleName(s raft.RaftState) string {
	switch s {
	case raft.Leader:
		return "leader"
	case raft.Follower:
		return "follower"
	case raft.Candidate:
		return "candidate"
	default:
		return "shutdown"
	}
}
