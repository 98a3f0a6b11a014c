package workload

import (
	"context"
	"fmt"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
	wirepb "raftboard/transport/pb"
)

// Watcher is a watch through the client, which goes from node to node by itself. It records all
// that it is told.
type Watcher struct {
	env    Env
	name   string
	c      *client.Client
	opts   client.WatchOptions
	cancel context.CancelFunc
	done   chan struct{}
	seen   chan uint64 // the newest rev told; holds one
}

// Watch starts a watcher of everything from rev 1 on that tries the given node first. Close
// ends it.
func Watch(ctx context.Context, e Env, name string, first int) (*Watcher, error) {
	return watch(ctx, e, name, first, client.WatchOptions{Patterns: []string{"**"}, FromRev: 1})
}

func watch(ctx context.Context, e Env, name string, first int, opts client.WatchOptions) (*Watcher, error) {
	c, err := e.Cluster.Dial(name, first)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &Watcher{env: e, name: name, c: c, opts: opts, cancel: cancel, done: make(chan struct{}), seen: make(chan uint64, 1)}
	w.opts.OnState = w.state
	watch, err := w.open(ctx)
	if err != nil {
		cancel()
		c.Close()
		return nil, fmt.Errorf("watcher %s: %w", name, err)
	}
	go w.run(ctx, watch)
	return w, nil
}

func (w *Watcher) tell(t history.Told) {
	t.Watcher, t.Board = w.name, w.env.Board
	w.env.Log.Told(t)
}

func (w *Watcher) open(ctx context.Context) (*client.Watch, error) {
	asked := &history.Asked{Mode: "from", From: w.opts.FromRev, Patterns: w.opts.Patterns}
	if w.opts.Snapshot {
		asked.Mode = "snapshot"
	}
	w.tell(history.Told{Asked: asked})
	return w.c.Board(w.env.Board).Watch(ctx, w.opts)
}

func (w *Watcher) state(s client.State) {
	if s.Kind == client.StateReconnecting {
		w.tell(ending(history.Told{Cut: fmt.Sprintf("%s: %v", s.Endpoint, s.Err)}, s.Err))
	}
}

// ending adds what a refusal says of how to go on.
func ending(t history.Told, err error) history.Told {
	if refused := clientRefusal(err); refused != nil {
		t.Code, t.Resume, t.Oldest = history.Answer(refused), refused.Rev, refused.OldestRev
	}
	return t
}

// run reads until ctx ends. What was compacted away is given up, once that was said.
func (w *Watcher) run(ctx context.Context, watch *client.Watch) {
	defer close(w.done)
	for {
		err := w.read(ctx, watch)
		refused := clientRefusal(err)
		switch {
		case ctx.Err() != nil:
			return
		case refused.GetCode() == boardpb.Code_CODE_COMPACTED:
			w.tell(ending(history.Told{Cut: err.Error()}, err))
			w.opts.FromRev, w.opts.Snapshot = refused.OldestRev, false
		default:
			w.tell(ending(history.Told{Ended: err.Error()}, err))
			return
		}
		for watch, err = w.open(ctx); err != nil; watch, err = w.open(ctx) {
			w.tell(ending(history.Told{Cut: err.Error()}, err))
			if !rest(ctx, 200*time.Millisecond) {
				return
			}
		}
	}
}

// read tells of messages until the watch ends.
func (w *Watcher) read(ctx context.Context, watch *client.Watch) error {
	for began := false; ; {
		m, err := watch.Next(ctx)
		if err != nil {
			return err
		}
		switch m.Kind {
		case client.MessageEvent:
			w.tell(history.Told{Event: m.Event})
		case client.MessageBookmark:
			w.tell(history.Told{Bookmark: m.Rev})
		case client.MessageSnapshotBegin:
			if began { // the one before was broken off
				w.tell(history.Told{Asked: &history.Asked{Mode: "snapshot", Patterns: w.opts.Patterns}})
			}
			began = true
			continue
		case client.MessageEntry:
			w.tell(history.Told{Record: recordOf(m.Entry)})
			continue
		case client.MessageSnapshotEnd:
			w.tell(history.Told{Seam: m.Rev})
		}
		select {
		case <-w.seen:
		default:
		}
		w.seen <- m.Rev
	}
}

func recordOf(e *boardpb.Entry) *history.Record {
	return &history.Record{Key: e.GetKey(), Version: e.GetVersion(), Rev: e.GetRev()}
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
	e.Log.Told(history.Told{Watcher: name, Board: e.Board, Asked: &history.Asked{Mode: "pages", From: 1, Patterns: []string{"**"}}})
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
