package transport_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	boardpb "raftboard/fsm/pb"
	"raftboard/node"
	"raftboard/transport"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// operator speaks to a node as one.
func operator(t *testing.T, c *clustertest.Cluster, i int) (wirepb.ClusterClient, context.Context) {
	return wirepb.NewClusterClient(c.Conn("client", i)), clustertest.As(t.Context(), "op")
}

func clusterStatus(t *testing.T, c *clustertest.Cluster, i int) *wirepb.StatusResponse {
	t.Helper()
	op, ctx := operator(t, c, i)
	answer, err := op.Status(ctx, &wirepb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// voters counts those of a node's configuration.
func voters(t *testing.T, c *clustertest.Cluster, i int) uint32 { return clusterStatus(t, c, i).Voters }

func TestAFreshNodeJoinsByItselfAndVotesWhenItHasCaughtUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		as(t, c, "w1", 0).ok(set("results/w1/a", "1"))
		m := c.Add("n4")
		c.Eventually("n4 has a vote", func() bool { return voters(t, c, m.Index) == 4 })
		if got := as(t, c, "w1", m.Index).value("results/w1/a"); got != "1" {
			t.Errorf("n4 reads %q", got)
		}
	})
}

func TestASingleNodeFoundsItsClusterAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Nodes: 1})
		as(t, c, "w1", 0).ok(set("results/w1/a", "1"))
		c.Kill(0)
		c.Restart(0)
		c.WaitReady()
		if got := as(t, c, "w1", 0).value("results/w1/a"); got != "1" {
			t.Errorf("after a restart it reads %q", got)
		}
		s := clusterStatus(t, c, 0)
		if s.Health != "healthy" || s.Voters != 1 || s.CanLose != 0 || s.ClusterName != "test" || s.Leader.GetName() != "n1" {
			t.Errorf("status is %v", s)
		}
	})
}

func TestP26TwoNodesOfThreeFoundNothingAndTheThirdCompletesIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Later: true})
		c.Restart(1)
		c.Restart(2)
		time.Sleep(time.Minute)
		for _, i := range []int{1, 2} {
			if c.Members[i].Server.Node() != nil {
				t.Fatal("two of three founded a cluster")
			}
			if r := as(t, c, "w1", i).refused(set("results/w1/a", "1")); r.Code != boardpb.Code_CODE_UNAVAILABLE ||
				r.Proposed != boardpb.Proposed_PROPOSED_NO {
				t.Errorf("a node without a cluster answers %v", r)
			}
			if s := clusterStatus(t, c, i); s.Health != "no leader" || len(s.Warnings) == 0 {
				t.Errorf("its status is %v", s)
			}
		}
		c.Restart(0)
		c.WaitReady()
		if n := voters(t, c, 1); n != 3 {
			t.Errorf("%d voters", n)
		}
	})
}

func TestP26AFounderKilledAtAnyMomentResumesTheSameCluster(t *testing.T) {
	for after := 0 * time.Millisecond; after < time.Second; after += 97 * time.Millisecond {
		bubble(t, func(t *testing.T) {
			c := clustertest.Start(t, clustertest.Options{Later: true})
			for i := range c.Members {
				c.Restart(i)
			}
			time.Sleep(after)
			for _, i := range []int{0, 1} { // n1 founds; n2 accepts
				c.Kill(i)
			}
			time.Sleep(after)
			c.Restart(0)
			c.Restart(1)
			c.WaitReady()
			var cluster string
			for i := range c.Members {
				s := clusterStatus(t, c, i)
				if cluster == "" {
					cluster = s.ClusterId
				}
				if s.ClusterId != cluster || s.Voters != 3 {
					t.Fatalf("killed after %v: node %d belongs to %s with %d voters, another to %s", after, i, s.ClusterId, s.Voters, cluster)
				}
			}
		})
	}
}

func TestTwoFoundersWithOneNameAreTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Later: true, Configure: func(_ int, cfg *transport.Config) { cfg.Name = "same" }})
		for i := range c.Members {
			c.Restart(i)
		}
		time.Sleep(30 * time.Second)
		for i, m := range c.Members {
			if m.Server.Node() != nil {
				t.Fatal("nodes of one name founded a cluster")
			}
			op := wirepb.NewPeerClient(c.Conn("client", i))
			answer, err := op.Hello(t.Context(), &wirepb.HelloRequest{Node: &boardpb.Node{Id: "other", Name: "same"}})
			if err != nil || !strings.Contains(answer.Refused, "the name same is held by node") {
				t.Errorf("got %v, %v", answer, err)
			}
		}
	})
}

func TestT78AWipedNodeIsRefusedByItsNameAndTakesItsPlaceOnceTheOldOneIsRemoved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		as(t, c, "w1", 0).ok(set("results/w1/a", "1"))
		gone := c.Follower()
		name, oldID := c.Members[gone].Name, c.Members[gone].Server.NodeID()
		c.Kill(gone)
		c.Wipe(gone)
		c.Restart(gone)
		time.Sleep(30 * time.Second)
		if c.Members[gone].Server.Node() != nil {
			t.Fatal("a wiped node came back under the name of the one it was")
		}
		op, ctx := operator(t, c, c.Leader())
		if n := voters(t, c, c.Leader()); n != 3 {
			t.Errorf("the refused node changed the voters: %d", n)
		}
		// What it is told names the command.
		_, err := wirepb.NewPeerClient(c.Conn("client", c.Leader())).Join(t.Context(), &wirepb.JoinRequest{
			Node:   &boardpb.Node{Id: "fresh", Name: name, RaftAddr: "127.0.1.9:1", GrpcAddr: "127.0.1.9:2", MaxLevel: 1},
			Timing: &wirepb.Timing{HeartbeatMs: 1000, ElectionMs: 1000, LeaseMs: 500}})
		if r := detail(t, err); r.Code != boardpb.Code_CODE_EXISTS || !strings.Contains(r.Hint, "raftboard node remove "+oldID) {
			t.Errorf("got %v", r)
		}
		if _, err := op.Remove(ctx, &wirepb.RemoveRequest{Id: oldID}); err != nil {
			t.Fatal(err)
		}
		if _, err := op.Add(ctx, &wirepb.AddRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
		c.WaitReady()
		c.Eventually("the new node has a vote", func() bool { return voters(t, c, gone) == 3 })
		if got := as(t, c, "w1", gone).value("results/w1/a"); got != "1" {
			t.Errorf("it reads %q", got)
		}
		if s := clusterStatus(t, c, gone); len(s.Nodes) != 3 {
			t.Errorf("%d members, want 3", len(s.Nodes))
		}
	})
}

func TestT78ARemovedNodeThatReturnsSaysSoAndStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		gone := c.Follower()
		id := c.Members[gone].Server.NodeID()
		c.Kill(gone)
		op, ctx := operator(t, c, c.Follower())
		if _, err := op.Remove(ctx, &wirepb.RemoveRequest{Id: id}); err != nil { // passed on to the leader
			t.Fatal(err)
		}
		c.Restart(gone)
		var dir *node.DirError
		if err := c.Died(gone); !errors.As(err, &dir) || !strings.Contains(dir.What, "removed") || !strings.Contains(dir.Hint, "empty --data-dir") {
			t.Errorf("it stopped with %v", err)
		}
		for i := range c.Members {
			if i != gone && voters(t, c, i) != 2 {
				t.Errorf("node %d has %d voters", i, voters(t, c, i))
			}
		}
		as(t, c, "w1", c.Leader()).ok(set("results/w1/a", "1"))
	})
}

func TestRemovingARunningNodeStopsItWithTheReason(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		gone := c.Follower()
		op, ctx := operator(t, c, c.Leader())
		if _, err := op.Remove(ctx, &wirepb.RemoveRequest{Id: c.Members[gone].Name}); err != nil {
			t.Fatal(err)
		}
		var dir *node.DirError
		if err := c.Died(gone); !errors.As(err, &dir) || dir.Hint == "" || !strings.Contains(err.Error(), "removed") {
			t.Errorf("it stopped with %v", err)
		}
	})
}

func TestP25RemovingTheLeaderHandsOverFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		leader := c.Leader()
		op, ctx := operator(t, c, leader)
		if _, err := op.Remove(ctx, &wirepb.RemoveRequest{Id: c.Members[leader].Server.NodeID()}); err != nil {
			t.Fatal(err)
		}
		if err := c.Died(leader); err == nil {
			t.Error("the removed leader runs on")
		}
		as(t, c, "w1", c.Leader(leader)).ok(set("results/w1/a", "1"))
	})
}

func TestPromoteDemoteAndStepDownWorkFromAnyNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Configure: func(i int, cfg *transport.Config) { cfg.Nonvoter = i == 3 }})
		m := c.Add("n4")
		time.Sleep(20 * time.Second)
		if n := voters(t, c, m.Index); n != 3 {
			t.Fatalf("a node that joined without a vote made %d voters", n)
		}
		op, ctx := operator(t, c, m.Index)
		if _, err := op.Promote(ctx, &wirepb.PromoteRequest{Id: "n4"}); err != nil {
			t.Fatal(err)
		}
		if n := voters(t, c, c.Leader()); n != 4 {
			t.Errorf("%d voters after promote", n)
		}
		if _, err := op.Demote(ctx, &wirepb.DemoteRequest{Id: "n4"}); err != nil {
			t.Fatal(err)
		}
		if n := voters(t, c, c.Leader()); n != 3 {
			t.Errorf("%d voters after demote", n)
		}
		old, to := c.Leader(), c.Follower(m.Index)
		answer, err := op.StepDown(ctx, &wirepb.StepDownRequest{To: c.Members[to].Name})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Leader(); got != to || got == old {
			t.Errorf("node %d leads (%v), want %d", got, answer, to)
		}
		if _, err := op.Promote(ctx, &wirepb.PromoteRequest{Id: "nobody"}); detail(t, err).Code != boardpb.Code_CODE_NOT_FOUND {
			t.Errorf("an unknown node: %v", err)
		}
	})
}

func TestP34ANodeWithOtherTimingIsNotLetIn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		_, err := wirepb.NewPeerClient(c.Conn("client", 0)).Join(t.Context(), &wirepb.JoinRequest{
			Node:   &boardpb.Node{Id: "fresh", Name: "n9", RaftAddr: "127.0.1.9:1", GrpcAddr: "127.0.1.9:2", MaxLevel: 1},
			Timing: &wirepb.Timing{HeartbeatMs: 2000, ElectionMs: 2000, LeaseMs: 500}})
		if r := detail(t, err); status.Code(err) != codes.FailedPrecondition || r.Hint == "" {
			t.Errorf("got %v", err)
		}
	})
}

func TestP27ARestartOfAllFindsTheOthersByTheAddressBook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		alone := false
		c := clustertest.Start(t, clustertest.Options{Configure: func(_ int, cfg *transport.Config) {
			if alone {
				cfg.Join, cfg.BootstrapExpect = nil, 0
			}
		}})
		as(t, c, "w1", 0).ok(set("results/w1/a", "1"))
		for i := range c.Members {
			c.Kill(i)
		}
		alone = true
		for i := range c.Members {
			c.Restart(i)
		}
		began := time.Now()
		c.WaitReady()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("ready after %v", took)
		}
		if got := as(t, c, "w1", 1).value("results/w1/a"); got != "1" {
			t.Errorf("it reads %q", got)
		}
	})
}

func TestT79AllNodesMoveToNewAddressesAndStayThreeMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		as(t, c, "w1", 0).ok(set("results/w1/a", "1"))
		for i := range c.Members {
			c.Kill(i)
		}
		for i, m := range c.Members {
			m.Host = net.IPv4(127, 0, 2, byte(i+1)).String()
		}
		for i := range c.Members {
			c.Restart(i)
		}
		began := time.Now()
		c.WaitReady()
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("ready after %v", took)
		}
		// Then one moves alone, and the record follows.
		moved := c.Follower()
		c.Kill(moved)
		c.Members[moved].Host = "127.0.3.1"
		c.Restart(moved)
		c.WaitReady()
		c.Eventually("the record has the new addresses", func() bool {
			for _, n := range clusterStatus(t, c, c.Leader()).Cluster.Nodes {
				if n.Id == c.Members[moved].Server.NodeID() {
					return n.GrpcAddr == c.Addr(moved)
				}
			}
			return false
		})
		if s := clusterStatus(t, c, c.Leader()); len(s.Nodes) != 3 || s.Health != "healthy" {
			t.Errorf("status is %v", s)
		}
		as(t, c, "w1", moved).ok(set("results/w1/a", "2"))
	})
}

// memberAddrs asks a node as any worker may.
func memberAddrs(t *testing.T, c *clustertest.Cluster, i int) (*wirepb.MembersResponse, []string) {
	t.Helper()
	began := time.Now()
	answer, err := wirepb.NewClusterClient(c.Conn("client", i)).Members(clustertest.As(t.Context(), "w1"), &wirepb.MembersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 100*time.Millisecond {
		t.Errorf("the members took %v", took)
	}
	var addrs []string
	for _, m := range answer.Members {
		addrs = append(addrs, m.GrpcAddr)
	}
	slices.Sort(addrs)
	return answer, addrs
}

func TestEveryNodeTellsTheMembersAtOnceFromItsOwnState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		gone := c.Follower()
		stays := c.Follower(gone)
		answer, addrs := memberAddrs(t, c, stays)
		want := c.Addrs()
		if !slices.Equal(addrs, want) || answer.ClusterId == "" || answer.NodeId != c.Members[stays].Server.NodeID() ||
			answer.Leader.GetGrpcAddr() != c.Addr(c.Leader()) || answer.Applied == 0 {
			t.Fatalf("got %v", answer)
		}
		op, ctx := operator(t, c, c.Leader())
		if _, err := op.Remove(ctx, &wirepb.RemoveRequest{Id: c.Members[gone].Name}); err != nil {
			t.Fatal(err)
		}
		c.Died(gone)
		want = slices.DeleteFunc(want, func(addr string) bool { return addr == c.Addr(gone) })
		c.Eventually("the removed node is none of them", func() bool {
			_, addrs = memberAddrs(t, c, stays)
			return slices.Equal(addrs, want)
		})
		before, _ := memberAddrs(t, c, stays)
		if before.Applied <= answer.Applied {
			t.Errorf("the newer list is at %d, the older at %d", before.Applied, answer.Applied)
		}

		// Alone, without a leader, it still says what it knows.
		c.Kill(c.Leader())
		time.Sleep(time.Minute)
		if answer, addrs := memberAddrs(t, c, stays); !slices.Equal(addrs, want) || answer.Leader != nil {
			t.Errorf("without a leader: %v", answer)
		}
	})
}

func TestANodeWithoutAClusterKnowsNoMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Later: true})
		c.Restart(0)
		if answer, addrs := memberAddrs(t, c, 0); len(addrs) != 0 || answer.NodeId == "" || answer.ClusterId != "" || answer.Leader != nil {
			t.Errorf("got %v", answer)
		}
	})
}

func TestStatusNamesWhoDoesNotAnswerWithinABound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		if s := clusterStatus(t, c, 0); s.Health != "healthy" || s.CanLose != 1 || len(s.Nodes) != 3 || s.Leader == nil {
			t.Fatalf("status of a whole cluster is %v", s)
		}
		c.Isolate(c.Follower())
		began := time.Now()
		s := clusterStatus(t, c, c.Leader())
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("status took %v", took)
		}
		var unreachable int
		for _, n := range s.Nodes {
			if n.Role == "unreachable" && n.Note != "" && n.Suffrage == "voter" {
				unreachable++
			}
		}
		if unreachable != 1 || s.Health != "degraded" || s.CanLose != 0 {
			t.Errorf("got %v", s)
		}
	})
}

func TestSettingsAndSnapshotsOfTheCluster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		op, ctx := operator(t, c, c.Follower())
		grace := int64(2000)
		if got, err := op.Settings(ctx, &wirepb.SettingsRequest{GraceMs: &grace, IdempotencyKey: "k"}); err != nil || got.GraceMs != 2000 {
			t.Fatalf("got %v, %v", got, err)
		}
		if got, err := op.Settings(ctx, &wirepb.SettingsRequest{}); err != nil || got.GraceMs != 2000 || got.Level == 0 {
			t.Errorf("got %v, %v", got, err)
		}
		stream, err := op.Snapshot(ctx, &wirepb.SnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		bytes := 0
		for {
			chunk, err := stream.Recv()
			if err != nil {
				break
			}
			bytes += len(chunk.Data)
			if chunk.Index == 0 || chunk.Term == 0 {
				t.Errorf("a chunk without its index and term: %v", chunk)
			}
		}
		if bytes == 0 {
			t.Error("an empty snapshot")
		}
	})
}
