package client_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// letGoNode takes keepalives as real nodes do, and notes what it was told to let go. While
// away it answers none.
type letGoNode struct {
	t  *testing.T
	mu sync.Mutex

	away    bool
	letGo   map[string]bool
	renewed map[string]int // how often a loop was renewed
}

func (n *letGoNode) answer(c *call) *wirepb.SessionResponse {
	op := c.cmd.GetLoopKeepalive()
	if op == nil {
		return c.routine()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.away {
		return nil
	}
	if len(op.Loops) > 256 || len(op.LetGo) > 1024 {
		n.t.Errorf("a keepalive of %d loops lets %d leases go", len(op.Loops), len(op.LetGo))
		return c.applied(&boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Message: "too many"})
	}
	for _, ref := range op.LetGo {
		n.letGo[ref.Key] = true
	}
	for _, l := range op.Loops {
		n.renewed[l.Loop]++
		told := 0
		for key := range n.letGo {
			if strings.HasPrefix(key, "claims/"+l.Loop+"-") {
				told++
			}
		}
		if l.Loop != "loop-keeper" && told != manyLeases {
			n.t.Errorf("%s is renewed while only %d of its %d leases are let go", l.Loop, told, manyLeases)
		}
	}
	return c.routine()
}

// manyLeases of two loops are more than one keepalive may let go.
const manyLeases = 600

func TestT07LoopsThatLetManyLeasesGoAreRenewedAndKeepTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		n := &letGoNode{t: t, letGo: map[string]bool{}, renewed: map[string]int{}, away: true}
		s.nodes["n1:1"].play(n.answer)
		c := s.client(client.Config{}, "n1:1")
		kept := claim(t, background(t), openLoop(t, c, client.LoopOptions{Nonce: "keeper"}), "claims/kept", time.Minute)
		work, done := context.WithCancel(background(t))
		for _, nonce := range []string{"a", "b", "c"} {
			l := openLoop(t, c, client.LoopOptions{Nonce: nonce})
			for i := range manyLeases {
				claim(t, work, l, fmt.Sprintf("claims/%s-%d", l.ID(), i), time.Minute)
			}
		}
		done()
		time.Sleep(15 * time.Second) // the round that began with the first of them is over
		n.mu.Lock()
		n.away = false
		n.mu.Unlock()
		time.Sleep(5 * time.Minute)
		if isLost(kept) {
			t.Errorf("the lease nobody let go is lost: %+v", kept.Ended())
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if want := 3 * manyLeases; len(n.letGo) != want || len(n.renewed) != 4 {
			t.Errorf("%d leases were let go, want %d; renewed: %v", len(n.letGo), want, n.renewed)
		}
	})
}

// A loop that is opened again lets go all it held, also what stands on later pages: what
// stayed behind would be renewed for ever, with nobody working on it.
func TestAllPagesOfALoopsLeasesAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		pages := map[string]*wirepb.LoopAnswer{
			"":         {Loop: &boardpb.Loop{Id: "l-1", Floor: 7}, Leases: []*boardpb.Lease{{Key: "claims/a"}}, Next: "claims/b"},
			"claims/b": {Loop: &boardpb.Loop{Id: "l-1", Floor: 8}, Next: "claims/c"}, // nothing of the loop on this one
			"claims/c": {Loop: &boardpb.Loop{Id: "l-1", Floor: 9}, Leases: []*boardpb.Lease{{Key: "claims/d"}}},
		}
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			page := pages[c.read.GetLoopStatus().GetAfter()]
			return c.readAnswer(&wirepb.ReadResponse{Rev: 3, Answer: &wirepb.ReadResponse_LoopStatus{LoopStatus: page}})
		})
		got, _, err := s.client(client.Config{}, "n1:1").Board("default").LoopStatus(context.Background(), "l-1", client.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if l := got.GetLeases(); len(l) != 2 || l[0].Key != "claims/a" || l[1].Key != "claims/d" || got.Loop.Floor != 7 || got.Next != "" {
			t.Errorf("got %v, want the leases of all three pages and the record of the first", got)
		}
	})
}
