package node

import (
	"context"
	"fmt"
	"sync/atomic"
)

// defaultMinFree is what has to stay free on the volume of the log, beside room for a snapshot:
// more than a second of writes at the rate a board takes them.
const defaultMinFree = 64 << 20

// space watches the room that is left on the volume (RAFT P16). A full volume ends the process;
// before that, a node takes no more writes and does not lead, so that what a majority can still
// store is not decided by the fullest disk.
type space struct {
	low     atomic.Pointer[error]
	offered bool // the leadership, since it is low
}

// checkSpace is called by housekeep, once a second.
func (n *Node) checkSpace() {
	if n.stores.Free == nil {
		return
	}
	free, err := n.stores.Free()
	if err != nil {
		n.log.Warn("the free space cannot be measured", "directory", n.stores.Where, "error", err)
		return
	}
	need := n.cfg.MinFree + n.fsm.View().StateBytes() // a snapshot has to fit, or the log is never cut
	was := n.space.low.Load() != nil
	switch {
	case free < need:
		low := fmt.Errorf("%d MiB are free on the volume of %s; below %d MiB no writes are taken",
			free>>20, n.stores.Where, need>>20)
		n.space.low.Store(&low)
		if !was {
			n.log.Error("little space is left: this node takes no writes", "directory", n.stores.Where, "free", free, "needed", need,
				"hint", spaceHint)
		}
	case was && free >= need+need/4: // more than what sets it off, or it would come and go
		n.log.Info("there is space again: this node takes writes", "directory", n.stores.Where, "free", free)
		n.space.low.Store(nil)
		n.space.offered = false
	}
	n.leaveForSpace()
}

const spaceHint = "free space on that volume, or give it more; nothing acknowledged is lost"

// leaveForSpace offers the leadership once. Where every node is short of space it would else go
// round for ever.
func (n *Node) leaveForSpace() {
	if n.space.low.Load() == nil || n.space.offered || !n.IsLeader() {
		return
	}
	n.space.offered = true
	ctx, cancel := context.WithTimeout(n.ctx, dutyTimeout)
	defer cancel()
	if err := n.StepDown(ctx, ""); err != nil {
		n.log.Warn("the leadership was not handed over for lack of space", "error", err)
	}
}

// roomToWrite says why there is none, or nil.
func (n *Node) roomToWrite() error {
	if low := n.space.low.Load(); low != nil {
		return &NotDone{Why: (*low).Error(), Hint: spaceHint, Cause: *low}
	}
	return nil
}
