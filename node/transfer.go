package node

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// transferStuck is how many election timeouts a leader may refuse everything because of a
// transfer. One that works is over after one.
const transferStuck = 3

// transferWatch looks after a leader whose transfer of leadership does not end. Raft can leave
// its flag set for ever when a step-down interrupts a transfer; once the node leads again it
// refuses every write (RAFT P5, hashicorp/raft#696). The flag is in memory only.
type transferWatch struct {
	n *Node

	mu       sync.Mutex
	watching bool
}

// heard is told how raft answered something that only a leader does. The first refusal starts
// a goroutine that asks on, so that it does not take a client to notice.
func (w *transferWatch) heard(err error) {
	if !errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watching || w.n.closing.Load() {
		return
	}
	w.watching = true
	w.n.futures.Go(w.watch)
}

// watch asks until something else than a transfer answers, and at most transferStuck election
// timeouts and one question more.
func (w *transferWatch) watch() {
	defer func() {
		w.mu.Lock()
		w.watching = false
		w.mu.Unlock()
	}()
	n, mono := w.n, w.n.clock.source.Mono
	every := n.cfg.Timing.Election / 4
	for began := mono(); ; {
		pause := time.NewTimer(every)
		select {
		case <-n.stop:
			pause.Stop()
			return
		case <-pause.C:
		}
		if !errors.Is(n.barrierNow(every), raft.ErrLeadershipTransferInProgress) {
			return
		}
		if mono()-began > transferStuck*n.cfg.Timing.Election {
			n.fail(&DirError{Dir: n.stores.Where,
				What: fmt.Sprintf("a transfer of this node's leadership has not ended within %d election timeouts, and until it does "+
					"every write is refused (hashicorp/raft#696)", transferStuck),
				Hint: "start the node again: what hangs is in memory only, and nothing acknowledged is lost"})
			return
		}
	}
}

// barrierNow asks the leader in this node for something that changes nothing. An answer that
// does not come at once is none of a transfer in progress.
func (n *Node) barrierNow(most time.Duration) error {
	answer := make(chan error, 1)
	n.futures.Go(func() { answer <- n.raft.Barrier(most).Error() })
	patience := time.NewTimer(most)
	defer patience.Stop()
	select {
	case err := <-answer:
		return err
	case <-patience.C:
		return nil
	case <-n.stop:
		return nil
	}
}
