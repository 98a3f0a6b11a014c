package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
	wirepb "raftboard/transport/pb"
)

// Cluster is what a driver gives to a workload: ways to reach the nodes, and to cut a client
// off from them.
type Cluster interface {
	// Dial makes a client that states name, on a host of its own of that name. first is the
	// node it tries first. The workload closes it.
	Dial(name string, first int) (*client.Client, error)
	// Nodes are the names of the nodes, "" for one that is gone for good; Ask is the unary face of one of them, and of no other.
	Nodes() []string
	Ask(name string, node int) wirepb.BoardClient
	// Freeze stands in for a paused client: from now on nothing that it sends arrives, and
	// nothing reaches it, until thaw.
	Freeze(name string) (thaw func())
}

// Env is a run as its workload sees it.
type Env struct {
	Cluster Cluster
	Log     *history.Log
	Board   string
	Seed    uint64
	Rate    int             // operations per second of all clients together, about
	Stop    <-chan struct{} // closed when no new work is to be invented any more; nil: never
}

// loading is a context that ends when no new work is to be invented any more.
func (e Env) loading(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if e.Stop == nil {
		return ctx, cancel
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-e.Stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel()
		<-over
	}
}

// pace is the longest pause of one of n clients between two operations, so that all of them
// together come near the rate.
func (e Env) pace(n int) time.Duration {
	if e.Rate <= 0 {
		return defaultPace
	}
	return 2 * time.Duration(n) * time.Second / time.Duration(e.Rate)
}

const defaultPace = 60 * time.Millisecond

// dice are a client's own, so that what one does depends on the seed and not on the others.
func (e Env) dice(client int) *rand.Rand { return rand.New(rand.NewPCG(e.Seed, uint64(client))) }

// rest waits, unless ctx ends first: then it is false.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// call records one operation: it begins, runs do, and ends with what do was told.
func (e Env) call(ctx context.Context, op history.Op, do func(context.Context) (*boardpb.Result, error)) (*boardpb.Result, error) {
	op.Board = e.Board
	rec := e.Log.Begin(op)
	res, err := do(client.WithCallID(ctx, rec.CallID()))
	e.Log.End(rec, func(o *history.Op) { settle(o, res, err) })
	return res, err
}

// change makes a new value of what a key holds.
type change func(cur *boardpb.Entry) ([]byte, error)

// mutate records a mutate, which do runs with values that nobody else has. It is recorded as
// its last attempt: the ones before it conflicted, so they changed nothing.
func (e Env) mutate(ctx context.Context, op history.Op, value func() string, do func(context.Context, change) (*boardpb.Result, error)) *boardpb.Result {
	op.Kind, op.Board = history.Mutate, e.Board
	rec := e.Log.Begin(op)
	var last history.Args
	attempts := 0
	res, err := do(client.WithCallID(ctx, rec.CallID()), func(cur *boardpb.Entry) ([]byte, error) {
		attempts++
		last = history.Args{Value: value(), IfVersion: cur.GetVersion()}
		return []byte(last.Value), nil
	})
	unreported := ""
	if err != nil && res.GetOutcome() == boardpb.Outcome_OUTCOME_CONFLICT {
		unreported, err = err.Error(), nil // the write is decided; the report of it got no answer
	}
	e.Log.End(rec, func(o *history.Op) {
		o.Args, o.Attempts = last, attempts
		settle(o, res, err)
		if unreported != "" {
			o.Result.Error = unreported
		}
	})
	return res
}

// settle decides what a caller may conclude from an answer.
func settle(op *history.Op, res *boardpb.Result, err error) {
	var refused *client.Error
	switch {
	case errors.As(err, &refused):
		res = refused.Result
		op.Outcome = history.Failed
		if res.Code == boardpb.Code_CODE_UNAVAILABLE && res.Proposed != boardpb.Proposed_PROPOSED_NO {
			op.Outcome = history.Info
		}
		op.Result.Error = err.Error()
	case err != nil:
		op.Outcome, op.Result.Error = history.Info, err.Error()
		return
	case res.Outcome == boardpb.Outcome_OUTCOME_OK:
		op.Outcome = history.OK
	default:
		op.Outcome = history.Failed
	}
	if op.Key == "" {
		op.Result.Key = res.Key
	}
	op.Result.Answer, op.Result.Rev, op.Result.Replayed = history.Answer(res), res.Rev, res.Replayed
	op.Result.Version, op.Result.Generation, op.Result.Value = res.Version, res.Generation, string(res.Value)
	if res.Proposed != boardpb.Proposed_PROPOSED_UNSPECIFIED {
		op.Result.Proposed = res.Proposed.String()
	}
}

// look records a read of a key that ended with an entry, or with the news that there is
// none. A read that got no answer says nothing, so it failed.
func look(op *history.Op, e *boardpb.Entry, rev uint64, node string, missing *boardpb.Result, err error) {
	op.Answered, op.Result.Rev = node, rev
	switch {
	case missing != nil:
		op.Outcome, op.Result.Answer, op.Result.Version = history.OK, "not_found", missing.Version
	case err != nil:
		op.Outcome, op.Result.Error = history.Failed, err.Error()
	default:
		op.Outcome, op.Result.Answer = history.OK, "ok"
		op.Result.Version, op.Result.Value = e.GetVersion(), string(e.GetValue())
	}
}

// get reads a key through the client, which asks the leader.
func (e Env) get(ctx context.Context, b *client.Board, name, key string) (entry *boardpb.Entry, missing *boardpb.Result) {
	return e.getAs(ctx, b, history.Op{Client: name, Key: key})
}

// getAs is get, recorded as more than that.
func (e Env) getAs(ctx context.Context, b *client.Board, op history.Op) (entry *boardpb.Entry, missing *boardpb.Result) {
	op.Kind, op.Board = history.Get, e.Board
	rec, key := e.Log.Begin(op), op.Key
	got, at, err := b.Get(client.WithCallID(ctx, rec.CallID()), key, client.ReadOptions{})
	missing = missingOf(clientRefusal(err))
	e.Log.End(rec, func(o *history.Op) { look(o, got.GetEntry(), at.Rev, at.NodeID, missing, err) })
	return got.GetEntry(), missing
}

// askTimeout bounds a read of one node: it may be dead.
const askTimeout = 2 * time.Second

// getAt reads a key from one node, whoever leads.
func (e Env) getAt(ctx context.Context, node int, name, key string) {
	ctx, cancel := context.WithTimeout(as(ctx, name), askTimeout)
	defer cancel()
	rec := e.Log.Begin(history.Op{Client: name, Kind: history.Get, Board: e.Board, Key: key, Asked: e.Cluster.Nodes()[node]})
	resp, err := e.Cluster.Ask(name, node).Read(ctx, &wirepb.ReadRequest{Board: e.Board, CallId: rec.CallID(),
		Query: &wirepb.ReadRequest_Get{Get: &wirepb.GetQuery{Key: key}}})
	e.Log.End(rec, func(o *history.Op) {
		look(o, resp.GetGet().GetEntry(), resp.GetRev(), resp.GetNodeId(), missingOf(refusalOf(err)), err)
	})
}

// Finals reads the whole board once through every node, and records what is there.
func Finals(ctx context.Context, e Env) error {
	for i, node := range e.Cluster.Nodes() {
		if node == "" {
			continue
		}
		reader := history.FinalReader(node)
		ask := e.Cluster.Ask("reader", i)
		for after := ""; ; {
			resp, err := ask.Read(as(ctx, "reader"), &wirepb.ReadRequest{Board: e.Board,
				Query: &wirepb.ReadRequest_Dump{Dump: &wirepb.DumpQuery{After: after}}})
			if err != nil {
				return fmt.Errorf("reading the board through %s: %w", node, err)
			}
			if after == "" { // a board where all is deleted was read as well
				e.Log.Final(history.Final{Reader: reader, Node: resp.NodeId, Board: e.Board, Rev: resp.Rev})
			}
			for _, entry := range resp.GetDump().Entries {
				e.Log.Final(history.Final{Reader: reader, Node: resp.NodeId, Board: e.Board, Rev: resp.Rev, Entry: entry})
			}
			for _, lease := range resp.GetDump().Leases {
				e.Log.Final(history.Final{Reader: reader, Node: resp.NodeId, Board: e.Board, Rev: resp.Rev, Lease: lease})
			}
			if after = resp.GetDump().Next; after == "" {
				break
			}
		}
	}
	return nil
}
