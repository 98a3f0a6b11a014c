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
)

func TestT52APausedWatcherMissesNothingThroughRestartsOfAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		reader, writer := dial(t, cluster, "w1", cluster.Addrs()...), dial(t, cluster, "w2", cluster.Addrs()...)
		reconnected := make(chan client.StateKind, 1000)
		w, err := reader.Board("default").Watch(ctx, client.WatchOptions{
			Patterns: []string{"facts/*"}, IncludeValues: true, OnState: func(s client.State) { reconnected <- s.Kind },
		})
		if err != nil {
			t.Fatal(err)
		}
		put := func(n int) {
			res, err := writer.Board("default").Append(ctx, "facts/x", fmt.Appendf(nil, "%d", n), client.AppendOptions{})
			ok(t, "append", res, err)
		}
		for i := range 3 { // one by one
			put(i)
			cluster.Kill(i)
			time.Sleep(10 * time.Second)
			cluster.Restart(i)
			cluster.WaitReady()
		}
		for i := range 3 { // then all at once
			cluster.Kill(i)
		}
		time.Sleep(10 * time.Second)
		for i := range 3 {
			cluster.Restart(i)
		}
		cluster.WaitReady()
		put(3)
		last := uint64(0)
		for n := 0; n < 4; {
			m, err := w.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if m.Kind != client.MessageEvent {
				continue
			}
			if string(m.Entry.GetValue()) != fmt.Sprint(n) || m.Rev <= last {
				t.Fatalf("got %s at rev %d after rev %d, want item %d", m.Entry.GetValue(), m.Rev, last, n)
			}
			last = m.Rev
			n++
		}
		again := 0
		for len(reconnected) > 0 {
			if <-reconnected == client.StateReconnecting {
				again++
			}
		}
		if again == 0 {
			t.Error("no state callback said reconnecting")
		}

		// The path to every node is cut without a reset: silence is noticed, and after the
		// cut is mended, what happened meanwhile is told.
		for i := range 3 {
			cutReplies(cluster, "w1", true, i)
		}
		put(4)
		start := time.Now()
		for k := <-reconnected; k != client.StateReconnecting; k = <-reconnected {
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("silence was noticed after %v, stated are 25 s", d)
		}
		for i := range 3 {
			cutReplies(cluster, "w1", false, i)
		}
		if got := nextEvents(t, w, 1); got[0] <= last {
			t.Errorf("resumed at rev %d, after %d", got[0], last)
		}
	})
}

func TestAWatchFromASnapshotSeesEveryVersionOnceThroughAFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		c, writer := dial(t, cluster, "w1", cluster.Addrs()...), dial(t, cluster, "w2", cluster.Addrs()...)
		b := writer.Board("default")
		const before, after = 5, 40
		for i := range uint64(before) {
			res, err := b.Set(ctx, "draft", fmt.Appendf(nil, "%d", i), client.SetOptions{IfVersion: i})
			ok(t, "set", res, err)
		}
		w, err := c.Board("default").Watch(ctx, client.WatchOptions{Patterns: []string{"draft"}, Snapshot: true, IncludeValues: true})
		if err != nil {
			t.Fatal(err)
		}
		var writing sync.WaitGroup
		writing.Go(func() {
			for i := range uint64(after) {
				if _, err := b.Set(ctx, "draft", fmt.Appendf(nil, "%d", before+i), client.SetOptions{IfVersion: before + i}); err != nil {
					t.Errorf("set: %v", err)
				}
				if i == after/2 {
					cluster.Kill(cluster.Leader())
				}
			}
		})
		defer writing.Wait()
		want := uint64(before)
		for want < before+after {
			m, err := w.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			switch m.Kind {
			case client.MessageEntry:
				if m.Entry.Version != before {
					t.Errorf("the snapshot shows version %d, want %d", m.Entry.Version, before)
				}
			case client.MessageEvent:
				if want++; m.Entry.GetVersion() != want {
					t.Fatalf("got version %d, want %d", m.Entry.GetVersion(), want)
				}
			}
		}
	})
}

func TestACompactedStartIsRefusedAndNamesTheOldestRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 1})
		ctx := background(t)
		c := dial(t, cluster, "w1", cluster.Addrs()...)
		b := c.Board("default")
		for range 5 {
			res, err := b.Append(ctx, "facts/x", []byte(`1`), client.AppendOptions{})
			ok(t, "append", res, err)
		}
		if res, err := c.CompactBoard(ctx, "default", 4); err != nil || res.Outcome != boardpb.Outcome_OUTCOME_OK {
			t.Fatalf("compact: %v, %v", res, err)
		}
		_, err := b.Watch(ctx, client.WatchOptions{Patterns: []string{"**"}, FromRev: 1})
		var e *client.Error
		if !errors.Is(err, client.ErrCompacted) || !errors.As(err, &e) || e.Result.OldestRev < 4 {
			t.Errorf("got %v; want compacted with the oldest revision", err)
		}
		if _, err := b.Watch(ctx, client.WatchOptions{}); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("no patterns: %v, want bad_request", err)
		}
	})
}

func TestT74AClientOnACutOffMemberAndADeadEndpointProceedsViaTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 5})
		leader := cluster.Leader()
		cutOff, dead := cluster.Follower(), -1
		for i := range 5 {
			if i != cutOff && i != leader {
				dead = i
			}
		}
		cluster.Isolate(cutOff)
		cluster.Net.SetCut("w1", cluster.Members[dead].Host, true)
		cutReplies(cluster, "w1", true, dead)
		time.Sleep(10 * time.Second)
		endpoints := []string{cluster.Addr(cutOff), cluster.Addr(dead)}
		for i := range 5 {
			if i != cutOff && i != dead {
				endpoints = append(endpoints, cluster.Addr(i))
			}
		}
		ctx := context.Background() // and the default limits: nothing may block for ever
		c, err := client.Dial(client.Config{Endpoints: endpoints, As: "w1", Dialer: cluster.Dialer("w1")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		b := c.Board("default")
		var l *client.Loop
		steps := []struct {
			name string
			do   func() error
		}{
			{"set", func() error { _, err := b.Set(ctx, "draft", []byte(`1`), client.SetOptions{}); return err }},
			{"get", func() error { _, _, err := b.Get(ctx, "draft", client.ReadOptions{}); return err }},
			{"watch", func() error { _, err := b.Watch(ctx, client.WatchOptions{Patterns: []string{"**"}}); return err }},
			{"loop", func() (err error) { l, err = b.OpenLoop(ctx, client.LoopOptions{}); return err }},
			{"claim", func() error { _, _, err := l.Claim(ctx, "claims/x", client.ClaimOptions{}); return err }},
		}
		for _, step := range steps {
			start := time.Now()
			if err := step.do(); err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("%s took %v, want less than 5 s", step.name, d)
			}
		}
		for i := range 5 {
			if i != cutOff && i != dead {
				cluster.Isolate(i)
			}
		}
		time.Sleep(10 * time.Second)
		start := time.Now()
		if _, err := b.Set(ctx, "draft", []byte(`2`), client.SetOptions{IfVersion: 1}); !errors.Is(err, client.ErrUnavailable) || time.Since(start) > 5*time.Second {
			t.Errorf("no majority anywhere: %v after %v; want unavailable within 5 s", err, time.Since(start))
		}
	})
}
