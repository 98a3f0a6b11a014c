package workload

import (
	"sync"

	"raftboard/jepsen/history"
)

// outside is something that workers write to and that is no part of the cluster: it takes a
// write under any generation but one below the greatest it has seen of the key. It decides
// and records in one step, so the records are in the order of its decisions.
type outside struct {
	log *history.Log

	mu       sync.Mutex
	greatest map[string]uint64
}

func newOutside(log *history.Log) *outside {
	return &outside{log: log, greatest: map[string]uint64{}}
}

func (o *outside) write(client, key string, generation uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.greatest[key]
	accepted := generation >= seen
	if accepted {
		o.greatest[key] = generation
	}
	o.log.Outside(history.Outside{Client: client, Key: key, Generation: generation, Greatest: seen, Accepted: accepted})
}
