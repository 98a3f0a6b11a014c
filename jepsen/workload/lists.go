package workload

import (
	"context"
	"errors"
	"slices"
	"sync"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
	wirepb "raftboard/transport/pb"
)

// wholePage is the most that one read answers: what a workload reads at once stays below it.
const wholePage = 1000

var errNotWhole = errors.New("there is more than one read answers")

// serials numbers things that are retired after they were used so many times: what overlaps
// on one thing, and how long it grows, is bounded by that.
type serials struct {
	most int // uses

	mu     sync.Mutex
	left   []int
	serial []int
}

func newSerials(n, most int) *serials {
	return &serials{most: most, left: make([]int, n), serial: make([]int, n)}
}

// next uses the i-th thing once.
func (s *serials) next(i int) (serial int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left[i] == 0 {
		s.left[i] = s.most
		s.serial[i]++
	}
	s.left[i]--
	return s.serial[i]
}

// newest is the i-th thing without using it; 0: it was never used.
func (s *serials) newest(i int) (serial int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serial[i]
}

// dump reads what the keys of a pattern hold, all of it in one read, through the client.
// keys are those that the reader wants to hear of, in order; none of the pattern is left out.
// It answers nil if the read told nothing.
func (e Env) dump(ctx context.Context, b *client.Board, name, pattern string, keys []string) []history.Seen {
	rec := e.Log.Begin(history.Op{Client: name, Kind: history.Dump, Board: e.Board, Key: only(keys), Args: history.Args{Pattern: pattern}})
	got, at, err := b.Dump(client.WithCallID(ctx, rec.CallID()), pattern, wholePage, "", client.ReadOptions{})
	return e.dumped(rec, got, at.Rev, at.NodeID, keys, err)
}

// dumpAt is dump from one node, whoever leads.
func (e Env) dumpAt(ctx context.Context, node int, name, pattern string, keys []string) []history.Seen {
	ctx, cancel := context.WithTimeout(as(ctx, name), askTimeout)
	defer cancel()
	rec := e.Log.Begin(history.Op{Client: name, Kind: history.Dump, Board: e.Board, Key: only(keys), Args: history.Args{Pattern: pattern},
		Asked: e.Cluster.Nodes()[node]})
	resp, err := e.Cluster.Ask(name, node).Read(ctx, &wirepb.ReadRequest{Board: e.Board, CallId: rec.CallID(),
		Query: &wirepb.ReadRequest_Dump{Dump: &wirepb.DumpQuery{Namespace: pattern, Limit: wholePage}}})
	return e.dumped(rec, resp.GetDump(), resp.GetRev(), resp.GetNodeId(), keys, err)
}

// only is the key of a read of one key.
func only(keys []string) string {
	if len(keys) == 1 {
		return keys[0]
	}
	return ""
}

func (e Env) dumped(rec *history.Op, got *wirepb.DumpAnswer, rev uint64, node string, keys []string, err error) []history.Seen {
	if err == nil && got.GetNext() != "" {
		err = errNotWhole
	}
	seen := seenOf(got.GetEntries(), keys)
	e.Log.End(rec, func(o *history.Op) {
		o.Answered, o.Result.Rev = node, rev
		if err != nil {
			o.Outcome, o.Result.Error = history.Failed, err.Error()
			return
		}
		o.Outcome, o.Result.Answer, o.Result.Seen = history.OK, "ok", seen
	})
	if err != nil {
		return nil
	}
	return seen
}

// past reads an append key through its history, which is another way to the same items.
func (e Env) past(ctx context.Context, b *client.Board, name, key string) {
	rec := e.Log.Begin(history.Op{Client: name, Kind: history.Dump, Board: e.Board, Key: key})
	got, at, err := b.History(client.WithCallID(ctx, rec.CallID()), key, wholePage/2, 0, client.ReadOptions{})
	if errors.Is(err, client.ErrNotFound) {
		err = nil
	}
	if got.GetHasMore() {
		err = errNotWhole
	}
	entries := slices.Clone(got.GetEntries())
	slices.Reverse(entries) // the newest came first
	e.dumped(rec, &wirepb.DumpAnswer{Entries: entries}, at.Rev, at.NodeID, []string{key}, err)
}

// seenOf sorts entries by key; those of one key come in the order of their versions. Keys
// that nobody named follow those that were.
func seenOf(entries []*boardpb.Entry, keys []string) []history.Seen {
	out := make([]history.Seen, len(keys))
	at := map[string]int{}
	for i, key := range keys {
		out[i].Key, at[key] = key, i
	}
	for _, entry := range entries {
		i, named := at[entry.Key]
		if !named {
			i, at[entry.Key] = len(out), len(out)
			out = append(out, history.Seen{Key: entry.Key})
		}
		s := &out[i]
		s.Items = append(s.Items, string(entry.Value))
		s.Versions, s.Revs = append(s.Versions, entry.Version), append(s.Revs, entry.Rev)
	}
	for i := range out {
		if consecutive(out[i].Versions) {
			out[i].Versions = nil
		}
		if len(keys) == 1 {
			out[i].Revs = nil // they tell which items of several keys belong together
		}
	}
	return out
}

func consecutive(versions []uint64) bool {
	for i, v := range versions {
		if v != uint64(i+1) {
			return false
		}
	}
	return true
}
