package workload

import (
	"context"
	"errors"
	"math/rand/v2"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
	wirepb "raftboard/transport/pb"
)

// applyAt proposes a command through the unary face of one node and records that as one
// operation. It answers the Result, also of a refusal, and nil when there was no answer.
func (e Env) applyAt(ctx context.Context, node int, name string, op history.Op, cmd *boardpb.Command) *boardpb.Result {
	return e.applyFrom(as(ctx, name), node, name, op, cmd)
}

// applyFrom is applyAt from a host, under whatever name ctx states.
func (e Env) applyFrom(ctx context.Context, node int, host string, op history.Op, cmd *boardpb.Command) *boardpb.Result {
	op.Board, op.Asked = e.Board, e.Cluster.Nodes()[node]
	rec := e.Log.Begin(op)
	cmd.CallId = rec.CallID()
	resp, err := e.Cluster.Ask(host, node).Apply(ctx, &wirepb.ApplyRequest{Command: cmd})
	res := resp.GetResult()
	if refused := refusalOf(err); refused != nil {
		res, err = refused, &client.Error{Result: refused}
	}
	e.Log.End(rec, func(o *history.Op) {
		o.Answered, o.Result.Leader = resp.GetNodeId(), resp.GetLeader().GetNodeId()
		settle(o, res, err)
	})
	return res
}

// as states a name, as the client does.
func as(ctx context.Context, name string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "raftboard-as", name)
}

// refusalOf is the Result in an error of a unary call or a stream, if a server gave one.
func refusalOf(err error) *boardpb.Result {
	for _, detail := range status.Convert(err).Details() {
		if r, ok := detail.(*boardpb.Result); ok {
			return r
		}
	}
	return nil
}

// someNode is the number of a node by the dice; retired ones have no name.
func someNode(e Env, dice *rand.Rand) int {
	names := e.Cluster.Nodes()
	for {
		if i := dice.IntN(len(names)); names[i] != "" {
			return i
		}
	}
}

// clientRefusal is the Result in an error of the client library, if a server gave one.
func clientRefusal(err error) *boardpb.Result {
	var refused *client.Error
	if errors.As(err, &refused) {
		return refused.Result
	}
	return nil
}

// missingOf is the news that there is no such key, which is an answer.
func missingOf(refused *boardpb.Result) *boardpb.Result {
	if refused.GetCode() == boardpb.Code_CODE_NOT_FOUND {
		return refused
	}
	return nil
}
