package netns_test

import (
	"context"
	"testing"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
	"raftboard/jepsen/nemesis"
	"raftboard/jepsen/netns"
)

// cut cuts a node off from the other nodes, or joins it again.
func cut(t *testing.T, c *netns.Cluster, node int, s nemesis.Shape) {
	t.Helper()
	for i := range c.Nodes() {
		if i != node {
			do(t, c.Link(node, i, s))
			do(t, c.Link(i, node, s))
		}
	}
}

func TestAClusterLosesItsLeaderByPartitionByDeathAndByPauseAndServesAgain(t *testing.T) {
	t.Parallel()
	c, log := start(t, func(o *netns.Options) {
		o.OtherBinary = other.get(t, "raftboard-other", "-ldflags", "-X main.linked=other")
	})
	cl := dial(t, c, "writer")
	set(t, cl, "reg/k0", "before")

	first, was := leader(t, c)
	cut(t, c, first, nemesis.Shape{Cut: true})
	next, is := leader(t, c, first)
	if is.Term <= was.Term {
		t.Errorf("%d leads in term %d, before it was term %d", next, is.Term, was.Term)
	}
	set(t, cl, "reg/k1", "while the first leader is cut off")
	if lost, err := c.Lost(first); err != nil || lost == 0 {
		t.Errorf("%d packets were dropped: %v", lost, err)
	}
	cut(t, c, first, nemesis.Shape{})
	ready(t, c)

	second, was := leader(t, c)
	do(t, c.Kill(second))
	if _, err := c.Status(t.Context(), second); err == nil {
		t.Error("a dead node answers")
	}
	if died := c.Died(second); died != nil {
		t.Errorf("it was killed, and is said to have died by itself: %v", died)
	}
	if _, is = leader(t, c, second); is.Term <= was.Term {
		t.Errorf("term %d, before it was term %d", is.Term, was.Term)
	}
	set(t, cl, "reg/k2", "while a node is dead")
	do(t, c.Start(second))
	ready(t, c)

	third, was := leader(t, c)
	do(t, c.Pause(third))
	if _, err := c.Status(t.Context(), third); err == nil {
		t.Error("a paused node answers")
	}
	if _, is = leader(t, c, third); is.Term <= was.Term {
		t.Errorf("term %d, before it was term %d", is.Term, was.Term)
	}
	set(t, cl, "reg/k3", "while a node is paused")
	do(t, c.Resume(third))
	ready(t, c)

	do(t, c.Switch(third))
	do(t, c.Stop(third))
	do(t, c.Start(third))
	ready(t, c)
	nodes, err := cl.Cluster().Nodes(t.Context())
	do(t, err)
	for _, n := range nodes.Nodes {
		if switched := n.Version == "other"; switched != (n.Name == c.Nodes()[third]) {
			t.Errorf("%s runs version %q", n.Name, n.Version)
		}
	}
	for i := range c.Nodes() {
		do(t, c.Kill(i)) // the traces of these lives are read to their ends
	}
	lives, roles := map[string]int{}, 0
	h := log.History()
	for _, a := range h.Applied {
		lives[a.Node] = max(lives[a.Node], a.Life)
	}
	for _, r := range h.Roles {
		if r.Role == "leader" {
			roles++
		}
	}
	if lives["n1"]+lives["n2"]+lives["n3"] < 5 || roles < 4 {
		t.Errorf("the traces tell of lives %v and of %d times a leader", lives, roles)
	}
}

func TestAFrozenClientHearsAndSaysNothingUntilItIsThawed(t *testing.T) {
	t.Parallel()
	c, _ := start(t, nil)
	frozen, other := dial(t, c, "frozen"), dial(t, c, "other")
	set(t, frozen, "reg/k", "1")
	thaw := c.Freeze("frozen")
	answered := make(chan error, 1)
	go func() {
		_, err := frozen.Board("b").Mutate(context.WithoutCancel(t.Context()), "reg/k",
			func(*boardpb.Entry) ([]byte, error) { return []byte(`"2"`), nil })
		answered <- err
	}()
	set(t, other, "reg/unhindered", "1")
	got, _, err := other.Board("b").Get(t.Context(), "reg/k", client.ReadOptions{})
	if err != nil || string(got.Entry.Value) != `"1"` {
		t.Errorf("a frozen client wrote %v: %v", got, err)
	}
	select {
	case err := <-answered:
		t.Errorf("a frozen client was answered: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	thaw()
	if err := <-answered; err != nil {
		t.Errorf("what waited was not done: %v", err)
	}
}

func TestARetiredNodeIsGoneAndAnAddedOneJoins(t *testing.T) {
	t.Parallel()
	c, _ := start(t, nil)
	bridge := c.BridgeMAC(t)
	do(t, c.Retire(2))
	if names := c.Nodes(); names[2] != "" {
		t.Errorf("a retired node is still called %q", names[2])
	}
	if err := c.Start(2); err == nil {
		t.Error("a retired node was started")
	}
	node, err := c.Add("n4")
	do(t, err)
	eventually(t, "the fourth node ready", 30*time.Second, func() bool {
		s, err := c.Status(t.Context(), node)
		return err == nil && s.Ready
	})
	if died := c.Died(node); died != nil {
		t.Errorf("it runs, and died: %v", died)
	}
	if now := c.BridgeMAC(t); now != bridge {
		t.Errorf("the bridge was %s and is %s: who had learnt of it sends to nobody", bridge, now)
	}
}

func TestDescriptorsThatANodeKeepsAreFound(t *testing.T) {
	t.Parallel()
	c, _ := start(t, nil)
	if notes := c.Leaks(); len(notes) > 0 {
		t.Errorf("of a cluster at rest: %v", notes)
	}
	for range 70 {
		defer c.Connect(t, 1).Close()
	}
	if notes := c.Leaks(); len(notes) != 1 || notes[0].Kind != history.NoteLeak || notes[0].Node != "n2" {
		t.Errorf("noted: %v", notes)
	}
}
