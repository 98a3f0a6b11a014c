package client_test

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// replace puts a fresh node at another address into a member's place.
func replace(t *testing.T, cluster *clustertest.Cluster, op *client.Cluster, gone int) {
	t.Helper()
	ctx := background(t)
	m := cluster.Add(fmt.Sprintf("n%d", cluster.Count()+1))
	cluster.Eventually("the fresh node votes", func() bool {
		s, err := op.Status(ctx, false)
		for _, n := range s.GetNodes() {
			if n.Id == m.Server.NodeID() {
				return err == nil && n.Suffrage == "voter"
			}
		}
		return false
	})
	if _, err := op.Remove(ctx, cluster.Members[gone].Server.NodeID()); err != nil {
		t.Fatalf("remove n%d: %v", gone+1, err)
	}
	cluster.Died(gone)
}

func TestAClientOutlivesEveryNodeOfItsConfig(t *testing.T) {
	for _, once := range []struct {
		name  string
		write bool // the others only watch
	}{{"writing", true}, {"watching", false}} {
		t.Run(once.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
				ctx := background(t)
				all := cluster.Addrs()
				for i := 4; i <= 6; i++ {
					all = append(all, fmt.Sprintf("127.0.1.%d:8970", i))
				}
				op := dial(t, cluster, "op", all...).Cluster()
				c := dial(t, cluster, "w1", cluster.Addrs()...)
				l := openLoop(t, c, client.LoopOptions{TTL: time.Hour})
				write := func() {
					t.Helper()
					res, err := appendTo(ctx, l)
					ok(t, "append", res, err)
				}
				write()
				if !once.write {
					if _, err := c.Board("default").Watch(ctx, client.WatchOptions{Patterns: []string{"**"}}); err != nil {
						t.Fatal(err)
					}
				}
				for gone := range 3 {
					replace(t, cluster, op, gone)
					for range 3 {
						time.Sleep(20 * time.Second)
						if once.write {
							write()
						}
					}
				}
				write()
				cluster.Kill(cluster.Leader())
				write()
			})
		})
	}
}

// writeOnce writes and lets what it sets off come to its end.
func writeOnce(t *testing.T, c *client.Client) {
	t.Helper()
	if err := c.DoBare(background(t), anAppend()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	time.Sleep(100 * time.Millisecond)
}

func anAppend() *boardpb.Command {
	return &boardpb.Command{Board: "default", IdempotencyKey: rand.Text(), Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/x", Value: []byte("1")}}}
}

func endpointsAre(t *testing.T, c *client.Client, want ...string) {
	t.Helper()
	if got := c.Endpoints(); !slices.Equal(got, want) {
		t.Errorf("knows %v, want %v", got, want)
	}
}

// ledBy makes a node name another as the leader.
func ledBy(addr string, term uint64) func(*call) *wirepb.SessionResponse {
	return func(c *call) *wirepb.SessionResponse {
		return c.appliedBy(&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK}, &wirepb.Leader{NodeId: "id-" + addr, GrpcAddr: addr, Term: term})
	}
}

func TestTheEndpointsFollowTheMembersAndNothingUnderWayIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1", "n2:1", "n3:1", "n4:1")
		c := s.client(client.Config{}, "n1:1", "n2:1")
		s.nodes["n1:1"].knows(1, "n1:1", "n2:1", "n3:1")
		s.nodes["n1:1"].play(ledBy("n3:1", 1))
		writeOnce(t, c)
		endpointsAre(t, c, "n1:1", "n2:1", "n3:1")

		// A call waits at n3 while n4 takes the lead, and n1 and n3 the way out.
		release := make(chan struct{})
		s.nodes["n3:1"].play(func(c *call) *wirepb.SessionResponse {
			if c.n == 1 {
				<-release
			}
			return ledBy("n4:1", 2)(c)
		})
		for _, n := range s.nodes {
			n.knows(2, "n2:1", "n4:1")
		}
		s.nodes["n4:1"].play(ledBy("n4:1", 2))
		slow := make(chan error, 1)
		go func() { slow <- c.DoBare(background(t), anAppend()) }()
		synctest.Wait()
		time.Sleep(time.Second)
		writeOnce(t, c) // n3 says that n4 leads
		writeOnce(t, c) // n4 is asked who the members are
		endpointsAre(t, c, "n2:1", "n4:1", "n1:1", "n3:1")
		close(release)
		if err := <-slow; err != nil {
			t.Errorf("the call at a node that is no member any more: %v", err)
		}
		time.Sleep(30 * time.Second)
		writeOnce(t, c)
		endpointsAre(t, c, "n2:1", "n4:1", "n1:1")
		if n := s.nodes["n3:1"].open.Load(); n != 0 {
			t.Errorf("%d sessions are open at a node that was given up", n)
		}
		writeOnce(t, c)
	})
}

func TestAWatchKeepsAnEndpointThatIsNoMemberAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1", "n2:1", "n3:1")
		c := s.client(client.Config{}, "n1:1")
		s.nodes["n1:1"].knows(1, "n1:1", "n2:1")
		writeOnce(t, c)
		s.nodes["n1:1"].lis.cut(true) // the watch goes to n2
		go c.Board("default").Get(background(t), "facts/x", client.ReadOptions{})
		time.Sleep(time.Second)
		more := make(chan *wirepb.WatchResponse)
		s.nodes["n2:1"].mu.Lock()
		s.nodes["n2:1"].watch = func(_ *wirepb.WatchRequest, stream wirepb.Board_WatchServer) error {
			stream.Send(&wirepb.WatchResponse{Message: &wirepb.WatchResponse_Opened{Opened: &wirepb.WatchOpened{Rev: 1, NodeId: "id-n2:1"}}})
			for {
				select {
				case m := <-more:
					stream.Send(m)
				case <-stream.Context().Done():
					return stream.Context().Err()
				}
			}
		}
		s.nodes["n2:1"].mu.Unlock()
		w, err := c.Board("default").Watch(background(t), client.WatchOptions{Patterns: []string{"**"}})
		if err != nil {
			t.Fatal(err)
		}
		s.nodes["n1:1"].lis.cut(false)
		s.nodes["n2:1"].knows(2, "n1:1", "n3:1")
		time.Sleep(30 * time.Second)
		more <- &wirepb.WatchResponse{Message: &wirepb.WatchResponse_Bookmark{Bookmark: &wirepb.Bookmark{Rev: 1}}}
		time.Sleep(time.Second)
		endpointsAre(t, c, "n1:1", "n3:1", "n2:1")
		more <- &wirepb.WatchResponse{Message: &wirepb.WatchResponse_Bookmark{Bookmark: &wirepb.Bookmark{Rev: 7}}}
		for {
			m, err := w.Next(background(t))
			if err != nil {
				t.Fatal(err)
			}
			if m.Rev == 7 {
				break
			}
		}
		w.Close()
	})
}

func TestAClientInUseAsksForTheMembersNowAndThenAndAnIdleOneNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		n := s.nodes["n1:1"]
		n.knows(1, "n1:1")
		c := s.client(client.Config{}, "n1:1")
		use := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
				writeOnce(t, c)
			}
		}
		use(5 * time.Minute)
		if got := n.timesAsked(); got < 26 || got > 31 {
			t.Errorf("asked %d times in five minutes of use", got)
		}
		before := n.timesAsked()
		time.Sleep(time.Hour)
		if got := n.timesAsked(); got != before {
			t.Errorf("asked %d times in an idle hour", got-before)
		}
		use(3 * time.Second)
		n.play(ledBy("n1:1", 5))
		use(3 * time.Second)
		if got := n.timesAsked(); got != before+2 { // for the hour, and for the term
			t.Errorf("asked %d times for an hour and a new leader", got-before)
		}

		// A node that does not answer is asked less and less, and no call waits for that.
		n.mu.Lock()
		n.mute = true
		n.mu.Unlock()
		before = n.timesAsked()
		began := time.Now()
		use(10 * time.Minute)
		if got := n.timesAsked() - before; got < 15 || got > 45 {
			t.Errorf("a mute node was asked %d times in ten minutes", got)
		}
		if took := time.Since(began); took > 11*time.Minute {
			t.Errorf("the calls took %v", took)
		}
	})
}

func TestAListThatIsOlderOrOfAnotherClusterOrEmptyChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		n := s.nodes["n1:1"]
		c := s.client(client.Config{}, "n1:1")
		n.knows(7, "n1:1", "n2:1")
		writeOnce(t, c)
		endpointsAre(t, c, "n1:1", "n2:1")
		for _, wrong := range []func(){
			func() { n.knows(6, "n1:1", "n3:1") },
			func() { n.knows(8) },
			func() { n.knows(8, "n3:1"); n.list.ClusterId = "another" },
		} {
			wrong()
			time.Sleep(time.Minute)
			writeOnce(t, c)
			endpointsAre(t, c, "n1:1", "n2:1")
		}
		n.knows(8, "n1:1", "n3:1")
		time.Sleep(time.Minute)
		writeOnce(t, c)
		endpointsAre(t, c, "n1:1", "n3:1")
	})
}

func TestWhatANodeSaysOfMembersIsBoundedAndChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		c := s.client(client.Config{}, "n1:1")
		bad := []string{"", "n2", ":1", "n2:", "n2:0", "n2:70000", "n2:http", "0.0.0.0:1", "[::]:1", "n 2:1", "n2/x:1", "a\x00b:1"}
		s.nodes["n1:1"].knows(1, append(slices.Clone(bad), "[::1]:1", "a.example:1", "10.0.0.1:1", "a.example:1")...)
		writeOnce(t, c)
		endpointsAre(t, c, "[::1]:1", "a.example:1", "10.0.0.1:1", "n1:1")
		var many []string
		for i := range 10_000 {
			many = append(many, fmt.Sprintf("m%d:1", i))
		}
		for i := range uint64(3) {
			s.nodes["n1:1"].knows(2+i, many[i*1000:i*1000+1000]...)
			time.Sleep(time.Minute)
			writeOnce(t, c)
			if got := c.Endpoints(); len(got) != client.MaxEndpoints || !slices.Contains(got, "n1:1") {
				t.Errorf("knows %d endpoints: %v", len(got), got)
			}
		}
		s.nodes["n1:1"].knows(9, many...) // too large to be read
		s.nodes["n1:1"].play(ledBy("0.0.0.0:1", 9))
		time.Sleep(time.Minute)
		writeOnce(t, c)
		if got := c.Endpoints(); len(got) != client.MaxEndpoints || slices.Contains(got, "0.0.0.0:1") {
			t.Errorf("knows %d endpoints: %v", len(got), got)
		}
		s.nodes["n1:1"].knows(10, "n1:1")
		time.Sleep(time.Minute)
		writeOnce(t, c)
		endpointsAre(t, c, "n1:1")
	})
}

func TestUnderAnOlderServerTheHundredthLeaderIsLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addrs := []string{"n1:1"}
		for i := range 100 {
			addrs = append(addrs, fmt.Sprintf("l%d:1", i))
		}
		s := newStage(t, addrs...)
		c := s.client(client.Config{}, "n1:1")
		for i, addr := range addrs[1:] {
			if i > 0 {
				s.nodes[addrs[i]].lis.cut(true) // each leader is gone when the next one leads
			}
			s.nodes["n1:1"].play(ledBy(addr, uint64(i+1)))
			writeOnce(t, c)
			writeOnce(t, c)
			if got := len(s.nodes[addr].seen()); got == 0 {
				t.Fatalf("leader %d was not asked; known are %v", i+1, c.Endpoints())
			}
			if got := len(c.Endpoints()); got > client.MaxEndpoints {
				t.Fatalf("%d endpoints", got)
			}
		}
	})
}

func TestALeaderThatMovedIsFoundAtItsNewAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1", "n2:1", "n3:1")
		c := s.client(client.Config{}, "n1:1", "n2:1")
		s.nodes["n2:1"].play(ledBy("n2:1", 1))
		s.nodes["n1:1"].play(ledBy("n2:1", 1))
		writeOnce(t, c)
		writeOnce(t, c) // n2 answers as id-n2:1
		s.nodes["n2:1"].lis.cut(true)
		moved := func(c *call) *wirepb.SessionResponse {
			return c.appliedBy(&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK}, &wirepb.Leader{NodeId: "id-n2:1", GrpcAddr: "n3:1", Term: 2})
		}
		s.nodes["n1:1"].play(moved)
		writeOnce(t, c)
		time.Sleep(time.Second)
		writeOnce(t, c)
		writeOnce(t, c)
		if len(s.nodes["n3:1"].seen()) == 0 {
			t.Errorf("the leader was not asked where it went; known are %v", c.Endpoints())
		}
	})
}
