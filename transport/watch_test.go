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
		if r, err := watchError(w, &wirepb.WatchRequest{Board: "nosuch", Patterns: []string{"**"}, Start: &wirepb.WatchRequest_Now{Now: true}}); r.Code != boardpb.Code_CODE_NOT_FOUND {
			t.Errorf("a board that was never made: %v", err)
		}
		f := watch(w, fromRev(1, "nosuch/*", "facts/*"))
		if got := f.opened.Unmatched; len(got) != 1 || got[0] != "nosuch/*" {
			t.Errorf("patterns that no namespace matches: %v", got)
		}
	})
}

func TestT48ACursorOlderThanWhatIsKeptIsToldAndASnapshotGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		w := as(t, c, "w1", c.Follower())
		for n := range 200 {
			key := fmt.Sprintf("results/w1/%d", n%10)
			if n%50 == 49 {
				w.ok(&boardpb.Command{Board: "default", Op: &boardpb.Command_Delete{Delete: &boardpb.Delete{Key: key}}})
				continue
			}
			w.ok(set(key, fmt.Sprint(n)))
		}
		w.ok(add("facts/x", `"first"`))
		w.ok(add("facts/x", `"second"`))
		as(t, c, "op", c.Leader()).ok(&boardpb.Command{IdempotencyKey: "k", Op: &boardpb.Command_BoardCompact{
			BoardCompact: &boardpb.BoardCompact{Name: "default", BeforeRev: 150}}})
		time.Sleep(time.Second)
		r, err := watchError(w, fromRev(101, "results/w1/*"))
		if r.Code != boardpb.Code_CODE_COMPACTED || status.Code(err) != codes.OutOfRange || r.OldestRev < 150 {
			t.Fatalf("got %v", err)
		}
		watch(w, fromRev(r.OldestRev, "results/w1/*")) // the rev it names works
		f := watch(w, &wirepb.WatchRequest{Board: "default", Patterns: []string{"results/w1/*", "facts/*"}, IncludeValues: true,
			Start: &wirepb.WatchRequest_Snapshot{Snapshot: true}})
		mirror := map[string]string{}
		var items []string
		var rev uint64
		for rev == 0 {
			switch m := f.next().Message.(type) {
			case *wirepb.WatchResponse_Entry:
				if m.Entry.Key == "facts/x" {
					items = append(items, string(m.Entry.Value))
				} else {
					mirror[m.Entry.Key] = string(m.Entry.Value)
				}
			case *wirepb.WatchResponse_SnapshotEnd:
				rev = m.SnapshotEnd.Rev
			}
		}
		if f.opened.Rev != rev+1 {
			t.Errorf("the snapshot is of rev %d and the events begin at %d", rev, f.opened.Rev)
		}
		if len(items) != 2 || items[0] != `"first"` || items[1] != `"second"` {
			t.Errorf("the items of an append key: %v", items)
		}
		w.ok(set("results/w1/3", `"live"`))
		live := f.events(1)[0]
		if live.Event.Rev != rev+1 || string(live.Entry.GetValue()) != `"live"` {
			t.Errorf("the first event behind the snapshot is %v", live)
		}
		mirror["results/w1/3"] = `"live"`
		list, err := w.board.Read(w.ctx, &wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_List{List: &wirepb.ListQuery{Pattern: "results/**"}}})
		if err != nil || len(list.GetList().Items) != len(mirror) {
			t.Fatalf("%d listed, %d mirrored, %v", len(list.GetList().Items), len(mirror), err)
		}
		for key, value := range mirror {
			if got := w.value(key); got != value {
				t.Errorf("%s: mirrored %s, read %s", key, value, got)
			}
		}
	})
}

func TestT50EveryRevThatIsKeptGivesTheWholeHistoryBehindIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		w := as(t, c, "w1", c.Leader())
		for range 4 {
			w.ok(set("results/w1/x", "1"))
		}
		deleted := w.ok(&boardpb.Command{Board: "default", Op: &boardpb.Command_Delete{Delete: &boardpb.Delete{Key: "results/w1/x"}}}).Rev
		time.Sleep(time.Second)
		for n, before := range []uint64{deleted - 1, deleted, deleted + 1} {
			as(t, c, "op", c.Leader()).ok(&boardpb.Command{IdempotencyKey: fmt.Sprint(n), Op: &boardpb.Command_BoardCompact{
				BoardCompact: &boardpb.BoardCompact{Name: "default", BeforeRev: before}}})
			time.Sleep(time.Second)
			for from := uint64(1); from <= deleted+1; from++ {
				request := fromRev(from, "results/w1/x")
				if from < before {
					if r, err := watchError(w, request); r.Code != boardpb.Code_CODE_COMPACTED {
						t.Fatalf("compacted before %d, from %d: %v", before, from, err)
					}
					continue
				}
				f := watch(w, request)
				if from <= deleted {
					events := f.events(int(deleted - from + 1))
					if last := events[len(events)-1].Event; last.Kind != boardpb.Kind_KIND_DELETE || last.Rev != deleted {
						t.Errorf("compacted before %d, from %d: the last event is %v", before, from, last)
					}
				}
				f.stop()
			}
		}
	})
}

func TestAStartAboveTheHeadWaitsForItOrIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		behind := c.Follower()
		w := as(t, c, "w1", c.Leader())
		w.ok(add("facts/x", "1"))
		r, err := watchError(as(t, c, "w1", behind), fromRev(9, "**"))
		if r.Code != boardpb.Code_CODE_BAD_REQUEST || r.Field != "from_rev" || r.Rev != 1 {
			t.Errorf("above the cluster's head: %v", err)
		}
		watch(as(t, c, "w1", behind), fromRev(2, "**")) // the next event, which nobody has made yet
		// A node that lags waits for the rev, if the cluster has it.
		c.Isolate(behind)
		w = as(t, c, "w1", c.Leader(behind))
		for range 5 {
			w.ok(add("facts/x", "1"))
		}
		began := time.Now()
		r, err = watchError(as(t, c, "w1", behind), fromRev(6, "**"))
		if took := time.Since(began); r.Code != boardpb.Code_CODE_READ_TIMEOUT || took > 5100*time.Millisecond {
			t.Errorf("a node that cannot catch up: %v after %v", err, took)
		}
		opened := make(chan *watcher)
		go func() { opened <- watch(as(t, c, "w1", behind), fromRev(6, "**")) }()
		time.Sleep(time.Second)
		c.Rejoin(behind)
		if e := (<-opened).events(1)[0].Event; e.Rev != 6 {
			t.Errorf("the first event is of rev %d", e.Rev)
		}
	})
}

func TestAWatchOfABoardThatIsMadeAnewEndsWithReset(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		op := as(t, c, "op", c.Leader())
		create := func(key string) {
			op.ok(&boardpb.Command{IdempotencyKey: key, Op: &boardpb.Command_BoardCreate{BoardCreate: &boardpb.BoardCreate{Name: "b"}}})
		}
		create("1")
		time.Sleep(time.Second)
		w := as(t, c, "w1", c.Follower())
		request := fromRev(1, "**")
		request.Board = "b"
		f := watch(w, request)
		if f.opened.Incarnation == "" {
			t.Fatal("no incarnation")
		}
		op.ok(&boardpb.Command{IdempotencyKey: "2", Op: &boardpb.Command_BoardDelete{BoardDelete: &boardpb.BoardDelete{Name: "b"}}})
		cut, err := f.end()
		if cut.GetCode() != boardpb.Code_CODE_NOT_FOUND || status.Code(err) != codes.NotFound {
			t.Errorf("a deleted board: %v, %v", cut, err)
		}
		create("3")
		time.Sleep(time.Second)
		request.Incarnation = f.opened.Incarnation
		if r, err := watchError(w, request); r.Code != boardpb.Code_CODE_RESET || r.Incarnation == "" || r.Incarnation == request.Incarnation {
			t.Errorf("the cursor of another incarnation: %v", err)
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
