package transport_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	boardpb "raftboard/fsm/pb"
	"raftboard/transport"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// watcher reads one watch stream.
type watcher struct {
	t      *testing.T
	stream wirepb.Board_WatchClient
	opened *wirepb.WatchOpened
	stop   context.CancelFunc
}

func fromRev(rev uint64, patterns ...string) *wirepb.WatchRequest {
	return &wirepb.WatchRequest{Board: "default", Patterns: patterns, Start: &wirepb.WatchRequest_FromRev{FromRev: rev}}
}

// watch opens a watch that must open.
func watch(w caller, request *wirepb.WatchRequest) *watcher {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	w.t.Cleanup(cancel)
	stream, err := w.board.Watch(ctx, request)
	if err != nil {
		w.t.Fatal(err)
	}
	f := &watcher{t: w.t, stream: stream, stop: cancel}
	if f.opened = f.next().GetOpened(); f.opened == nil {
		w.t.Fatal("a watch did not begin with what it opened")
	}
	return f
}

// watchError opens a watch that must not open, and answers its Result.
func watchError(w caller, request *wirepb.WatchRequest) (*boardpb.Result, error) {
	w.t.Helper()
	stream, err := w.board.Watch(w.ctx, request)
	if err == nil {
		var m *wirepb.WatchResponse
		if m, err = stream.Recv(); err == nil {
			w.t.Fatalf("%v opened: %v", request, m)
		}
	}
	return detail(w.t, err), err
}

func (f *watcher) next() *wirepb.WatchResponse {
	f.t.Helper()
	m, err := f.stream.Recv()
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

// events reads until n events have come; bookmarks between them do not count.
func (f *watcher) events(n int) (events []*wirepb.WatchEvent) {
	f.t.Helper()
	for len(events) < n {
		switch m := f.next().Message.(type) {
		case *wirepb.WatchResponse_Events:
			events = append(events, m.Events.Events...)
		case *wirepb.WatchResponse_Bookmark:
		default:
			f.t.Fatalf("got %v", m)
		}
	}
	if len(events) != n {
		f.t.Fatalf("%d events, want %d", len(events), n)
	}
	return events
}

// end reads to the end of the stream and answers the cut and the error it ended with.
func (f *watcher) end() (cut *boardpb.Result, err error) {
	for {
		m, err := f.stream.Recv()
		if err != nil {
			return cut, err
		}
		if c := m.GetCut(); c != nil {
			cut = c
		}
	}
}

// versions checks that events name the versions of one key from first on, each once.
func versions(t *testing.T, events []*wirepb.WatchEvent, first uint64) {
	t.Helper()
	for i, e := range events {
		if want := first + uint64(i); e.Event.Version != want {
			t.Fatalf("event %d has version %d, want %d", i, e.Event.Version, want)
		}
	}
}

func TestAWatchFollowsAFailoverOnAnyNodeWithoutGapOrRepeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		leader := c.Leader()
		a, b := c.Follower(), 0
		for b == leader || b == a {
			b++
		}
		on, dying := as(t, c, "w1", a), as(t, c, "w1", leader)
		for range 3 {
			on.ok(add("facts/x", "1"))
		}
		stays := watch(on, fromRev(1, "facts/*"))
		versions(t, stays.events(3), 1)
		moves := watch(dying, fromRev(1, "facts/*"))
		seen := moves.events(3)
		c.Kill(leader)
		if _, err := moves.end(); err == nil {
			t.Fatal("the watch survived its server")
		}
		next := as(t, c, "w1", c.Leader())
		for range 4 {
			next.ok(add("facts/x", "1"))
		}
		versions(t, stays.events(4), 4)
		resumed := watch(as(t, c, "w1", b), fromRev(seen[2].Event.Rev+1, "facts/*"))
		versions(t, resumed.events(4), 4)
	})
}

func TestAWatchGoesOnAcrossASnapshotInstall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Configure: func(_ int, cfg *transport.Config) {
			cfg.SnapshotThreshold, cfg.TrailingLogs, cfg.SnapshotInterval = 20, 1, 5*time.Second
		}})
		behind := c.Follower()
		w := as(t, c, "w1", c.Follower(behind))
		w.ok(add("facts/x", "1"))
		f := watch(as(t, c, "w1", behind), fromRev(1, "facts/*"))
		versions(t, f.events(1), 1)
		c.Isolate(behind)
		leader := as(t, c, "w1", c.Leader(behind))
		for range 300 {
			leader.ok(add("facts/x", "1"))
		}
		time.Sleep(time.Minute) // the others have taken snapshots and cut their logs
		before := c.Members[behind].Server.Node().Status().SnapshotIndex
		c.Rejoin(behind)
		c.WaitReady()
		versions(t, f.events(300), 2)
		if after := c.Members[behind].Server.Node().Status().SnapshotIndex; after <= before {
			t.Errorf("no snapshot was installed: index %d before, %d after", before, after)
		}
	})
}

func TestAWatchFromASnapshotUnderAConstantWriterSeesEveryVersionOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		leader := c.Leader()
		writer := as(t, c, "w1", c.Follower())
		const writes = 400
		go func() {
			loop := writer.openLoop()
			for n := uint64(1); n <= writes; n++ {
				item := add("facts/x", fmt.Sprint(n))
				item.Loop, item.Seq, item.Floor = loop, n, n
				for (<-lateAnswer(writer, writer.ctx, item)).Outcome != boardpb.Outcome_OUTCOME_OK {
					time.Sleep(10 * time.Millisecond)
				}
			}
		}()
		time.Sleep(time.Second)
		var seen []string
		f := watch(as(t, c, "w2", leader), &wirepb.WatchRequest{Board: "default", Patterns: []string{"facts/*"}, IncludeValues: true,
			Start: &wirepb.WatchRequest_Snapshot{Snapshot: true}})
		var rev uint64
		killed := false
		for len(seen) < writes {
			m, err := f.stream.Recv()
			if err != nil { // the node was killed: another one goes on
				f = watch(as(t, c, "w2", c.Follower()), &wirepb.WatchRequest{Board: "default", Patterns: []string{"facts/*"},
					IncludeValues: true, Start: &wirepb.WatchRequest_FromRev{FromRev: rev + 1}})
				continue
			}
			switch m := m.Message.(type) {
			case *wirepb.WatchResponse_Entry:
				seen = append(seen, string(m.Entry.Value))
			case *wirepb.WatchResponse_SnapshotEnd:
				rev = m.SnapshotEnd.Rev
				t.Logf("%d items in the snapshot of rev %d", len(seen), rev)
			case *wirepb.WatchResponse_Events:
				for _, e := range m.Events.Events {
					seen, rev = append(seen, string(e.Entry.GetValue())), e.Event.Rev
				}
			}
			if len(seen) > 200 && !killed {
				killed = true
				c.Kill(leader)
			}
		}
		for i, value := range seen {
			if value != fmt.Sprint(i+1) {
				t.Fatalf("item %d is %s: one is missing or came twice", i+1, value)
			}
		}
	})
}

func TestT49AnIdleWatchIsToldHowFarItReachesAndResumesThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		w := as(t, c, "w1", c.Follower())
		f := watch(w, fromRev(1, "draft"))
		last := time.Now()
		for range 3 { // nothing happens at all
			if b := f.next().GetBookmark(); b == nil || time.Since(last) > time.Minute {
				t.Fatalf("after %v: %v", time.Since(last), b)
			}
			last = time.Now()
		}
		for range 500 { // commits elsewhere
			w.ok(add("facts/x", "1"))
		}
		bookmark := f.next().GetBookmark()
		if bookmark == nil || bookmark.Rev < 400 {
			t.Fatalf("got %v", bookmark)
		}
		f.stop()
		compact := as(t, c, "op", c.Leader())
		compact.ok(&boardpb.Command{IdempotencyKey: "k", Op: &boardpb.Command_BoardCompact{BoardCompact: &boardpb.BoardCompact{
			Name: "default", BeforeRev: bookmark.Rev,
		}}})
		f = watch(w, fromRev(bookmark.Rev+1, "draft"))
		w.ok(&boardpb.Command{Board: "default", Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "draft", Value: []byte("1")}}})
		versions(t, f.events(1), 1)
	})
}

func TestT51AReaderThatDoesNotReadIsCutOffAndLosesNothingByIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		w := as(t, c, "w1", c.Leader())
		blocked := watch(as(t, c, "slow", c.Follower()), fromRev(1, "facts/*"))
		quick := watch(as(t, c, "fast", c.Follower()), fromRev(1, "facts/*"))
		blocked.t = t
		const writes = 2000
		done := make(chan time.Duration, 1)
		go func() {
			var lag time.Duration
			for n := 0; n < writes; {
				m, err := quick.stream.Recv()
				if err != nil {
					break
				}
				if es := m.GetEvents().GetEvents(); len(es) > 0 {
					n += len(es)
					lag = max(lag, time.Now().Sub(time.UnixMilli(es[len(es)-1].Event.WallMs)))
				}
			}
			done <- lag
		}()
		s := openSession(t, w)
		for id := uint64(1); id <= writes; id++ {
			item := add("facts/x", "1")
			item.CallId = fmt.Sprintf("%0120d", id) // large events
			s.send(id, 0, item)
			if id%100 == 0 {
				for range 100 {
					if r := s.next().GetApplied().GetResult(); r.GetOutcome() != boardpb.Outcome_OUTCOME_OK {
						t.Fatal(r)
					}
				}
			}
		}
		if lag := <-done; lag > time.Second {
			t.Errorf("a fast watcher was %v behind", lag)
		}
		time.Sleep(30 * time.Second) // the blocked one takes nothing meanwhile
		var seen uint64
		for {
			m, err := blocked.stream.Recv()
			if err != nil {
				r := detail(t, err)
				if r.Code != boardpb.Code_CODE_SLOW_READER || status.Code(err) != codes.Aborted {
					t.Fatalf("it ended with %v", err)
				}
				if r.Rev == 0 || r.Rev > seen+1 {
					t.Fatalf("it is told to resume at rev %d after it saw %d", r.Rev, seen)
				}
				break
			}
			for _, e := range m.GetEvents().GetEvents() {
				seen = e.Event.Rev
			}
		}
		if seen == 0 || seen >= writes {
			t.Fatalf("the blocked reader saw up to rev %d of %d: the test did not fill its way", seen, writes)
		}
		rest := watch(as(t, c, "slow", c.Follower()), fromRev(seen+1, "facts/*"))
		if last := rest.events(writes - int(seen)); last[len(last)-1].Event.Rev != writes {
			t.Errorf("the rest ends at rev %d", last[len(last)-1].Event.Rev)
		}
	})
}

func TestT54WatchingNonsenseIsRefusedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		w := as(t, c, "w1", c.Follower())
		long := ""
		for range 300 {
			long += "x"
		}
		for _, bad := range []string{"", "/", "a//b", "a\u0000b", "facts/**/x", long, "facts/[a]", "facts/?"} {
			began := time.Now()
			r, err := watchError(w, fromRev(1, bad))
			if r.Code != boardpb.Code_CODE_BAD_REQUEST && r.Code != boardpb.Code_CODE_BAD_KEY {
				t.Errorf("%.20q: %v", bad, err)
			}
			if r.Field == "" && r.Message == "" || time.Since(began) > time.Second {
				t.Errorf("%.20q: refused after %v with %v", bad, time.Since(began), r)
			}
		}
		for what, request := range map[string]*wirepb.WatchRequest{
			"no patterns":     fromRev(1),
			"no start":        {Board: "default", Patterns: []string{"**"}},
			"an unknown kind": {Board: "default", Patterns: []string{"**"}, Kinds: []boardpb.Kind{250}, Start: &wirepb.WatchRequest_Now{Now: true}},
			"65 patterns":     fromRev(1, make([]string, 65)...),
		} {
			if r, err := watchError(w, request); r.Code != boardpb.Code_CODE_BAD_REQUEST {
				t.Errorf("%s: %v", what, err)
			}
		}
		nowhere := &wirepb.WatchRequest{Board: "nosuch", Patterns: []string{"**"}, Start: &wirepb.WatchRequest_Now{Now: true}}
		if r, err := watchError(w, nowhere); r.Code != boardpb.Code_CODE_NOT_FOUND {
			t.Errorf("a board that was never made: %v", err)
		}
		f := watch(w, fromRev(1, "nosuch/*", "facts/*"))
		if got := f.opened.Unmatched; len(got) != 1 || got[0] != "nosuch/*" {
			t.Errorf("patterns that no namespace matches: %v", got)
		}
	})
}

func TestT53WatchersDieWithTheirClientsAndTheirNumberIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Nodes: 1, Configure: func(_ int, cfg *transport.Config) { cfg.Limits.Watchers = 5 }})
		w := as(t, c, "w1", 0)
		watchers := func() uint64 {
			answer, err := wirepb.NewClusterClient(c.Conn("client", 0)).Status(w.ctx, &wirepb.StatusRequest{Local: true})
			if err != nil {
				t.Fatal(err)
			}
			return answer.Nodes[0].Watchers
		}
		for n := range 20 { // clients that come and are killed
			host := fmt.Sprintf("client-%d", n)
			watch(caller{t, wirepb.NewBoardClient(c.Conn(host, 0)), w.ctx}, fromRev(1, "**"))
			c.Net.Reset(host)
			time.Sleep(time.Second)
		}
		if n := watchers(); n != 0 {
			t.Errorf("%d watchers are left of killed clients", n)
		}
		// A client that vanishes without a word is noticed by the server's pings.
		watch(caller{t, wirepb.NewBoardClient(c.Conn("silent", 0)), w.ctx}, fromRev(1, "**"))
		c.Net.SetCut("silent", c.Members[0].Host, true)
		time.Sleep(time.Minute)
		if n := watchers(); n != 0 {
			t.Errorf("%d watchers are left of a client that vanished", n)
		}
		for range 5 {
			watch(w, fromRev(1, "**"))
		}
		if r, err := watchError(w, fromRev(1, "**")); r.Code != boardpb.Code_CODE_LIMIT_REQUESTS || r.Limit != 5 {
			t.Errorf("the sixth watcher: %v", err)
		}
	})
}

func TestAWatchAndAPageOfEventsChooseTheSame(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		w := as(t, c, "w1", c.Follower())
		loop := w.openLoop() // an event of no key
		w.ok(set("results/w1/a", "1"))
		w.ok(add("facts/x", "1"))
		claim := claimOf("claims/x", 3_000_000)
		claim.Loop, claim.IdempotencyKey = loop, "c"
		w.ok(claim)
		last := w.ok(set("results/w1/last", "1")).Rev
		for _, patterns := range [][]string{{"*"}, {"*/*"}, {"**"}, {"facts/*", "results/**"}, {"results/w1/last"}} {
			var paged, watched []string
			page := w.read(&wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_Events{
				Events: &wirepb.EventsQuery{Patterns: patterns}}}).GetEvents()
			for _, e := range page.Events {
				paged = append(paged, fmt.Sprintf("%d.%d %v %s", e.Rev, e.Sub, e.Kind, e.Key))
			}
			f := watch(w, fromRev(1, patterns...))
			for idle := false; !idle; {
				m := f.next()
				for _, e := range m.GetEvents().GetEvents() {
					watched = append(watched, fmt.Sprintf("%d.%d %v %s", e.Event.Rev, e.Event.Sub, e.Event.Kind, e.Event.Key))
				}
				idle = m.GetBookmark().GetRev() >= last
			}
			if fmt.Sprint(watched) != fmt.Sprint(paged) {
				t.Errorf("%v: watched\n%v, paged\n%v", patterns, watched, paged)
			}
			f.stop()
		}
	})
}
