package client_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"raftboard/client"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// F-28: any node tells what was there at a rev, also one that leads since a minute, and one
// that was given a snapshot.
func TestEveryNodeReadsABoardAsItWasBeforeTheLeaderDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		writer := dial(t, cluster, "w1", cluster.Addrs()...)
		b := writer.Board("default")
		var revs []uint64
		for i := range uint64(20) {
			res, err := b.Set(ctx, "draft", fmt.Appendf(nil, "%d", i), client.SetOptions{IfVersion: i})
			ok(t, "set", res, err)
			revs = append(revs, res.Rev)
			if i == 10 {
				dead := cluster.Leader()
				cluster.Kill(dead)
				cluster.WaitReady()
				cluster.Restart(dead)
			}
		}
		cluster.WaitReady()
		for _, addr := range cluster.Addrs() {
			reader := dial(t, cluster, "w2", addr).Board("default")
			for i, rev := range revs {
				for _, how := range []client.ReadOptions{{AtRev: rev}, {AtRev: rev, Consistency: client.AtLeast}} {
					got, at, err := reader.Get(ctx, "draft", how)
					if err != nil || string(got.GetEntry().GetValue()) != fmt.Sprint(i) || at.Rev != rev {
						t.Fatalf("%s at rev %d: %v at rev %d, %v; want %d", addr, rev, got, at.Rev, err, i)
					}
				}
			}
			if list, _, err := reader.List(ctx, "**", 0, "", client.ReadOptions{AtRev: revs[0]}); err != nil || len(list.GetItems()) != 1 || list.GetItems()[0].Version != 1 {
				t.Errorf("list at the first rev: %v, %v", list, err)
			}
			diff, _, err := reader.Diff(ctx, &wirepb.DiffQuery{FromRev: revs[3], ToRev: revs[15]}, client.ReadOptions{})
			if err != nil || len(diff.Items) != 1 || string(diff.Items[0].Before.Value) != "3" || string(diff.Items[0].After.Value) != "15" {
				t.Errorf("diff over the change of leader: %v, %v", diff, err)
			}
			if _, _, err := reader.Get(ctx, "draft", client.ReadOptions{AtRev: revs[19] + 1}); !errors.Is(err, client.ErrBadRequest) {
				t.Errorf("above the head: %v", err)
			}
			if _, _, err := reader.Stats(ctx, client.ReadOptions{AtRev: revs[0]}); !errors.Is(err, client.ErrBadRequest) {
				t.Errorf("stats as of a rev: %v; it must not show what is there now", err)
			}
		}
		if _, err := writer.CompactBoard(ctx, "default", revs[9]); err != nil {
			t.Fatal(err)
		}
		var e *client.Error
		if _, _, err := b.Get(ctx, "draft", client.ReadOptions{AtRev: revs[8]}); !errors.Is(err, client.ErrCompacted) || !errors.As(err, &e) || e.Result.OldestRev != revs[9] {
			t.Errorf("before the compaction: %v, want compacted with %d as the oldest", err, revs[9])
		}
		if got, _, err := b.Get(ctx, "draft", client.ReadOptions{AtRev: revs[9]}); err != nil || string(got.Entry.Value) != "9" {
			t.Errorf("at the oldest rev that works: %v, %v", got, err)
		}
	})
}
