package transport_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	boardpb "raftboard/fsm/pb"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// bubble runs a test in virtual time.
func bubble(t *testing.T, run func(t *testing.T)) { synctest.Test(t, run) }

// set overwrites an owned key.
func set(key, value string) *boardpb.Command {
	return &boardpb.Command{Board: "default", Op: &boardpb.Command_Set{Set: &boardpb.Set{
		Key: key, Value: []byte(value), Overwrite: true,
	}}}
}

// add appends an item.
func add(key, value string) *boardpb.Command {
	return &boardpb.Command{Board: "default", Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: key, Value: []byte(value)}}}
}

// caller is one client of one node.
type caller struct {
	t     *testing.T
	board wirepb.BoardClient
	ctx   context.Context
}

func as(t *testing.T, c *clustertest.Cluster, name string, node int) caller {
	return caller{t, wirepb.NewBoardClient(c.Conn("client", node)), clustertest.As(t.Context(), name)}
}

// apply proposes and fails the test on anything but a Result.
func (c caller) apply(cmd *boardpb.Command) *boardpb.Result {
	c.t.Helper()
	answer, err := c.board.Apply(c.ctx, &wirepb.ApplyRequest{Command: cmd})
	if err != nil {
		c.t.Fatalf("%v: %v", cmd, err)
	}
	return answer.Result
}

// ok is apply for what must succeed.
func (c caller) ok(cmd *boardpb.Command) *boardpb.Result {
	c.t.Helper()
	r := c.apply(cmd)
	if r.Outcome != boardpb.Outcome_OUTCOME_OK {
		c.t.Fatalf("%v: %v", cmd, r)
	}
	return r
}

// refused is apply for what must not; it answers the Result inside the error.
func (c caller) refused(cmd *boardpb.Command) *boardpb.Result {
	c.t.Helper()
	answer, err := c.board.Apply(c.ctx, &wirepb.ApplyRequest{Command: cmd})
	if err == nil {
		c.t.Fatalf("%v was not refused: %v", cmd, answer.Result)
	}
	return detail(c.t, err)
}

// detail finds the Result in an error.
func detail(t *testing.T, err error) *boardpb.Result {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if r, ok := d.(*boardpb.Result); ok {
			return r
		}
	}
	t.Fatalf("an error without a Result: %v", err)
	return nil
}

func getQuery(key string) *wirepb.ReadRequest {
	return &wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_Get{Get: &wirepb.GetQuery{Key: key}}}
}

// value reads a key, "" if it is not there.
func (c caller) value(key string) string {
	c.t.Helper()
	answer, err := c.board.Read(c.ctx, getQuery(key))
	if status.Code(err) == codes.NotFound {
		return ""
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return string(answer.GetGet().Entry.Value)
}

// items reads what an append key holds, oldest first.
func (c caller) items(key string) (values []string) {
	c.t.Helper()
	answer, err := c.board.Read(c.ctx, &wirepb.ReadRequest{Board: "default",
		Query: &wirepb.ReadRequest_History{History: &wirepb.HistoryQuery{Key: key}}})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range answer.GetHistory().Entries {
		values = append([]string{string(e.Value)}, values...)
	}
	return values
}

// openLoop opens a loop and answers its id.
func (c caller) openLoop() string {
	c.t.Helper()
	return c.ok(&boardpb.Command{Board: "default", IdempotencyKey: "open", Op: &boardpb.Command_LoopOpen{
		LoopOpen: &boardpb.LoopOpen{Nonce: "n", TtlMs: 600_000}}}).Loop
}

func TestAFollowerForwardsAWriteAndEveryAnswerNamesTheLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		leader := c.Members[c.Leader()].Server
		for i := range c.Members {
			w := as(t, c, "w1", i)
			answer, err := w.board.Apply(w.ctx, &wirepb.ApplyRequest{Command: set(fmt.Sprintf("results/w1/%d", i), "1")})
			if err != nil || answer.Result.Outcome != boardpb.Outcome_OUTCOME_OK {
				t.Fatalf("%v, %v", answer, err)
			}
			if answer.NodeId != c.Members[i].Server.NodeID() || answer.Leader.GetNodeId() != leader.NodeID() ||
				answer.Leader.GrpcAddr != leader.GRPCAddr() || answer.Leader.Term == 0 {
				t.Errorf("node %d answered as %s and names the leader %v", i, answer.NodeId, answer.Leader)
			}
			read, err := w.board.Read(w.ctx, getQuery(fmt.Sprintf("results/w1/%d", i)))
			if err != nil {
				t.Fatal(err)
			}
			if read.GetGet().Entry.GetAuthor() != "w1" || read.Rev == 0 || read.Leader.GetNodeId() != leader.NodeID() ||
				read.NodeId != c.Members[i].Server.NodeID() || read.Incarnation == "" || read.WallMs == 0 {
				t.Errorf("node %d read %v", i, read)
			}
		}
	})
}

// peerCall is a context of a call that claims to come from a node.
func peerCall(t *testing.T, c *clustertest.Cluster, from int) context.Context {
	t.Helper()
	operator := wirepb.NewClusterClient(c.Conn("client", from))
	answer, err := operator.Status(clustertest.As(t.Context(), "op"), &wirepb.StatusRequest{Local: true})
	if err != nil {
		t.Fatal(err)
	}
	return signed(t, answer.ClusterId, answer.NodeId)
}

// signed is a context of a call that says it is from a node of a cluster.
func signed(t *testing.T, cluster, node string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "raftboard-cluster", cluster, "raftboard-node", node)
}

func TestP33AForwardedCommandIsNeverForwardedFurther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		follower := c.Follower()
		stream, err := wirepb.NewPeerClient(c.Conn("client", follower)).Forward(peerCall(t, c, c.Leader()))
		if err != nil {
			t.Fatal(err)
		}
		cmd := set("results/w1/a", "1")
		cmd.Actor = &boardpb.Actor{Principal: "w1"}
		if err := stream.Send(&wirepb.ForwardRequest{Id: 1, Command: cmd}); err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if r := answer.Result; r.Code != boardpb.Code_CODE_UNAVAILABLE || r.Proposed != boardpb.Proposed_PROPOSED_NO {
			t.Errorf("a follower answered a forwarded command with %v", r)
		}
		if answer.Leader.GetNodeId() != c.Members[c.Leader()].Server.NodeID() {
			t.Errorf("it names %v as the leader", answer.Leader)
		}
	})
}

func TestNobodyClaimsAnotherNameAlsoNotThroughForwarding(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		for _, i := range []int{c.Leader(), c.Follower()} {
			w := as(t, c, "w1", i)
			forged := set("results/victim/a", "1")
			forged.Actor = &boardpb.Actor{Principal: "victim", Roles: []boardpb.Role{boardpb.Role_ROLE_OPERATOR}}
			if r := w.refused(forged); r.Code != boardpb.Code_CODE_BAD_REQUEST || r.Field != "command.actor" {
				t.Errorf("node %d: a forged actor got %v", i, r)
			}
			if r := w.refused(set("results/victim/a", "1")); r.Code != boardpb.Code_CODE_FORBIDDEN {
				t.Errorf("node %d: another's key got %v", i, r)
			}
			// On the session stream the name is that of the stream.
			s := openSession(t, w)
			forged = set("results/victim/a", "1")
			forged.Actor = &boardpb.Actor{Principal: "victim"}
			if r := s.apply(1, forged); r.Code != boardpb.Code_CODE_BAD_REQUEST {
				t.Errorf("node %d: a forged actor on a session got %v", i, r)
			}
		}
		if got := as(t, c, "w1", c.Leader()).value("results/victim/a"); got != "" {
			t.Errorf("the victim's key holds %s", got)
		}
		// Peer accepts an actor, and answers only nodes of this cluster.
		for what, ctx := range map[string]context.Context{
			"a client":         clustertest.As(t.Context(), "w1"),
			"another cluster":  signed(t, "x", c.Members[0].Server.NodeID()),
			"an unknown node":  signed(t, clusterStatus(t, c, 0).ClusterId, "x"),
			"the node itself":  peerCall(t, c, c.Leader()),
			"nobody in person": t.Context(),
		} {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			stream, err := wirepb.NewPeerClient(c.Conn("client", c.Leader())).Forward(ctx)
			if err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s may forward: %v", what, err)
			}
		}
	})
}

// lateAnswer is a Result that arrives on a channel.
func lateAnswer(w caller, ctx context.Context, cmd *boardpb.Command) <-chan *boardpb.Result {
	answered := make(chan *boardpb.Result, 1)
	go func() {
		answer, err := w.board.Apply(ctx, &wirepb.ApplyRequest{Command: cmd})
		if err != nil {
			for _, d := range status.Convert(err).Details() {
				if r, ok := d.(*boardpb.Result); ok {
					answered <- r
					return
				}
			}
			answered <- &boardpb.Result{Code: boardpb.Code_CODE_INTERNAL, Message: err.Error()}
			return
		}
		answered <- answer.Result
	}()
	return answered
}

func TestT74WithoutAMajorityEveryCallIsUnavailableWithinFiveSeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		leader := c.Leader()
		as(t, c, "w1", leader).ok(set("results/w1/a", "1"))
		time.Sleep(time.Second) // quiet followers hear of the commit
		for i := range c.Members {
			c.Isolate(i)
		}
		check := func(when string) {
			for i := range c.Members {
				w := as(t, c, "w1", i)
				began := time.Now()
				r := w.refused(set("results/w1/a", "2"))
				if took := time.Since(began); r.Code != boardpb.Code_CODE_UNAVAILABLE || took > 5*time.Second {
					t.Errorf("%s, node %d: a write got %v after %v", when, i, r, took)
				}
				began = time.Now()
				_, err := w.board.Read(w.ctx, getQuery("results/w1/a"))
				if took := time.Since(began); status.Code(err) != codes.Unavailable || took > 5*time.Second {
					t.Errorf("%s, node %d: a read got %v after %v", when, i, err, took)
				}
				stale := getQuery("results/w1/a")
				stale.Consistency = wirepb.Consistency_CONSISTENCY_STALE
				if read, err := w.board.Read(w.ctx, stale); err != nil || string(read.GetGet().Entry.Value) != "1" || read.Rev == 0 {
					t.Errorf("%s, node %d: a stale read got %v, %v", when, i, read, err)
				}
			}
		}
		check("at once")
		time.Sleep(time.Minute)
		check("a minute later")
		for i := range c.Members {
			c.Rejoin(i)
		}
		c.WaitReady()
		as(t, c, "w1", c.Follower()).ok(set("results/w1/a", "3"))
	})
}

func TestT74ANodeCutOffFromItsPeersSaysSoAndTheOthersServe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		old := c.Leader()
		c.Isolate(old)
		began := time.Now()
		r := as(t, c, "w1", old).refused(set("results/w1/a", "1"))
		if took := time.Since(began); r.Code != boardpb.Code_CODE_UNAVAILABLE || took > 5*time.Second {
			t.Errorf("the cut-off leader answered %v after %v", r, took)
		}
		w := as(t, c, "w1", c.Leader(old))
		w.ok(set("results/w1/b", "1"))
		if got := w.value("results/w1/b"); got != "1" {
			t.Errorf("the majority reads %q", got)
		}
		if err := c.Members[old].Server.Ready(); err == nil {
			t.Error("the cut-off node still calls itself ready")
		}
	})
}

func TestAWriteIsNotAcknowledgedAndNotVisibleBeforeAMajorityHasIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		leader := c.Leader()
		w := as(t, c, "w1", leader)
		w.ok(set("results/w1/a", "1"))
		time.Sleep(time.Second) // quiet followers hear of the commit
		c.Isolate(leader)
		answered := lateAnswer(w, w.ctx, set("results/w1/a", "2"))
		time.Sleep(200 * time.Millisecond)
		select {
		case r := <-answered:
			t.Fatalf("answered without a majority: %v", r)
		default:
		}
		for i := range c.Members {
			stale := getQuery("results/w1/a")
			stale.Consistency = wirepb.Consistency_CONSISTENCY_STALE
			read, err := as(t, c, "w1", i).board.Read(w.ctx, stale)
			if err != nil || string(read.GetGet().Entry.Value) != "1" {
				t.Errorf("node %d shows %v, %v", i, read.GetGet(), err)
			}
		}
		if r := <-answered; r.Code != boardpb.Code_CODE_UNAVAILABLE || r.Proposed != boardpb.Proposed_PROPOSED_UNKNOWN {
			t.Errorf("the write was answered with %v", r)
		}
		next := as(t, c, "w1", c.Leader(leader))
		next.ok(set("results/w1/b", "1"))
		c.Rejoin(leader)
		c.WaitReady()
		// Nothing of it committed on the majority's side, so nothing of it may show now.
		if got := as(t, c, "w1", leader).value("results/w1/a"); got != "1" {
			t.Errorf("the old leader shows %q after it rejoined", got)
		}
	})
}

func TestT34AnAnswerThatWasLostIsGivenAgainByAnotherNodeAndTheWriteHappensOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		leader, follower := c.Leader(), c.Follower()
		loop := as(t, c, "w1", leader).openLoop()
		item := add("facts/x", `"item"`)
		item.Loop, item.Seq, item.Floor = loop, 1, 1
		// The answer of the node that was asked never arrives; then the leader dies.
		lossy := caller{t, wirepb.NewBoardClient(c.Conn("lossy", follower)), clustertest.As(t.Context(), "w1")}
		lossy.ok(set("results/w1/warm", "1"))
		c.Net.SetCut(c.Members[follower].Host, "lossy", true)
		ctx, cancel := context.WithTimeout(lossy.ctx, 500*time.Millisecond)
		defer cancel()
		if r := <-lateAnswer(lossy, ctx, item); r.Outcome == boardpb.Outcome_OUTCOME_OK {
			t.Fatalf("the cut did not lose the answer: %v", r)
		}
		c.Kill(leader)
		for i := range c.Members {
			if i == leader {
				continue
			}
			w := as(t, c, "w1", i)
			r := w.ok(item)
			if !r.Replayed || r.Version != 1 {
				t.Errorf("node %d: the repeat got %v", i, r)
			}
			other := add("facts/x", `"other"`)
			other.Loop, other.Seq, other.Floor = loop, 1, 1
			if r := w.refused(other); r.Code != boardpb.Code_CODE_REQUEST_ID_REUSED {
				t.Errorf("node %d: another body got %v", i, r)
			}
			if items := w.items("facts/x"); len(items) != 1 {
				t.Errorf("node %d holds %v", i, items)
			}
		}
		w := as(t, c, "w1", follower)
		far := add("facts/x", `"far"`)
		far.Loop, far.Seq, far.Floor = loop, 2+256, 2
		if r := w.refused(far); r.Code != boardpb.Code_CODE_LIMIT_IN_FLIGHT {
			t.Errorf("a seq 256 above the floor got %v", r)
		}
		above := set("results/w1/b", "1")
		above.Loop, above.Seq, above.Floor = loop, 2, 2
		w.ok(above)
		if r := w.refused(item); r.Code != boardpb.Code_CODE_EXPIRED_REQUEST {
			t.Errorf("a repeat below the floor got %v", r)
		}
		if items := w.items("facts/x"); len(items) != 1 {
			t.Errorf("in the end: %v", items)
		}
	})
}

func TestForwardedCommandsEndAsUnknownWhenAnotherLeaderIsHeardOf(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		leader, follower := c.Leader(), c.Follower()
		w := as(t, c, "w1", follower)
		w.ok(set("results/w1/a", "1")) // the forwarding stream is open
		// The leader takes the command and cannot answer any more: its peers elect another.
		c.Net.SetCut(c.Members[leader].Host, c.Members[follower].Host, true)
		c.Net.SetCut(c.Members[leader].Host, c.Members[3-leader-follower].Host, true)
		began := time.Now()
		r := <-lateAnswer(w, w.ctx, set("results/w1/a", "2"))
		if r.Code != boardpb.Code_CODE_UNAVAILABLE || r.Proposed != boardpb.Proposed_PROPOSED_UNKNOWN {
			t.Errorf("got %v", r)
		}
		// The bound of a call is 4.5 s; hearing of the new term ends it sooner.
		if took := time.Since(began); took > 4400*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		c.Leader(leader)
		if got := w.value("results/w1/a"); got != "1" && got != "2" {
			t.Errorf("the key holds %q", got)
		}
	})
}

func TestALeaderThatDiesCostsCallersAPauseAndNoError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		leader, follower := c.Leader(), c.Follower()
		w := as(t, c, "w1", follower)
		loop := w.openLoop()
		c.Kill(leader)
		began := time.Now()
		// Not done is repeated by the server itself, unknown by the client under the same identity.
		cmd := set("results/w1/a", "1")
		cmd.Loop, cmd.Seq, cmd.Floor = loop, 1, 1
		for tries := 1; ; tries++ {
			r := <-lateAnswer(w, w.ctx, cmd)
			if r.Outcome == boardpb.Outcome_OUTCOME_OK {
				t.Logf("the write took %v and %d tries", time.Since(began), tries)
				break
			}
			if r.Code != boardpb.Code_CODE_UNAVAILABLE || tries > 3 {
				t.Fatalf("try %d: %v", tries, r)
			}
		}
	})
}
