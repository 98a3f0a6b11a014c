package client_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

type watchStream = grpc.ServerStreamingServer[wirepb.WatchResponse]

// opened confirms a watch that tells of next and what follows.
func opened(next uint64) *wirepb.WatchResponse {
	return &wirepb.WatchResponse{Message: &wirepb.WatchResponse_Opened{Opened: &wirepb.WatchOpened{Rev: next, Incarnation: "a"}}}
}

func events(revs ...uint64) *wirepb.WatchResponse {
	list := &wirepb.WatchEvents{}
	for _, rev := range revs {
		list.Events = append(list.Events, &wirepb.WatchEvent{Event: &boardpb.Event{Rev: rev, Kind: boardpb.Kind_KIND_APPEND, Key: "facts/x"}})
	}
	return &wirepb.WatchResponse{Message: &wirepb.WatchResponse_Events{Events: list}}
}

func bookmark(rev uint64) *wirepb.WatchResponse {
	return &wirepb.WatchResponse{Message: &wirepb.WatchResponse_Bookmark{Bookmark: &wirepb.Bookmark{Rev: rev}}}
}

func cut(code boardpb.Code) *wirepb.WatchResponse {
	return &wirepb.WatchResponse{Message: &wirepb.WatchResponse_Cut{Cut: &boardpb.Result{Code: code, OldestRev: 90}}}
}

// script sends messages in order; a nil is the end of the stream without a word.
func (n *scripted) watches(scripts ...[]*wirepb.WatchResponse) *[]*wirepb.WatchRequest {
	var mu sync.Mutex
	requests := &[]*wirepb.WatchRequest{}
	n.watch = func(req *wirepb.WatchRequest, stream watchStream) error {
		mu.Lock()
		*requests = append(*requests, req)
		var script []*wirepb.WatchResponse
		if len(scripts) > 0 {
			script, scripts = scripts[0], scripts[1:]
		}
		mu.Unlock()
		for _, m := range script {
			if m == nil {
				return nil
			}
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		<-stream.Context().Done()
		return nil
	}
	return requests
}

func nextEvents(t testing.TB, w *client.Watch, n int) (revs []uint64) {
	t.Helper()
	for len(revs) < n {
		m, err := w.Next(background(t))
		if err != nil {
			t.Fatalf("after %v: %v", revs, err)
		}
		if m.Kind == client.MessageEvent {
			revs = append(revs, m.Rev)
		}
	}
	return revs
}

func wantRevs(t testing.TB, got []uint64, want ...uint64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got revisions %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("got revisions %v, want %v", got, want)
		}
	}
}

func TestT52AWatchGoesOnAtAnotherNodeBehindWhatItDeliveredAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1", "n2:1")
		s.nodes["n1:1"].watches([]*wirepb.WatchResponse{opened(4), events(5, 6), bookmark(8), nil})
		asked := s.nodes["n2:1"].watches([]*wirepb.WatchResponse{opened(8), events(6, 9, 10)}) // 6 is a repetition
		var states []client.StateKind
		w, err := s.client(client.Config{}, "n1:1", "n2:1").Board("default").Watch(context.Background(), client.WatchOptions{
			Patterns: []string{"facts/*"}, OnState: func(s client.State) { states = append(states, s.Kind) },
		})
		if err != nil {
			t.Fatal(err)
		}
		wantRevs(t, nextEvents(t, w, 4), 5, 6, 9, 10)
		if got := (*asked)[0].GetFromRev(); got != 9 {
			t.Errorf("resumed from rev %d, want 9, behind the bookmark", got)
		}
		if len(states) != 3 || states[1] != client.StateReconnecting || states[2] != client.StateConnected {
			t.Errorf("states %v; want connected, reconnecting, connected", states)
		}
	})
}

func TestT52SilenceOnAWatchIsDetected(t *testing.T) {
	for name, c := range map[string]struct {
		within time.Duration
		quiet  func(*scripted)
	}{
		"the path swallows packets":  {30 * time.Second, func(n *scripted) { n.lis.setSwallow(true) }},
		"the node sends no bookmark": {80 * time.Second, func(*scripted) {}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, "n1:1", "n2:1")
				s.nodes["n1:1"].watches([]*wirepb.WatchResponse{opened(4), events(5)})
				s.nodes["n2:1"].watches([]*wirepb.WatchResponse{opened(5), events(6)})
				w, err := s.client(client.Config{}, "n1:1", "n2:1").Board("default").Watch(context.Background(), client.WatchOptions{Patterns: []string{"**"}})
				if err != nil {
					t.Fatal(err)
				}
				nextEvents(t, w, 1)
				c.quiet(s.nodes["n1:1"])
				start := time.Now()
				wantRevs(t, nextEvents(t, w, 1), 6)
				if d := time.Since(start); d > c.within {
					t.Errorf("silence lasted %v, want at most %v", d, c.within)
				}
			})
		})
	}
}

func TestAWatchEndsOnlyWithWhatCannotBeHealed(t *testing.T) {
	for code, want := range map[boardpb.Code]error{
		boardpb.Code_CODE_COMPACTED:   client.ErrCompacted,
		boardpb.Code_CODE_RESET:       client.ErrReset,
		boardpb.Code_CODE_FORBIDDEN:   client.ErrForbidden,
		boardpb.Code_CODE_SLOW_READER: nil,
		boardpb.Code_CODE_UNAVAILABLE: nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, "n1:1")
			s.nodes["n1:1"].watches(
				[]*wirepb.WatchResponse{opened(4), events(5), cut(code), nil},
				[]*wirepb.WatchResponse{opened(5), events(6)})
			w, err := s.client(client.Config{}, "n1:1").Board("default").Watch(context.Background(), client.WatchOptions{Patterns: []string{"**"}, FromRev: 5})
			if err != nil {
				t.Fatal(err)
			}
			wantRevs(t, nextEvents(t, w, 1), 5)
			m, err := w.Next(background(t))
			for err == nil && m.Kind != client.MessageEvent {
				m, err = w.Next(background(t))
			}
			if want == nil && (err != nil || m.Rev != 6) {
				t.Errorf("%v: got %v, %v; want the watch to go on with rev 6", code, m.Rev, err)
			}
			var e *client.Error
			if want != nil && (!errors.Is(err, want) || !errors.As(err, &e) || e.Result.OldestRev != 90) {
				t.Errorf("%v: got %v; want %v with the oldest revision", code, err, want)
			}
		})
	}
}

func TestASnapshotThatBreaksOffBeginsAnewAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entry := func(key string) *wirepb.WatchResponse {
			return &wirepb.WatchResponse{Message: &wirepb.WatchResponse_Entry{Entry: &boardpb.Entry{Key: key, Rev: 3}}}
		}
		end := &wirepb.WatchResponse{Message: &wirepb.WatchResponse_SnapshotEnd{SnapshotEnd: &wirepb.SnapshotEnd{Rev: 7}}}
		s := newStage(t, "n1:1")
		asked := s.nodes["n1:1"].watches(
			[]*wirepb.WatchResponse{opened(5), entry("a"), nil},
			[]*wirepb.WatchResponse{opened(7), entry("a"), entry("b"), end, events(8), nil},
			[]*wirepb.WatchResponse{opened(9), events(9)})
		w, err := s.client(client.Config{}, "n1:1").Board("default").Watch(context.Background(), client.WatchOptions{Patterns: []string{"**"}, Snapshot: true})
		if err != nil {
			t.Fatal(err)
		}
		want := []client.MessageKind{
			client.MessageSnapshotBegin, client.MessageEntry,
			client.MessageSnapshotBegin, client.MessageEntry, client.MessageEntry, client.MessageSnapshotEnd,
			client.MessageEvent, client.MessageEvent,
		}
		for i, kind := range want {
			m, err := w.Next(background(t))
			if err != nil || m.Kind != kind {
				t.Fatalf("message %d: got kind %d, %v; want %d", i, m.Kind, err, kind)
			}
		}
		if got := (*asked)[2].GetFromRev(); got != 9 {
			t.Errorf("resumed from rev %d, want 9: behind the snapshot and what followed", got)
		}
	})
}

func TestAPausedConsumerHoldsTheWatchUpWithoutLossAndWithinItsBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total = 3000
		s := newStage(t, "n1:1")
		var sent atomic.Int32
		s.nodes["n1:1"].watch = func(req *wirepb.WatchRequest, stream watchStream) error {
			stream.Send(opened(req.GetFromRev()))
			for rev := req.GetFromRev(); rev <= total; rev++ {
				m := events(rev)
				m.GetEvents().Events[0].Entry = &boardpb.Entry{Value: make([]byte, 1024)}
				if err := stream.Send(m); err != nil {
					return err
				}
				sent.Add(1)
			}
			<-stream.Context().Done()
			return nil
		}
		w, err := s.client(client.Config{}, "n1:1").Board("default").Watch(context.Background(), client.WatchOptions{Patterns: []string{"**"}, FromRev: 1})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute) // far longer than any silence: pausing is not silence
		if got := sent.Load(); got > 1000 {
			t.Errorf("%d messages were taken from the server while nobody read", got)
		}
		for i, rev := range nextEvents(t, w, total) {
			if rev != uint64(i+1) {
				t.Fatalf("event %d has rev %d", i, rev)
			}
		}
	})
}

func TestT53WatchesDieWithTheirContextAndTheirClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		var live, opens atomic.Int32
		s.nodes["n1:1"].watch = func(req *wirepb.WatchRequest, stream watchStream) error {
			live.Add(1)
			opens.Add(1)
			defer live.Add(-1)
			return mute(req, stream)
		}
		watchOnce := func(ctx context.Context, c *client.Client) {
			if _, err := c.Board("default").Watch(ctx, client.WatchOptions{Patterns: []string{"**"}}); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			for range 50 {
				c := s.client(client.Config{}, "n1:1")
				watchOnce(context.Background(), c)
				c.Close()
			}
		}
		var clients []*client.Client
		for range 50 {
			c := s.client(client.Config{}, "n1:1")
			watchOnce(context.Background(), c)
			clients = append(clients, c)
		}
		time.Sleep(time.Minute)
		if got := live.Load(); got != 50 {
			t.Errorf("%d watches live, want 50", got)
		}
		// All lose their node at once and return: spread, not in one peak.
		s.nodes["n1:1"].lis.cut(true)
		time.Sleep(5 * time.Second)
		before := opens.Load()
		s.nodes["n1:1"].lis.cut(false)
		time.Sleep(10 * time.Second)
		if got := opens.Load() - before; got != 50 {
			t.Errorf("%d watches came back by %d openings", live.Load(), got)
		}
		ctx, cancel := context.WithCancel(context.Background())
		watchOnce(ctx, clients[0])
		cancel()
		synctest.Wait()
		if got := live.Load(); got != 50 {
			t.Errorf("%d watches live after one context ended, want 50", got)
		}
	})
}
