package transport

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/jepsen/planted"
	"raftboard/node"
	wirepb "raftboard/transport/pb"
)

const (
	bookmarkEvery   = 30 * time.Second // on an idle stream; promised are 60 s
	slowAfter       = 10 * time.Second // a reader that takes nothing for so long is cut off
	watchBuffer     = 4                // messages between the feed and the stream
	watchEvents     = 1000             // events of one message, more only within one rev
	watchBytes      = 512 << 10        // of one message, more only within one rev
	snapshotPinned  = 5 * time.Minute  // how long a snapshot may hold its View
	aheadWait       = 5 * time.Second  // for a start above this node's head
	snapshotPerPage = 256
)

// watch is one watcher: a cursor over the feed of a board, which is replicated state, so
// it works on any node and needs nobody's leave. The feed is read at the watcher's own
// pace into a small buffer; a reader that takes nothing out of it for slowAfter is cut off
// and told the rev to resume from.
type watch struct {
	service *service
	node    *node.Node
	name    string // of the board
	query   *board.EventQuery
	values  bool

	incarnation string
	next        uint64 // the lowest rev not yet put into the buffer

	buffer chan *wirepb.WatchResponse
	cursor atomic.Uint64 // the lowest rev the stream has not taken
}

// serveWatch runs one watch until it is cancelled or cut off. send writes to the stream
// and is called from one goroutine. The Result it answers says why the watch ended; its rev
// is where to resume. Nil means the caller went away.
func (s *service) serveWatch(ctx context.Context, actor *boardpb.Actor, request *wirepb.WatchRequest,
	send func(*wirepb.WatchResponse) error) *boardpb.Result {
	if refused := s.notDraining(); refused != nil {
		return refused
	}
	if refused := s.watchers.enter(); refused != nil {
		return refused
	}
	defer s.watchers.leave()
	w, first, refused := s.openWatch(ctx, request)
	if refused != nil {
		return refused
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the sender, also when it waits for the stream
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		defer cancel()
		for {
			select {
			case m := <-w.buffer:
				planted.Point("feed-send")
				if m == nil || send(m) != nil {
					return
				}
				w.cursor.Store(resumeAfter(m, w.cursor.Load()))
				if request.IncludeValues {
					s.readMessage(w.node.View().Board(w.name), actor, m)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	cut := w.run(ctx, request, first)
	if cut == nil {
		return nil
	}
	if cut.Code != boardpb.Code_CODE_SLOW_READER && w.put(ctx, &wirepb.WatchResponse{
		Message: &wirepb.WatchResponse_Cut{Cut: cut},
	}) == nil {
		close(w.buffer) // its end: nothing is put behind the reason
		pauseFor(sent, slowAfter)
	}
	return cut
}

// openWatch checks a request and finds where it begins. The View is the one to begin with.
func (s *service) openWatch(ctx context.Context, request *wirepb.WatchRequest) (*watch, *state.View, *boardpb.Result) {
	n := s.node.Load()
	if n == nil {
		return nil, nil, s.noMember()
	}
	view := n.View()
	likely := view.Board(request.Board)
	if likely == nil {
		likely = view.Board(state.DefaultBoard) // the patterns are checked alike for every board
	}
	if _, refused := watchQuery(likely, request); refused != nil {
		return nil, nil, refused
	}
	var refused *boardpb.Result
	switch start := request.Start.(type) {
	case *wirepb.WatchRequest_FromRev:
		if b := view.Board(request.Board); b == nil || start.FromRev > b.Rev()+1 {
			view, refused = s.viewAhead(ctx, n, request.Board, start.FromRev)
		}
	case *wirepb.WatchRequest_Snapshot, *wirepb.WatchRequest_Now:
		view, refused = s.view(ctx, n, node.Consistency{Board: request.Board})
	default:
		return nil, nil, badField("start", "a watch needs a start: from_rev, snapshot or now", "give one of them")
	}
	if refused != nil {
		return nil, nil, refused
	}
	b, refused := boardOf(view, request.Board, request.Incarnation)
	if refused != nil {
		return nil, nil, refused
	}
	query, refused := watchQuery(b, request)
	if refused != nil {
		return nil, nil, refused
	}
	w := &watch{
		service: s, node: n, name: request.Board, query: query, values: request.IncludeValues,
		incarnation: b.Incarnation(), next: b.Rev() + 1, buffer: make(chan *wirepb.WatchResponse, watchBuffer),
	}
	if from, given := request.Start.(*wirepb.WatchRequest_FromRev); given {
		w.next = max(from.FromRev, 1)
		if planted.Bug("M16a") && w.next > 1 { // the bug: one late
			w.next++
		}
		if planted.Bug("M16b") && w.next > 1 { // the bug: one early
			w.next--
		}
		if refused := w.retained(b); refused != nil {
			return nil, nil, refused
		}
	}
	w.cursor.Store(w.next)
	return w, view, nil
}

// watchQuery checks what was asked for, before anything is subscribed to (TRIALS T-54).
func watchQuery(b *state.Board, request *wirepb.WatchRequest) (*board.EventQuery, *boardpb.Result) {
	if len(request.Patterns) == 0 {
		return nil, badField("patterns", "a watch names no patterns", `give at least one; "**" is everything`)
	}
	return board.NewEventQuery(b, board.EventFilter{Kinds: request.Kinds, Patterns: request.Patterns, To: request.To})
}

// viewAhead waits for a start above this node's head: a fence shows whether the cluster
// has that rev, and by then this node has it too.
func (s *service) viewAhead(ctx context.Context, n *node.Node, name string, from uint64) (*state.View, *boardpb.Result) {
	ctx, cancel := context.WithTimeout(ctx, aheadWait)
	defer cancel()
	view, refused := s.view(ctx, n, node.Consistency{Board: name})
	if refused != nil {
		r := refuse(boardpb.Code_CODE_READ_TIMEOUT,
			fmt.Sprintf("rev %d is not here yet, and the cluster could not be asked: %s", from, refused.Message),
			"watch at another node")
		r.RetryAfterMs = retryAfterMs
		return nil, r
	}
	if b := view.Board(name); b != nil && from > b.Rev()+1 {
		r := badField("from_rev", fmt.Sprintf("from_rev is %d, the board is at rev %d", from, b.Rev()),
			fmt.Sprintf("the highest start is %d, which waits for the next event", b.Rev()+1))
		r.Rev, r.Incarnation = b.Rev(), b.Incarnation()
		return nil, r
	}
	return view, nil
}

// run feeds the buffer until something ends the watch.
func (w *watch) run(ctx context.Context, request *wirepb.WatchRequest, view *state.View) *boardpb.Result {
	b := view.Board(w.name)
	opened := &wirepb.WatchOpened{Rev: w.next, Incarnation: w.incarnation, NodeId: w.service.self.Id,
		Unmatched: w.query.Unmatched()}
	if cut := w.put(ctx, &wirepb.WatchResponse{Message: &wirepb.WatchResponse_Opened{Opened: opened}}); cut != nil {
		return cut
	}
	if request.GetSnapshot() {
		if cut := w.snapshot(ctx, b); cut != nil {
			return cut
		}
	}
	b, view = nil, nil // a watcher that waits holds no old state
	idle, age := time.NewTimer(bookmarkEvery), time.NewTimer(streamAge)
	defer idle.Stop()
	defer age.Stop()
	for first := true; ; first = false {
		changed := w.node.Changed()
		if planted.Bug("M17") { // nothing wakes a watcher for what is only appended
			soon := make(chan struct{})
			time.AfterFunc(20*time.Millisecond, func() { close(soon) })
			changed = soon
		}
		progress, cut := w.catchUp(ctx)
		if cut != nil {
			return cut
		}
		if first {
			w.subscribe()
		}
		if progress {
			idle.Reset(bookmarkEvery)
		}
		select {
		case <-changed:
		case <-idle.C:
			if cut := w.put(ctx, bookmark(w.next-1)); cut != nil {
				return cut
			}
			idle.Reset(bookmarkEvery)
		case <-age.C:
			return w.cut(boardpb.Code_CODE_UNAVAILABLE, "the watch is old; open it anew, so that load spreads")
		case <-w.service.draining:
			return w.cut(boardpb.Code_CODE_UNAVAILABLE, "this node is stopping")
		case <-ctx.Done():
			return nil
		}
	}
}

// subscribe is where a watcher that is pushed to would be added to the list, when the history is
// told. Here a cursor goes on by itself, and there is nothing to do.
func (w *watch) subscribe() {
	planted.Point("feed-subscribe")
	if planted.Bug("M19") { // the bug: it goes on from where the board is by now
		w.next = max(w.next, w.node.View().Board(w.name).Rev()+1)
	}
}

// catchUp puts into the buffer all that this node has and the watcher does not. It says
// whether it put something.
func (w *watch) catchUp(ctx context.Context) (progress bool, cut *boardpb.Result) {
	for {
		b, cut := w.current()
		if cut != nil {
			return progress, cut
		}
		if b.Rev() < w.next {
			return progress, nil
		}
		page, next, compacted := w.page(b)
		if compacted != nil {
			return progress, compacted
		}
		w.next = next
		if len(page) == 0 {
			continue // nothing of it matched
		}
		m := &wirepb.WatchResponse{Message: &wirepb.WatchResponse_Events{Events: &wirepb.WatchEvents{Events: page}}}
		if cut := w.put(ctx, m); cut != nil {
			return progress, cut
		}
		progress = true
	}
}

// current answers the board as this node has it now, if it still is the one that is watched.
func (w *watch) current() (*state.Board, *boardpb.Result) {
	view := w.node.View()
	if planted.Bug("M17") { // the bug: what is appended is told
		if ahead, ok := planted.Noted(w.node).(*state.View); ok && ahead.Applied() > view.Applied() {
			view = ahead
		}
	}
	b := view.Board(w.name)
	if b == nil {
		return nil, w.cut(boardpb.Code_CODE_NOT_FOUND, fmt.Sprintf("board %q was deleted", w.name))
	}
	if w.incarnation == "" {
		w.incarnation = b.Incarnation() // the default board came to be with its first write
	}
	if b.Incarnation() != w.incarnation {
		r := resetTo(b)
		return nil, r
	}
	return b, nil
}

// page collects matching events from next on, whole revs only, and the rev to go on from.
func (w *watch) page(b *state.Board) (page []*wirepb.WatchEvent, next uint64, compacted *boardpb.Result) {
	next = b.Rev() + 1
	var bytes int
	var last uint64
	oldest := b.Events(w.next, 0, w.query.Notes(), func(e *boardpb.Event) bool {
		full := len(page) >= watchEvents || bytes >= watchBytes
		if full && e.Rev != last {
			next = e.Rev
			return false
		}
		if !w.query.Match(e) {
			return true
		}
		we := &wirepb.WatchEvent{Event: e}
		if w.values && hasValue(e) {
			we.Entry = b.EntryAt(e.Key, e.Version)
			we.ValueGone = we.Entry == nil
		}
		page, last = append(page, we), e.Rev
		bytes += proto.Size(we)
		return true
	})
	if w.next < oldest {
		if planted.Bug("M18") { // the bug: nobody hears of what is gone
			w.next = oldest
			return w.page(b)
		}
		return nil, 0, w.compacted(b, oldest)
	}
	return page, next, nil
}

// hasValue says whether an event stored a version that may be shown with it.
func hasValue(e *boardpb.Event) bool {
	switch e.Kind {
	case boardpb.Kind_KIND_SET, boardpb.Kind_KIND_APPEND, boardpb.Kind_KIND_POST:
		return e.Version != 0
	}
	return false
}

// retained refuses a start whose events are no longer all there.
func (w *watch) retained(b *state.Board) *boardpb.Result {
	if oldest := w.query.OldestRev(b); w.next < oldest {
		if planted.Bug("M18") {
			w.next = oldest
			return nil
		}
		return w.compacted(b, oldest)
	}
	return nil
}

func (w *watch) compacted(b *state.Board, oldest uint64) *boardpb.Result {
	r := refuse(boardpb.Code_CODE_COMPACTED,
		fmt.Sprintf("events of rev %d are no longer kept; the oldest rev that is complete is %d", w.next, oldest),
		"watch with a snapshot, which begins at the present state")
	r.OldestRev, r.Rev, r.Incarnation = oldest, w.next, b.Incarnation()
	return r
}

// put hands a message to the stream. A stream that takes nothing for slowAfter ends the
// watch, and so does one that is gone (with an empty Result, which nobody reads).
func (w *watch) put(ctx context.Context, m *wirepb.WatchResponse) *boardpb.Result {
	select {
	case w.buffer <- m:
		return nil
	default:
	}
	timer := time.NewTimer(slowAfter)
	defer timer.Stop()
	select {
	case w.buffer <- m:
		return nil
	case <-ctx.Done():
		return &boardpb.Result{}
	case <-timer.C:
		r := refuse(boardpb.Code_CODE_SLOW_READER,
			fmt.Sprintf("the reader took nothing for %v and its buffer is full", slowAfter),
			"resume from the rev named, and read faster")
		r.Rev = w.cursor.Load()
		return r
	}
}

// cut ends a watch with a reason and the rev to resume from.
func (w *watch) cut(code boardpb.Code, message string) *boardpb.Result {
	r := refuse(code, message, "watch again from the rev named, at any node")
	r.Rev, r.Incarnation = w.next, w.incarnation
	if code == boardpb.Code_CODE_UNAVAILABLE {
		r.Proposed, r.RetryAfterMs = boardpb.Proposed_PROPOSED_NO, retryAfterMs
	}
	return r
}

func bookmark(rev uint64) *wirepb.WatchResponse {
	return &wirepb.WatchResponse{Message: &wirepb.WatchResponse_Bookmark{Bookmark: &wirepb.Bookmark{Rev: rev}}}
}

// resumeAfter is where a reader resumes that took m as its last message.
func resumeAfter(m *wirepb.WatchResponse, before uint64) uint64 {
	switch m := m.Message.(type) {
	case *wirepb.WatchResponse_Events:
		return m.Events.Events[len(m.Events.Events)-1].Event.Rev + 1
	case *wirepb.WatchResponse_Bookmark:
		return m.Bookmark.Rev + 1
	}
	return before
}

// pauseFor waits for done, but not longer than most.
func pauseFor(done <-chan struct{}, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
