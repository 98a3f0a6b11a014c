package node

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"raftboard/fsm/state"
	"raftboard/jepsen/planted"
)

// Kind is the consistency of a read.
type Kind int

const (
	// Linearizable reads see every write that was acknowledged before they began.
	Linearizable Kind = iota
	// AtLeast reads wait until a revision of a board is applied on this node.
	AtLeast
	// Stale reads show what this node has, at once.
	Stale
)

// Consistency says what a read must see. Board and Rev belong to AtLeast; for board "" the
// revision is an index of the log.
type Consistency struct {
	Kind  Kind
	Board string
	Rev   uint64
}

const (
	readTimeout = 5 * time.Second // bounds every read without a shorter deadline
	readRetry   = 50 * time.Millisecond
)

// Read answers a View that is as new as asked for. The error is *NotDone or *ReadTimeout.
func (n *Node) Read(ctx context.Context, c Consistency) (*state.View, error) {
	if err := n.Failure(); err != nil {
		return nil, &NotDone{Why: "this node has stopped: " + err.Error(), Cause: err}
	}
	within := readTimeout
	if planted.Bug("M35") { // the bug: as long as it takes
		within = time.Hour
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	switch c.Kind {
	case Stale:
		return n.fsm.View(), nil
	case AtLeast:
		v, err := n.waitView(ctx, func(v *state.View) bool { return revOf(v, c.Board) >= c.Rev })
		if err != nil {
			return nil, &ReadTimeout{Board: c.Board, Wanted: c.Rev, Shown: revOf(v, c.Board)}
		}
		return v, nil
	default:
		return n.linearizable(ctx)
	}
}

func revOf(v *state.View, board string) uint64 {
	if board == "" {
		return v.Applied()
	}
	if b := v.Board(board); b != nil {
		return b.Rev()
	}
	return 0
}

// linearizable asks for a fence, here or at the leader, and tries again while the leadership
// is moving and there is time left. A read has no effect, so it may be repeated.
func (n *Node) linearizable(ctx context.Context) (*state.View, error) {
	if planted.Bug("M2") { // no fence
		return n.fsm.View(), nil
	}
	for {
		v, err := n.tryLinearizable(ctx)
		if err == nil {
			return v, nil
		}
		select {
		case <-time.After(readRetry):
		case <-ctx.Done():
			return nil, err
		case <-n.stop:
			return nil, &NotDone{Why: "this node is stopping"}
		}
	}
}

func (n *Node) tryLinearizable(ctx context.Context) (*state.View, error) {
	if n.raft.State() == raft.Leader {
		return n.fenced(ctx)
	}
	id, _ := n.Leader()
	if id == "" || id == n.cfg.ID || n.cfg.Peers == nil {
		return nil, n.notLeading()
	}
	index, err := n.cfg.Peers.Fence(ctx, id)
	if err != nil {
		e := n.notLeading()
		e.Why, e.Cause = "the leader did not answer the read fence: "+err.Error(), err
		return nil, e
	}
	v, err := n.waitView(ctx, func(v *state.View) bool { return v.Applied() >= index })
	if err != nil {
		return nil, &NotDone{Why: "this node did not reach the leader's state in time", Cause: err}
	}
	return v, nil
}

// waitView waits for a published View that is good enough. On an error it answers the newest.
func (n *Node) waitView(ctx context.Context, good func(*state.View) bool) (*state.View, error) {
	for {
		changed := n.fsm.Changed()
		v := n.fsm.View()
		if good(v) {
			return v, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return v, ctx.Err()
		case <-n.stop:
			return v, errors.New("this node is stopping")
		}
	}
}
