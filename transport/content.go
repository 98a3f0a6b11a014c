package transport

import (
	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/fsm/view"
	wirepb "raftboard/transport/pb"
)

// marksMost bounds the marks that come with a content.
const marksMost = 64

func list(b *state.Board, q *wirepb.ListQuery, answer *wirepb.ReadResponse) *boardpb.Result {
	if q.Prefix != nil && q.Pattern != "" {
		return badField("prefix", "prefix and pattern exclude each other", "leave out one of them")
	}
	find, what := board.List, q.Pattern
	if q.Prefix != nil {
		find, what = board.ListUnder, q.GetPrefix()
	}
	items, next, refused := find(b, what, q.Limit, q.After)
	if refused != nil {
		return refused
	}
	out := &wirepb.ListAnswer{Next: next, Items: make([]*wirepb.ListItem, len(items))}
	shown := make([]view.Listed, len(items))
	for i, item := range items {
		e := item.Entry
		shown[i] = view.Listed{Entry: e, Count: item.Count}
		out.Items[i] = &wirepb.ListItem{Key: e.Key, Version: e.Version, Author: e.Author, TMs: e.TMs, WallMs: e.WallMs,
			Bytes: uint64(len(e.Value)), Rev: e.Rev, Count: item.Count, Summary: e.Summary}
		if m := b.Mark(e); m != nil {
			out.Items[i].Invalidated, out.Items[i].RestsOnInvalidated = m.Invalidation != nil, len(m.RestsOn) > 0 || m.More
		}
	}
	if q.Text {
		if out.Text, refused = view.Listing(b, shown, next, q.Nonce); refused != nil {
			return board.Explain(refused)
		}
	}
	answer.Answer = &wirepb.ReadResponse_List{List: out}
	return nil
}

func content(b *state.Board, q *wirepb.ContentQuery, answer *wirepb.ReadResponse) *boardpb.Result {
	c, refused := board.ContentOf(b, board.ContentQuery{Ref: q.Key, FromLine: q.FromLine, ToLine: q.ToLine,
		FromByte: q.FromByte, ToByte: q.ToByte, LimitBytes: q.LimitBytes})
	if refused != nil {
		return board.Explain(refused)
	}
	out := &wirepb.ContentAnswer{Content: c.Text, From: c.From, To: c.To, Bytes: c.Bytes, Lines: c.Lines,
		Truncated: c.To < c.Wanted, Count: uint64(len(c.Entries))}
	if len(c.Entries) > 0 {
		e := c.Entries[len(c.Entries)-1]
		out.Exists, out.Version, out.Author, out.ActingFor = true, e.Version, e.Author, e.ActingFor
		out.TMs, out.WallMs, out.Summary = e.TMs, e.WallMs, e.Summary
		if n := len(c.Shown); n > 0 {
			out.FirstVersion, out.LastVersion = c.Shown[0].Version, c.Shown[n-1].Version
		}
		marks := board.Marks(b, c.Entries...)
		out.Marks = marks[:min(len(marks), marksMost)]
	}
	part := view.Part{Key: q.Key, Text: c.Text, Entries: c.Entries, From: c.From, To: c.To, Bytes: c.Bytes, Lines: c.Lines,
		Cut: out.Truncated}
	if out.Text, refused = view.Content(b, part, q.Nonce); refused != nil {
		return board.Explain(refused)
	}
	answer.Answer = &wirepb.ReadResponse_Content{Content: out}
	return nil
}
