package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// The sign of a leader that cannot send its snapshot: so many attempts in a row that failed on
// its own side, over so many election timeouts. One attempt may fail for lack of descriptors.
const (
	sendsFailed   = 3
	sendsOver     = 3
	sendsForgiven = time.Minute // without an attempt: nobody needs a snapshot any more
)

// sendWatch ends a leader that cannot read the snapshot a follower needs. Raft tries again for
// ever, and the follower stays behind (RAFT P22, hashicorp/raft#522).
type sendWatch struct {
	n *Node

	mu     sync.Mutex
	failed int
	first  time.Duration // monotonic, of the failures in a row
	last   time.Duration
	ending bool
}

// heard is told how an attempt to list, open or read a snapshot ended.
func (w *sendWatch) heard(what string, err error) {
	if w == nil || !w.n.opened.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.n.clock.source.Mono()
	if err == nil || now-w.last > sendsForgiven {
		w.failed = 0
	}
	if err == nil || w.n.raft.State() != raft.Leader {
		return
	}
	if w.failed == 0 {
		w.first = now
	}
	w.failed++
	w.last = now
	if w.failed < sendsFailed || now-w.first < sendsOver*w.n.cfg.Timing.Election || w.ending || w.n.closing.Load() {
		return
	}
	w.ending = true
	w.n.futures.Go(func() { w.end(what, err) })
}

// end hands the leadership over, if somebody takes it, and stops the node.
func (w *sendWatch) end(what string, why error) {
	n := w.n
	n.log.Error("this leader cannot send its snapshot; it hands over and stops", "failed to", what, "error", why)
	ctx, cancel := context.WithTimeout(n.ctx, dutyTimeout)
	err := n.StepDown(ctx, "")
	cancel()
	if err != nil {
		n.log.Warn("the leadership was not handed over", "error", err)
	}
	n.fail(&DirError{Dir: n.stores.Where, Cause: why,
		What: fmt.Sprintf("a follower needs this leader's snapshot, and it cannot be sent: %s: %v (hashicorp/raft#522)", what, why),
		Hint: "check the disk, then start the node again: it goes on from an older snapshot and its log, or says how to join anew"})
}

// Open opens a snapshot. Raft does so to send it and to restore it.
func (g *guardedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, rc, err := g.SnapshotStore.Open(id)
	if err != nil {
		g.sends.heard("open snapshot "+id, err)
		return nil, nil, err
	}
	return meta, &openedSnapshot{ReadCloser: rc, id: id, index: meta.Index, sends: g.sends}, nil
}

// List lists the snapshots, the newest first, without those that were found unreadable at the
// start: what raft sends is then one that can be read, with the log behind it (RAFT P21, P22).
func (g *guardedSnapshots) List() ([]*raft.SnapshotMeta, error) {
	metas, err := g.SnapshotStore.List()
	if err != nil {
		g.sends.heard("list the snapshots", err)
		return nil, err
	}
	var kept []*raft.SnapshotMeta
	for _, m := range metas {
		if !g.unreadable[m.ID] {
			kept = append(kept, m)
		}
	}
	if len(kept) == 0 {
		g.sends.heard("list the snapshots", errors.New("there is none"))
	}
	return kept, nil
}

// openedSnapshot is a snapshot that is being read.
type openedSnapshot struct {
	io.ReadCloser
	id    string
	index uint64
	sends *sendWatch
}

func (o *openedSnapshot) Read(b []byte) (int, error) {
	n, err := o.ReadCloser.Read(b)
	switch {
	case errors.Is(err, io.EOF):
		o.sends.heard("read snapshot "+o.id, nil)
	case err != nil:
		o.sends.heard("read snapshot "+o.id, err)
	}
	return n, err
}
