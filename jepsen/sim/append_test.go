package sim_test

import (
	"slices"
	"testing"
	"time"

	"raftboard/jepsen/history"
)

// longRead is the last read that shows many items, with items of its own that can be changed.
func longRead(t *testing.T, h *history.History) *history.Seen {
	t.Helper()
	op := lastOp(t, h, func(o *history.Op) bool {
		return o.Kind == history.Dump && len(o.Result.Seen) == 1 && len(o.Result.Seen[0].Items) > 5
	})
	op.Result.Seen = slices.Clone(op.Result.Seen)
	s := &op.Result.Seen[0]
	s.Items = slices.Clone(s.Items)
	return s
}

// appendSpoilt is what bugs would have left in a history of W2.
var appendSpoilt = []spoilt{
	{"a read misses what was acknowledged", "A1", func(t *testing.T, h *history.History) {
		s := longRead(t, h)
		s.Items = s.Items[:2]
	}},
	{"an acknowledged element is gone at the end", "A1", func(t *testing.T, h *history.History) {
		key := lastOp(t, h, func(o *history.Op) bool { return o.Kind == history.Append && o.Outcome == history.OK })
		h.Finals = slices.DeleteFunc(h.Finals, func(f history.Final) bool { return string(f.Entry.GetValue()) == key.Args.Value })
	}},
	{"a resent element is there twice", "A2", func(t *testing.T, h *history.History) {
		s := longRead(t, h)
		s.Items = append(s.Items, s.Items[0])
	}},
	{"not done was said of what was done", "A3", func(t *testing.T, h *history.History) {
		op := lastOp(t, h, func(o *history.Op) bool { return o.Kind == history.Append && o.Outcome == history.OK })
		op.Outcome, op.Result.Answer = history.Failed, "unavailable"
	}},
	{"two nodes show two orders", "A4", func(t *testing.T, h *history.History) {
		s := longRead(t, h)
		s.Items[1], s.Items[2] = s.Items[2], s.Items[1]
	}},
	{"a loop's elements are swapped everywhere", "A5", func(t *testing.T, h *history.History) {
		ofLoop := func(o *history.Op) bool { return o.Kind == history.Append && o.Outcome == history.OK && o.Loop != "" }
		var first *history.Op
		second := lastOp(t, h, func(o *history.Op) bool {
			for i := range h.Ops {
				if e := &h.Ops[i]; e.ID < o.ID && ofLoop(o) && ofLoop(e) && e.Loop == o.Loop && e.Key == o.Key {
					first = e
					return true
				}
			}
			return false
		})
		first.Args.Value, second.Args.Value = second.Args.Value, first.Args.Value
	}},
	{"a node shows one element less than was applied", "A6", func(t *testing.T, h *history.History) {
		at := len(h.Finals) - 1
		for h.Finals[at].Entry == nil {
			at--
		}
		h.Finals = slices.Delete(h.Finals, at, at+1)
	}},
	{"a node applied another element", "G1", func(_ *testing.T, h *history.History) { h.Applied[len(h.Applied)/2].CommandHash = "other" }},
}

func TestListsAreWholeAndInOrderWhenTheLeaderDies(t *testing.T) {
	testLoad(t, "append", 2, 9*time.Second, appendSpoilt)
}
