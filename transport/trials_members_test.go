package transport_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// members are the lists that nodes show: voters, others, and the records that are not removed.
func members(c *clustertest.Cluster, i int) string {
	s := c.Members[i].Server.Node().Status()
	slices.Sort(s.Voters)
	slices.Sort(s.Nonvoters)
	var records []string
	for _, n := range c.Members[i].Server.Node().View().Cluster().Nodes {
		if !n.Removed {
			records = append(records, n.Name+" "+n.Id)
		}
	}
	slices.Sort(records)
	return fmt.Sprintf("voters %v, others %v, records %v", s.Voters, s.Nonvoters, records)
}

// oneList waits until all nodes that run show the same members, and answers them.
func oneList(t *testing.T, c *clustertest.Cluster) (list string) {
	t.Helper()
	c.Eventually("all nodes show the same members", func() bool {
		list = ""
		for i, m := range c.Members {
			if m.Server == nil {
				continue
			}
			if now := members(c, i); list == "" {
				list = now
			} else if now != list {
				return false
			}
		}
		return list != ""
	})
	return list
}

func TestT80ADeadNodeIsRemovedAndNobodyIsWithoutAMajority(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Nodes: 5})
		as(t, c, "w1", 0).ok(set("results/w1/a", "1"))
		lost := c.Follower()
		id := c.Members[lost].Server.NodeID()
		c.Kill(lost)
		time.Sleep(time.Minute)
		op, ctx := operator(t, c, c.Follower())
		if s := clusterStatus(t, c, c.Leader()); s.Voters != 5 {
			t.Errorf("a dead node left the %d voters by itself", s.Voters)
		}
		if _, err := op.Remove(ctx, &wirepb.RemoveRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
		list := oneList(t, c)

		// Two of the four that are left die: what remains is no majority.
		dead := []int{c.Leader(), c.Follower()}
		c.Kill(dead...)
		time.Sleep(10 * time.Second) // until then a node may take the dead leader for the leader
		var rest []int
		for i := range c.Members {
			if i != lost && !slices.Contains(dead, i) {
				rest = append(rest, i)
			}
		}
		for began, round := time.Now(), 0; time.Since(began) < 10*time.Minute; round++ {
			at := rest[round%2]
			op, ctx := operator(t, c, at)
			_, err := op.Remove(ctx, &wirepb.RemoveRequest{Id: c.Members[dead[0]].Name})
			r := detail(t, err)
			if r.Code != boardpb.Code_CODE_UNAVAILABLE || r.Proposed != boardpb.Proposed_PROPOSED_NO {
				t.Fatalf("removing without a majority: %v", r)
			}
			for _, want := range []string{"2 of the 4 voters answer", "`raftboard serve`", c.Addr(dead[0]), c.Addr(dead[1])} {
				if !strings.Contains(r.Message+r.Hint, want) {
					t.Errorf("the refusal does not say %q: %v", want, r)
				}
			}
			if r := as(t, c, "w1", at).refused(set("results/w1/a", "2")); r.Code != boardpb.Code_CODE_UNAVAILABLE {
				t.Errorf("a write without a majority: %v", r)
			}
			if got := members(c, at); got != list {
				t.Fatalf("after %v a node shows %s, it was %s", time.Since(began), got, list)
			}
			time.Sleep(90 * time.Second)
		}

		// What the refusal says is done: one comes back, and the other can be removed.
		c.Restart(dead[1])
		c.WaitReady()
		op, ctx = operator(t, c, rest[0])
		if _, err := op.Remove(ctx, &wirepb.RemoveRequest{Id: c.Members[dead[0]].Name}); err != nil {
			t.Fatal(err)
		}
		oneList(t, c)
		if n := voters(t, c, rest[1]); n != 3 {
			t.Errorf("%d voters, want 3", n)
		}
		as(t, c, "w1", rest[0]).ok(set("results/w1/a", "3"))
	})
}

func TestT80TenNodesComeAndGoAndEveryNodeShowsTheSameMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		as(t, c, "w1", 0).ok(set("results/w1/a", "1"))
		founded := oneList(t, c)
		for round := range 10 {
			m := c.Add(fmt.Sprintf("extra%d", round))
			op, ctx := operator(t, c, round%3)
			c.Eventually("it can be promoted", func() bool {
				_, err := op.Promote(ctx, &wirepb.PromoteRequest{Id: m.Name})
				return err == nil
			})
			if list := oneList(t, c); !strings.Contains(list, m.Name) || voters(t, c, 0) != 4 {
				t.Fatalf("round %d: %d voters: %s", round, voters(t, c, 0), list)
			}
			if round%2 == 0 {
				c.Kill(m.Index) // a dead one, a live one
			}
			if _, err := op.Remove(ctx, &wirepb.RemoveRequest{Id: m.Name}); err != nil {
				t.Fatal(err)
			}
			if round%2 != 0 {
				c.Died(m.Index)
			}
			if list := oneList(t, c); list != founded {
				t.Fatalf("round %d: %s, at first it was %s", round, list, founded)
			}
		}
		c.Kill(0, 1, 2)
		for i := range 3 {
			c.Restart(i)
		}
		c.WaitReady()
		if list := oneList(t, c); list != founded {
			t.Errorf("after a restart: %s, before it was %s", list, founded)
		}
	})
}
