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
	o := &openedSnapshot{ReadCloser: rc, id: id, index: meta.Index, sends: g.sends}
	if g.sends != nil {
		o.progress = &progress{n: g.sends.n, doing: "restoring a snapshot", size: meta.Size}
		if g.sends.n.opened.Load() && g.sends.n.raft.State() == raft.Leader {
			o.progress.doing = "reading a snapshot to send it"
		}
	}
	return meta, o, nil
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
	id       string
	index    uint64
	sends    *sendWatch
	progress *progress
}

func (o *openedSnapshot) Read(b []byte) (int, error) {
	n, err := o.ReadCloser.Read(b)
	o.progress.moved(n)
	switch {
	case errors.Is(err, io.EOF):
		o.sends.heard("read snapshot "+o.id, nil)
	case err != nil:
		o.sends.heard("read snapshot "+o.id, err)
	}
	return n, err
}

// sayEvery is how often somebody who waits for a snapshot hears how far it is.
const sayEvery = 5 * time.Second

// progress is of a snapshot that is read or written, and says now and then how far that is. It
// says nothing while nothing moves.
type progress struct {
	n     *Node
	doing string
	size  int64 // 0: not known
	done  int64
	said  time.Duration // monotonic; of the beginning, at first
}

func (p *progress) moved(bytes int) {
	if p == nil {
		return
	}
	now := p.n.clock.source.Mono()
	if p.done += int64(bytes); p.said == 0 {
		p.said = now
	}
	if now-p.said < sayEvery {
		return
	}
	p.said = now
	if p.size > 0 {
		p.n.log.Info(p.doing, "bytes", p.done, "of", p.size, "percent", 100*p.done/p.size)
	} else {
		p.n.log.Info(p.doing, "bytes", p.done)
	}
}

// watchedReader tells how far its reader is.
type watchedReader struct {
	io.Reader
	progress *progress
}

func (r watchedReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.progress.moved(n)
	return n, err
}
