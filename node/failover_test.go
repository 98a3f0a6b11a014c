package node_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/node"
	"raftboard/node/nodetest"
)

// outcomes collects what became of concurrent writes.
type outcomes struct {
	mu      sync.Mutex
	done    []string
	notDone []string
	unknown []string
	wg      sync.WaitGroup
}

func (o *outcomes) write(n *node.Node, name string, within time.Duration) {
	o.wg.Go(func() {
		_, err := propose(n, create(name), within)
		o.mu.Lock()
		defer o.mu.Unlock()
		var unknown *node.Unknown
		switch {
		case err == nil:
			o.done = append(o.done, name)
		case errors.As(err, &unknown):
			o.unknown = append(o.unknown, name)
		default:
			o.notDone = append(o.notDone, name)
		}
	})
}

// check compares outcomes with what there is in the end.
func (o *outcomes) check(t *testing.T, has func(string) bool) {
	t.Helper()
	for _, name := range o.done {
		if !has(name) {
			t.Errorf("%s was acknowledged and is lost", name)
		}
	}
	for _, name := range o.notDone {
		if has(name) {
			t.Errorf("%s was called not done and is there", name)
		}
	}
}

func TestT22P9AFailoverLosesNoAcknowledgedWriteAndNotDoneMeansNotDone(t *testing.T) {
	faults := map[string]func(c *nodetest.Cluster, leader int){
		"isolated":      func(c *nodetest.Cluster, i int) { c.Isolate(i) },
		"killed":        func(c *nodetest.Cluster, i int) { c.Crash(i) },
		"disk stalled":  func(c *nodetest.Cluster, i int) { c.Members[i].Disk.Stall(20 * time.Second); c.Isolate(i) },
		"answers lost":  func(c *nodetest.Cluster, i int) { c.Cut((i+1)%3, i, true); c.Cut((i+2)%3, i, true) },
		"requests lost": func(c *nodetest.Cluster, i int) { c.Cut(i, (i+1)%3, true); c.Cut(i, (i+2)%3, true) },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := nodetest.Start(t, nodetest.Options{})
				old := c.WaitLeader()
				n := old.Node
				var o outcomes
				for i := range 120 {
					o.write(n, fmt.Sprintf("b%d", i), 15*time.Second)
					time.Sleep(500 * time.Microsecond)
					if i == 60 {
						fault(c, old.Index)
					}
				}
				next := c.WaitLeader(old.Index)
				mustPropose(t, next.Node, create("after"))
				o.wg.Wait()
				c.Heal()
				if old.Node == nil {
					c.Restart(old.Index)
				}
				mustPropose(t, c.WaitLeader().Node, create("healed"))
				c.WaitSame()
				v := c.WaitLeader().Node.View()
				o.check(t, func(name string) bool { return v.Board(name) != nil })
				if len(o.done) == 0 || len(o.unknown) == 0 || len(o.notDone) == 0 {
					t.Errorf("%d done, %d unknown, %d not done: expected some of each", len(o.done), len(o.unknown), len(o.notDone))
				}
			})
		})
	}
}

func TestAnUnknownWriteThatIsRepeatedUnderItsKeyTakesEffectOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		for try := range 10 {
			old, name := c.WaitLeader(), fmt.Sprintf("once-%d", try)
			for _, o := range c.Members {
				c.Net.SetCut(o.ID, old.ID, o != old) // requests arrive, answers are lost
			}
			_, err := propose(old.Node, create(name), 20*time.Second)
			var unknown *node.Unknown
			if !errors.As(err, &unknown) {
				t.Fatalf("the write ended with %v, expected unknown", err)
			}
			next := c.WaitLeader(old.Index)
			effective := next.Node.View().Board(name) != nil
			r := mustPropose(t, next.Node, create(name))
			if r.Replayed != effective {
				t.Errorf("the board is there: %v; the repeat answers %v", effective, r)
			}
			if effective {
				return
			}
			// Both followers owed an answer when the links were cut, and a leader sends nothing
			// before it has that one.
			c.Heal()
			c.WaitSame()
		}
		t.Error("no write left its leader")
	})
}

func TestAGivenUpCommandInTheQueueIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		leader := c.WaitLeader()
		leader.Disk.Stall(5 * time.Second)
		var o outcomes
		for i := range 20 {
			o.write(leader.Node, fmt.Sprintf("b%d", i), time.Second)
			time.Sleep(10 * time.Millisecond)
		}
		o.wg.Wait()
		// All 20 when an entry of the node itself, as after an election, is on the disk's way first.
		if len(o.notDone) < 10 {
			t.Errorf("%d not done, %d unknown: the disk did not stall", len(o.notDone), len(o.unknown))
		}
		time.Sleep(10 * time.Second)
		mustPropose(t, c.WaitLeader().Node, create("after"))
		v := c.WaitLeader().Node.View()
		o.check(t, func(name string) bool { return v.Board(name) != nil })
	})
}

func TestGroupCommitPutsWaitingCommandsIntoOneEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		leader := c.WaitLeader().Node
		c.WaitSame()
		before := leader.View().Applied()
		var o outcomes
		for i := range 300 {
			o.write(leader, fmt.Sprintf("b%d", i), 5*time.Second)
		}
		o.wg.Wait()
		if entries := leader.View().Applied() - before; len(o.done) != 300 || entries > 30 {
			t.Errorf("%d writes took %d entries", len(o.done), entries)
		}
	})
}

func TestF9WithoutAMajorityWritesAndReadsEndAsUnavailableWithinABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		leader := c.WaitLeader()
		for _, m := range c.Members {
			if m != leader {
				c.Crash(m.Index)
			}
		}
		for range 3 {
			began := time.Now()
			if _, err := propose(leader.Node, create("x"), 30*time.Second); err == nil {
				t.Error("a write was acknowledged without a majority")
			}
			if _, err := leader.Node.Read(context.Background(), node.Consistency{}); err == nil {
				t.Error("a read was answered as fresh without a majority")
			}
			if took := time.Since(began); took > 8*time.Second {
				t.Errorf("it took %v", took)
			}
		}
		if err := leader.Node.Ready(); err == nil {
			t.Error("it says that it is ready")
		}
		if _, err := leader.Node.Read(context.Background(), node.Consistency{Kind: node.Stale}); err != nil {
			t.Errorf("a stale read answers %v", err)
		}
	})
}

func TestP7P8ALeaderIsReadyOnlyInATermWhoseLeadItApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		c.WaitLeader()
		for range 4 {
			old := c.WaitLeader()
			if err := old.Node.StepDown(context.Background(), ""); err != nil {
				t.Fatal(err)
			}
			if old.Node.IsLeader() {
				t.Error("it still says that it leads")
			}
			next := c.WaitLeader(old.Index)
			rec := next.Node.View().Cluster()
			if _, term := next.Node.Leader(); rec.GetLeaderId() != next.ID || rec.GetLeaderTerm() != term {
				t.Errorf("ready in term %d while the record says %s in term %d", term, rec.GetLeaderId(), rec.GetLeaderTerm())
			}
		}
	})
}

func TestP7ARestartedExLeaderThatReplaysItsLeadDoesNotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{Nodes: 3})
		old := c.WaitLeader()
		c.Crash(old.Index)
		c.WaitLeader()
		c.Restart(old.Index)
		for range 200 {
			if old.Node.IsLeader() && c.Leader(old.Index) != nil {
				t.Fatal("two nodes say that they lead")
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
}

func TestP30ARestartedNodeSaysSoUntilItHeardFromTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		leader := c.WaitLeader()
		mustPropose(t, leader.Node, create("a"))
		c.WaitSame()
		down := (leader.Index + 1) % 3
		c.Crash(down)
		c.Isolate(down)
		c.Restart(down)
		n := c.Members[down].Node
		if err := n.Ready(); err == nil {
			t.Error("it is ready before it heard from anybody")
		}
		v, err := n.Read(context.Background(), node.Consistency{Kind: node.Stale})
		if err != nil || v.Applied() >= leader.Node.View().Applied() {
			t.Errorf("a stale read shows %v (%v)", v.Applied(), err)
		}
		var timeout *node.ReadTimeout
		atLeast := node.Consistency{Kind: node.AtLeast, Rev: leader.Node.View().Applied()}
		if _, err := n.Read(context.Background(), atLeast); !errors.As(err, &timeout) {
			t.Errorf("an at-least read answers %v, expected a read timeout", err)
		}
		c.Heal()
		c.Eventually("it becomes ready", func() bool { return n.Ready() == nil })
		if _, err := n.Read(context.Background(), atLeast); err != nil {
			t.Error(err)
		}
	})
}

func TestP33AFollowersRefusalNamesTheLeaderAndTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		first := c.WaitLeader()
		changed := c.Members[(first.Index+1)%3].Node.LeaderChanged()
		c.Crash(first.Index)
		next := c.WaitLeader()
		<-changed
		for _, m := range c.Members {
			if m.Node == nil || m == next {
				continue
			}
			c.Eventually("the follower knows the leader", func() bool {
				var not *node.NotDone
				_, err := propose(m.Node, create("x"), time.Second)
				_, term := next.Node.Leader()
				return errors.As(err, &not) && not.LeaderID == next.ID && not.Term == term
			})
		}
	})
}

func TestC2AReadOnAnyNodeSeesEveryWriteAcknowledgedBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		for round := range 6 {
			leader := c.WaitLeader()
			name := fmt.Sprintf("b%d", round)
			mustPropose(t, leader.Node, create(name))
			for _, m := range c.Members {
				if m.Node == nil {
					continue
				}
				v, err := m.Node.Read(context.Background(), node.Consistency{})
				if err != nil {
					t.Errorf("round %d, %s: %v", round, m.Name, err)
				} else if v.Board(name) == nil {
					t.Errorf("%s does not see %s", m.Name, name)
				}
			}
			if round%2 == 0 {
				c.Crash(leader.Index)
			} else {
				for i, m := range c.Members {
					if m.Node == nil {
						c.Restart(i)
					}
				}
			}
		}
	})
}

func TestReadsThatArriveTogetherShareARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		leader := c.WaitLeader()
		c.WaitSame()
		before := leader.Node.Status().Commit
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				if _, err := c.Members[i%3].Node.Read(context.Background(), node.Consistency{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if rounds := leader.Node.Status().Commit - before; rounds == 0 || rounds > 10 {
			t.Errorf("300 reads took %d rounds", rounds)
		}
	})
}

func TestABadCommandIsRefusedBeforeTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		n := c.WaitLeader().Node
		c.WaitSame()
		before := n.Status().LastLog
		bad := &boardpb.Command{Board: "default", Actor: operator, Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "no good key"}}}
		if r, err := propose(n, bad, time.Second); err != nil || r.GetCode() == boardpb.Code_CODE_UNSPECIFIED {
			t.Errorf("it answers %v, %v", r, err)
		}
		if after := n.Status().LastLog; after != before {
			t.Errorf("the log grew from %d to %d", before, after)
		}
	})
}

// The library backs off from a peer that is away, up to 10 s between appends, and does not
// look whether it is back.
func TestANodeThatWasAwayForMinutesCatchesUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		leader := c.WaitLeader()
		c.WaitSame()
		for range 3 {
			away := (leader.Index + 1) % 3
			c.Crash(away)
			time.Sleep(2 * time.Minute)
			mustPropose(t, leader.Node, create("while-away"))
			c.Restart(away)
			began := time.Now()
			n := c.Members[away].Node
			c.Eventually("it shows what was written", func() bool { return n.View().Board("while-away") != nil })
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("it took %v", took)
			}
		}
	})
}
