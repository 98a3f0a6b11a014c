package transport_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// set is a write that needs no lease and no version.
func set(key, value string) *boardpb.Command {
	return &boardpb.Command{Board: "default", Op: &boardpb.Command_Set{Set: &boardpb.Set{
		Key: key, Value: []byte(value), Overwrite: true,
	}}}
}

func TestAClusterFoundsItselfAndForwardsAWriteOneHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := clustertest.Start(t, clustertest.Options{})
		t.Logf("ready after %v", time.Since(began))
		ctx := clustertest.As(t.Context(), "worker-1")
		follower := c.Follower()
		board := wirepb.NewBoardClient(c.Conn("client", follower))
		answer, err := board.Apply(ctx, &wirepb.ApplyRequest{Command: set("results/worker-1/a", `"one"`)})
		if err != nil {
			t.Fatal(err)
		}
		if answer.Result.Outcome != boardpb.Outcome_OUTCOME_OK || answer.Result.Version != 1 {
			t.Fatalf("got %v", answer.Result)
		}
		read, err := board.Read(ctx, &wirepb.ReadRequest{Board: "default",
			Query: &wirepb.ReadRequest_Get{Get: &wirepb.GetQuery{Key: "results/worker-1/a"}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(read.GetGet().Entry.Value); got != `"one"` {
			t.Fatalf("got %s", got)
		}
		_ = context.Background
	})
}
