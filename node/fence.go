package node

import (
	"context"
	"sync"

	"github.com/hashicorp/raft"

	"raftboard/fsm/state"
	"raftboard/jepsen/planted"
)

// fence answers reads behind one raft.Barrier per round. The barrier is appended after every
// read of the round arrived and commits in this node's term, so no write acknowledged before
// those reads can be missing before it; a deposed leader cannot commit one. VerifyLeader
// decides nothing here: an acknowledgement of something sent long ago satisfies it (RAFT P2).
type fence struct {
	mu      sync.Mutex
	next    *round // collects reads while the current round is out
	running bool
}

type round struct {
	done chan struct{}
	view *state.View
	err  error
}

// fenced waits for a round that begins after the call and answers the state published by then.
func (n *Node) fenced(ctx context.Context) (*state.View, error) {
	n.fence.mu.Lock()
	r := n.fence.next
	if r == nil {
		r = &round{done: make(chan struct{})}
		n.fence.next = r
	}
	if !n.fence.running {
		n.fence.running = true
		n.futures.Go(n.fenceRounds)
	}
	n.fence.mu.Unlock()
	select {
	case <-r.done:
		return r.view, r.err
	case <-ctx.Done():
		return nil, &NotDone{Why: "the read fence did not pass in time", Cause: ctx.Err()}
	case <-n.stop:
		return nil, &NotDone{Why: "this node is stopping"}
	}
}

// fenceRounds runs rounds until nobody waits.
func (n *Node) fenceRounds() {
	for {
		n.fence.mu.Lock()
		r := n.fence.next
		n.fence.next = nil
		n.fence.running = r != nil
		n.fence.mu.Unlock()
		if r == nil {
			return
		}
		r.view, r.err = n.fenceRound()
		close(r.done)
	}
}

// fenceRound requires readiness in one and the same term before and after the barrier.
func (n *Node) fenceRound() (*state.View, error) {
	if err := n.Failure(); err != nil {
		return nil, &NotDone{Why: "this node has stopped: " + err.Error(), Cause: err}
	}
	term, ready := n.readyTerm()
	if !ready {
		if planted.Bug("M4") && n.raft.State() == raft.Leader { // elected is good enough
			return n.fsm.View(), nil
		}
		return nil, n.notLeading()
	}
	ask := n.raft.Barrier
	if planted.Bug("M3") {
		ask = n.verifyLeader
	}
	if err := ask(maxEnqueue).Error(); err != nil {
		n.transfer.heard(err)
		e := n.notLeading()
		e.Why, e.Cause = "the read fence did not pass: "+err.Error(), err
		return nil, e
	}
	if after, ready := n.readyTerm(); (!ready || after != term) && !planted.Bug("M3") {
		return nil, n.notLeading()
	}
	return n.fsm.View(), nil
}

// FenceIndex is the leader's answer to a follower's read: the adapter's own applied index,
// read after the barrier answered (RAFT P6).
func (n *Node) FenceIndex(ctx context.Context) (uint64, error) {
	v, err := n.fenced(ctx)
	if err != nil {
		return 0, err
	}
	return v.Applied(), nil
}
