package transport

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	wirepb "raftboard/transport/pb"
)

const (
	receiptsEvery = time.Second // between two commands of this node for one board
	lastReceipts  = time.Second // for the receipts of a node that stops
)

// receipts gathers who was shown what others wrote, at the node that showed it (SPEC F-26):
// in memory, so that no read waits for it, and for a second, so that a thousand reads are one
// command. Of each board it holds a bounded number of different reads; how many did not fit,
// or were in a command whose outcome is not known, goes along with the next command. A node
// that is killed takes what it gathered within the last second with it, uncounted.
type receipts struct {
	mu      sync.Mutex
	pending map[boardID]*reads
	wake    chan struct{} // holds one when something is pending
}

type boardID struct{ name, incarnation string }

// reads are those of one board: rows in the order of each one's first read.
type reads struct {
	rows    []*boardpb.Receipt
	find    map[readKey]*boardpb.Receipt
	dropped uint64
}

type readKey struct{ principal, loop, ref, author string }

func newReceipts() *receipts {
	return &receipts{pending: map[boardID]*reads{}, wake: make(chan struct{}, 1)}
}

// shown is one version, or one earlier grant, that was sent to somebody.
type shown struct {
	ref     string // without a number
	version uint64
	author  string
}

// take notes what was sent to a reader. What it wrote itself is no read of another's.
func (r *receipts) take(on boardID, reader, loop string, all []shown) {
	if len(all) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.of(on)
	for _, one := range all {
		key := readKey{reader, loop, one.ref, one.author}
		row := p.find[key]
		switch {
		case row != nil:
			row.Count++
			row.HighestVersion, row.LowestVersion = max(row.HighestVersion, one.version), min(row.LowestVersion, one.version)
		case len(p.rows) == state.MaxReceipts:
			p.dropped++
		default:
			row = &boardpb.Receipt{Principal: reader, Loop: loop, Ref: one.ref, HighestVersion: one.version,
				LowestVersion: one.version, Count: 1, Author: one.author}
			p.rows, p.find[key] = append(p.rows, row), row
		}
	}
	r.ring()
}

func (r *receipts) of(on boardID) *reads {
	p := r.pending[on]
	if p == nil {
		p = &reads{find: map[readKey]*boardpb.Receipt{}}
		r.pending[on] = p
	}
	return p
}

func (r *receipts) ring() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// dropped is how many reads of a board this node lost the receipts of and has not yet said so.
func (r *receipts) dropped(on boardID) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pending[on]; p != nil {
		return p.dropped
	}
	return 0
}

// run proposes what was gathered until ctx ends, at most once a second.
func (r *receipts) run(ctx context.Context, propose func(context.Context, *boardpb.Command) *boardpb.Result) {
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		if !pause(ctx, receiptsEvery) {
			return
		}
		r.flush(ctx, propose)
	}
}

// flush proposes what was gathered, each board's once. What is not known to have been applied
// counts as dropped; a board that is gone, or closed, takes nothing any more.
func (r *receipts) flush(ctx context.Context, propose func(context.Context, *boardpb.Command) *boardpb.Result) {
	r.mu.Lock()
	all := r.pending
	r.pending = map[boardID]*reads{}
	r.mu.Unlock()
	boards := make([]boardID, 0, len(all))
	for on := range all {
		boards = append(boards, on)
	}
	slices.SortFunc(boards, func(a, b boardID) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.incarnation, b.incarnation))
	})
	for _, on := range boards {
		p := all[on]
		result := propose(ctx, &boardpb.Command{Board: on.name, Incarnation: on.incarnation, Actor: board.SystemActor(),
			Op: &boardpb.Command_Receipts{Receipts: &boardpb.Receipts{Receipts: p.rows, Dropped: p.dropped}}})
		switch {
		case result.Outcome == boardpb.Outcome_OUTCOME_OK:
		case result.Code == boardpb.Code_CODE_NOT_FOUND, result.Code == boardpb.Code_CODE_RESET,
			result.Code == boardpb.Code_CODE_STOPPING:
		default:
			r.lose(on, p)
		}
	}
}

// lose counts what was in a command, to be told with the next one.
func (r *receipts) lose(on boardID, p *reads) {
	n := p.dropped
	for _, row := range p.rows {
		n += row.Count
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(on).dropped += n
	r.ring()
}

// proposeReceipts carries receipts to whoever leads, as any command.
func (s *service) proposeReceipts(ctx context.Context, c *boardpb.Command) *boardpb.Result {
	r, _ := s.propose(ctx, c)
	return r
}

// wasRead is called for everything that shows somebody what others may have written. A closed
// board stays as it is.
func (s *service) wasRead(b *state.Board, actor *boardpb.Actor, loop string, all ...shown) {
	if len(all) == 0 || b == nil || b.Closed() {
		return
	}
	me := state.Principal(actor)
	others := all[:0]
	for _, one := range all {
		if one.author != me && one.author != "" && one.version > 0 {
			others = append(others, one)
		}
	}
	s.receipts.take(boardID{b.Name(), b.Incarnation()}, me, loop, others)
}

// readAnswer notes what the answer to a query shows.
func (s *service) readAnswer(b *state.Board, actor *boardpb.Actor, request *wirepb.ReadRequest, answer *wirepb.ReadResponse) {
	loop := request.Loop
	var all []shown
	switch a := answer.Answer.(type) {
	case *wirepb.ReadResponse_Content:
		all = showingContent(b, request.GetContent().GetKey(), a.Content)
	case *wirepb.ReadResponse_Get:
		all = showing(a.Get.Entry)
	case *wirepb.ReadResponse_History:
		all = showing(a.History.Entries...)
	case *wirepb.ReadResponse_Dump:
		all = showing(a.Dump.Entries...)
	case *wirepb.ReadResponse_Diff:
		for _, d := range a.Diff.Items {
			all = append(all, showing(d.Before, d.After)...)
		}
	case *wirepb.ReadResponse_View:
		for _, text := range a.View.Shown {
			if ref, why := state.ParseRef(text); why == "" {
				all = append(all, showing(b.EntryAt(ref.Key, ref.Number))...)
			}
		}
	}
	if b.Loop(loop).GetPrincipal() != state.Principal(actor) {
		loop = "" // the caller states it; whose it is, the board knows
	}
	s.wasRead(b, actor, loop, all...)
}

// readResult notes what the answer to a command shows: the value that is in the way of a
// write, the item that was claimed, and what earlier holders of it left behind.
func (s *service) readResult(c *boardpb.Command, r *boardpb.Result) {
	all := showingResult(r, nil)
	if n := s.node.Load(); len(all) > 0 && n != nil {
		s.wasRead(n.View().Board(c.Board), c.Actor, c.Loop, all...)
	}
}

func showingResult(r *boardpb.Result, all []shown) []shown {
	if _, phase := state.PhaseOf(r.Key); phase {
		return all // no ref names a phase
	}
	if len(r.Value) > 0 {
		all = append(all, shown{state.Ref{Kind: state.RefKey, Key: r.Key}.String(), r.Version, r.Author})
	}
	for _, p := range r.Previous {
		all = append(all, shown{state.Ref{Kind: state.RefLease, Key: r.Key}.String(), p.Generation, p.Owner})
	}
	for _, one := range r.Results {
		all = showingResult(one, all)
	}
	return all
}

// readMessage notes what a message of a watch shows, which is nothing without values.
func (s *service) readMessage(b *state.Board, actor *boardpb.Actor, m *wirepb.WatchResponse) {
	switch m := m.Message.(type) {
	case *wirepb.WatchResponse_Entry:
		s.wasRead(b, actor, "", showing(m.Entry)...)
	case *wirepb.WatchResponse_Events:
		var all []shown
		for _, e := range m.Events.Events {
			all = append(all, showing(e.Entry)...)
		}
		s.wasRead(b, actor, "", all...)
	}
}

// showingContent are the versions or items that a content shows a part of.
func showingContent(b *state.Board, text string, a *wirepb.ContentAnswer) (all []shown) {
	ref, why := state.ParseRef(text)
	if why != "" || a.LastVersion == 0 {
		return nil
	}
	for n := a.FirstVersion; n <= a.LastVersion; n++ {
		all = append(all, showing(b.EntryAt(ref.Key, n))...)
	}
	return all
}

// showing are versions that were sent with what they say.
func showing(entries ...*boardpb.Entry) (all []shown) {
	for _, e := range entries {
		if e != nil && !e.Deleted && len(e.Value) > 0 {
			all = append(all, shown{state.Ref{Kind: state.RefKey, Key: e.Key}.String(), e.Version, e.Author})
		}
	}
	return all
}
