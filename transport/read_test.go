package transport_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	boardpb "raftboard/fsm/pb"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

func (c caller) read(request *wirepb.ReadRequest) *wirepb.ReadResponse {
	c.t.Helper()
	answer, err := c.board.Read(c.ctx, request)
	if err != nil {
		c.t.Fatalf("%v: %v", request, err)
	}
	return answer
}

// readError reads what must be refused.
func (c caller) readError(request *wirepb.ReadRequest) *boardpb.Result {
	c.t.Helper()
	answer, err := c.board.Read(c.ctx, request)
	if err == nil {
		c.t.Fatalf("%v was answered: %v", request, answer)
	}
	return detail(c.t, err)
}

func TestReadsSeeWhatTheirConsistencyPromises(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		behind := c.Follower()
		writer := as(t, c, "w1", c.Follower(behind))
		for n := range 20 { // a default read on any node right behind a write sees it
			value := fmt.Sprint(n)
			rev := writer.ok(set("results/w1/a", value)).Rev
			reader := as(t, c, "w1", n%3)
			if got := reader.value("results/w1/a"); got != value {
				t.Fatalf("write %d: node %d reads %q", n, n%3, got)
			}
			atLeast := getQuery("results/w1/a")
			atLeast.Consistency, atLeast.AtLeastRev = wirepb.Consistency_CONSISTENCY_AT_LEAST, rev
			if got := reader.read(atLeast); got.Rev < rev || string(got.GetGet().Entry.Value) != value {
				t.Fatalf("write %d: at_least %d shows rev %d", n, rev, got.Rev)
			}
		}
		c.Isolate(behind)
		rev := as(t, c, "w1", c.Leader(behind)).ok(set("results/w1/a", `"new"`)).Rev
		reader := as(t, c, "w1", behind)
		stale := getQuery("results/w1/a")
		stale.Consistency = wirepb.Consistency_CONSISTENCY_STALE
		if got := reader.read(stale); got.Rev != rev-1 || string(got.GetGet().Entry.Value) != "19" {
			t.Errorf("a stale read shows rev %d", got.Rev)
		}
		late := getQuery("results/w1/a")
		late.Consistency, late.AtLeastRev = wirepb.Consistency_CONSISTENCY_AT_LEAST, rev
		began := time.Now()
		if r := reader.readError(late); r.Code != boardpb.Code_CODE_READ_TIMEOUT || r.Rev != rev-1 || time.Since(began) > 5*time.Second {
			t.Errorf("a rev that does not come: %v after %v", r, time.Since(began))
		}
	})
}

func TestAQueryThatMakesNoSenseIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Nodes: 1})
		w := as(t, c, "w1", 0)
		get := func(change func(*wirepb.ReadRequest)) *wirepb.ReadRequest {
			r := getQuery("draft")
			change(r)
			return r
		}
		for field, request := range map[string]*wirepb.ReadRequest{
			"query":        {Board: "default"},
			"board":        get(func(r *wirepb.ReadRequest) { r.Board = "" }),
			"consistency":  get(func(r *wirepb.ReadRequest) { r.Consistency = 9 }),
			"at_least_rev": get(func(r *wirepb.ReadRequest) { r.AtLeastRev = 3 }),
			"call_id":      get(func(r *wirepb.ReadRequest) { r.CallId = strings.Repeat("x", 129) }),
			"request":      get(func(r *wirepb.ReadRequest) { r.ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 1}) }),
			"request/get":  get(func(r *wirepb.ReadRequest) { r.GetGet().ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 1}) }),
		} {
			if r := w.readError(request); r.Code != boardpb.Code_CODE_BAD_REQUEST || r.Field != field || r.Hint == "" {
				t.Errorf("%s: got %v", field, r)
			}
		}
		if r := w.readError(get(func(r *wirepb.ReadRequest) { r.Board = "nosuch" })); r.Code != boardpb.Code_CODE_NOT_FOUND {
			t.Errorf("a board that was never made: %v", r)
		}
		w.ok(add("facts/x", "1"))
		if r := w.readError(get(func(r *wirepb.ReadRequest) { r.Incarnation = "other" })); r.Code != boardpb.Code_CODE_RESET || r.Incarnation == "" {
			t.Errorf("another incarnation: %v", r)
		}
		// On a session the refusal is in the answer, with what there is besides.
		s := openSession(t, w)
		s.send(1, 0, getQuery("claims/none"))
		if a := s.next().GetRead(); a.GetFailure().GetCode() != boardpb.Code_CODE_NOT_FOUND || a.Rev != 1 || a.GetGet().GetMode() != boardpb.Mode_MODE_LEASED {
			t.Errorf("got %v", a)
		}
	})
}

func TestT57LongAnswersComeInPagesThatLoseNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Nodes: 1})
		w := as(t, c, "w1", 0)
		const keys = 600
		value := `"` + strings.Repeat("v", 8<<10) + `"`
		s := openSession(t, w)
		for id := uint64(1); id <= keys; id++ {
			s.send(id, 0, set(fmt.Sprintf("results/w1/%04d", id), value))
		}
		for range keys {
			if r := s.next().GetApplied().GetResult(); r.GetOutcome() != boardpb.Outcome_OUTCOME_OK {
				t.Fatal(r)
			}
		}
		dumped, pages, after := map[string]bool{}, 0, ""
		for first := true; first || after != ""; first = false {
			a := w.read(&wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_Dump{Dump: &wirepb.DumpQuery{After: after, Limit: 1000}}})
			if size := protoSize(a); size > 4<<20 {
				t.Fatalf("a page of %d bytes", size)
			}
			for _, e := range a.GetDump().Entries {
				dumped[e.Key] = true
			}
			pages, after = pages+1, a.GetDump().Next
		}
		if len(dumped) != keys || pages < 2 {
			t.Errorf("%d keys in %d pages, want %d in several", len(dumped), pages, keys)
		}
		listed, after := 0, ""
		for first := true; first || after != ""; first = false {
			a := w.read(&wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_List{
				List: &wirepb.ListQuery{Pattern: "results/**", After: after}}})
			listed, after = listed+len(a.GetList().Items), a.GetList().Next
		}
		if listed != keys {
			t.Errorf("%d keys listed", listed)
		}
		seen, rev := 0, uint64(0)
		for more := true; more; {
			a := w.read(&wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_Events{
				Events: &wirepb.EventsQuery{AfterRev: rev, AfterWholeRev: true}}})
			seen, rev, more = seen+len(a.GetEvents().Events), a.GetEvents().LastRev, a.GetEvents().HasMore
		}
		if seen != keys {
			t.Errorf("%d events", seen)
		}
	})
}

func TestReadsTellALoopWhichLeasesItLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		w := as(t, c, "w1", c.Follower())
		loop := w.openLoop()
		short := int64(1000)
		claim := &boardpb.Command{Board: "default", Loop: loop, Seq: 1, Floor: 1, Op: &boardpb.Command_Claim{
			Claim: &boardpb.Claim{Key: "claims/x", DurationMs: &short}}}
		w.ok(claim)
		leases := w.read(&wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_Leases{
			Leases: &wirepb.LeasesQuery{}}}).GetLeases().Leases
		if len(leases) != 1 || leases[0].Lease.Owner != "w1" || leases[0].ExpiresInMs <= 0 || leases[0].ExpiresWallMs == 0 {
			t.Errorf("leases are %v", leases)
		}
		time.Sleep(time.Minute) // the grace of the first election and the lease are over
		request := getQuery("claims/x")
		request.Loop = loop
		s := openSession(t, w)
		s.send(1, 0, request)
		a := s.next().GetRead()
		if len(a.Ended) != 1 || a.Ended[0].Key != "claims/x" || a.Ended[0].Cause != boardpb.EndedBy_ENDED_BY_EXPIRED {
			t.Errorf("its holder was told %v", a.Ended)
		}
		other := as(t, c, "w2", 0)
		so := openSession(t, other)
		so.send(1, 0, request)
		if a := so.next().GetRead(); len(a.Ended) != 0 {
			t.Errorf("another principal was told %v", a.Ended)
		}
	})
}

func TestBoardsAreListedWithTheImplicitOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Nodes: 1})
		w := as(t, c, "op", 0)
		boards := func() *wirepb.BoardsAnswer {
			return w.read(&wirepb.ReadRequest{Query: &wirepb.ReadRequest_Boards{Boards: &wirepb.BoardsQuery{}}}).GetBoards()
		}
		if b := boards(); len(b.Boards) != 1 || b.Boards[0].Name != "default" || !b.Boards[0].Implicit || b.Cluster.GetLeaderId() == "" {
			t.Errorf("got %v", b)
		}
		w.ok(&boardpb.Command{IdempotencyKey: "k", Op: &boardpb.Command_BoardCreate{BoardCreate: &boardpb.BoardCreate{Name: "b"}}})
		w.ok(add("facts/x", "1"))
		if b := boards(); len(b.Boards) != 2 || b.Boards[1].Implicit || b.Boards[1].Rev != 1 || b.Boards[1].Keys != 1 {
			t.Errorf("got %v", b)
		}
		for query, a := range map[string]*wirepb.ReadResponse{
			"describe": w.read(&wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_Describe{Describe: &wirepb.DescribeQuery{}}}),
			"stats":    w.read(&wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_Stats{Stats: &wirepb.StatsQuery{}}}),
		} {
			if a.Rev != 1 || len(a.GetDescribe().GetCounts())+len(a.GetStats().GetNamespaces()) == 0 {
				t.Errorf("%s answers %v", query, a)
			}
		}
	})
}

func TestACallWithoutANameIsUnauthenticatedOnEveryFace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Nodes: 1})
		board, cluster := wirepb.NewBoardClient(c.Conn("client", 0)), wirepb.NewClusterClient(c.Conn("client", 0))
		for face, call := range map[string]func() error{
			"apply": func() error {
				_, err := board.Apply(t.Context(), &wirepb.ApplyRequest{Command: add("facts/x", "1")})
				return err
			},
			"read": func() error { _, err := board.Read(t.Context(), getQuery("facts/x")); return err },
			"watch": func() error {
				stream, err := board.Watch(t.Context(), fromRev(1, "**"))
				if err == nil {
					_, err = stream.Recv()
				}
				return err
			},
			"session": func() error {
				stream, err := board.Session(t.Context())
				if err == nil {
					_, err = stream.Recv()
				}
				return err
			},
			"status": func() error { _, err := cluster.Status(t.Context(), &wirepb.StatusRequest{}); return err },
			"remove": func() error {
				_, err := cluster.Remove(t.Context(), &wirepb.RemoveRequest{Id: "n1"})
				return err
			},
			"snapshot": func() error {
				stream, err := cluster.Snapshot(t.Context(), &wirepb.SnapshotRequest{})
				if err == nil {
					_, err = stream.Recv()
				}
				return err
			},
		} {
			if err := call(); status.Code(err) != codes.Unauthenticated || detail(t, err).Hint == "" {
				t.Errorf("%s: %v", face, err)
			}
		}
	})
}

func TestAPageOfEventsNamesTheOldestRevOfTheFeed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		w := as(t, c, "w1", c.Follower())
		var last uint64
		for n := range 20 {
			last = w.ok(set("results/w1/a", fmt.Sprint(n))).Rev
		}
		as(t, c, "op", c.Leader()).ok(&boardpb.Command{IdempotencyKey: "k", Op: &boardpb.Command_BoardCompact{
			BoardCompact: &boardpb.BoardCompact{Name: "default", BeforeRev: last}}})
		events := func(after uint64) *wirepb.ReadRequest {
			return &wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_Events{
				Events: &wirepb.EventsQuery{AfterRev: after, AfterWholeRev: true}}}
		}
		got := w.read(events(last)).GetEvents().OldestRev
		if got < 3 {
			t.Fatalf("after a compaction before rev %d the oldest rev is %d", last, got)
		}
		w.read(events(got - 1)) // from here the feed goes on, and from no rev below
		if r := w.readError(events(got - 2)); r.Code != boardpb.Code_CODE_COMPACTED || r.OldestRev != got {
			t.Errorf("oldest_rev is %d, and from below it: %v", got, r)
		}
	})
}

func TestACursorBehindTheLastEventOfARevGoesOnWithTheNextRev(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Nodes: 1})
		w := as(t, c, "w1", 0)
		w.ok(add("facts/x", "1"))
		w.ok(add("facts/x", "2"))
		got := w.read(&wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_Events{
			Events: &wirepb.EventsQuery{AfterRev: 1, AfterSub: 1<<32 - 1}}}).GetEvents()
		if len(got.Events) != 1 || got.Events[0].Rev != 2 {
			t.Errorf("behind all of rev 1 come %v", got.Events)
		}
	})
}
