package client

import (
	"context"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// Get reads the newest version of a key; of an append key its newest item and the
// number of items; of a leased key also its lease. A key that does not exist, or not any
// more, is ErrNotFound; the Result in the Error then carries the last version.
func (b *Board) Get(ctx context.Context, key string, opts ReadOptions) (*wirepb.GetAnswer, Read, error) {
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_Get{Get: &wirepb.GetQuery{Key: key}}})
	return resp.GetGet(), at, err
}

// History reads versions of a key, newest first; limit 0 is 50, at most 500.
// beforeVersion 0 starts at the newest.
func (b *Board) History(ctx context.Context, key string, limit uint32, beforeVersion uint64, opts ReadOptions) (*wirepb.HistoryAnswer, Read, error) {
	q := &wirepb.HistoryQuery{Key: key, Limit: limit, BeforeVersion: beforeVersion}
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_History{History: q}})
	return resp.GetHistory(), at, err
}

// List reads the keys that match a pattern, sorted, without values; limit 0 is 200, at
// most 1,000. The answer's Next, given as after, continues.
func (b *Board) List(ctx context.Context, pattern string, limit uint32, after string, opts ReadOptions) (*wirepb.ListAnswer, Read, error) {
	return b.list(ctx, &wirepb.ListQuery{Pattern: pattern, Limit: limit, After: after}, opts)
}

func (b *Board) list(ctx context.Context, q *wirepb.ListQuery, opts ReadOptions) (*wirepb.ListAnswer, Read, error) {
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_List{List: q}})
	return resp.GetList(), at, err
}

// Content reads what a key says, as text: a JSON string as its text, another value as its JSON,
// items of an append key with a line break between them. The query's key may name a version, and
// a range of lines or bytes; at most 16 KiB come at once unless it says otherwise, at most 256
// KiB, and Truncated says that there is more. A key without a value is no error: Exists is false
// and Version 0. Text is the same for an agent, between fence tags: what others wrote belongs
// into a user's or a tool's message, never into a system prompt.
func (b *Board) Content(ctx context.Context, q *wirepb.ContentQuery, opts ReadOptions) (*wirepb.ContentAnswer, Read, error) {
	if q == nil {
		q = &wirepb.ContentQuery{}
	}
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_Content{Content: q}})
	return resp.GetContent(), at, err
}

// Dump reads current entries with their values and leases, page by page as List does;
// namespace "" is the whole board.
func (b *Board) Dump(ctx context.Context, namespace string, limit uint32, after string, opts ReadOptions) (*wirepb.DumpAnswer, Read, error) {
	q := &wirepb.DumpQuery{Namespace: namespace, Limit: limit, After: after}
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_Dump{Dump: q}})
	return resp.GetDump(), at, err
}

// View reads what others wrote that matches the query's patterns, as text within a budget
// of tokens, between fence tags. The text is what other agents say: it belongs into a
// user's or a tool's message, never into a system prompt. Empty means nothing to show.
func (b *Board) View(ctx context.Context, q *wirepb.ViewQuery, opts ReadOptions) (*wirepb.ViewAnswer, Read, error) {
	if q == nil {
		q = &wirepb.ViewQuery{}
	}
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_View{View: q}})
	return resp.GetView(), at, err
}

// Diff reads which keys hold something else at one revision than at an earlier one, page by
// page as List does. A next page names the ToRev of the answer, so that all of them compare
// the same two. What is no longer kept is ErrCompacted.
func (b *Board) Diff(ctx context.Context, q *wirepb.DiffQuery, opts ReadOptions) (*wirepb.DiffAnswer, Read, error) {
	if q == nil {
		q = &wirepb.DiffQuery{}
	}
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_Diff{Diff: q}})
	return resp.GetDiff(), at, err
}

// Leases lists leases: held ones unless the query names states or asks for the
// reclaimable ones.
func (b *Board) Leases(ctx context.Context, q *wirepb.LeasesQuery, opts ReadOptions) (*wirepb.LeasesAnswer, Read, error) {
	if q == nil {
		q = &wirepb.LeasesQuery{}
	}
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_Leases{Leases: q}})
	return resp.GetLeases(), at, err
}

// Events reads a page of the feed. What was compacted away is ErrCompacted, whose Result
// names the oldest revision; it is never skipped in silence.
func (b *Board) Events(ctx context.Context, q *wirepb.EventsQuery, opts ReadOptions) (*wirepb.EventsAnswer, Read, error) {
	if q == nil {
		q = &wirepb.EventsQuery{}
	}
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_Events{Events: q}})
	return resp.GetEvents(), at, err
}

// Describe reads the board's numbers and settings.
func (b *Board) Describe(ctx context.Context, opts ReadOptions) (*wirepb.DescribeAnswer, Read, error) {
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_Describe{Describe: &wirepb.DescribeQuery{}}})
	return resp.GetDescribe(), at, err
}

// Stats reads counters, numbers of entries and the newest persistent conflicts.
func (b *Board) Stats(ctx context.Context, opts ReadOptions) (*wirepb.StatsAnswer, Read, error) {
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_Stats{Stats: &wirepb.StatsQuery{}}})
	return resp.GetStats(), at, err
}

// Why reads how a key, or a phase ("phase:" and its id), stands: who holds it and since when, what
// it waits for and what waits for it, what is wrong with it, and for each of these the command
// that ends it. A key that was never written is explained too.
func (b *Board) Why(ctx context.Context, key string, opts ReadOptions) (*wirepb.WhyAnswer, Read, error) {
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_Why{Why: &wirepb.WhyQuery{Key: key}}})
	return resp.GetWhy(), at, err
}

// Trace reads where a record comes from and what was built on it: what it cites, then what
// cites it, both through others too, each nearest first; limit 0 is 200, the most. The answer's
// Next, given as after, continues. What is no longer kept is ErrCompacted.
func (b *Board) Trace(ctx context.Context, ref string, limit, after uint32, opts ReadOptions) (*wirepb.TraceAnswer, Read, error) {
	q := &wirepb.TraceQuery{Ref: ref, Limit: limit, After: after}
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_Trace{Trace: q}})
	return resp.GetTrace(), at, err
}

// WhoRead reads who was shown what others wrote in a record, the last reader first: of a key in
// any version ("facts/a"), of one version ("facts/a@3"), or what earlier holders left with a lease
// ("lease:claims/a"). Of each record the last 32 readers are kept. Receipts follow the reads by a
// second, and may be lost: the answer says how many of the board were.
func (b *Board) WhoRead(ctx context.Context, ref string, opts ReadOptions) (*wirepb.WhoReadAnswer, Read, error) {
	resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_WhoRead{WhoRead: &wirepb.WhoReadQuery{Ref: ref}}})
	return resp.GetWhoRead(), at, err
}

// LoopStatus reads a loop's record and all its leases, at most 1,024, page by page. The
// record is that of the first page; a lease that ends meanwhile may be missing.
func (b *Board) LoopStatus(ctx context.Context, id string, opts ReadOptions) (*wirepb.LoopAnswer, Read, error) {
	q := &wirepb.LoopQuery{Loop: id}
	var all *wirepb.LoopAnswer
	for {
		resp, at, err := b.read(ctx, opts, &wirepb.ReadRequest{Query: &wirepb.ReadRequest_LoopStatus{LoopStatus: q}})
		if err != nil {
			return nil, at, err
		}
		page := resp.GetLoopStatus()
		if all == nil {
			all = page
		} else {
			all.Leases = append(all.Leases, page.GetLeases()...)
		}
		if page.GetNext() == "" || page.GetNext() <= q.After || len(all.GetLeases()) > maxLeases {
			if all != nil {
				all.Next = ""
			}
			return all, at, nil
		}
		q = &wirepb.LoopQuery{Loop: id, After: page.Next}
	}
}

// Boards lists the boards and the cluster's record.
func (c *Client) Boards(ctx context.Context) (*wirepb.BoardsAnswer, error) {
	req := &wirepb.ReadRequest{Query: &wirepb.ReadRequest_Boards{Boards: &wirepb.BoardsQuery{}}}
	ans, err := c.call(ctx, request{read: req, repeat: true})
	if err != nil {
		return nil, err
	}
	if ans.read.Failure != nil {
		return nil, &Error{Result: ans.read.Failure}
	}
	return ans.read.GetBoards(), nil
}

// admin sends a command of the cluster under an idempotency key.
func (c *Client) admin(ctx context.Context, cmd *boardpb.Command) (*boardpb.Result, error) {
	cmd.IdempotencyKey = identityFrom(ctx)
	cmd.CallId = stringFrom(ctx, callIDKey)
	ans, err := c.do(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return refusal(ans.result)
}

// CreateBoard makes a board; nil settings are the default table and limits. ErrExists,
// ErrNamespaceOverlap, ErrBadRequest and ErrLimitBoards are its refusals.
func (c *Client) CreateBoard(ctx context.Context, name string, settings *boardpb.BoardSettings) (*boardpb.Result, error) {
	return c.admin(ctx, &boardpb.Command{Op: &boardpb.Command_BoardCreate{BoardCreate: &boardpb.BoardCreate{Name: name, Settings: settings}}})
}

// SetBoard replaces the whole settings of a board; ifVersion 0 is "whatever is there".
func (c *Client) SetBoard(ctx context.Context, name string, settings *boardpb.BoardSettings, ifVersion uint64) (*boardpb.Result, error) {
	op := &boardpb.BoardSet{Name: name, Settings: settings, IfSettingsVersion: ifVersion}
	return c.admin(ctx, &boardpb.Command{Op: &boardpb.Command_BoardSet{BoardSet: op}})
}

// CompactBoard gives up history and events before a revision.
func (c *Client) CompactBoard(ctx context.Context, name string, beforeRev uint64) (*boardpb.Result, error) {
	op := &boardpb.BoardCompact{Name: name, BeforeRev: beforeRev}
	return c.admin(ctx, &boardpb.Command{Op: &boardpb.Command_BoardCompact{BoardCompact: op}})
}

// ForkBoard makes the board newName of what the board name held right after the commit atRev;
// 0 is its head. Contents and states of items come along; loops, counters and events do not,
// and leases that were held are free. Versions and generations go on above those of name.
// ErrNotFound, ErrExists, ErrCompacted, ErrBadRequest and ErrLimitBoards are its refusals.
func (c *Client) ForkBoard(ctx context.Context, name, newName string, atRev uint64) (*boardpb.Result, error) {
	op := &boardpb.BoardFork{From: name, Name: newName, AtRev: atRev}
	return c.admin(ctx, &boardpb.Command{Op: &boardpb.Command_BoardFork{BoardFork: op}})
}

// CloseBoard ends a board: writes are refused with ErrStopping from then on, reads and
// Export go on. Closing it again changes nothing.
func (c *Client) CloseBoard(ctx context.Context, name string) (*boardpb.Result, error) {
	return c.admin(ctx, &boardpb.Command{Op: &boardpb.Command_BoardClose{BoardClose: &boardpb.BoardClose{Name: name}}})
}

// DeleteBoard removes a board completely.
func (c *Client) DeleteBoard(ctx context.Context, name string) (*boardpb.Result, error) {
	return c.admin(ctx, &boardpb.Command{Op: &boardpb.Command_BoardDelete{BoardDelete: &boardpb.BoardDelete{Name: name}}})
}
