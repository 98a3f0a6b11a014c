package workload

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
	wirepb "raftboard/transport/pb"
)

const (
	streamSilence = 40 * time.Second // a server says something at least every 30 s
	streamOpening = 7 * time.Second  // a start above a node's head is waited for up to 5 s
	reachWithin   = time.Minute      // of the last rev, once the load is over
)

// stream is a watcher below the client library. It reads the stream of one node, records every
// message as it came, and decides by itself where it goes on, and from which rev.
type stream struct {
	env      Env
	name     string
	dice     *rand.Rand
	patterns []string
	values   bool
	home     int            // the node it belongs to; -1: any
	known    *atomic.Uint64 // the highest rev that was acknowledged to anybody

	next uint64 // the lowest rev that it has not been told of; 0: it has not begun
}

func (s *stream) tell(t history.Told) {
	t.Watcher, t.Board = s.name, s.env.Board
	s.env.Log.Told(t)
}

// node is the one to ask: the home, as long as it is a member, or one by the dice.
func (s *stream) node() int {
	if s.home >= 0 && s.env.Cluster.Nodes()[s.home] != "" {
		return s.home
	}
	return someNode(s.env, s.dice)
}

// from asks for everything that was not told yet.
func (s *stream) from() history.Asked { return history.Asked{Mode: "from", From: s.next} }

// listen opens a stream at a node and records it until it ends, ctx does, or everything up to
// a rev was told (0: no such rev). It answers the refusal that ended it, if it was one. pause is
// called after each message; nil never waits.
func (s *stream) listen(ctx context.Context, node int, asked history.Asked, until uint64, pause func(context.Context)) *boardpb.Result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(streamOpening, cancel)
	defer silence.Stop()
	asked.Node, asked.Patterns, asked.Known = s.env.Cluster.Nodes()[node], s.patterns, s.known.Load()
	s.tell(history.Told{Asked: &asked})
	in, err := s.env.Cluster.Ask(s.name, node).Watch(as(ctx, s.name), s.request(asked))
	for batch := 1; err == nil; batch++ {
		var m *wirepb.WatchResponse
		if m, err = in.Recv(); err != nil {
			break
		}
		silence.Stop() // while it is looked at
		if cut := m.GetCut(); cut != nil {
			s.tell(refusedBy(cut, "a last message"))
			return cut
		}
		s.take(m, batch)
		if until > 0 && s.next > until {
			return nil
		}
		if pause != nil {
			pause(ctx)
		}
		silence.Reset(streamSilence)
	}
	if refused := refusalOf(err); refused != nil {
		s.tell(refusedBy(refused, "a status"))
		return refused
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the stream ended without a reason")
	}
	s.tell(history.Told{Cut: err.Error()})
	return nil
}

func refusedBy(r *boardpb.Result, how string) history.Told {
	return history.Told{Cut: how + ": " + r.Message, Code: history.Answer(r), Resume: r.Rev, Oldest: r.OldestRev}
}

func (s *stream) request(asked history.Asked) *wirepb.WatchRequest {
	r := &wirepb.WatchRequest{Board: s.env.Board, Patterns: s.patterns, IncludeValues: s.values}
	switch asked.Mode {
	case "now":
		r.Start = &wirepb.WatchRequest_Now{Now: true}
	case "snapshot":
		r.Start = &wirepb.WatchRequest_Snapshot{Snapshot: true}
	default:
		r.Start = &wirepb.WatchRequest_FromRev{FromRev: asked.From}
	}
	return r
}

// take records one message and moves on.
func (s *stream) take(resp *wirepb.WatchResponse, batch int) {
	switch m := resp.Message.(type) {
	case *wirepb.WatchResponse_Opened:
		s.tell(history.Told{Opened: m.Opened.Rev})
		s.next = max(s.next, m.Opened.Rev)
	case *wirepb.WatchResponse_Entry:
		s.tell(history.Told{Record: recordOf(m.Entry)})
	case *wirepb.WatchResponse_SnapshotEnd:
		s.tell(history.Told{Seam: m.SnapshotEnd.Rev})
		s.next = m.SnapshotEnd.Rev + 1
	case *wirepb.WatchResponse_Events:
		for _, e := range m.Events.Events {
			s.tell(history.Told{Event: e.Event, Batch: batch})
			s.next = max(s.next, e.Event.Rev+1)
		}
	case *wirepb.WatchResponse_Bookmark:
		s.tell(history.Told{Bookmark: m.Bookmark.Rev})
		s.next = max(s.next, m.Bookmark.Rev+1)
	}
}

// goOn decides from where: from the oldest rev there is when the rest was compacted away, from
// where a slow reader was told to, else behind what was told.
func (s *stream) goOn(cut *boardpb.Result) {
	switch cut.GetCode() {
	case boardpb.Code_CODE_COMPACTED:
		s.next = max(s.next, cut.OldestRev)
	case boardpb.Code_CODE_SLOW_READER:
		if cut.Rev > 0 {
			s.next = cut.Rev
		}
	}
}

// follow listens for as long as ctx lasts, again and again. It stays with one node for as long
// as stays says (0: until the stream ends).
func (s *stream) follow(ctx context.Context, first history.Asked, stays func() time.Duration, pause func(context.Context)) {
	for asked := first; ctx.Err() == nil; asked = s.from() {
		if s.next == 0 {
			asked = first // it was refused before it began
		}
		once, cancel := ctx, context.CancelFunc(func() {})
		if d := stays(); d > 0 {
			once, cancel = context.WithTimeout(ctx, d)
		}
		s.goOn(s.listen(once, s.node(), asked, 0, pause))
		cancel()
		rest(ctx, time.Duration(1+s.dice.Int64N(int64(200*time.Millisecond))))
	}
}

// finish listens until everything up to a rev was told, and records that by then it was to be.
func (s *stream) finish(ctx context.Context, goal uint64) {
	within, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	for within.Err() == nil && s.next <= goal {
		s.goOn(s.listen(within, s.node(), s.from(), goal, nil))
		if s.next <= goal {
			rest(within, 200*time.Millisecond)
		}
	}
	if ctx.Err() == nil {
		s.tell(history.Told{Goal: goal})
	}
}
