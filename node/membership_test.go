package node_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/node"
	"raftboard/node/nodetest"
)

func brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

func recordOf(n *node.Node, id string) *boardpb.Node {
	for _, r := range n.View().Cluster().GetNodes() {
		if r.Id == id {
			return r
		}
	}
	return nil
}

// withRecords waits until every founder has its record, so that names are known.
func withRecords(c *nodetest.Cluster) *nodetest.Member {
	c.Eventually("every founder has a record", func() bool { return len(c.WaitLeader().Node.View().Cluster().GetNodes()) == len(c.Members) })
	c.WaitSame()
	return c.WaitLeader()
}

func voters(n *node.Node) string { return strings.Join(n.Status().Voters, " ") }

// wantRefusal checks that an act was refused with a reason and the way on.
func wantRefusal(t *testing.T, err error, says, hint string) {
	t.Helper()
	var r *node.Refused
	if !errors.As(err, &r) || !strings.Contains(r.Result.Message, says) || !strings.Contains(r.Result.Hint, hint) {
		t.Errorf("answered %v; expected a refusal that says %q and hints at %q", err, says, hint)
	}
}

func TestAJoiningNodeIsANonVoterFirstAndAVoterWhenItHasCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		mustPropose(t, c.WaitLeader().Node, create("a"))
		m := c.Join(false)
		c.Eventually("it becomes a voter", func() bool { return strings.Contains(voters(c.WaitLeader().Node), m.ID) })
		c.Eventually("it is ready", func() bool { return m.Node.Ready() == nil })
		if m.Node.View().Board("a") == nil {
			t.Error("it lacks the board")
		}
		c.Crash(c.WaitLeader().Index)
		mustPropose(t, c.WaitLeader().Node, create("b"))
	})
}

func TestANodeThatJoinsAsANonVoterStaysOneUntilItIsPromoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		m := c.Join(true)
		c.Eventually("it reads", func() bool {
			ctx, cancel := brief()
			defer cancel()
			_, err := m.Node.Read(ctx, node.Consistency{})
			return err == nil
		})
		time.Sleep(time.Minute)
		leader := c.WaitLeader()
		if strings.Contains(voters(leader.Node), m.ID) {
			t.Fatal("it became a voter by itself")
		}
		ctx, cancel := brief()
		defer cancel()
		if err := leader.Node.Promote(ctx, m.Name); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(voters(leader.Node), m.ID) {
			t.Error("it is no voter")
		}
		if err := leader.Node.Demote(ctx, m.Name); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if strings.Contains(voters(c.WaitLeader().Node), m.ID) {
			t.Error("a demoted node became a voter again")
		}
	})
}

func TestP23ARemovedNodeStopsItselfAndDisturbsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		leader := withRecords(c)
		victim := c.Members[(leader.Index+1)%3]
		ctx, cancel := brief()
		defer cancel()
		if err := leader.Node.Remove(ctx, victim.Name); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(voters(leader.Node), victim.ID) {
			t.Error("it is still a voter")
		}
		c.Eventually("the removed node stops", func() bool { return victim.Died() != nil })
		if !strings.Contains(victim.Died().Error(), "removed from the cluster") {
			t.Errorf("it died of %v", victim.Died())
		}
		_, term := leader.Node.Leader()
		c.Crash(victim.Index)
		c.Restart(victim.Index) // an old directory is started again: nobody talks to it
		time.Sleep(time.Minute)
		if _, now := leader.Node.Leader(); now != term || !leader.Node.IsLeader() {
			t.Errorf("the removed node moved the term from %d to %d", term, now)
		}
		if !leader.Node.Removed(victim.ID) {
			t.Error("the record forgot the removal")
		}
	})
}

func TestP23APartitionedNodeDoesNotDisturbWhenItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		leader := c.WaitLeader()
		_, term := leader.Node.Leader()
		away := (leader.Index + 1) % 3
		c.Isolate(away)
		time.Sleep(2 * time.Minute)
		c.Heal()
		time.Sleep(time.Minute)
		if _, now := leader.Node.Leader(); now != term || !leader.Node.IsLeader() {
			t.Errorf("the term went from %d to %d: pre-vote is off", term, now)
		}
	})
}

func TestP25ALeaderHandsOverBeforeItIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		old := withRecords(c)
		var o outcomes
		for _, name := range []string{"a", "b", "c", "d"} {
			o.write(old.Node, name, 10*time.Second)
		}
		ctx, cancel := brief()
		defer cancel()
		err := old.Node.Remove(ctx, old.ID)
		var not *node.NotDone
		if !errors.As(err, &not) || not.LeaderID == "" || not.LeaderID == old.ID {
			t.Fatalf("the leader answers %v; expected that it handed over and whom to ask", err)
		}
		o.wg.Wait()
		next := c.WaitLeader(old.Index)
		if err := next.Node.Remove(ctx, old.ID); err != nil {
			t.Fatal(err)
		}
		mustPropose(t, next.Node, create("after"))
		v := next.Node.View()
		o.check(t, func(name string) bool { return v.Board(name) != nil })
		c.Eventually("the removed node stops", func() bool { return old.Died() != nil })
	})
}

func TestWhatWouldLeaveNoLiveMajorityIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		leader := withRecords(c)
		dead, live := c.Members[(leader.Index+1)%3], c.Members[(leader.Index+2)%3]
		c.Crash(dead.Index)
		time.Sleep(10 * time.Second)
		ctx, cancel := brief()
		defer cancel()
		wantRefusal(t, leader.Node.Remove(ctx, live.Name), "no majority", "node remove "+dead.ID)
		wantRefusal(t, leader.Node.Demote(ctx, live.Name), "no majority", "node remove "+dead.ID)
		if err := leader.Node.Remove(ctx, dead.ID); err != nil {
			t.Errorf("the dead one cannot be removed: %v", err)
		}
		mustPropose(t, leader.Node, create("after"))
		wantRefusal(t, leader.Node.Remove(ctx, "nobody"), `"nobody"`, "node list")
	})
}

func TestTheOnlyVoterIsNotRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{Nodes: 1})
		ctx, cancel := brief()
		defer cancel()
		wantRefusal(t, withRecords(c).Node.Remove(ctx, "n0"), "only voter", "add another")
	})
}

func TestP27T78NamesAndIdsThatAreTakenOrRemovedAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		leader := withRecords(c)
		gone := c.Members[(leader.Index+1)%3]
		ctx, cancel := brief()
		defer cancel()
		wiped := &boardpb.Node{Id: "fresh", Name: gone.Name, MaxLevel: 1}
		wantRefusal(t, leader.Node.AddNode(ctx, wiped, false), "held by node "+gone.ID, "node remove "+gone.ID)
		if err := leader.Node.Remove(ctx, gone.ID); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, leader.Node.AddNode(ctx, wiped, false), "was removed", "node add "+gone.Name)
		wantRefusal(t, leader.Node.AddNode(ctx, &boardpb.Node{Id: gone.ID, Name: "other", MaxLevel: 1}, false), "was removed", "empty --data-dir")
		if err := leader.Node.Readmit(ctx, gone.Name); err != nil {
			t.Fatal(err)
		}
		c.Crash(gone.Index)
		if err := leader.Node.AddNode(ctx, wiped, true); err != nil {
			t.Errorf("after the name was readmitted: %v", err)
		}
		wantRefusal(t, leader.Node.AddNode(ctx, &boardpb.Node{Id: "old", Name: "old", MaxLevel: 0}, false), "feature level", "newer binary")
	})
}

func TestP5AStepDownAnswersWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		leader := withRecords(c)
		to := c.Members[(leader.Index+1)%3]
		ctx, cancel := brief()
		defer cancel()
		if err := leader.Node.StepDown(ctx, to.Name); err != nil {
			t.Fatal(err)
		}
		if next := c.WaitLeader(leader.Index); next != to {
			t.Errorf("%s leads, expected %s", next.Name, to.Name)
		}
		var not *node.NotDone
		if err := leader.Node.StepDown(ctx, ""); !errors.As(err, &not) {
			t.Errorf("a follower that steps down answers %v", err)
		}
		c.Crash(leader.Index)
		time.Sleep(10 * time.Second)
		wantRefusal(t, to.Node.StepDown(ctx, leader.Name), "cannot lead", "")
		c.Crash(c.Members[3-leader.Index-to.Index].Index)
		if err := to.Node.StepDown(ctx, ""); err == nil {
			t.Error("a transfer with nobody to take it succeeded")
		}
	})
}

func TestARecordFollowsTheAddressesOfItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		moved := false
		c := nodetest.Start(t, nodetest.Options{Configure: func(i int, cfg *node.Config) {
			if moved {
				cfg.GRPCAddr = "elsewhere:1"
			}
		}})
		leader := withRecords(c)
		moved = true
		c.Crash(leader.Index)
		c.WaitLeader()
		c.Restart(leader.Index)
		ctx, cancel := brief()
		defer cancel()
		if err := c.WaitLeader().Node.UpdateNode(ctx, leader.Node.Self()); err != nil {
			t.Fatal(err)
		}
		if got := recordOf(c.WaitLeader().Node, leader.ID).GetGrpcAddr(); got != "elsewhere:1" {
			t.Errorf("the record says %s", got)
		}
	})
}
