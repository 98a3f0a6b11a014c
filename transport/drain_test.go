package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	boardpb "raftboard/fsm/pb"
	"raftboard/transport"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

func TestAStopHandsLeadershipOverFinishesCallsAndTellsStreamsWhereToGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		leader := c.Leader()
		w := as(t, c, "w1", leader)
		rev := w.ok(add("facts/x", "1")).Rev
		f := watch(w, fromRev(1, "**"))
		f.events(1)
		s := openSession(t, w)
		s.send(1, 0, add("facts/x", "2"))
		if r := s.next().GetApplied().GetResult(); r.GetOutcome() != boardpb.Outcome_OUTCOME_OK {
			t.Fatal(r)
		}
		f.events(1)
		server := c.Members[leader].Server
		began := time.Now()
		stopped := make(chan error, 1)
		go func() { stopped <- c.Stop(leader) }()

		goodbye := s.next().GetGoodbye()
		if goodbye == nil || goodbye.Reason == "" || goodbye.Leader.GetNodeId() == "" || goodbye.Leader.NodeId == server.NodeID() {
			t.Errorf("the session was told %v", goodbye)
		}
		s.send(2, 0, add("facts/x", "3"))
		if r := s.next().GetApplied().GetResult(); r.GetCode() != boardpb.Code_CODE_UNAVAILABLE || r.Proposed != boardpb.Proposed_PROPOSED_NO {
			t.Errorf("a call after goodbye got %v", r)
		}
		s.stream.CloseSend()
		if _, err := s.stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the session ended with %v", err)
		}
		cut, err := f.end()
		if cut.GetCode() != boardpb.Code_CODE_UNAVAILABLE || cut.Rev != rev+2 || status.Code(err) != codes.Unavailable || detail(t, err).Rev != cut.Rev {
			t.Errorf("the watch ended with %v, %v", cut, err)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		took := time.Since(began)
		if took > 5*time.Second {
			t.Errorf("the stop took %v", took)
		}
		next := as(t, c, "w1", c.Leader())
		if since := time.Since(began) - took; since > time.Second {
			t.Errorf("there was no leader for %v after the stop", since)
		}
		resumed := watch(next, fromRev(cut.Rev, "**"))
		next.ok(add("facts/x", "4"))
		versions(t, resumed.events(1), 3)
	})
}

func TestANodeThatIsAloneStopsWithoutAWarning(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var said journal
		c := clustertest.Start(t, clustertest.Options{Nodes: 1, Configure: func(_ int, cfg *transport.Config) {
			cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: &said, Level: hclog.Info})
		}})
		if err := c.Stop(c.Leader()); err != nil {
			t.Fatal(err)
		}
		if said.count("\n") == 0 || said.count("handed over") != 0 {
			t.Errorf("it said:\n%s", said.text.String())
		}
	})
}

func TestAStopFinishesACallThatIsRunning(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		follower := c.Follower()
		w := as(t, c, "w1", follower)
		w.ok(set("results/w1/a", "1"))
		for _, m := range c.Members { // every disk is slow for a while
			m.Disk.Stall(2 * time.Second)
		}
		answered := lateAnswer(w, w.ctx, set("results/w1/a", "2"))
		time.Sleep(50 * time.Millisecond)
		if err := c.Stop(follower); err != nil {
			t.Error(err)
		}
		if r := <-answered; r.Outcome != boardpb.Outcome_OUTCOME_OK {
			t.Errorf("the running call got %v", r)
		}
	})
}

func TestAStopWithoutAMajorityEndsWithinItsBounds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Configure: func(_ int, cfg *transport.Config) { cfg.DrainDelay = 3 * time.Second }})
		leader := c.Leader()
		c.Isolate(leader)
		openSession(t, as(t, c, "w1", leader)) // and its client never closes it
		began := time.Now()
		if err := c.Stop(leader); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 3*time.Second || took > 25*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// health asks the health service of a node.
func health(t *testing.T, conn *grpc.ClientConn, service string) healthpb.HealthCheckResponse_ServingStatus {
	t.Helper()
	answer, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status
}

func TestASecondStopWaitsForTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Configure: func(_ int, cfg *transport.Config) { cfg.DrainDelay = 3 * time.Second }})
		server, began := c.Members[c.Follower()].Server, time.Now()
		var took [2]time.Duration
		var both sync.WaitGroup
		for i := range took {
			both.Go(func() {
				if err := server.Stop(context.Background()); err != nil {
					t.Error(err)
				}
				took[i] = time.Since(began)
			})
		}
		both.Wait()
		if took[0] < 3*time.Second || took[0] != took[1] {
			t.Errorf("they took %v", took)
		}
	})
}

func TestHealthFindsTheLeaderAndWhoServesReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		const serving, not = healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING
		time.Sleep(time.Second)
		leader := c.Leader()
		for i := range c.Members {
			want := not
			if i == leader {
				want = serving
			}
			conn := c.Conn("client", i)
			if got := health(t, conn, "raftboard.v1.leader"); got != want {
				t.Errorf("node %d as a leader: %v", i, got)
			}
			if health(t, conn, "") != serving || health(t, conn, "raftboard.v1.Board") != serving {
				t.Errorf("node %d does not serve", i)
			}
		}
		c.Isolate(leader)
		time.Sleep(5 * time.Second)
		conn := c.Conn("client", leader)
		if health(t, conn, "raftboard.v1.leader") != not || health(t, conn, "raftboard.v1.Board") != not || health(t, conn, "") != serving {
			t.Error("a cut-off node says it leads or serves reads, or that it is dead")
		}
		stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		answer, err := stream.Recv()
		if err != nil || !strings.Contains(answer.String(), "raftboard.v1.Board") {
			t.Errorf("reflection answers %v, %v", answer, err)
		}
	})
}

// probe asks a path of the admin handler.
func probe(h http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestReadinessKnowsALeaderAndLivenessNeverAsksForOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		follower := c.Follower()
		admin := c.Members[follower].Server.AdminHandler()
		if code, text := probe(admin, "/readyz"); code != 200 || text != "ok" {
			t.Errorf("ready: %d %s", code, text)
		}
		c.Isolate(follower)
		time.Sleep(10 * time.Second)
		if code, text := probe(admin, "/readyz"); code != 503 || !strings.Contains(text, "leader") {
			t.Errorf("without a leader readiness says %d %s", code, text)
		}
		if code, text := probe(admin, "/livez"); code != 200 {
			t.Errorf("without a leader liveness says %d %s: a partition would kill the survivors", code, text)
		}
		c.Rejoin(follower)
		c.WaitReady()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			c.Stop(follower)
		}()
		time.Sleep(time.Millisecond)
		if code, text := probe(admin, "/readyz"); code != 503 || !strings.Contains(text, "stopping") {
			t.Errorf("while it stops readiness says %d %s", code, text)
		}
		<-stopped
	})
}

func TestAFullDiskEndsTheServerAndNamesTheWayBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		follower := c.Follower()
		c.Members[follower].Disk.Fail(errors.New("no space left on device"))
		as(t, c, "w1", c.Leader()).ok(set("results/w1/a", "1"))
		if err := c.Died(follower); err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("it stopped with %v", err)
		}
		c.Members[follower].Disk.Fail(nil)
		c.Restart(follower)
		c.WaitReady()
		if got := as(t, c, "w1", follower).value("results/w1/a"); got != "1" {
			t.Errorf("after a restart it reads %q", got)
		}
	})
}

func TestABusyPortIsNamedWithItsFlag(t *testing.T) {
	addrs := freeAddrs(t, 3)
	start := func() (*transport.Server, error) {
		cfg := transport.DefaultConfig()
		cfg.Name, cfg.DataDir, cfg.Auth, cfg.BootstrapExpect = "n1", t.TempDir(), transport.AuthOff, 1
		cfg.GRPCAddr, cfg.RaftAddr, cfg.AdminAddr = addrs[0], addrs[1], addrs[2]
		return transport.Start(t.Context(), cfg)
	}
	first, err := start()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Stop(context.Background())
	var wrong *transport.ConfigError
	if _, err := start(); !errors.As(err, &wrong) || wrong.Setting != "grpc-addr" ||
		!strings.Contains(wrong.Problem, addrs[0]) || !strings.Contains(wrong.Hint, "--grpc-addr") {
		t.Errorf("got %v", err)
	}
}

func TestT75AClientThatPingsAsOursDoIsNotCutOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Nodes: 1})
		for name, option := range clientPings() {
			dials := 0
			conn, err := grpc.NewClient("passthrough:///"+c.Addr(0), append(option, countedDialer(c, &dials))...)
			if err != nil {
				t.Fatal(err)
			}
			board := wirepb.NewBoardClient(conn)
			ctx := clustertest.As(t.Context(), "w1")
			f := watch(caller{t, board, ctx}, fromRev(1, "draft"))
			began := time.Now()
			for time.Since(began) < 25*time.Minute {
				f.next() // bookmarks
			}
			if dials != 1 {
				t.Errorf("%s: %d connections in 25 idle minutes, want 1", name, dials)
			}
			conn.Close()
		}
	})
}

func TestT57ARequestOfOneMebibytePassesAndOneByteMoreIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		op := as(t, c, "op", c.Follower())
		op.ok(&boardpb.Command{IdempotencyKey: "k", Op: &boardpb.Command_BoardCreate{BoardCreate: &boardpb.BoardCreate{Name: "big",
			Settings: &boardpb.BoardSettings{MaxValueBytes: 1 << 20, Namespaces: []*boardpb.Namespace{
				{Pattern: "facts/*", Mode: boardpb.Mode_MODE_APPEND}}}}}})
		const limit = 1 << 20
		sized := func(size int) *boardpb.Command { // a command of exactly so many bytes
			cmd := &boardpb.Command{Board: "big", Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/x"}}}
			n := size - 64
			for {
				cmd.GetAppend().Value = []byte(`"` + strings.Repeat("x", n-2) + `"`)
				if d := size - protoSize(cmd); d == 0 {
					return cmd
				} else {
					n += d
				}
			}
		}
		for _, size := range []int{limit - 1, limit} {
			r := op.ok(sized(size))
			read, err := op.board.Read(op.ctx, &wirepb.ReadRequest{Board: "big", Query: &wirepb.ReadRequest_Get{Get: &wirepb.GetQuery{Key: "facts/x"}}})
			if err != nil || read.GetGet().Entry.Version != r.Version || len(read.GetGet().Entry.Value) < size-100 {
				t.Errorf("%d bytes were taken and not read back: %v", size, err)
			}
		}
		if r := op.refused(sized(limit + 1)); r.Code != boardpb.Code_CODE_TOO_LARGE || r.Got != limit+1 || r.Limit != limit {
			t.Errorf("one byte more got %v", r)
		}
		f := watch(op, &wirepb.WatchRequest{Board: "big", Patterns: []string{"**"}, IncludeValues: true,
			Start: &wirepb.WatchRequest_Snapshot{Snapshot: true}})
		for range 2 {
			if e := f.next().GetEntry(); len(e.GetValue()) < limit-200 {
				t.Errorf("a watch shows %d bytes", len(e.GetValue()))
			}
		}
	})
}

func TestAServerWithoutAuthenticationOnTheNetworkWarnsInItsStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Nodes: 1, Later: true, Configure: func(_ int, cfg *transport.Config) {
			cfg.UnsafeNoAuthOnNetwork = true
		}})
		for host, want := range map[string]int{"127.0.1.1": 0, "10.0.0.1": 1} {
			c.Members[0].Host = host
			c.Restart(0)
			c.WaitReady()
			if s := clusterStatus(t, c, 0); len(s.Warnings) != want {
				t.Errorf("on %s the warnings are %q", host, s.Warnings)
			}
			c.Kill(0)
		}
	})
}
