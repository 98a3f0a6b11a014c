package transport_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/node"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

func TestT84NodesKilledUnderLoadHaveTheSameDigestAtTwentyIndexes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		face := lines(c)
		stop := make(chan struct{})
		var writing sync.WaitGroup
		for i := range 3 {
			p := newParticipant(t, face, fmt.Sprintf("w%d", i), i)
			writing.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
						p.do(add("facts/"+p.name, fmt.Sprint(n)))
					}
				}
			})
		}
		indexes := map[uint64]bool{}
		for round := range 20 {
			victim := round % 3
			if round%2 == 0 {
				victim = c.Leader()
			}
			c.Kill(victim)
			time.Sleep(time.Duration(100+50*round) * time.Millisecond)
			c.Restart(victim)
			c.WaitReady()
			index := c.Members[c.Leader()].Server.Node().View().Applied()
			indexes[index] = true
			var sums [3][16]byte
			c.Eventually(fmt.Sprintf("all nodes have applied entry %d", index), func() bool {
				for i, m := range c.Members {
					sum, known := m.Server.Node().View().DigestAt(index)
					if sums[i] = sum; !known {
						return false
					}
				}
				return true
			})
			if sums[0] != sums[1] || sums[1] != sums[2] {
				t.Fatalf("after entry %d the digests are %x", index, sums)
			}
		}
		close(stop)
		writing.Wait()
		if len(indexes) < 20 {
			t.Errorf("only %d different entries were compared", len(indexes))
		}
		theSameOnEveryNode(t, c)
	})
}

// alter changes the newest entry that sets a value in the log of a stopped node, as somebody
// would who edits its files and mends their checksums.
func alter(t *testing.T, m *clustertest.Member, how func(*boardpb.Batch)) (index uint64) {
	t.Helper()
	s := m.Disk.Stores()
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	last, err := s.Log.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	for ; last > 0; last-- {
		var e raft.Log
		var batch boardpb.Batch
		if err := s.Log.GetLog(last, &e); err != nil {
			t.Fatal(err)
		}
		if e.Type != raft.LogCommand || proto.Unmarshal(e.Data, &batch) != nil {
			continue
		}
		if len(batch.Commands) == 0 || batch.Commands[0].GetSet() == nil {
			continue
		}
		how(&batch)
		if e.Data, err = proto.Marshal(&batch); err == nil {
			err = s.Log.StoreLog(&e)
		}
		if err != nil {
			t.Fatal(err)
		}
		return last
	}
	t.Fatal("the log sets nothing")
	return 0
}

func TestT84ANodeWhoseStoreWasAlteredStopsNamingTheIndexAndComesBackAsANewMember(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		p := newParticipant(t, lines(c), "w1", 0)
		p.do(claimOf("claims/x", 3_600_000)) // a deadline: board time ticks, and ticks carry digests
		for i := range 5 {
			as(t, c, "w1", 0).ok(set("results/w1/a", fmt.Sprintf(`"right %d"`, i)))
		}
		theSameOnEveryNode(t, c)
		victim := c.Follower()
		id, name := c.Members[victim].Server.NodeID(), c.Members[victim].Name
		c.Kill(victim)
		alter(t, c.Members[victim], func(b *boardpb.Batch) { b.Commands[0].GetSet().Value = []byte(`"altered"`) })
		c.Restart(victim)
		var dir *node.DirError
		if err := c.Died(victim); !errors.As(err, &dir) || !strings.Contains(err.Error(), "after entry ") ||
			!strings.Contains(dir.Hint, "raftboard node remove "+id) {
			t.Fatalf("it stopped with %v", err)
		}
		for i, m := range c.Members {
			if i != victim && m.Server.Node().Failure() != nil {
				t.Errorf("%s stopped too: %v", m.Name, m.Server.Node().Failure())
			}
		}
		rejoin(t, c, victim, id, name)
		theSameOnEveryNode(t, c)
		if got := as(t, c, "w1", victim).value("results/w1/a"); got != `"right 4"` {
			t.Errorf("it reads %s", got)
		}
	})
}

// rejoin does what a node that cannot go on says: remove it, an empty directory, its name again.
func rejoin(t *testing.T, c *clustertest.Cluster, i int, idOrName, name string) {
	t.Helper()
	healthy := c.Leader(i)
	op, ctx := operator(t, c, healthy)
	if _, err := op.Remove(ctx, &wirepb.RemoveRequest{Id: idOrName}); err != nil {
		t.Fatal(err)
	}
	c.Wipe(i)
	c.Restart(i)
	if _, err := op.Add(ctx, &wirepb.AddRequest{Name: name}); err != nil {
		t.Fatal(err)
	}
	c.WaitReady(i)
	c.Eventually("it has a vote", func() bool { return voters(t, c, healthy) == 3 })
}

func TestT84ABinaryThatIsTooOldForItsLogSaysSoAndLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		as(t, c, "w1", 0).ok(set("results/w1/a", "1"))
		theSameOnEveryNode(t, c)
		old := c.Follower()
		c.Kill(old)
		var format uint32
		index := alter(t, c.Members[old], func(b *boardpb.Batch) { format, b.Format = b.Format, 1000 })
		for range 2 { // the second time it says the same
			c.Restart(old)
			err := c.Died(old)
			for _, want := range []string{fmt.Sprintf("entry %d has format 1000", index), "upgrade it"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Fatalf("it stopped with %v, expected %q", err, want)
				}
			}
		}
		alter(t, c.Members[old], func(b *boardpb.Batch) { b.Format = format }) // the newer binary knows it
		c.Restart(old)
		theSameOnEveryNode(t, c)
		if got := as(t, c, "w1", old).value("results/w1/a"); got != "1" {
			t.Errorf("it reads %q", got)
		}
	})
}

func TestT84OldAndNewSpeakAndRefuseEachOtherPolitely(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		w := as(t, c, "w1", c.Follower())
		// An operation that this server does not know, of a newer client.
		unknown := &boardpb.Command{Board: "default"}
		unknown.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 9999, protowire.BytesType), []byte("new")))
		before := c.Members[c.Leader()].Server.Node().View().Board("default").Rev()
		// And a field: what it asks for must not be left out in silence.
		more := set("results/w1/a", "1")
		more.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 9999, protowire.VarintType), 1))
		for _, c := range []*boardpb.Command{unknown, more} {
			if r := w.refused(c); r.Code != boardpb.Code_CODE_NOT_ACTIVE || !strings.Contains(r.Hint, "upgrade the nodes, or use an older client") {
				t.Errorf("%v: %v", c, r)
			}
		}
		if after := c.Members[c.Leader()].Server.Node().View().Board("default").Rev(); after != before {
			t.Errorf("the board was at rev %d and is at %d", before, after)
		}
		// A node whose binary is older than what the cluster uses.
		_, err := wirepb.NewPeerClient(c.Conn("client", 0)).Join(t.Context(), &wirepb.JoinRequest{
			Node:   &boardpb.Node{Id: "old", Name: "n9", RaftAddr: "127.0.1.9:1", GrpcAddr: "127.0.1.9:2", MaxLevel: 0},
			Timing: &wirepb.Timing{HeartbeatMs: 1000, ElectionMs: 1000, LeaseMs: 500}})
		if r := detail(t, err); r.Code != boardpb.Code_CODE_NOT_ACTIVE || !strings.Contains(r.Hint, "newer binary") {
			t.Errorf("an old node that joins gets %v", r)
		}
	})
}
