package node

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

const (
	suspectsKept  = 8
	settleAsk     = 2 * time.Second // for the answer of one voter
	settlePause   = 500 * time.Millisecond
	settleAnew    = 2 * time.Second  // without a majority value until a newer entry is asked about
	settlePatient = 10 * time.Second // without a majority value until writes are refused
)

// suspect notes that the state after an entry may differ among the nodes. It does not block.
func (n *Node) suspect(index uint64) {
	select {
	case n.suspects <- index:
	default: // one of those before it settles the matter
	}
}

// DigestAt answers another node's question about the state after an entry. Nodes ask only
// when they saw a difference, so being asked makes this node compare as well: it may be the
// one that is wrong, even if it leads.
func (n *Node) DigestAt(index uint64) ([16]byte, bool) {
	sum, known := n.fsm.View().DigestAt(index)
	if known {
		n.suspect(index)
	}
	return sum, known
}

// settleLoop settles each suspected index once (contract C9).
func (n *Node) settleLoop() {
	var settled [suspectsKept]uint64
	for turn := 0; ; {
		select {
		case <-n.stop:
			return
		case index := <-n.suspects:
			known := false
			for _, s := range settled {
				known = known || s == index
			}
			if !known {
				settled[turn%suspectsKept] = index
				turn++
				n.settle(index)
			}
		}
	}
}

// settle asks the voters for their digest of one entry. A node in the minority stops, also
// when it leads; without a majority value writes are refused until there is one. Nodes
// forget the digest of an entry that is long past, and one that is behind has none yet, so
// after a while the newest entry is asked about: states that differ do so there as well.
func (n *Node) settle(index uint64) {
	ours, known := n.fsm.View().DigestAt(index)
	if !known {
		return
	}
	n.log.Warn("digests of the state differ among the nodes; asking the voters", "index", index)
	began := time.Now()
	for chosen := began; ; {
		winner, votes, ok := n.pollDigests(index, ours)
		switch {
		case ok && winner != ours:
			n.fail(&DirError{Dir: n.stores.Where,
				What: fmt.Sprintf("the state of this node after entry %d (digest %x) differs from that of %d voters (digest %x): "+
					"its memory, its disk or its binary is at fault", index, ours, votes, winner),
				Hint: rejoinHint(n.cfg.ID)})
			return
		case ok:
			n.log.Warn("the state of this node is that of the majority", "index", index)
			n.doubt.Store(nil)
			return
		case time.Since(began) >= settlePatient && n.doubt.Load() == nil:
			err := fmt.Errorf("the nodes differ in their state after entry %d and no majority of the voters agrees: writes are refused; "+
				"bring the missing voters back, or restore from a snapshot", index)
			n.log.Error(err.Error())
			n.doubt.Store(&err)
		}
		select {
		case <-n.stop:
			return
		case <-time.After(settlePause):
		}
		if time.Since(chosen) >= settleAnew {
			chosen = time.Now()
			view := n.fsm.View()
			if sum, known := view.DigestAt(view.Applied()); known {
				index, ours = view.Applied(), sum
			}
		}
	}
}

// pollDigests asks every voter once and answers the value that a majority of them has.
func (n *Node) pollDigests(index uint64, ours [16]byte) (winner [16]byte, votes int, ok bool) {
	tally := map[[16]byte]int{}
	voters := 0
	for _, s := range n.servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if string(s.ID) == n.cfg.ID {
			tally[ours]++
			continue
		}
		if n.cfg.Peers == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(n.ctx, settleAsk)
		sum, known, err := n.cfg.Peers.Digest(ctx, string(s.ID), index)
		cancel()
		if err == nil && known {
			tally[sum]++
		}
	}
	for sum, count := range tally {
		if count > voters/2 {
			return sum, count, true
		}
	}
	return winner, 0, false
}
