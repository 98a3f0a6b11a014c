package check

import (
	"cmp"
	"maps"
	"slices"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// held is what a key held from a rev on.
type held struct {
	rev, version uint64
	item         bool // one more item of an append key; else it took the place of what was there
	gone         bool
}

// snapshot checks F12 at the seam: the records that came before it are exactly what A says the
// keys asked for held at that rev. It knows what sets, appends and deletes do to keys.
func (x *expected) snapshot(s *stream) (found []Finding) {
	if s.asked.Mode != "snapshot" || s.seam == 0 {
		return nil
	}
	if x.values == nil {
		x.fill()
	}
	want, whole := x.at(s), false
	for _, t := range s.log {
		whole = whole || t.Seam > 0
		if t.Record == nil {
			continue
		}
		if whole {
			found = append(found, violation("F12", "watcher %s was shown %s behind the end of a snapshot", s.watcher, t.Record.Key))
		}
		if !want[*t.Record] {
			found = append(found, violation("F12", "watcher %s was shown version %d of %s in a snapshot at rev %d, and the key did not hold it",
				s.watcher, t.Record.Version, t.Record.Key, s.seam))
		}
		delete(want, *t.Record)
	}
	keys := slices.SortedFunc(maps.Keys(want), func(a, b history.Record) int {
		return cmp.Or(cmp.Compare(a.Rev, b.Rev), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Version, b.Version))
	})
	for _, r := range keys[:min(len(keys), mostMissing)] {
		found = append(found, violation("F12", "watcher %s was not shown version %d of %s (rev %d) in a snapshot at rev %d",
			s.watcher, r.Version, r.Key, r.Rev, s.seam))
	}
	return found
}

// at lists what the keys asked for held at a stream's seam.
func (x *expected) at(s *stream) map[history.Record]bool {
	all := map[history.Record]bool{}
	for key, list := range x.values {
		if !s.wantsKey(key) {
			continue
		}
		var now []history.Record
		for _, h := range list {
			switch {
			case h.rev > s.seam:
			case h.gone:
				now = nil
			case h.item:
				now = append(now, history.Record{Key: key, Version: h.version, Rev: h.rev})
			default:
				now = []history.Record{{Key: key, Version: h.version, Rev: h.rev}}
			}
		}
		for _, r := range now {
			all[r] = true
		}
	}
	return all
}

// fill follows every key through A.
func (x *expected) fill() {
	x.values = map[string][]held{}
	for i := range x.order.Records {
		r := &x.order.Records[i]
		if r.Command.Board != x.board || !r.OK() {
			continue
		}
		if txn := r.Command.GetTxn(); txn != nil {
			for i, one := range txn.Ops[:min(len(txn.Ops), len(r.Result.Results))] {
				x.hold(one.Op, r.Result.Results[i], r.Result.Rev)
			}
			continue
		}
		x.hold(r.Command.Op, r.Result, r.Result.Rev)
	}
}

func (x *expected) hold(op any, res *boardpb.Result, rev uint64) {
	h := held{rev: rev, version: res.Version}
	switch op.(type) {
	case *boardpb.Command_Set, *boardpb.TxnOp_Set:
	case *boardpb.Command_Append, *boardpb.TxnOp_Append:
		h.item = true
	case *boardpb.Command_Delete, *boardpb.TxnOp_Delete:
		h.gone = true
	default:
		return
	}
	x.values[res.Key] = append(x.values[res.Key], h)
}
