package node

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

const (
	catchUpLook = 100 * time.Millisecond // while this node is behind
	catchUpRest = time.Second            // while it is not
	catchUpAsk  = 2 * time.Second        // for the leader's answer
)

// catchUpLoop finds out whether this node has caught up since it heard of its leader. Until an
// entry or a snapshot reaches it, a follower knows of no commit but its own, and would call
// itself ready while it is any number of entries behind. So it asks the leader, once after its
// start and once after each time it had lost the leader.
func (n *Node) catchUpLoop() {
	target, asked := uint64(0), false
	for {
		rest := catchUpLook
		switch id, _ := n.Leader(); {
		case n.cfg.Peers == nil || n.raft.State() == raft.Leader:
			n.caught.Store(true)
			asked, rest = false, catchUpRest
		case id == "" || id == n.cfg.ID:
			n.caught.Store(false)
			asked = false
		case n.caught.Load():
			rest = catchUpRest
		case !asked:
			ctx, cancel := context.WithTimeout(n.ctx, catchUpAsk)
			index, err := n.cfg.Peers.Fence(ctx, id)
			cancel()
			if target, asked = index, err == nil; asked {
				rest = 0
			}
		case n.fsm.Applied() >= target:
			n.caught.Store(true)
		}
		select {
		case <-n.stop:
			return
		case <-time.After(rest):
		}
	}
}
