package netns_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"raftboard/client"
	"raftboard/jepsen/nemesis"
	"raftboard/jepsen/netns"
)

// every shapes all links of a node with the others, in both directions.
func every(t *testing.T, c *netns.Cluster, node int, s nemesis.Shape) {
	t.Helper()
	cut(t, c, node, s)
}

func TestWhatNodesSendEachOtherIsHeldDelayedAndBrokenInOneDirection(t *testing.T) {
	t.Parallel()
	c, _ := start(t, func(o *netns.Options) { o.Relay = true })
	cl := dial(t, c, "writer")
	first, _ := leader(t, c)
	deaf := (first + 1) % 3
	quick := syncs(t, cl, 20)

	before, err := c.Lost(deaf)
	do(t, err)
	third := 3 - first - deaf
	for _, from := range []int{first, third} { // leadership may move
		do(t, c.Link(from, deaf, nemesis.Shape{Hold: true}))
	}
	set(t, cl, "reg/flow", "what was on its way has arrived")
	if n := still(t, c, deaf, cl, 20); n > 0 {
		t.Errorf("a node that the leader does not reach applied %d entries", n)
	}
	if after, err := c.Lost(deaf); err != nil || after <= before {
		t.Errorf("%d pieces were held, then %d: %v", before, after, err)
	}
	for _, from := range []int{first, third} {
		do(t, c.Break(from, deaf))
		do(t, c.Link(from, deaf, nemesis.Shape{}))
	}
	_, head := leader(t, c)
	eventually(t, "the node caught up", 10*time.Second, func() bool {
		s, err := c.Status(t.Context(), deaf)
		return err == nil && s.Applied >= head.Applied
	})
	first, _ = leader(t, c)
	every(t, c, first, nemesis.Shape{Delay: 40 * time.Millisecond, Jitter: 10 * time.Millisecond})
	slow := syncs(t, cl, 5)
	every(t, c, first, nemesis.Shape{})
	t.Logf("a write took %v, and %v with 40 to 50 ms in each direction", quick, slow)
	if slow < 80*time.Millisecond {
		t.Errorf("a write took %v, with 40 ms at least there and back", slow)
	}
	every(t, c, first, nemesis.Shape{Rate: 50_000})
	began := time.Now()
	set(t, cl, "reg/large", strings.Repeat("x", 50_000))
	every(t, c, first, nemesis.Shape{})
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("50 kB at 50 kB/s took %v", took)
	}
	ready(t, c)
}

func TestRequestsOfClientsArriveAndTheirAnswersAreLost(t *testing.T) {
	t.Parallel()
	c, log := start(t, nil)
	cl, other := dial(t, c, "writer"), dial(t, c, "other")
	set(t, cl, "reg/k", "1")
	if err := c.Link(0, 1, nemesis.Shape{Hold: true}); err == nil {
		t.Error("what nodes send each other was held without a relay")
	}
	for i := range c.Nodes() {
		do(t, c.Link(i, nemesis.Clients, nemesis.Shape{Hold: true}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	res, err := cl.Board("b").Set(ctx, "reg/unanswered", []byte(`1`), client.SetOptions{})
	if err == nil {
		t.Errorf("an answer arrived that was held: %v", res)
	}
	if lost, err := c.Lost(0); err != nil {
		t.Errorf("%d pieces were held: %v", lost, err)
	}
	for i := range c.Nodes() {
		do(t, c.Break(i, nemesis.Clients))
		do(t, c.Link(i, nemesis.Clients, nemesis.Shape{}))
	}
	set(t, other, "reg/after", "1")
	posts := 0
	for _, a := range log.History().Applied {
		if a.Command.GetSet().GetKey() == "reg/unanswered" && a.Node == "n1" {
			posts++
		}
	}
	if posts != 1 {
		t.Errorf("a request whose answer was lost was applied %d times", posts)
	}
}

func TestAResetEndsConnectionsAndLossDropsSomePackets(t *testing.T) {
	t.Parallel()
	c, _ := start(t, nil)
	cl := dial(t, c, "writer")
	first, was := leader(t, c)
	every(t, c, first, nemesis.Shape{Reset: true})
	if _, is := leader(t, c, first); is.Term <= was.Term {
		t.Errorf("term %d, before it was term %d", is.Term, was.Term)
	}
	every(t, c, first, nemesis.Shape{})
	ready(t, c)
	first, _ = leader(t, c)
	before, err := c.Lost(first)
	do(t, err)
	every(t, c, first, nemesis.Shape{Loss: 0.1})
	for range 30 {
		set(t, cl, "reg/lossy", "1")
	}
	after, err := c.Lost(first)
	do(t, err)
	if after <= before {
		t.Errorf("a tenth of the packets was to be dropped, and %d were", after-before)
	}
	every(t, c, first, nemesis.Shape{})
	do(t, c.Break(first, (first+1)%3))
	ready(t, c)
}
