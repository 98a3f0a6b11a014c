package nemesis

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// operatorPatience is how long an operator repeats what was answered with an error: a change
// of members needs a leader, and there may be none for a while.
const operatorPatience = 20

// again repeats an operator's command until it is done.
func (h *Hand) again(ctx context.Context, do func(context.Context) error) error {
	for began := time.Now(); ; {
		callCtx, cancel := context.WithTimeout(ctx, 10*h.Timeout)
		err := do(callCtx)
		cancel()
		if err == nil || time.Since(began) > operatorPatience*h.Timeout || !rest(ctx, h.Timeout/4) {
			return err
		}
	}
}

func (h *Hand) removeMember(ctx context.Context, id string) error {
	return h.again(ctx, func(ctx context.Context) error {
		if present, err := h.member(ctx, id); err != nil || !present {
			return err
		}
		_, err := h.Admin.Remove(ctx, id)
		return err
	})
}

// member says whether a node id is in the cluster.
func (h *Hand) member(ctx context.Context, id string) (bool, error) {
	resp, err := h.Admin.Nodes(ctx)
	if err != nil {
		return false, err
	}
	for _, n := range resp.Nodes {
		if n.Id == id {
			return true, nil
		}
	}
	return false, nil
}

// join lets a fresh node join under a new name, and waits until it is ready and votes.
func (h *Hand) join(ctx context.Context) (int, error) {
	h.mu.Lock()
	h.added++
	name := fmt.Sprintf("n%d", len(h.Target.Nodes())+1)
	h.mu.Unlock()
	f := h.begin("add", "N13", nil)
	f.Targets = []string{name}
	node, err := h.Target.Add(name)
	if err == nil {
		err = errors.Join(h.ready(ctx, 2*down*h.Timeout, node), h.votes(ctx, name))
	}
	return node, h.end(f, fmt.Sprintf("%s joined, is ready and votes", name), err)
}

// votes waits until a node has a vote: a node is ready before, and whoever is taken away then is
// missing in the majority.
func (h *Hand) votes(ctx context.Context, name string) error {
	return h.again(ctx, func(ctx context.Context) error {
		resp, err := h.Admin.Nodes(ctx)
		if err != nil {
			return err
		}
		for _, n := range resp.Nodes {
			if n.Name == name && n.Suffrage == "voter" {
				return nil
			}
		}
		return fmt.Errorf("node %s has no vote", name)
	})
}

// members is N13: leadership is transferred, a follower or the leader is removed and a fresh
// node takes its place, a vote is taken and given back.
func members(ctx context.Context, h *Hand, length time.Duration) error {
	switch h.roll(5) {
	case 0, 1:
		return transfer(ctx, h, length)
	case 2:
		return vote(ctx, h, length)
	case 3:
		return renew(ctx, h, "leader")
	}
	return renew(ctx, h, "one")
}

// transfer moves leadership again and again.
func transfer(ctx context.Context, h *Hand, length time.Duration) error {
	f := h.begin("transfer", "N13", h.live())
	_, before, err := h.leader(ctx, 5*h.Timeout)
	moves := 0
	for began := time.Now(); err == nil && (moves == 0 || time.Since(began) < length) && time.Since(began) < length+10*h.Timeout; {
		callCtx, cancel := context.WithTimeout(ctx, 5*h.Timeout)
		if _, failed := h.Admin.StepDown(callCtx, ""); failed == nil {
			moves++
		}
		cancel()
		if !rest(ctx, h.between(h.Timeout/10, h.Timeout)) {
			break
		}
	}
	_, after, err2 := h.leader(ctx, 10*h.Timeout)
	witness := ""
	if after.Term > before.Term && moves > 0 {
		witness = fmt.Sprintf("leadership was handed over %d times, from term %d to term %d", moves, before.Term, after.Term)
	}
	return h.end(f, witness, errors.Join(err, err2))
}

// vote takes a follower's vote and gives it back.
func vote(ctx context.Context, h *Hand, length time.Duration) error {
	leader, _, err := h.leader(ctx, 5*h.Timeout)
	if err != nil {
		return err
	}
	nodes := h.others(leader)[:1]
	free, ok := h.take(nodes, false)
	if !ok {
		return nil
	}
	defer free()
	s, err := h.status(ctx, nodes[0])
	if err != nil {
		return nil // it is hurt by something else
	}
	f := h.begin("demote", "N13", nodes)
	err = h.again(ctx, func(ctx context.Context) error { _, err := h.Admin.Demote(ctx, s.NodeID); return err })
	err = h.end(f, "it is a non-voter", err)
	rest(ctx, length)
	g := h.begin("promote", "N13", nodes)
	err2 := h.again(ctx, func(ctx context.Context) error { _, err := h.Admin.Promote(ctx, s.NodeID); return err })
	return errors.Join(err, h.end(g, "it votes again", err2))
}

// renew removes a member, dead or alive, and lets a fresh node take its place.
func renew(ctx context.Context, h *Hand, whom string) error {
	nodes, err := h.victims(ctx, whom)
	if err != nil {
		return err
	}
	free, ok := h.take(nodes, false)
	if !ok {
		return nil
	}
	defer free()
	s, err := h.status(ctx, nodes[0])
	if err != nil {
		return nil
	}
	if h.roll(2) == 0 { // a fresh one first, so that there are never fewer
		if _, err := h.join(ctx); err != nil {
			return err
		}
		return h.remove(ctx, nodes[0], s.NodeID)
	}
	if err := h.remove(ctx, nodes[0], s.NodeID); err != nil {
		return err
	}
	_, err = h.join(ctx)
	return err
}

func (h *Hand) remove(ctx context.Context, node int, id string) error {
	b := h.blame("N13", node) // it may hear that it was removed, and end
	defer b.over()
	f := h.begin("remove", "N13", []int{node})
	dead := h.roll(3) == 0
	var err error
	if dead {
		err = h.kill(node)
	}
	err = errors.Join(err, h.removeMember(ctx, id), h.retire(node))
	return h.end(f, fmt.Sprintf("%s left the cluster (it was dead: %v)", id, dead), err)
}

// replaceWiped is B4: a member loses its disk; it must not come back as who it was. It joins
// as somebody new, after the old one was removed.
func replaceWiped(ctx context.Context, h *Hand, _ time.Duration) error {
	nodes := h.some(1)
	free, ok := h.take(nodes, false)
	if !ok {
		return nil
	}
	defer free()
	node := nodes[0]
	s, err := h.status(ctx, node)
	if err != nil {
		return nil
	}
	b := h.blame("N13", node)
	defer b.over()
	f := h.begin("wipe", "N13", nodes)
	err = h.kill(node)
	what, err2 := h.Target.Corrupt(node, WipeAll, h.dice())
	err = errors.Join(err, err2, h.start(node))
	rest(ctx, 3*h.Timeout)
	became := "it does not answer"
	if now, err := h.status(ctx, node); err == nil && now.NodeID != "" {
		became = fmt.Sprintf("it was %s and is %s", s.NodeID, now.NodeID)
	} else if died := b.died(); died != nil {
		became = fmt.Sprintf("it refused: %v", died)
	}
	err = errors.Join(err, h.replace(ctx, node, s.NodeID))
	return h.end(f, join(what, became), err)
}

// upgrade is a rolling restart with another build of the same source.
func upgrade(ctx context.Context, h *Hand, length time.Duration) error {
	f := h.begin("switch", "N13", h.live())
	var err error
	nodes := h.live()
	for _, node := range nodes {
		free, ok := h.take([]int{node}, false)
		if !ok {
			continue
		}
		err = errors.Join(err, h.Target.Switch(node), h.stop(node), h.start(node), h.ready(ctx, down*h.Timeout, node))
		free()
		rest(ctx, length/time.Duration(len(nodes)))
	}
	return h.end(f, "every node runs the other build", err)
}

// compaction is N14: a node is kept away until the leader has compacted past what it has, so
// that it must install a snapshot; b) the node is the leader itself, and clients keep writing
// to it what it can never commit.
func compaction(ctx context.Context, h *Hand, length time.Duration) error {
	whom := []string{"leader", "one"}[h.roll(2)]
	nodes, err := h.victims(ctx, whom)
	if err != nil {
		return err
	}
	free, ok := h.take(nodes, false)
	if !ok {
		return nil
	}
	defer free()
	node := nodes[0]
	b := h.blame("N14", node)
	defer b.over()
	f := h.begin("compaction", "N14", nodes)
	links := both(nodes, h.others(node))
	err = h.shape(links, Shape{Cut: true})
	rest(ctx, length)
	past, err2 := h.compacted(ctx, node, 60*h.Timeout)
	// What was on its way when the links were cut would arrive now, and may be all that it lacks.
	for _, l := range links {
		err2 = errors.Join(err2, h.Target.Break(l.from, l.to))
	}
	err = errors.Join(err, err2, h.shape(links, Shape{}))
	caught, err3 := h.installed(ctx, b, past, down*h.Timeout)
	witness := ""
	if past > 0 {
		witness = join(fmt.Sprintf("%s (%s) was away until entries below %d were gone", h.Target.Nodes()[node], whom, past), caught)
	}
	return h.end(f, witness, errors.Join(err, err3))
}

// compacted waits until the leader's oldest entry is above everything the node had applied.
func (h *Hand) compacted(ctx context.Context, away int, most time.Duration) (first uint64, err error) {
	had := uint64(0)
	for began := time.Now(); time.Since(began) < most; {
		if s, err := h.status(ctx, away); err == nil {
			had = max(had, s.Last)
		}
		if _, s, err := h.leader(ctx, 0, away); err == nil && had > 0 && s.First > had+1 {
			return s.First, nil
		}
		if !rest(ctx, 100*time.Millisecond) {
			break
		}
	}
	return 0, fmt.Errorf("within %v the leader did not compact past entry %d", most, had)
}

// installed waits until a node that was away has applied what was gone before it was back. A
// node may end itself on the way, with a reason (RAFT P4), and is started again.
func (h *Hand) installed(ctx context.Context, b *blame, past uint64, most time.Duration) (string, error) {
	for began := time.Now(); time.Since(began) < most; {
		if s, err := h.status(ctx, b.nodes[0]); err == nil && s.Ready && s.Applied >= past {
			if died := b.died(); died != nil {
				return fmt.Sprintf("it ended itself (%v), was started again and caught up", died), nil
			}
			return "it caught up", nil
		}
		if !rest(ctx, 2*lookEvery) {
			break
		}
	}
	return "", fmt.Errorf("it did not catch up within %v", most)
}
