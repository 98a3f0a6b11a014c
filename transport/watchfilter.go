package transport

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	wirepb "raftboard/transport/pb"
)

// eventFilter is what a watcher asked for.
type eventFilter struct {
	matcher   *board.Matcher
	unmatched []string // patterns that meet no namespace: nothing can ever be written there
	kinds     map[boardpb.Kind]bool
	notes     bool // whether notes are among the kinds
	to        string
}

// newEventFilter checks what was asked for, before anything is subscribed to (TRIALS T-54).
func newEventFilter(b *state.Board, request *wirepb.WatchRequest) (eventFilter, *boardpb.Result) {
	f := eventFilter{to: request.To, notes: len(request.Kinds) == 0, kinds: map[boardpb.Kind]bool{}}
	var refused *boardpb.Result
	if f.matcher, f.unmatched, refused = board.NewMatcher(b, request.Patterns); refused != nil {
		return f, refused
	}
	for i, kind := range request.Kinds {
		if _, known := boardpb.Kind_name[int32(kind)]; !known || kind == boardpb.Kind_KIND_UNSPECIFIED {
			return f, badField(fmt.Sprintf("kinds/%d", i), fmt.Sprintf("%d is no kind of event", kind), "give kinds by their names")
		}
		f.kinds[kind] = true
		f.notes = f.notes || state.IsNote(kind)
	}
	return f, nil
}

func (f *eventFilter) match(e *boardpb.Event) bool {
	if len(f.kinds) > 0 && !f.kinds[e.Kind] || f.to != "" && f.to != e.To {
		return false
	}
	return f.matcher.Match(e.Key)
}

// snapshot sends every matching record of a board at one rev, in the order of keys (of an
// append key every item, in their order), and a mark. Without values it sends the records
// bare.
func (w *watch) snapshot(ctx context.Context, b *state.Board) *boardpb.Result {
	over := time.Now().Add(snapshotPinned)
	from, more := "", true
	for more {
		if time.Now().After(over) {
			return w.cut(boardpb.Code_CODE_SLOW_READER, fmt.Sprintf("the snapshot was not taken within %v", snapshotPinned))
		}
		var page []*boardpb.Entry
		page, from, more = w.records(b, from)
		for _, e := range page {
			m := &wirepb.WatchResponse{Message: &wirepb.WatchResponse_Entry{Entry: e}}
			if cut := w.put(ctx, m); cut != nil {
				return cut
			}
		}
	}
	return w.put(ctx, &wirepb.WatchResponse{Message: &wirepb.WatchResponse_SnapshotEnd{
		SnapshotEnd: &wirepb.SnapshotEnd{Rev: b.Rev()},
	}})
}

// records collects the records of the next keys at or behind from.
func (w *watch) records(b *state.Board, from string) (page []*boardpb.Entry, next string, more bool) {
	b.Keys(from, func(key string, k *state.Key) bool {
		if len(page) >= snapshotPerPage {
			next, more = key, true
			return false
		}
		if !w.filter.matcher.Match(key) {
			return true
		}
		for _, e := range liveVersions(b, key, k) {
			page = append(page, w.bare(e))
		}
		return true
	})
	return page, next, more
}

// liveVersions are the versions that make up the present value of a key: its items for an
// append key, else the newest, and none of a deleted key.
func liveVersions(b *state.Board, key string, k *state.Key) []*boardpb.Entry {
	newest := k.Newest()
	if newest.Deleted {
		return nil
	}
	if space := b.Schema().Find(key); space == nil || space.Mode != boardpb.Mode_MODE_APPEND {
		return []*boardpb.Entry{newest}
	}
	versions := k.Versions()
	for i := len(versions) - 1; i >= 0; i-- {
		if versions[i].Deleted { // items before a delete are history
			return versions[i+1:]
		}
	}
	return versions
}

// bare takes the value off unless values were asked for.
func (w *watch) bare(e *boardpb.Entry) *boardpb.Entry {
	if w.values {
		return e
	}
	c := proto.Clone(e).(*boardpb.Entry)
	c.Value = nil
	return c
}
