package transport_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	boardpb "raftboard/fsm/pb"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

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
		list, err := w.board.Read(w.ctx, &wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_List{
			List: &wirepb.ListQuery{Pattern: "results/**"}}})
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
