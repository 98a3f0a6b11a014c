package node_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"raftboard/node"
	"raftboard/node/nodetest"
)

func TestEveryLeadershipIsToldWithItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		told := make([][]node.RoleChange, 3)
		c := nodetest.Start(t, nodetest.Options{Configure: func(i int, cfg *node.Config) {
			cfg.Roles = func(change node.RoleChange) {
				mu.Lock()
				defer mu.Unlock()
				told[i] = append(told[i], change)
			}
		}})
		leaders := map[uint64]int{}
		for range 3 {
			m := c.WaitLeader()
			_, term := m.Node.Leader()
			leaders[term] = m.Index
			c.Crash(m.Index)
			mu.Lock()
			if last := told[m.Index][len(told[m.Index])-1]; last.Role == "leader" {
				t.Errorf("%s stopped and is still told as %+v", m.Name, last)
			}
			mu.Unlock()
			c.Restart(m.Index)
		}
		c.WaitLeader()
		mu.Lock()
		defer mu.Unlock()
		seen := map[uint64][]int{}
		for i, changes := range told {
			if changes[0].Role != "follower" {
				t.Errorf("node %d began as %+v", i, changes[0])
			}
			for _, change := range changes {
				if change.Role == "leader" && !slices.Contains(seen[change.Term], i) {
					seen[change.Term] = append(seen[change.Term], i)
				}
				if change.Missed != 0 {
					t.Errorf("node %d: %+v", i, change)
				}
			}
		}
		for term, i := range leaders {
			if got := fmt.Sprint(seen[term]); got != fmt.Sprint([]int{i}) {
				t.Errorf("term %d was led by node %d; told were %v", term, i, got)
			}
		}
	})
}

// Raft never waits for whoever is told: a listener that hangs costs changes, and their number
// is told with the next one.
func TestAListenerThatHangsHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		missed, changes := 0, 0
		c := nodetest.Start(t, nodetest.Options{Nodes: 1, Configure: func(_ int, cfg *node.Config) {
			cfg.Roles = func(change node.RoleChange) {
				<-release
				changes++
				missed += change.Missed
			}
		}})
		m := c.WaitLeader()
		const more = 400
		for range more {
			m.Node.RoleChanged()
		}
		close(release)
		c.Crash(m.Index)
		if missed == 0 || changes+missed < more || changes+missed > more+20 {
			t.Errorf("%d changes told and %d said to be missed of about %d", changes, missed, more)
		}
	})
}
