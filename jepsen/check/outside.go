package check

import (
	"raftboard/jepsen/history"
)

// Outside checks what workers wrote to something that knows nothing of the cluster but the
// generations it was shown. Q2: it took none below one that it had taken, nor, once a
// completion was acknowledged, one below that of the completion. L1: it turned away only
// generations that are truly older, so the one it held against them was granted, and granted
// later.
func Outside(h *history.History, windows []*Window) (found []Finding) {
	granted := map[leaseName]int{} // place among all grants
	for i, w := range windows {
		if w.Board == h.Run.Board {
			granted[leaseName{w.Key, w.Generation}] = i + 1
		}
	}
	completed := map[string][]*history.Op{}
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Kind == history.Complete && op.Outcome == history.OK {
			completed[op.Key] = append(completed[op.Key], op)
		}
	}
	greatest := map[string]uint64{}
	for _, o := range h.Outside {
		was := greatest[o.Key]
		switch {
		case o.Accepted && o.Generation < was:
			found = append(found, violation("Q2", "%s wrote outside for %s under generation %d, after generation %d had",
				o.Client, o.Key, o.Generation, was))
		case !o.Accepted && granted[leaseName{o.Key, o.Generation}] == 0:
			found = append(found, violation("L1", "%s was turned away outside for %s under generation %d, which nobody was granted",
				o.Client, o.Key, o.Generation))
		case !o.Accepted && granted[leaseName{o.Key, o.Greatest}] <= granted[leaseName{o.Key, o.Generation}]:
			found = append(found, violation("L1", "%s was turned away outside for %s under generation %d, and generation %d was not granted after it",
				o.Client, o.Key, o.Generation, o.Greatest))
		}
		for _, op := range completed[o.Key] {
			if o.Accepted && o.Generation < op.Args.Generation && o.Place > op.Ended {
				found = append(found, violation("Q2", "%s wrote outside for %s under generation %d, after generation %d had completed it",
					o.Client, o.Key, o.Generation, op.Args.Generation).of(op.ID))
			}
		}
		if o.Accepted {
			greatest[o.Key] = max(was, o.Generation)
		}
	}
	return found
}
