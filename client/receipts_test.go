package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// SPEC 1.8 test 5, F-26: a thousand gets are one command of a node and count as a thousand; every way of
// being shown what another wrote is known, on every node, also when the leader went.
func TestWhoReadWhatIsKnownOnEveryNodeAfterTheLeaderWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		w1 := dial(t, cluster, "w1", cluster.Addrs()...).Board("default")
		res, err := w1.Append(ctx, "findings/a", []byte(`"a"`), client.AppendOptions{})
		ok(t, "append", res, err)
		res, err = w1.Set(ctx, "results/w1/x", []byte(`1`), client.SetOptions{})
		ok(t, "set", res, err)
		before := res.Rev
		follower := cluster.Follower()
		reader := dial(t, cluster, "w2", cluster.Addrs()[follower]).Board("default")
		start := time.Now()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				for range 10 {
					if _, _, err := reader.Get(ctx, "findings/a", client.ReadOptions{}); err != nil {
						t.Error(err)
					}
				}
				if _, _, err := w1.Get(ctx, "findings/a", client.ReadOptions{}); err != nil { // its own
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took >= time.Second {
			t.Fatalf("1,100 gets took %v: they waited for something", took)
		}
		time.Sleep(3 * time.Second)
		events, _, err := w1.Events(ctx, &wirepb.EventsQuery{AfterRev: before, AfterWholeRev: true}, client.ReadOptions{})
		if err != nil || len(events.Events) == 0 || len(events.Events) > 2 || events.Events[0].Kind != boardpb.Kind_KIND_READ {
			t.Errorf("what the gets left: %v, %v; want one note of each node that answered: the one dialed, the leader", events, err)
		}
		stats, _, err := w1.Stats(ctx, client.ReadOptions{})
		if err != nil || stats.Counters.CrossReads != 1000 || stats.Counters.ReadsDropped != 0 {
			t.Errorf("counters: %v, %v; want 1,000 reads", stats.GetCounters(), err)
		}

		dead := cluster.Leader()
		cluster.Kill(dead)
		cluster.WaitReady()
		reader = dial(t, cluster, "w3", cluster.Addrs()...).Board("default")
		if _, _, err := reader.View(ctx, &wirepb.ViewQuery{Subscribe: []string{"findings/*"}}, client.ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := reader.Dump(ctx, "results/**", 0, "", client.ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		cluster.Restart(dead)
		cluster.WaitReady()
		for _, addr := range cluster.Addrs() {
			b := dial(t, cluster, "w1", addr).Board("default")
			want(t, b, "findings/a", "w3 1, w2 1000")
			want(t, b, "results/w1/x@1", "w3 1")
			if _, _, err := b.WhoRead(ctx, "findings/none", client.ReadOptions{}); !errors.Is(err, client.ErrNotFound) {
				t.Errorf("who read what never was: %v", err)
			}
			trace, _, err := b.Trace(ctx, "findings/a@1", 0, 0, client.ReadOptions{})
			if err != nil || len(trace.Readers) != 2 {
				t.Errorf("a trace names %v as readers, %v; want both", trace.GetReaders(), err)
			}
		}
	})
}

// want waits for what is known of who read a record: names and numbers, the last one first.
func want(t *testing.T, b *client.Board, ref, readers string) {
	t.Helper()
	var got string
	for range 100 {
		answer, _, err := b.WhoRead(context.Background(), ref, client.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got = ""
		for i, row := range answer.Readers {
			if i > 0 {
				got += ", "
			}
			got += row.Reader.Principal + " " + fmt.Sprint(row.Reader.Count)
		}
		if got == readers {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("%s was read by %q, want %q", ref, got, readers)
}

// F-26: every way of being shown what another wrote leaves a receipt, and what did not fit is counted.
func TestEveryWayOfBeingShownWhatAnotherWroteLeavesAReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 1})
		ctx := background(t)
		board := func(name string) *client.Board { return dial(t, cluster, name, cluster.Addrs()...).Board("default") }
		w1 := board("w1")
		for _, key := range []string{"claims/i", "draft", "results/w1/x"} {
			res, err := w1.Set(ctx, key, []byte(`"of w1"`), client.SetOptions{})
			ok(t, "set", res, err)
		}
		// A value in the way of a write.
		res, err := board("w2").Set(ctx, "draft", []byte(`2`), client.SetOptions{})
		if err != nil || res.Outcome != boardpb.Outcome_OUTCOME_CONFLICT || len(res.Value) == 0 {
			t.Fatalf("a set of what is there: %v, %v", res, err)
		}
		want(t, w1, "draft", "w2 1")
		// What is in the way of a phase's write is no record that a ref names; what is read beside it counts.
		orc := board("orc")
		res, err = orc.DefinePhases(ctx, &boardpb.PhaseSpec{Id: "p"})
		ok(t, "define", res, err)
		zero := uint64(0)
		for n, by := range []*client.Board{orc, board("orc2")} {
			if _, err = by.WritePhase(ctx, &boardpb.PhaseWrite{Phase: "p", Patch: fmt.Appendf(nil, `{"a":%d}`, n), VersionRead: &zero}); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := orc.Get(ctx, "draft", client.ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		want(t, w1, "draft", "orc 1, w2 1")
		// The item that is claimed, and what the holder before left.
		first, err := dial(t, cluster, "w3", cluster.Addrs()...).Board("default").OpenLoop(ctx, client.LoopOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease, _, err := first.Claim(ctx, "claims/i", client.ClaimOptions{})
		if err != nil || lease == nil {
			t.Fatalf("claim: %v, %v", lease, err)
		}
		res, err = lease.Fail(ctx, "no disk", 0)
		ok(t, "fail", res, err)
		second, err := board("w4").OpenLoop(ctx, client.LoopOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if lease, _, err = second.Claim(ctx, "claims/i", client.ClaimOptions{}); err != nil || lease == nil {
			t.Fatalf("claim: %v, %v", lease, err)
		}
		want(t, w1, "claims/i", "w4 1, w3 1")
		want(t, w1, "lease:claims/i#1", "w4 1")
		answer, _, err := w1.WhoRead(ctx, "claims/i", client.ReadOptions{})
		if err != nil || answer.Readers[0].Reader.Loop != second.ID() {
			t.Errorf("the reader's loop: %v, %v; want %s", answer, err, second.ID())
		}
		// A watch, of what is there and of what comes; without values it shows nothing.
		var watches []*client.Watch
		for _, who := range []string{"w5", "w6"} {
			values := who == "w5"
			w, err := board(who).Watch(ctx, client.WatchOptions{Patterns: []string{"results/**"}, Snapshot: true, IncludeValues: values})
			if err != nil {
				t.Fatal(err)
			}
			watches = append(watches, w)
			cluster.Eventually("the snapshot is read", func() bool {
				m, err := w.Next(ctx)
				return err == nil && m.Kind == client.MessageSnapshotEnd
			})
		}
		want(t, w1, "results/w1/x", "w5 1")
		res, err = w1.Set(ctx, "results/w1/x", []byte(`2`), client.SetOptions{IfVersion: 1})
		ok(t, "set", res, err)
		want(t, w1, "results/w1/x", "w5 2")
		if _, _, err := board("w7").History(ctx, "results/w1/x", 0, 0, client.ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		want(t, w1, "results/w1/x@1", "w7 2, w5 2")

		if _, _, err := board("w9").Diff(ctx, &wirepb.DiffQuery{Pattern: "results/**"}, client.ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		want(t, w1, "results/w1/x@2", "w9 1, w7 2, w5 2")
		// A part of a content is a read of the items that it shows.
		for _, who := range []string{"w1", "w2", "w1"} {
			res, err := board(who).Append(ctx, "facts/log", []byte(`"of `+who+`"`), client.AppendOptions{})
			ok(t, "append", res, err)
		}
		if _, _, err := board("w10").Content(ctx, &wirepb.ContentQuery{Key: "facts/log", FromLine: 2, ToLine: 2}, client.ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		want(t, w1, "facts/log@2", "w10 1")
		want(t, w1, "facts/log@3", "")
		if _, err := board("w2").UseTool(ctx, "bb_read", []byte(`{"key":"facts/log"}`)); err != nil {
			t.Fatal(err)
		}
		want(t, w1, "facts/log", "w2 2, w10 1")
		for _, w := range watches {
			w.Close()
		}

		// 1,100 different ones within a second are more than are gathered.
		for n := range 1100 {
			res, err := w1.Set(ctx, fmt.Sprintf("results/w1/n%d", n), []byte(`1`), client.SetOptions{})
			ok(t, "set", res, err)
		}
		time.Sleep(3 * time.Second)
		stats, _, err := w1.Stats(ctx, client.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		shown, lost := stats.Counters.CrossReads, stats.Counters.ReadsDropped
		many, after := board("w8"), ""
		for {
			page, _, err := many.Dump(ctx, "results/w1/*", 500, after, client.ReadOptions{Consistency: client.Stale})
			if err != nil {
				t.Fatal(err)
			}
			if after = page.Next; after == "" {
				break
			}
		}
		time.Sleep(3 * time.Second)
		if stats, _, err = w1.Stats(ctx, client.ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		shown, lost = stats.Counters.CrossReads-shown, stats.Counters.ReadsDropped-lost
		if shown != 1024 || lost != 1101-1024 {
			t.Errorf("of 1,101 reads within a second %d are counted and %d were dropped; want 1,024 and the rest", shown, lost)
		}
	})
}
