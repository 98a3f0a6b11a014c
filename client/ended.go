package client

import (
	"time"

	boardpb "raftboard/fsm/pb"
)

// Ended tells that a lease ended without its holder's doing.
type Ended struct {
	Board      string
	Loop       string
	Key        string
	Generation uint64
	Cause      boardpb.EndedBy // unspecified when a refusal told, and not why
	Wall       time.Time
	OwnClock   bool // told by the client's own deadline: no server had been heard of in time
}

// maxShown bounds the memory of endings told. A server repeats one only until the floor
// passes the answer that carried it, which is at most a window of calls later.
const maxShown = 4096

// told takes the endings an answer carries: each is shown once, through the lease it
// concerns if this client holds it, and through Config.OnEnded.
func (b *Board) told(loop string, list []*boardpb.Ended) {
	for _, e := range list {
		id := leaseID{e.Key, e.Generation}
		if lease := b.lease(id); lease != nil {
			lease.lose(e.Cause, e.WallMs, false)
			continue
		}
		b.tell(Ended{
			Board: b.name, Loop: loop, Key: e.Key, Generation: e.Generation,
			Cause: e.Cause, Wall: time.UnixMilli(e.WallMs).UTC(),
		})
	}
}

// tell calls the callback unless this ending was shown before.
func (b *Board) tell(e Ended) {
	if b.show(leaseID{e.Key, e.Generation}) {
		b.call(e)
	}
}

func (b *Board) call(e Ended) {
	if b.c.cfg.OnEnded != nil {
		b.c.cfg.OnEnded(e)
	}
}

// show notes an ending as shown; false if it was already.
func (b *Board) show(id leaseID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shown[id] {
		return false
	}
	if len(b.shownOrder) == maxShown {
		delete(b.shown, b.shownOrder[0])
		b.shownOrder = b.shownOrder[1:]
	}
	b.shown[id] = true
	b.shownOrder = append(b.shownOrder, id)
	return true
}

func (b *Board) lease(id leaseID) *Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leases[id]
}

// add registers a lease. If the same grant was thought lost and claimed again, its next
// ending is news.
func (b *Board) add(l *Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leases[l.id] = l
	delete(b.shown, l.id)
}

func (b *Board) remove(l *Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leases[l.id] == l {
		delete(b.leases, l.id)
	}
}
