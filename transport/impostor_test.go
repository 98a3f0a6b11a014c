package transport_test

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/node"
	"raftboard/transport"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// noStores makes it an error of the test that a member from first on opens its Raft state.
func noStores(t *testing.T, first int) func(int, *transport.Config) {
	return func(i int, cfg *transport.Config) {
		if i >= first {
			cfg.OpenStores = func(*node.Dir, hclog.Logger) (node.Stores, error) {
				t.Error("a copy of a live member opened its Raft state")
				return node.Stores{}, errors.New("it must not")
			}
		}
	}
}

// refusedAsCopy checks that a start failed because the id is in use at addr.
func refusedAsCopy(t *testing.T, err error, addr string) {
	t.Helper()
	var dir *node.DirError
	if !errors.As(err, &dir) || !strings.Contains(dir.What, "another process with this node's id is running at "+addr) ||
		!strings.Contains(dir.Hint, "a data directory belongs to one process") {
		t.Errorf("a copy of the directory of the node at %s started with: %v", addr, err)
	}
}

// whole checks that every node reaches every other and that the record of node i is its own.
func whole(t *testing.T, c *clustertest.Cluster, i int) bool {
	for j := range c.Members[:3] {
		s := clusterStatus(t, c, j)
		if s.Health != "healthy" || len(s.Nodes) != 3 {
			return false
		}
		for _, n := range s.Cluster.Nodes {
			if n.Id == c.Members[i].Server.NodeID() && n.GrpcAddr != c.Addr(i) {
				return false
			}
		}
	}
	return true
}

func TestP26T78ACopyOfALiveMembersDirectoryIsRefusedAndOpensNothing(t *testing.T) {
	for _, role := range []string{"leader", "follower"} {
		bubble(t, func(t *testing.T) {
			c := clustertest.Start(t, clustertest.Options{Configure: noStores(t, 3)})
			as(t, c, "w1", 0).ok(set("results/w1/a", "1"))
			victim := c.Leader()
			if role == "follower" {
				victim = c.Follower()
			}
			copied := c.Copy(victim)
			refusedAsCopy(t, c.TryRestart(copied.Index), c.Addr(victim))
			if !whole(t, c, victim) {
				t.Errorf("a refused copy of the %s left the cluster as %v", role, clusterStatus(t, c, victim))
			}
			as(t, c, "w1", victim).ok(set("results/w1/a", "2"))
		})
	}
}

func TestP26T78ACopyThatStatesTheAddressesOfTheOriginalIsRefusedToo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var states transport.Config
		c := clustertest.Start(t, clustertest.Options{Configure: func(i int, cfg *transport.Config) {
			noStores(t, 3)(i, cfg)
			if i == 3 {
				cfg.AdvertiseGRPC, cfg.AdvertiseRaft = states.GRPCAddr, states.RaftAddr
			}
		}})
		victim := c.Follower()
		states.GRPCAddr, states.RaftAddr = c.Addr(victim), c.Members[victim].Server.RaftAddr()
		copied := c.Copy(victim)
		refusedAsCopy(t, c.TryRestart(copied.Index), c.Addr(victim))
	})
}

func TestP26T78ACopyThatReachesOnlyOneOfThemIsRefusedAllTheSame(t *testing.T) {
	for _, reached := range []string{"the original", "a peer"} {
		bubble(t, func(t *testing.T) {
			c := clustertest.Start(t, clustertest.Options{Configure: noStores(t, 3)})
			victim := c.Follower()
			copied := c.Copy(victim)
			c.Isolate(copied.Index)
			only := c.Members[victim].Host
			if reached == "a peer" {
				only = c.Members[c.Follower(victim)].Host
			}
			c.Net.SetCut(copied.Host, only, false)
			c.Net.SetCut(only, copied.Host, false)
			refusedAsCopy(t, c.TryRestart(copied.Index), c.Addr(victim))
		})
	}
}

func TestP27AMemberThatReachesNobodyStartsAtANewAddressAllTheSame(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		moved := c.Follower()
		c.Kill(moved)
		c.Isolate(moved)
		before := c.Members[moved].Host
		c.Members[moved].Host = "127.0.3.1"
		c.Isolate(moved)
		c.Net.SetCut(c.Members[moved].Host, before, true)
		began := time.Now()
		c.Restart(moved)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it started after %v", took)
		}
		c.Rejoin(moved)
		c.Eventually("it is a member again", func() bool { return whole(t, c, moved) })
	})
}

func TestP27NoDoorTakesAnAddressForAnIDThatIsAliveElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		leader, victim := c.Leader(), c.Follower()
		s := clusterStatus(t, c, leader)
		forged := &boardpb.Node{Id: c.Members[victim].Server.NodeID(), Name: c.Members[victim].Name,
			RaftAddr: "127.0.9.9:1", GrpcAddr: "127.0.9.9:2", MaxLevel: 1, Version: "test"}
		timing := &wirepb.Timing{HeartbeatMs: 1000, ElectionMs: 1000, LeaseMs: 500}
		for i := range c.Members {
			peer := wirepb.NewPeerClient(c.Conn("client", i))
			hello := &wirepb.HelloRequest{ClusterId: s.ClusterId, Node: forged, Timing: timing}
			for _, cluster := range []string{s.ClusterId, ""} {
				hello.ClusterId = cluster
				if answer, err := peer.Hello(t.Context(), hello); err != nil || !strings.Contains(answer.Refused, c.Addr(victim)) {
					t.Errorf("hello at node %d: %v, %v", i, answer, err)
				}
			}
			_, err := peer.Join(t.Context(), &wirepb.JoinRequest{ClusterId: s.ClusterId, Node: forged, Timing: timing})
			if r := detail(t, err); r.Code != boardpb.Code_CODE_EXISTS || !strings.Contains(r.Message, c.Addr(victim)) ||
				!strings.Contains(r.Hint, "one process") {
				t.Errorf("join at node %d: %v", i, r)
			}
			if i == victim {
				continue
			}
			hello.ClusterId, hello.To = s.ClusterId, c.Members[i].Server.NodeID()
			if answer := raftHello(t, c, i, hello); !strings.Contains(answer.Refused, c.Addr(victim)) {
				t.Errorf("the Raft port of node %d answers %v", i, answer)
			}
		}
		if !whole(t, c, victim) {
			t.Errorf("the cluster is %v", clusterStatus(t, c, leader))
		}
	})
}

// raftHello begins a connection to the Raft port of a node.
func raftHello(t *testing.T, c *clustertest.Cluster, i int, hello *wirepb.HelloRequest) *wirepb.HelloResponse {
	t.Helper()
	conn, err := c.Dial(t.Context(), c.Members[i].Server.RaftAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body, err := proto.Marshal(hello)
	if err != nil {
		t.Fatal(err)
	}
	frame := append(binary.BigEndian.AppendUint32([]byte("RBR1"), uint32(len(body))), body...)
	if _, err := conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 8)
	if _, err := io.ReadFull(conn, head); err != nil {
		t.Fatal(err)
	}
	body = make([]byte, binary.BigEndian.Uint32(head[4:]))
	if _, err := io.ReadFull(conn, body); err != nil {
		t.Fatal(err)
	}
	answer := new(wirepb.HelloResponse)
	if err := proto.Unmarshal(body, answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestP27ACopyThatWasBelievedIsForgottenWithinSecondsOfItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		as(t, c, "w1", 0).ok(set("results/w1/a", "1"))
		time.Sleep(20 * time.Second) // what a start announces is long over
		victim := c.Follower()
		copied := c.Copy(victim)
		c.Isolate(victim) // nobody can ask the original: its copy is believed
		c.Restart(copied.Index)
		leader := c.Leader(victim, copied.Index)
		c.Eventually("the record names the copy", func() bool {
			for _, n := range clusterStatus(t, c, leader).Cluster.Nodes {
				if n.Id == c.Members[victim].Server.NodeID() {
					return n.GrpcAddr == c.Addr(copied.Index)
				}
			}
			return false
		})
		c.Rejoin(victim)
		time.Sleep(20 * time.Second) // both live: the one that is known keeps the id, the other one does not end
		c.Kill(copied.Index)
		began := time.Now()
		c.Eventually("the original is known to all again", func() bool { return whole(t, c, victim) })
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("that took %v", took)
		}
		as(t, c, "w1", victim).ok(set("results/w1/a", "2"))
	})
}
