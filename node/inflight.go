package node

import (
	"context"
	"sync"
)

// inflight counts goroutines that wait for raft. Raft abandons some futures when it stops, so
// waiting for these goroutines is bounded (RAFT P9).
type inflight struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to zero; nil while nobody waits
}

// Go runs f in a goroutine of its own.
func (i *inflight) Go(f func()) {
	i.mu.Lock()
	i.n++
	i.mu.Unlock()
	go func() {
		defer i.done()
		f()
	}()
}

func (i *inflight) done() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.n--; i.n == 0 && i.idle != nil {
		close(i.idle)
		i.idle = nil
	}
}

// wait returns when none is left, or with the context.
func (i *inflight) wait(ctx context.Context) {
	i.mu.Lock()
	if i.n == 0 {
		i.mu.Unlock()
		return
	}
	if i.idle == nil {
		i.idle = make(chan struct{})
	}
	idle := i.idle
	i.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
