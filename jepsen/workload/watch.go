package workload

import (
	"context"
	"fmt"

	"raftboard/client"
	"raftboard/jepsen/history"
	wirepb "raftboard/transport/pb"
)

// Watcher is told everything that happens on the board from rev 1 on, and records it.
type Watcher struct {
	env    Env
	name   string
	c      *client.Client
	cancel context.CancelFunc
	done   chan struct{}
	seen   chan uint64 // the newest rev told; holds one
}

// Watch starts a watcher that tries the given node first. Close ends it.
func Watch(ctx context.Context, e Env, name string, first int) (*Watcher, error) {
	c, err := e.Cluster.Dial(name, first)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &Watcher{env: e, name: name, c: c, cancel: cancel, done: make(chan struct{}), seen: make(chan uint64, 1)}
	watch, err := c.Board(e.Board).Watch(ctx, client.WatchOptions{Patterns: []string{"**"}, FromRev: 1, OnState: w.state})
	if err != nil {
		cancel()
		c.Close()
		return nil, fmt.Errorf("watcher %s: %w", name, err)
	}
	go w.run(ctx, watch)
	return w, nil
}

func (w *Watcher) state(s client.State) {
	if s.Kind == client.StateReconnecting {
		w.env.Log.Told(history.Told{Watcher: w.name, Board: w.env.Board, Cut: fmt.Sprintf("%s: %v", s.Endpoint, s.Err)})
	}
}

func (w *Watcher) run(ctx context.Context, watch *client.Watch) {
	defer close(w.done)
	for {
		m, err := watch.Next(ctx)
		t := history.Told{Watcher: w.name, Board: w.env.Board}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			t.Ended = err.Error()
		case m.Kind == client.MessageEvent:
			t.Event = m.Event
		case m.Kind == client.MessageBookmark:
			t.Bookmark = m.Rev
		default:
			continue
		}
		w.env.Log.Told(t)
		if err != nil {
			return
		}
		select {
		case <-w.seen:
		default:
		}
		w.seen <- m.Rev
	}
}

// Reach waits until the watcher was told of rev, it ended, or ctx did. Whether it got there
// is for the checkers to say.
func (w *Watcher) Reach(ctx context.Context, rev uint64) {
	for {
		select {
		case at := <-w.seen:
			if at >= rev {
				return
			}
		case <-w.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Close ends the watcher.
func (w *Watcher) Close() {
	w.cancel()
	<-w.done
	w.c.Close()
}

// Pages reads the feed from its beginning page by page, as a watcher of its own.
func Pages(ctx context.Context, e Env, name string) (last uint64, err error) {
	c, err := e.Cluster.Dial(name, 0)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	q := &wirepb.EventsQuery{Limit: 100}
	for {
		page, _, err := c.Board(e.Board).Events(ctx, q, client.ReadOptions{})
		if err != nil {
			return last, fmt.Errorf("the feed behind %d.%d: %w", q.AfterRev, q.AfterSub, err)
		}
		for _, event := range page.Events {
			e.Log.Told(history.Told{Watcher: name, Board: e.Board, Event: event})
			q.AfterRev, q.AfterSub = event.Rev, event.Sub
		}
		last = page.LastRev
		if !page.HasMore {
			return last, nil
		}
	}
}
