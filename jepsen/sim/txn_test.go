package sim_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"raftboard/jepsen/history"
)

// groupRead is the last read of a group in which two lists hold parts of one transaction, with
// lists of its own, and the two.
func groupRead(t *testing.T, h *history.History) (a, b *history.Seen) {
	t.Helper()
	var at [2]int
	shared := func(o *history.Op) bool {
		for i, x := range o.Result.Seen {
			for j, y := range o.Result.Seen[i+1:] {
				if n, m := len(x.Revs), len(y.Revs); n > 1 && m > 1 && x.Revs[n-1] == y.Revs[m-1] && !strings.HasSuffix(y.Key, "/mark") {
					at = [2]int{i, i + 1 + j}
					return true
				}
			}
		}
		return false
	}
	op := lastOp(t, h, func(o *history.Op) bool { return o.Kind == history.Dump && o.Outcome == history.OK && shared(o) })
	op.Result.Seen = slices.Clone(op.Result.Seen)
	a, b = &op.Result.Seen[at[0]], &op.Result.Seen[at[1]]
	a.Items, b.Items = slices.Clone(a.Items), slices.Clone(b.Items)
	return a, b
}

func doneTxn(a *history.Applied) bool {
	return a.Command.GetTxn() != nil && a.OK() && len(a.Result.Results) > 1
}

// txnSpoilt is what bugs would have left in a history of W3.
var txnSpoilt = []spoilt{
	{"a read shows half of a transaction", "T1", func(t *testing.T, h *history.History) {
		a, _ := groupRead(t, h)
		a.Items, a.Revs = a.Items[:len(a.Items)-1], a.Revs[:len(a.Revs)-1]
	}},
	{"a read shows half of a transaction", "T2", func(t *testing.T, h *history.History) {
		a, _ := groupRead(t, h)
		a.Items, a.Revs = a.Items[:len(a.Items)-1], a.Revs[:len(a.Revs)-1]
	}},
	{"a refused transaction leaves its first operation", "T1", func(t *testing.T, h *history.History) {
		a, _ := groupRead(t, h)
		refused := lastOp(t, h, func(o *history.Op) bool { return o.Kind == history.Txn && o.Outcome == history.Failed })
		for _, p := range refused.Args.Parts {
			if p.Do == history.Append {
				a.Items = append(a.Items, p.Value)
				return
			}
		}
	}},
	{"a transaction has two revs", "T1", func(t *testing.T, h *history.History) {
		a, _ := groupRead(t, h)
		a.Revs = slices.Clone(a.Revs)
		a.Revs[len(a.Revs)-1]++
	}},
	{"half of the operations of a transaction were done", "T1", func(_ *testing.T, h *history.History) {
		everywhere(h, doneTxn, func(a *history.Applied) {
			a.Result, a.ResultHash = proto.CloneOf(a.Result), "changed"
			a.Result.Results = a.Result.Results[:1]
		})
	}},
	{"a guard does not hold and the transaction is done", "T2", func(t *testing.T, h *history.History) {
		op := lastOp(t, h, func(o *history.Op) bool {
			return o.Kind == history.Txn && o.Outcome == history.OK && o.Args.Parts[0].Do == history.Get && o.Args.Parts[0].Version > 2
		})
		op.Args.Parts = slices.Clone(op.Args.Parts)
		op.Args.Parts[0].Version -= 2
	}},
	{"a read is older than what was acknowledged before it", "T2", func(t *testing.T, h *history.History) {
		first := lastOp(t, h, func(o *history.Op) bool { return o.Kind == history.Dump && len(o.Result.Seen) > 1 })
		for i := range first.Result.Seen {
			first.Result.Seen[i] = history.Seen{Key: first.Result.Seen[i].Key}
		}
	}},
}

func TestTransactionsAreSerializableWhenTheLeaderDies(t *testing.T) {
	testLoad(t, "txn", 2, 9*time.Second, txnSpoilt)
}
