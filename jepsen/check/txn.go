package check

import (
	"cmp"
	"maps"
	"slices"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// Transactions checks W3. T1: a transaction is done as a whole, under one rev, or not at all,
// in A and in every read. T2: there is an order of all transactions, in real time, that
// explains every read. T2 knows nothing of A.
func Transactions(h *history.History, a *Order) []Finding {
	return append(atomic(h, a), Serializable(h)...)
}

// shown is one read of several keys at one moment, as T1 sees it.
type shown struct {
	who  string
	op   uint64
	keys map[string]*history.Seen
}

// atomic is T1.
func atomic(h *history.History, a *Order) []Finding {
	found := appliedWhole(a, h.Run.Board)
	writer := map[string]*history.Op{} // by value: each is written once
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Kind == history.Txn {
			for _, p := range op.Args.Parts {
				if p.Do != history.Get {
					writer[p.Value] = op
				}
			}
		}
	}
	for _, s := range shownIn(h) {
		found = append(found, s.whole(writer)...)
	}
	return found
}

// appliedWhole checks transactions in A: each operation of one that was done has its answer,
// with the next version of its key. Whatever a refused one left behind shows in the versions
// of what follows.
func appliedWhole(a *Order, board string) (found []Finding) {
	versions := map[string]uint64{}
	for i := range a.Records {
		r := &a.Records[i]
		if r.Command.Board != board || !r.OK() {
			continue
		}
		results := []*boardpb.Result{r.Result}
		ops := []any{plainOp(r.Command)}
		if txn := r.Command.GetTxn(); txn != nil {
			if ops, results = nil, r.Result.Results; len(results) != len(txn.Ops) {
				found = append(found, violation("T1", "%d of the %d operations of a transaction were done", len(results), len(txn.Ops)).
					at(r.Index).of(opsOf(r)...))
				continue
			}
			for _, o := range txn.Ops {
				ops = append(ops, txnOp(o))
			}
		}
		for n, op := range ops {
			key := writtenBy(op)
			if key == "" {
				continue
			}
			got := results[n]
			if want := versions[key] + 1; got.Outcome != boardpb.Outcome_OUTCOME_OK || got.Version != want {
				found = append(found, violation("T1", "operation %d of a command gave %s version %d (%s), the writes before it give %d",
					n+1, key, got.Version, name(got), want).at(r.Index).of(opsOf(r)...))
			}
			versions[key] = got.Version
		}
	}
	return found
}

func opsOf(r *history.Applied) []uint64 {
	if id := history.OpOf(r.Command.GetCallId()); id != 0 {
		return []uint64{id}
	}
	return nil
}

// writtenBy is the key that an operation writes the next version of.
func writtenBy(op any) string {
	switch o := op.(type) {
	case *boardpb.Set:
		return o.Key
	case *boardpb.Append:
		return o.Key
	case *boardpb.Delete:
		return o.Key
	}
	return ""
}

// shownIn lists the reads of several keys at one moment, those at the end included: nothing
// is written any more while these go from page to page.
func shownIn(h *history.History) (out []shown) {
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Kind == history.Dump && op.Outcome == history.OK {
			s := shown{who: op.Client, op: op.ID, keys: map[string]*history.Seen{}}
			for n := range op.Result.Seen {
				s.keys[op.Result.Seen[n].Key] = &op.Result.Seen[n]
			}
			out = append(out, s)
		}
	}
	for _, reader := range finalReaders(h) {
		out = append(out, shown{who: "the reader of " + reader.name, keys: reader.keys})
	}
	return out
}

type finalReader struct {
	name string
	keys map[string]*history.Seen
}

// items are what the reader saw of a key, by version.
func (r finalReader) items(key string) []string {
	if seen := r.keys[key]; seen != nil {
		return seen.Items
	}
	return nil
}

// newest is the highest version of a key that the reader saw; 0: none.
func (r finalReader) newest(key string) uint64 {
	if seen := r.keys[key]; seen != nil {
		return slices.Max(seen.Versions)
	}
	return 0
}

// finalReaders lists what each reader at the end saw of each key.
func finalReaders(h *history.History) (out []finalReader) {
	at := map[string]int{}
	for _, f := range h.Finals {
		i, known := at[f.Reader]
		if !known {
			i, at[f.Reader] = len(out), len(out)
			out = append(out, finalReader{f.Reader, map[string]*history.Seen{}})
		}
		if f.Entry == nil {
			continue
		}
		s := out[i].keys[f.Entry.Key]
		if s == nil {
			s = &history.Seen{Key: f.Entry.Key}
			out[i].keys[f.Entry.Key] = s
		}
		s.Items, s.Versions = append(s.Items, string(f.Entry.Value)), append(s.Versions, f.Entry.Version)
		s.Revs = append(s.Revs, f.Entry.Rev)
	}
	return out
}

// whole: of every transaction a read shows all or nothing, at one rev, and nothing of one that
// was refused.
func (s *shown) whole(writer map[string]*history.Op) (found []Finding) {
	revs := map[*history.Op]map[uint64]bool{}
	has := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		seen := s.keys[key]
		for i, item := range seen.Items {
			op := writer[item]
			if op == nil {
				continue
			}
			has[item] = true
			if revs[op] == nil {
				revs[op] = map[uint64]bool{}
			}
			if i < len(seen.Revs) {
				revs[op][seen.Revs[i]] = true
			}
		}
	}
	for _, op := range slices.SortedFunc(maps.Keys(revs), func(a, b *history.Op) int { return cmp.Compare(a.ID, b.ID) }) {
		say := func(format string, args ...any) {
			found = append(found, violation("T1", format, args...).of(op.ID).of(s.ops()...))
		}
		if op.Outcome == history.Failed {
			say("%s saw a part of transaction %d, which was answered %s", s.who, op.ID, op.Result.Answer)
			continue
		}
		if len(revs[op]) > 1 || op.Outcome == history.OK && len(revs[op]) == 1 && !revs[op][op.Result.Rev] {
			say("%s saw transaction %d at the revs %v; it was told %d", s.who, op.ID, slices.Sorted(maps.Keys(revs[op])), op.Result.Rev)
		}
		for _, p := range op.Args.Parts {
			if p.Do != history.Get && !has[p.Value] && !s.replaced(op, &p) {
				say("%s saw a part of transaction %d, and not that it wrote %s to %s", s.who, op.ID, p.Value, p.Key)
				break
			}
		}
	}
	return found
}

func (s *shown) ops() []uint64 {
	if s.op == 0 {
		return nil
	}
	return []uint64{s.op}
}

// replaced: the read was not of that key, or it is one that shows only its newest version and
// has a later one by now.
func (s *shown) replaced(op *history.Op, p *history.Part) bool {
	seen := s.keys[p.Key]
	if seen == nil {
		return s.op != 0 // whoever read at the end read everything
	}
	if p.Do != history.Set {
		return false
	}
	newest := uint64(len(seen.Items))
	if len(seen.Versions) > 0 {
		newest = seen.Versions[len(seen.Versions)-1]
	}
	return newest > p.Version+1
}
