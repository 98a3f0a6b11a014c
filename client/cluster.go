package client

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// Cluster is the face for operators: its calls go to the leader once it is known, and to
// any node before. What changes the cluster is not repeated after a lost answer: it has
// no identity, and the status tells what became of it.
type Cluster struct{ c *Client }

// Cluster gives the operators' face of this client.
func (c *Client) Cluster() *Cluster { return &Cluster{c: c} }

// Status asks for the state of the cluster; local is one node's own view, which it gives
// without asking others, also without a leader.
func (cl *Cluster) Status(ctx context.Context, local bool) (*wirepb.StatusResponse, error) {
	return ask(ctx, cl.c, true, func(ctx context.Context, s wirepb.ClusterClient) (*wirepb.StatusResponse, error) {
		resp, err := s.Status(ctx, &wirepb.StatusRequest{Local: local})
		if l := resp.GetLeader(); err == nil && l != nil {
			cl.c.routes.hint(l)
		}
		return resp, err
	})
}

// Nodes lists the nodes.
func (cl *Cluster) Nodes(ctx context.Context) (*wirepb.NodesResponse, error) {
	return ask(ctx, cl.c, true, func(ctx context.Context, s wirepb.ClusterClient) (*wirepb.NodesResponse, error) {
		return s.Nodes(ctx, &wirepb.NodesRequest{})
	})
}

// Add re-admits a removed name.
func (cl *Cluster) Add(ctx context.Context, name string) (*wirepb.AddResponse, error) {
	return ask(ctx, cl.c, false, func(ctx context.Context, s wirepb.ClusterClient) (*wirepb.AddResponse, error) {
		return s.Add(ctx, &wirepb.AddRequest{Name: name})
	})
}

// Remove takes a node, by id or name, out of the cluster.
func (cl *Cluster) Remove(ctx context.Context, node string) (*wirepb.RemoveResponse, error) {
	return ask(ctx, cl.c, false, func(ctx context.Context, s wirepb.ClusterClient) (*wirepb.RemoveResponse, error) {
		return s.Remove(ctx, &wirepb.RemoveRequest{Id: node})
	})
}

// Promote makes a non-voter a voter.
func (cl *Cluster) Promote(ctx context.Context, node string) (*wirepb.PromoteResponse, error) {
	return ask(ctx, cl.c, false, func(ctx context.Context, s wirepb.ClusterClient) (*wirepb.PromoteResponse, error) {
		return s.Promote(ctx, &wirepb.PromoteRequest{Id: node})
	})
}

// Demote makes a voter a non-voter.
func (cl *Cluster) Demote(ctx context.Context, node string) (*wirepb.DemoteResponse, error) {
	return ask(ctx, cl.c, false, func(ctx context.Context, s wirepb.ClusterClient) (*wirepb.DemoteResponse, error) {
		return s.Demote(ctx, &wirepb.DemoteRequest{Id: node})
	})
}

// StepDown hands leadership to a node, by id or name; "" is the most up to date one.
func (cl *Cluster) StepDown(ctx context.Context, to string) (*wirepb.StepDownResponse, error) {
	return ask(ctx, cl.c, false, func(ctx context.Context, s wirepb.ClusterClient) (*wirepb.StepDownResponse, error) {
		return s.StepDown(ctx, &wirepb.StepDownRequest{To: to})
	})
}

// Settings reads the settings of the cluster, or changes the grace if one is given.
func (cl *Cluster) Settings(ctx context.Context, grace *time.Duration) (*wirepb.SettingsResponse, error) {
	req := &wirepb.SettingsRequest{}
	if grace != nil {
		ms := grace.Milliseconds()
		req.GraceMs, req.IdempotencyKey = &ms, identityFrom(ctx)
	}
	return ask(ctx, cl.c, true, func(ctx context.Context, s wirepb.ClusterClient) (*wirepb.SettingsResponse, error) {
		return s.Settings(ctx, req)
	})
}

// Snapshot copies a consistent snapshot of the whole state to w and says up to which
// entry it reaches. A stream that breaks is an error: begin anew with an empty w.
func (cl *Cluster) Snapshot(ctx context.Context, w io.Writer) (index, term uint64, err error) {
	ep, err := cl.c.connected(ctx, anywhere)
	if err != nil {
		return 0, 0, err
	}
	defer ep.exit()
	stream, err := wirepb.NewClusterClient(ep.conn).Snapshot(cl.c.outgoing(ctx), &wirepb.SnapshotRequest{})
	for err == nil {
		var chunk *wirepb.SnapshotChunk
		chunk, err = stream.Recv()
		if errors.Is(err, io.EOF) {
			return index, term, nil
		}
		if err != nil {
			break
		}
		index, term = chunk.Index, chunk.Term
		if _, werr := w.Write(chunk.Data); werr != nil {
			return index, term, werr
		}
	}
	return 0, 0, fromStatus(err)
}

// ask makes one unary call, trying nodes as Client.call does: a refusal ends it, not done
// goes on to another node, and a lost answer is repeated only if repeat.
func ask[T any](ctx context.Context, c *Client, repeat bool, fn func(context.Context, wirepb.ClusterClient) (T, error)) (T, error) {
	var none T
	if _, own := ctx.Deadline(); !own {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
	}
	var last *Error
	for n := 0; ; n++ {
		ep, healthy := c.routes.pick(atLeader)
		if n > 0 && !healthy {
			if err := c.rest(ctx, backoff(n-1, 50*time.Millisecond, time.Second)); err != nil {
				break
			}
		}
		resp, err := askOne(ctx, ep, n, repeat, fn)
		if err == nil {
			c.routes.answered(ep, "", nil)
			return resp, nil
		}
		last = err
		if !tryElsewhere(last.Result, repeat) {
			return none, last
		}
		leader, kind := leaderIn(last.cause), failedSoon
		if leader != nil {
			kind = failedBusy
		}
		c.routes.failed(ep, kind, errors.New(last.Result.Message), leader)
		if c.mayTry(ctx) != nil {
			break
		}
	}
	if repeat || last == nil {
		return none, unanswered(boardpb.Proposed_PROPOSED_NO, ctx.Err(), "no node gave an answer: %s", c.routes.causes())
	}
	return none, last
}

// askOne makes one try. Until the connection stands nothing can have been done.
func askOne[T any](ctx context.Context, ep *endpoint, n int, repeat bool, fn func(context.Context, wirepb.ClusterClient) (T, error)) (T, *Error) {
	var none T
	tctx, cancel := context.WithTimeout(ep.c.outgoing(ctx), tryTime(ctx, n))
	defer cancel()
	if err := ep.enter(); err != nil {
		return none, unanswered(boardpb.Proposed_PROPOSED_NO, err, "%v", err)
	}
	defer ep.exit()
	if err := ep.connect(tctx); err != nil {
		return none, unanswered(boardpb.Proposed_PROPOSED_NO, err, "%v", err)
	}
	if !repeat {
		tctx = ep.c.outgoing(ctx) // cutting it short would only make its outcome unknown
	}
	var reached peer.Peer
	resp, err := fn(tctx, wirepb.NewClusterClient(observed{ep.conn, &reached}))
	if err != nil {
		e := fromStatus(err)
		if e.Result.Code == boardpb.Code_CODE_UNAVAILABLE && e.Result.Proposed == boardpb.Proposed_PROPOSED_UNSPECIFIED {
			switch {
			case reached.Addr == nil: // the connection was gone before the call had a stream
				e.Result.Proposed = boardpb.Proposed_PROPOSED_NO
			case !repeat: // it broke under the call
				e.Result.Proposed = boardpb.Proposed_PROPOSED_UNKNOWN
				e.Result.Hint = "it may have been done: the status tells"
			}
		}
		return none, e
	}
	return resp, nil
}

// observed notes which peer a unary call reached; none means that it was never sent.
type observed struct {
	grpc.ClientConnInterface
	reached *peer.Peer
}

func (o observed) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return o.ClientConnInterface.Invoke(ctx, method, args, reply, append(opts, grpc.Peer(o.reached))...)
}

// tryElsewhere says whether another try is safe and may do better.
func tryElsewhere(res *boardpb.Result, repeat bool) bool {
	switch res.Code {
	case boardpb.Code_CODE_UNAVAILABLE, boardpb.Code_CODE_READ_TIMEOUT, boardpb.Code_CODE_LIMIT_REQUESTS:
		return repeat || res.Proposed == boardpb.Proposed_PROPOSED_NO
	}
	return false
}
