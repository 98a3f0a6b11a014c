package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/planted"
	wirepb "raftboard/transport/pb"
)

// watchBuffer bounds the messages a watch holds for a consumer that is busy. When it is
// full the client stops reading; a server that is held up too long cuts the stream off,
// and the watch goes on from its cursor once there is room.
const watchBuffer = 256

// watchSilence is how long a watch may hear nothing at all before it counts as dead and
// goes elsewhere. Servers send a bookmark at least every 60 s. A path that swallows
// packets is noticed sooner, by pings (pingEvery + pingTimeout).
const watchSilence = 75 * time.Second

// watchOpening is how long a node may take to confirm a watch before another is asked.
const watchOpening = 3 * time.Second

// WatchOptions say what to watch and from where. Without FromRev and Snapshot it starts
// with what happens after Watch returned.
type WatchOptions struct {
	Patterns      []string // at least one; "**" is everything
	FromRev       uint64   // every matching event of this revision and above
	Snapshot      bool     // every matching record at one revision, then the events above it
	IncludeValues bool     // events carry the entry they speak of
	Kinds         []boardpb.Kind
	To            string
	OnState       func(State) // connected and reconnecting, of this watch
}

// MessageKind is what a Message is.
type MessageKind int

// The kinds of Message.
const (
	MessageEvent         MessageKind = iota + 1 // Event, and Entry if values are included
	MessageSnapshotBegin                        // a snapshot follows; a second one replaces the first, broken off
	MessageEntry                                // Entry, of the snapshot
	MessageSnapshotEnd                          // the snapshot is whole, and shows Rev
	MessageBookmark                             // nothing that matches is missing up to Rev
)

// Message is one thing a watch tells. Rev is always safe to store: a watch FromRev
// Rev+1 continues behind it, except within a snapshot and between events of one revision
// (Event.Sub).
type Message struct {
	Kind      MessageKind
	Rev       uint64
	Event     *boardpb.Event
	Entry     *boardpb.Entry
	ValueGone bool // the value was trimmed before it could be sent
}

// Watch is a stream of a board's changes: in order, without gap or repetition, across
// nodes and failovers. One goroutine reads it; it ends with Close, with the context given
// to Board.Watch, or with the Client.
type Watch struct {
	b      *Board
	opts   WatchOptions
	ctx    context.Context
	cancel context.CancelFunc
	out    chan Message
	opened chan struct{} // closed at the first success, or the end

	mu        sync.Mutex
	err       error // why it ended
	unmatched []string
	confirmed bool // a node opened it at least once

	// of the goroutine alone
	next     uint64 // the lowest revision still wanted; 0: not known yet
	whole    bool   // the snapshot, if any, was delivered
	lastRev  uint64 // of the last event delivered
	lastSub  uint32
	firstOne sync.Once
}

// Watch opens a watch and returns once a node has confirmed it. A refusal (bad pattern,
// ErrCompacted, ErrReset) is returned at once; while no node can be reached it tries on
// as long as a call does. Later failures heal by themselves: the watch goes on at another
// node, behind what it delivered. It ends with ErrCompacted if what it still needed is
// gone, with ErrReset if the board is not the same any more.
func (b *Board) Watch(ctx context.Context, opts WatchOptions) (*Watch, error) {
	w := &Watch{b: b, opts: opts, out: make(chan Message, watchBuffer), opened: make(chan struct{}), next: opts.FromRev, whole: !opts.Snapshot}
	w.ctx, w.cancel = context.WithCancel(b.c.outgoing(ctx))
	stop := context.AfterFunc(b.c.ctx, w.cancel)
	if !b.c.start(func() { defer stop(); w.run() }) {
		w.cancel()
		return nil, ErrClosed
	}
	wait := time.NewTimer(b.c.cfg.Timeout)
	defer wait.Stop()
	select {
	case <-w.opened:
	case <-ctx.Done():
		w.Close()
		return nil, unanswered(boardpb.Proposed_PROPOSED_NO, ctx.Err(), "no node opened the watch: %s", b.c.routes.causes())
	case <-wait.C:
		w.Close()
		return nil, unanswered(boardpb.Proposed_PROPOSED_NO, context.DeadlineExceeded, "no node opened the watch: %s", b.c.routes.causes())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.confirmed {
		return nil, w.err
	}
	return w, nil
}

// Unmatched lists the patterns that no namespace of the board can ever match.
func (w *Watch) Unmatched() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unmatched
}

// Next gives the next message, waiting for it until ctx ends. After the end of the watch
// it gives what was still delivered and then the reason, for ever.
func (w *Watch) Next(ctx context.Context) (Message, error) {
	select {
	case m, ok := <-w.out:
		if ok {
			return m, nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return Message{}, w.err
	case <-ctx.Done():
		return Message{}, ctx.Err()
	}
}

// Close ends the watch; the server's side goes with it.
func (w *Watch) Close() { w.cancel() }

// run keeps a stream open until the watch ends.
func (w *Watch) run() {
	defer w.cancel()
	defer close(w.out)
	for failures := 0; ; {
		ep, err := w.b.c.connected(w.ctx, anywhere)
		if err == nil {
			err = w.stream(ep, &failures)
			ep.exit()
		}
		if w.ctx.Err() != nil {
			w.end(w.gone())
			return
		}
		if final(err) {
			w.end(err)
			return
		}
		if ep != nil {
			w.state(StateReconnecting, ep.addr, err)
		}
		if w.b.c.rest(w.ctx, backoff(failures, 50*time.Millisecond, time.Second)) != nil {
			w.end(w.gone())
			return
		}
		failures++
	}
}

// gone is why a watch that was not refused is over.
func (w *Watch) gone() error {
	if w.b.c.ctx.Err() != nil {
		return ErrClosed
	}
	return context.Cause(w.ctx)
}

func (w *Watch) end(err error) {
	w.mu.Lock()
	w.err = err
	w.mu.Unlock()
	w.firstOne.Do(func() { close(w.opened) })
}

func (w *Watch) state(kind StateKind, endpoint string, err error) {
	if w.opts.OnState != nil {
		w.opts.OnState(State{Kind: kind, Endpoint: endpoint, Err: err})
	}
}

// final says whether an end of the stream ends the watch. What remains (a node that
// drains, lags, is gone or cuts a slow reader off) is healed by going on elsewhere.
func final(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return errors.Is(err, ErrClosed)
	}
	switch e.Result.Code {
	case boardpb.Code_CODE_UNAVAILABLE, boardpb.Code_CODE_READ_TIMEOUT, boardpb.Code_CODE_SLOW_READER,
		boardpb.Code_CODE_LIMIT_REQUESTS, boardpb.Code_CODE_INTERNAL:
		return false
	}
	return true
}

// stream opens one stream at ep and delivers what it says until it breaks.
func (w *Watch) stream(ep *endpoint, failures *int) error {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	patience := watchOpening
	silence := time.AfterFunc(patience, cancel)
	defer silence.Stop()
	stream, err := ep.board.Watch(ctx, w.request())
	for err == nil {
		silence.Reset(patience)
		var resp *wirepb.WatchResponse
		resp, err = stream.Recv()
		silence.Stop() // a busy consumer is not silence
		if err != nil {
			break
		}
		w.b.c.routes.heard(ep)
		if resp.GetOpened() != nil {
			*failures, patience = 0, watchSilence
			w.b.c.routes.answered(ep, resp.GetOpened().NodeId, nil)
			w.state(StateConnected, ep.addr, nil)
		}
		if err := w.deliver(resp); err != nil {
			if !final(err) && !errors.Is(err, ErrSlowReader) {
				w.b.c.routes.failed(ep, failedSoon, err, nil)
			}
			return err
		}
	}
	switch {
	case w.ctx.Err() == nil && ctx.Err() != nil:
		err = errSilentWatch
		w.b.c.routes.failed(ep, failedSilent, err, nil)
	case errors.Is(err, io.EOF):
		err = errors.New("the node ended the stream without a reason")
		w.b.c.routes.failed(ep, failedSoon, err, nil)
	default:
		e := fromStatus(err)
		err = e
		if !final(e) {
			w.b.c.routes.failed(ep, failedSoon, errors.New(e.Result.Message), nil)
		}
	}
	return err
}

var errSilentWatch = errors.New("nothing was heard, not even a bookmark")

// request continues behind what was delivered. A snapshot that was not delivered whole,
// and a start that was never confirmed, begin anew.
func (w *Watch) request() *wirepb.WatchRequest {
	req := &wirepb.WatchRequest{
		Board: w.b.name, Patterns: w.opts.Patterns, IncludeValues: w.opts.IncludeValues, Kinds: w.opts.Kinds,
		To: w.opts.To, Incarnation: w.b.Incarnation(),
	}
	switch {
	case !w.whole:
		req.Start = &wirepb.WatchRequest_Snapshot{Snapshot: true}
	case w.next == 0:
		req.Start = &wirepb.WatchRequest_Now{Now: true}
	default:
		req.Start = &wirepb.WatchRequest_FromRev{FromRev: w.next}
	}
	return req
}

// deliver hands one message of the stream to the consumer and moves the cursor.
func (w *Watch) deliver(resp *wirepb.WatchResponse) error {
	switch m := resp.Message.(type) {
	case *wirepb.WatchResponse_Opened:
		return w.began(m.Opened)
	case *wirepb.WatchResponse_Entry:
		return w.put(Message{Kind: MessageEntry, Rev: m.Entry.Rev, Entry: m.Entry})
	case *wirepb.WatchResponse_SnapshotEnd:
		w.whole, w.next = true, m.SnapshotEnd.Rev+1
		w.b.learned("", m.SnapshotEnd.Rev)
		return w.put(Message{Kind: MessageSnapshotEnd, Rev: m.SnapshotEnd.Rev})
	case *wirepb.WatchResponse_Events:
		return w.events(m.Events.Events)
	case *wirepb.WatchResponse_Bookmark:
		w.next = max(w.next, m.Bookmark.Rev+1)
		w.b.learned("", m.Bookmark.Rev)
		return w.put(Message{Kind: MessageBookmark, Rev: m.Bookmark.Rev})
	case *wirepb.WatchResponse_Cut:
		if m.Cut.Code == boardpb.Code_CODE_RESET {
			w.b.wasReset()
		}
		return &Error{Result: m.Cut}
	}
	return nil // a message of a newer server: additive, so without meaning for what we asked
}

func (w *Watch) began(m *wirepb.WatchOpened) error {
	w.b.learned(m.Incarnation, 0)
	if w.next == 0 && w.whole {
		w.next = m.Rev // the lowest revision that this stream will tell of
	}
	w.mu.Lock()
	w.unmatched, w.confirmed = m.Unmatched, true
	w.mu.Unlock()
	w.firstOne.Do(func() { close(w.opened) })
	if !w.whole {
		return w.put(Message{Kind: MessageSnapshotBegin, Rev: m.Rev - 1})
	}
	return nil
}

// events delivers whole revisions; one seen before is dropped.
func (w *Watch) events(list []*wirepb.WatchEvent) error {
	for _, e := range list {
		ev := e.Event
		seen := ev.Rev < w.lastRev || (ev.Rev == w.lastRev && ev.Sub <= w.lastSub) || ev.Rev < w.next
		if seen && !planted.Bug("M16b") {
			continue
		}
		w.lastRev, w.lastSub = ev.Rev, ev.Sub
		if err := w.put(Message{Kind: MessageEvent, Rev: ev.Rev, Event: ev, Entry: e.Entry, ValueGone: e.ValueGone}); err != nil {
			return err
		}
	}
	w.next = max(w.next, w.lastRev+1)
	w.b.learned("", w.lastRev)
	return nil
}

// put waits for room; the consumer's pace is the stream's pace.
func (w *Watch) put(m Message) error {
	select {
	case w.out <- m:
		return nil
	case <-w.ctx.Done():
		return w.gone()
	}
}

// connected picks an endpoint and waits until its connection stands, going on to others
// until ctx ends. The caller uses it and then calls exit.
func (c *Client) connected(ctx context.Context, want place) (*endpoint, error) {
	for n := 0; ; n++ {
		if err := c.mayTry(ctx); err != nil {
			return nil, unanswered(boardpb.Proposed_PROPOSED_NO, err, "no node could be reached: %s", c.routes.causes())
		}
		ep, healthy := c.routes.pick(want)
		if !healthy {
			if err := c.rest(ctx, backoff(n, 50*time.Millisecond, time.Second)); err != nil {
				continue
			}
		}
		if ep.enter() != nil {
			continue // another was picked meanwhile
		}
		err := ep.connect(ctx)
		if err == nil {
			return ep, nil
		}
		ep.exit()
		kind := failedSoon
		if errors.Is(err, errConnect) {
			kind = failedSilent
		}
		if ctx.Err() == nil {
			c.routes.failed(ep, kind, err, nil)
		}
	}
}
