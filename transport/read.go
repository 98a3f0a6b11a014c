package transport

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/phase"
	"raftboard/fsm/state"
	"raftboard/jepsen/planted"
	"raftboard/node"
	wirepb "raftboard/transport/pb"
)

// read answers one query. The answer is a pure function of one View: a board at one rev,
// which the answer names. A refusal is in its failure.
func (s *service) read(ctx context.Context, actor *boardpb.Actor, request *wirepb.ReadRequest) *wirepb.ReadResponse {
	if refused := s.enter(); refused != nil {
		return s.failedRead(refused)
	}
	defer s.inFlight.leave()
	want, refused := checkRead(request)
	if refused != nil {
		return s.failedRead(refused)
	}
	n := s.node.Load()
	if n == nil {
		return s.failedRead(s.noMember())
	}
	view, refused := s.view(ctx, n, want)
	if refused != nil {
		return s.failedRead(refused)
	}
	view = s.awaitPhase(ctx, n, actor, request, view)
	answer := &wirepb.ReadResponse{NodeId: s.self.Id, Leader: s.leader(), TMs: view.T(), WallMs: view.Wall()}
	if request.GetBoards() != nil {
		answer.Answer = &wirepb.ReadResponse_Boards{Boards: boardsAnswer(view)}
		return s.fitRead(answer)
	}
	b, refused := boardOf(view, request.Board, request.Incarnation)
	if refused == nil {
		answer.Rev, answer.Incarnation = b.Rev(), b.Incarnation()
		answer.Ended = board.EndedFor(b, request.Loop, actor.Principal)
		b, refused = board.AsOf(b, request.AtRev)
	}
	if refused == nil {
		answer.Rev = b.Rev()
		if refused = query(b, actor, request, answer); b.Lack() > 0 {
			refused, answer.Answer = board.Reached(b), nil
		}
	}
	if refused != nil {
		answer.Failure = refused
	}
	if answer = s.fitRead(answer); answer.Failure == nil {
		s.readAnswer(b, actor, request, answer)
	}
	return answer
}

// checkRead looks at what a query says of itself, before anything is asked of the cluster.
func checkRead(request *wirepb.ReadRequest) (node.Consistency, *boardpb.Result) {
	want := node.Consistency{Board: request.GetBoard(), Rev: request.GetAtLeastRev()}
	switch request.GetConsistency() {
	case wirepb.Consistency_CONSISTENCY_UNSPECIFIED, wirepb.Consistency_CONSISTENCY_LINEARIZABLE:
		want.Kind = node.Linearizable
	case wirepb.Consistency_CONSISTENCY_AT_LEAST:
		want.Kind = node.AtLeast
	case wirepb.Consistency_CONSISTENCY_STALE:
		want.Kind = node.Stale
	default:
		return want, badField("consistency", fmt.Sprintf("consistency %d is not known", request.Consistency),
			"use linearizable, at_least or stale")
	}
	if want.Kind != node.AtLeast && want.Rev != 0 {
		return want, badField("at_least_rev", "at_least_rev is set, but the consistency is not at_least",
			"ask with consistency at_least, or leave at_least_rev out")
	}
	if request.GetQuery() == nil {
		return want, badField("query", "the request holds no query this server knows", "send one query")
	}
	if where := board.UnknownIn(request); where != "" {
		return want, badField(where, "the request has fields this server does not know: it is older than the caller",
			"upgrade the servers first")
	}
	if size := proto.Size(request); size > maxRequestBytes {
		r := refuse(boardpb.Code_CODE_TOO_LARGE,
			fmt.Sprintf("the query has %d bytes; at most %d are taken", size, maxRequestBytes), "send a smaller query")
		r.Got, r.Limit = uint64(size), maxRequestBytes
		return want, r
	}
	if len(request.CallId) > state.MaxOpaque {
		r := badField("call_id", fmt.Sprintf("call_id has %d bytes; at most %d fit", len(request.CallId), state.MaxOpaque), "shorten it")
		r.Got, r.Limit = uint64(len(request.CallId)), state.MaxOpaque
		return want, r
	}
	if refused := checkPhaseWait(request); refused != nil {
		return want, refused
	}
	cluster := request.GetBoards() != nil
	switch {
	case request.AtRev > 0 && !readsThePast(request):
		return want, badField("at_rev", "only get, history, list, dump, view and content can be read at an earlier rev", "leave at_rev out")
	case cluster && request.Board != "":
		return want, badField("board", "the list of boards belongs to no board", "leave board empty")
	case cluster && want.Kind == node.AtLeast:
		return want, badField("consistency", "the list of boards has no rev to wait for", "use linearizable or stale")
	case !cluster && request.Board == "":
		return want, badField("board", "the query names no board", `name one; "default" exists by itself`)
	}
	return want, nil
}

// readsThePast tells the queries that at_rev goes with.
func readsThePast(request *wirepb.ReadRequest) bool {
	switch request.Query.(type) {
	case *wirepb.ReadRequest_Get, *wirepb.ReadRequest_History, *wirepb.ReadRequest_List, *wirepb.ReadRequest_Dump,
		*wirepb.ReadRequest_View, *wirepb.ReadRequest_Content:
		return true
	}
	return false
}

// view gets a View that satisfies the consistency asked for. The node below tries again
// while there is time; it waits for a leader and a majority at most unavailableAfter.
func (s *service) view(ctx context.Context, n *node.Node, want node.Consistency) (*state.View, *boardpb.Result) {
	within := unavailableAfter
	if planted.Bug("M35") { // the bug: as long as it takes
		within = time.Hour
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	view, err := n.Read(ctx, want)
	if err != nil {
		r := resultOf(err)
		r.Proposed = boardpb.Proposed_PROPOSED_NO // a read leaves nothing behind
		return nil, r
	}
	return view, nil
}

// boardOf finds a board in a View, and refuses one that is not the caller's.
func boardOf(view *state.View, name, incarnation string) (*state.Board, *boardpb.Result) {
	b := view.Board(name)
	if b == nil {
		return nil, refuse(boardpb.Code_CODE_NOT_FOUND, fmt.Sprintf("board %q does not exist", clip(name, 64)),
			"raftboard board list shows those that do")
	}
	if incarnation != "" && b.Incarnation() != incarnation {
		return nil, resetTo(b)
	}
	return b, nil
}

func resetTo(b *state.Board) *boardpb.Result {
	r := refuse(boardpb.Code_CODE_RESET,
		fmt.Sprintf("board %q was created anew: revs, versions and generations of the old one mean nothing here", b.Name()),
		"begin again with a snapshot of the new incarnation")
	r.Incarnation, r.Rev = b.Incarnation(), b.Rev()
	return r
}

// query fills in the answer to one query of one board.
func query(b *state.Board, actor *boardpb.Actor, request *wirepb.ReadRequest, answer *wirepb.ReadResponse) *boardpb.Result {
	switch q := request.Query.(type) {
	case *wirepb.ReadRequest_Get:
		return get(b, q.Get, answer)
	case *wirepb.ReadRequest_History:
		return history(b, q.History, answer)
	case *wirepb.ReadRequest_List:
		return list(b, q.List, answer)
	case *wirepb.ReadRequest_Dump:
		return dump(b, q.Dump, answer)
	case *wirepb.ReadRequest_Leases:
		return leases(b, q.Leases, answer)
	case *wirepb.ReadRequest_Events:
		return events(b, q.Events, answer)
	case *wirepb.ReadRequest_Describe:
		answer.Answer = &wirepb.ReadResponse_Describe{Describe: &wirepb.DescribeAnswer{Head: b.Head(), Counts: b.Counts(), Digest: digestOf(b)}}
	case *wirepb.ReadRequest_Stats:
		answer.Answer = &wirepb.ReadResponse_Stats{Stats: stats(b)}
	case *wirepb.ReadRequest_Content:
		return content(b, q.Content, answer)
	case *wirepb.ReadRequest_Trace:
		return trace(b, q.Trace, answer)
	case *wirepb.ReadRequest_Phase:
		return readPhase(b, actor, q.Phase, answer)
	case *wirepb.ReadRequest_Conflicts:
		return phaseConflicts(b, actor, q.Conflicts, answer)
	case *wirepb.ReadRequest_Detect:
		return detect(b, actor, q.Detect, answer)
	case *wirepb.ReadRequest_Phases:
		listPhases(b, q.Phases, answer)
	case *wirepb.ReadRequest_Why:
		return why(b, q.Why, answer)
	case *wirepb.ReadRequest_WhoRead:
		return whoRead(b, q.WhoRead, answer)
	case *wirepb.ReadRequest_LoopStatus:
		return loopStatus(b, q.LoopStatus, answer)
	case *wirepb.ReadRequest_View:
		return viewFor(b, actor, q.View, answer)
	case *wirepb.ReadRequest_Diff:
		return diff(b, q.Diff, answer)
	default:
		return badField("query", "this server does not know the query", "upgrade the servers first")
	}
	return nil
}

// get answers with what there is also when the key has no value: its lease and its mode.
func get(b *state.Board, q *wirepb.GetQuery, answer *wirepb.ReadResponse) *boardpb.Result {
	entry, count, lease, mode, refused := board.Get(b, q.Key)
	answer.Answer = &wirepb.ReadResponse_Get{Get: &wirepb.GetAnswer{Entry: entry, Count: count, Lease: lease, Mode: mode, Mark: b.Mark(entry)}}
	return refused
}

func history(b *state.Board, q *wirepb.HistoryQuery, answer *wirepb.ReadResponse) *boardpb.Result {
	entries, more, oldest, refused := board.History(b, q.Key, q.Limit, q.BeforeVersion)
	answer.Answer = &wirepb.ReadResponse_History{History: &wirepb.HistoryAnswer{
		Entries: entries, HasMore: more, OldestVersion: oldest, Marks: board.Marks(b, entries...),
	}}
	return refused
}

func dump(b *state.Board, q *wirepb.DumpQuery, answer *wirepb.ReadResponse) *boardpb.Result {
	entries, leases, next, refused := board.Dump(b, q.Namespace, q.Limit, q.After)
	answer.Answer = &wirepb.ReadResponse_Dump{Dump: &wirepb.DumpAnswer{Entries: entries, Leases: leases, Next: next,
		Marks: board.Marks(b, entries...)}}
	return refused
}

func diff(b *state.Board, q *wirepb.DiffQuery, answer *wirepb.ReadResponse) *boardpb.Result {
	found, to, next, refused := board.Diff(b, board.DiffFilter{Pattern: q.Pattern, From: q.FromRev, To: q.ToRev, Limit: q.Limit, After: q.After})
	if refused != nil {
		return refused
	}
	out := make([]*wirepb.DiffItem, len(found))
	for i, d := range found {
		change := wirepb.Change_CHANGE_CHANGED
		switch {
		case d.Before == nil:
			change = wirepb.Change_CHANGE_CAME
		case d.After.Deleted:
			change = wirepb.Change_CHANGE_WENT
		}
		out[i] = &wirepb.DiffItem{Key: d.Key, Change: change, Before: d.Before, After: d.After,
			CountBefore: d.CountBefore, CountAfter: d.CountAfter}
	}
	answer.Rev = to
	answer.Answer = &wirepb.ReadResponse_Diff{Diff: &wirepb.DiffAnswer{Items: out, FromRev: q.FromRev, ToRev: to, Next: next}}
	return nil
}

func stats(b *state.Board) *wirepb.StatsAnswer {
	n := board.Stats(b)
	var spaces []*wirepb.SpaceStats
	for _, s := range n.Spaces {
		spaces = append(spaces, &wirepb.SpaceStats{Usage: s.Usage, Samples: s.Samples, P95Ms: s.P95Ms, LeaseMs: s.LeaseMs})
	}
	return &wirepb.StatsAnswer{Counters: n.Counters, Namespaces: n.Namespaces, Keys: n.Keys, LoopsActive: n.LoopsActive,
		LiveBytes: n.LiveBytes, OldestRev: n.OldestRev, PersistentConflicts: n.PersistentConflicts, Advice: n.Advice, Spaces: spaces,
		ReadPairs: n.ReadPairs}
}

func loopStatus(b *state.Board, q *wirepb.LoopQuery, answer *wirepb.ReadResponse) *boardpb.Result {
	loop, leases, next, refused := board.LoopByID(b, q.Loop, q.Limit, q.After)
	answer.Answer = &wirepb.ReadResponse_LoopStatus{LoopStatus: &wirepb.LoopAnswer{Loop: loop, Leases: leases, Next: next}}
	return refused
}

func trace(b *state.Board, q *wirepb.TraceQuery, answer *wirepb.ReadResponse) *boardpb.Result {
	entry, rows, next, truncated, refused := board.TraceOf(b, q.Ref, q.Limit, q.After)
	if refused != nil {
		return refused
	}
	out := &wirepb.TraceAnswer{Entry: entry, Mark: b.Mark(entry), Next: next, Truncated: truncated}
	for _, row := range rows {
		out.Rows = append(out.Rows, &wirepb.TraceRow{Ref: row.Ref, CitesIt: row.CitesIt, Distance: row.Distance,
			Entry: row.Entry, Invalidation: row.Invalidation})
	}
	_, readers, _, _ := board.WhoRead(b, state.EntryRef(entry))
	out.Readers = readerRows(readers)
	answer.Answer = &wirepb.ReadResponse_Trace{Trace: out}
	return nil
}

func why(b *state.Board, q *wirepb.WhyQuery, answer *wirepb.ReadResponse) *boardpb.Result {
	explain := board.Why
	what, isPhase := state.PhaseOf(q.Key)
	if isPhase {
		explain = phase.Why
	} else {
		what = q.Key
	}
	rows, refused := explain(b, what)
	if refused != nil {
		return board.Explain(refused)
	}
	out := &wirepb.WhyAnswer{}
	for _, r := range rows {
		out.Rows = append(out.Rows, &wirepb.WhyRow{What: r.What, Who: r.Who, About: r.About, SinceWallMs: r.Since, EndsInMs: r.EndsIn, Command: r.Command})
	}
	answer.Answer = &wirepb.ReadResponse_Why{Why: out}
	return nil
}

func whoRead(b *state.Board, q *wirepb.WhoReadQuery, answer *wirepb.ReadResponse) *boardpb.Result {
	ref, readers, forgotten, refused := board.WhoRead(b, q.Ref)
	answer.Answer = &wirepb.ReadResponse_WhoRead{WhoRead: &wirepb.WhoReadAnswer{Ref: ref, Readers: readerRows(readers),
		Forgotten: forgotten, Dropped: b.Head().GetCounters().GetReadsDropped()}}
	return refused
}

func readerRows(rows []board.ReaderRow) (out []*wirepb.ReaderRow) {
	for _, row := range rows {
		out = append(out, &wirepb.ReaderRow{Reader: row.Reader, Perhaps: row.Perhaps})
	}
	return out
}

func leases(b *state.Board, q *wirepb.LeasesQuery, answer *wirepb.ReadResponse) *boardpb.Result {
	rows, next, refused := board.Leases(b, board.LeaseFilter{
		Pattern: q.Pattern, Holder: q.Holder, Reclaimable: q.Reclaimable, States: q.States,
		ExpiringWithinMs: q.ExpiringWithinMs, Limit: q.Limit, After: q.After,
	})
	if refused != nil {
		return refused
	}
	out := make([]*wirepb.LeaseRow, len(rows))
	for i, row := range rows {
		out[i] = &wirepb.LeaseRow{Lease: row.Lease, ExpiresInMs: row.ExpiresIn, ExpiresTMs: row.ExpiresT,
			MissedKeepalives: row.Missed}
		if row.ExpiresT != 0 { // an estimate: only board time decides
			out[i].ExpiresWallMs = b.Wall() + row.ExpiresIn
		}
	}
	answer.Answer = &wirepb.ReadResponse_Leases{Leases: &wirepb.LeasesAnswer{Leases: out, Next: next}}
	return nil
}

func events(b *state.Board, q *wirepb.EventsQuery, answer *wirepb.ReadResponse) *boardpb.Result {
	filter := board.EventFilter{Kinds: q.Kinds, Patterns: q.Patterns, ExcludeAuthor: q.ExcludeAuthor, To: q.To, Limit: q.Limit}
	query, refused := board.NewEventQuery(b, filter)
	if refused != nil {
		return refused
	}
	found, more, last, refused := board.Since(b, board.Cursor{Rev: q.AfterRev, Sub: q.AfterSub, Whole: q.AfterWholeRev}, filter)
	if refused != nil {
		return refused
	}
	answer.Answer = &wirepb.ReadResponse_Events{Events: &wirepb.EventsAnswer{
		Events: found, HasMore: more, LastRev: last, OldestRev: query.OldestRev(b),
	}}
	return nil
}

func boardsAnswer(view *state.View) *wirepb.BoardsAnswer {
	return &wirepb.BoardsAnswer{Boards: boardRows(view), Cluster: view.Cluster()}
}

// boardRows lists the boards; "default" is always among them.
func boardRows(view *state.View) []*wirepb.BoardRow {
	names := view.BoardNames()
	if b := view.Board(state.DefaultBoard); b != nil && b.Implicit() {
		names = append([]string{state.DefaultBoard}, names...)
	}
	var rows []*wirepb.BoardRow
	for _, name := range names {
		b := view.Board(name)
		head := b.Head()
		rows = append(rows, &wirepb.BoardRow{Name: name, Rev: b.Rev(), Incarnation: b.Incarnation(), Keys: head.Keys, ClosedRev: head.ClosedRev,
			LiveBytes: head.LiveBytes, Implicit: b.Implicit()})
	}
	return rows
}
