package nemesis

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// disk is N10: the disk of a node is slow, hangs, is full, or fails. A node may end itself
// over it, with a reason; it is started again, also while the disk is as bad as before.
func disk(ctx context.Context, h *Hand, length time.Duration) error {
	nodes, err := h.victims(ctx, []string{"leader", "one"}[h.roll(2)])
	if err != nil {
		return err
	}
	free, ok := h.take(nodes, false)
	if !ok {
		return nil
	}
	defer free()
	node := nodes[0]
	kinds := []struct {
		what  string
		fault DiskFault
	}{
		{"slow", DiskFault{Slow: h.between(h.Timeout/20, h.Timeout/3)}}, {"hung", DiskFault{Hung: true}},
		{"full", DiskFault{Full: true}}, {"failing", DiskFault{Error: true}}, {"cut short", DiskFault{Short: true}},
	}
	kind := kinds[h.roll(len(kinds))]
	b := h.blame("N10", node)
	defer b.over()
	f := h.begin("disk", "N10", nodes)
	err = h.Target.Disk(node, kind.fault)
	if errors.Is(err, ErrUnsupported) {
		kind = kinds[1+h.roll(2)] // hung and full are what every driver can do
		err = h.Target.Disk(node, kind.fault)
	}
	before, _ := h.status(ctx, node)
	rest(ctx, max(length, 2*h.Timeout))
	after, silent := h.status(ctx, node)
	err = errors.Join(err, h.Target.Disk(node, DiskFault{}))
	rest(ctx, h.Timeout/2) // it may only now notice
	err = errors.Join(err, h.start(node), h.ready(ctx, down*h.Timeout, node))
	died := b.died()
	witness := fmt.Sprintf("the disk of %s was %s; it applied %d entries meanwhile", h.Target.Nodes()[node], kind.what, after.Applied-before.Applied)
	switch {
	case died != nil:
		witness = fmt.Sprintf("the disk of %s was %s, and it ended itself: %v", h.Target.Nodes()[node], kind.what, died)
	case silent != nil:
		witness = fmt.Sprintf("the disk of %s was %s, and it did not answer", h.Target.Nodes()[node], kind.what)
	}
	return h.end(f, witness, err)
}

// corrupt is N11: what a dead node has stored is damaged. It comes back if it can. If it
// refuses, it must say so, and then it is replaced as an operator would: by a fresh node
// under a new id.
func corrupt(ctx context.Context, h *Hand, length time.Duration) error {
	nodes := h.some(1)
	free, ok := h.take(nodes, false)
	if !ok {
		return nil
	}
	defer free()
	node := nodes[0]
	kinds := []Corruption{CutTail, FlipLog, FlipLog, FlipSnap, FlipMeta, OlderCopy, EmptySnap, SwappedSnap}
	kind := kinds[h.roll(len(kinds))]
	before, err := h.status(ctx, node)
	if err != nil {
		return nil // it is hurt by something else, and who it is must be known to replace it
	}
	b := h.blame("N11", node)
	f := h.begin("corrupt", "N11", nodes)
	err = h.kill(node)
	what, err2 := h.Target.Corrupt(node, kind, h.dice())
	if err2 != nil { // there may be nothing of that kind to damage yet
		kind = FlipLog
		what, err2 = h.Target.Corrupt(node, kind, h.dice())
	}
	err = errors.Join(err, err2, h.start(node))
	became, err3 := h.survives(ctx, b, max(length, 10*h.Timeout))
	if err3 == nil {
		b.last(before.NodeID)
	} else {
		err = errors.Join(err, h.replace(ctx, node, before.NodeID))
		b.over()
		became = fmt.Sprintf("it refused (%v) and was replaced", err3)
	}
	if what != "" {
		what = join(fmt.Sprintf("%s: %s", kind, what), became)
	}
	return h.end(f, what, err)
}

// survives says whether a node that was damaged is ready again; the error is its own word
// for why it is not.
func (h *Hand) survives(ctx context.Context, b *blame, most time.Duration) (string, error) {
	for began := time.Now(); time.Since(began) < most && rest(ctx, lookEvery); {
		if died := b.died(); died != nil {
			return "", died
		}
		if s, err := h.status(ctx, b.nodes[0]); err == nil && s.Ready {
			return "it came back by itself", nil
		}
	}
	return "", fmt.Errorf("not ready after %v", most)
}

// replace removes a member that will not come back and lets a fresh node join.
func (h *Hand) replace(ctx context.Context, node int, id string) error {
	if err := h.retire(node); err != nil {
		return err
	}
	if err := h.removeMember(ctx, id); err != nil {
		return err
	}
	_, err := h.join(ctx)
	return err
}
