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
		if !w.query.MatchKey(key) {
			return true
		}
		for _, e := range board.Current(b, key, k) {
			page = append(page, w.bare(e))
		}
		return true
	})
	return page, next, more
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
