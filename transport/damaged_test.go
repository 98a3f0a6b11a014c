package transport_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"raftboard/transport/clustertest"
)

// A store that failed while the node was opened ended the goroutine of whoever opened it: the
// process lived on without a node and without a word.
func TestANodeWithADamagedLogSaysSoAndStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		follower := c.Follower()
		for range 20 {
			as(t, c, "w1", c.Leader()).ok(set("results/w1/a", "1"))
		}
		c.Kill(follower)
		dice := rand.New(rand.NewPCG(1, 2))
		for range 10 {
			c.Members[follower].Disk.FlipLog(dice)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.TryRestart(follower) }()
		select {
		case err := <-ended:
			if err == nil { // the damage lies where raft looks later
				err = c.Died(follower)
			}
			if err == nil || !strings.Contains(err.Error(), "is damaged") || !strings.Contains(err.Error(), "log entry") {
				t.Errorf("it ended with %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("the start of a node with a damaged log never returns")
		}
	})
}
