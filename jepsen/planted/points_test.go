//go:build faults

package planted_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/client"
	"raftboard/jepsen/planted"
	"raftboard/jepsen/planted/table"
)

func TestEveryPointIsHitByAClusterThatWorks(t *testing.T) {
	defer planted.Reset()
	var mu sync.Mutex
	hits, points := map[string]int{}, map[string]func(int) error{}
	for _, p := range table.Points() {
		points[p.Name] = func(int) error {
			mu.Lock()
			defer mu.Unlock()
			hits[p.Name]++
			return nil
		}
	}
	planted.Set(planted.Setting{Bugs: []string{"M24"}, Points: points}) // for vote-between
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		l, err := b.dial("c", b.Follower()).Board("default").OpenLoop(b.ctx, client.LoopOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for range 50 { // through the client, and passed on by a follower
			if _, err := l.Append(b.ctx, "facts/x", []byte("1"), client.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
			b.appended(b.Follower())
		}
		if revs, err := b.told(0, 1, 5*time.Second); err != nil || len(revs) < 100 {
			t.Errorf("%d revs: %v", len(revs), err)
		}
	})
	for _, p := range table.Points() {
		if hits[p.Name] == 0 {
			t.Errorf("%s was not hit", p.Name)
		}
	}
}
