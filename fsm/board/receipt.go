package board

import (
	"fmt"
	"slices"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// checkReceipts looks at the shape of what a node gathered (SPEC F-26).
func checkReceipts(o *boardpb.Receipts) *boardpb.Result {
	switch n := len(o.Receipts); {
	case n > state.MaxReceipts:
		return bad("receipts", "%d of them, at most %d", n, state.MaxReceipts)
	case n == 0 && o.Dropped == 0:
		return bad("receipts", "there are none")
	}
	for i, one := range o.Receipts {
		at := fmt.Sprintf("receipts/%d", i)
		ref, r := parseRef(at+"/ref", one.Ref)
		switch {
		case r != nil:
			return r
		case ref.Number != 0 || ref.String() != one.Ref:
			return bad(at+"/ref", "%+q: the one form of a ref, without a number, is %s", one.Ref, state.Ref{Kind: ref.Kind, Key: ref.Key})
		case one.Principal == "" || len(one.Principal) > state.MaxPrincipal || len(one.Author) > state.MaxPrincipal || len(one.Loop) > state.MaxOpaque:
			return bad(at+"/principal", "a reader has a name, and no name or id is longer than any")
		case one.Principal == one.Author:
			return bad(at+"/author", "who reads what it wrote itself leaves no receipt")
		case one.Count == 0 || one.LowestVersion == 0 || one.LowestVersion > one.HighestVersion:
			return bad(at, "%d reads of versions %d to %d", one.Count, one.LowestVersion, one.HighestVersion)
		}
	}
	return nil
}

// Receipts records who was shown what others wrote: of each record the last readers, and for
// each pair of reader and author how often. It takes one rev and leaves one note, whatever the
// number of reads. A record that is gone by now has no readers to keep, but they did read.
func Receipts(x *state.Txn, o *boardpb.Receipts) *boardpb.Result {
	reads, refs := uint64(0), map[string]bool{}
	for _, one := range o.Receipts {
		reads, refs[one.Ref] = reads+one.Count, true
		x.AddReads(one.Principal, one.Author, one.Count)
		ref, _ := state.ParseRef(one.Ref)
		if ref.Kind == state.RefKey && x.Key(ref.Key) != nil || ref.Kind == state.RefLease && x.Lease(ref.Key) != nil {
			x.PutReaders(withReader(x, one))
		}
	}
	x.Counters().ReadsDropped += o.Dropped
	ev := &boardpb.Event{Kind: boardpb.Kind_KIND_READ, Surface: boardpb.Surface_SURFACE_BOARD,
		Reason: fmt.Sprintf("%d reads of %d records", reads, len(refs))}
	if o.Dropped > 0 {
		ev.Reason += fmt.Sprintf("; the receipts of %d were lost", o.Dropped)
	}
	x.Emit(ev)
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK}
}

// withReader is who read a record, with one receipt more. Its reader becomes the last one.
func withReader(x *state.Txn, one *boardpb.Receipt) *boardpb.Readers {
	old := x.Readers(one.Ref)
	next := &boardpb.Readers{Ref: one.Ref, Forgotten: old.GetForgotten()}
	me := &boardpb.Reader{Principal: one.Principal, Loop: one.Loop, HighestVersion: one.HighestVersion, Count: one.Count,
		LowestVersion: one.LowestVersion, TMs: x.T(), WallMs: x.Wall(), Rev: x.Rev()}
	for _, r := range old.GetReaders() {
		if r.Principal != me.Principal {
			next.Readers = append(next.Readers, r)
			continue
		}
		me.Count += r.Count
		me.HighestVersion, me.LowestVersion = max(me.HighestVersion, r.HighestVersion), min(me.LowestVersion, r.LowestVersion)
	}
	if len(next.Readers) == state.MaxReaders {
		next.Readers = next.Readers[1:]
		next.Forgotten++
	}
	next.Readers = append(next.Readers, me)
	return next
}

// ReaderRow is one who was shown a record; Perhaps: it was shown older and newer versions of
// it than the one asked about, and that one perhaps.
type ReaderRow struct {
	Reader  *boardpb.Reader
	Perhaps bool
}

// WhoRead lists who was shown what others wrote in a record, the last one first, and how many
// readers are no longer known (SPEC F-18, F-26). A ref without a number asks for all versions.
// It answers bad_request, or not_found for a record that never was.
func WhoRead(b *state.Board, text string) (ref string, rows []ReaderRow, forgotten uint64, r *boardpb.Result) {
	at, r := parseRef("ref", text)
	if r != nil {
		return "", nil, 0, r
	}
	if _, r := readSpace(b, at.Key); r != nil {
		return "", nil, 0, r
	}
	if r := neverWas(b, at); r != nil {
		return "", nil, 0, r
	}
	known := b.Readers(state.Ref{Kind: at.Kind, Key: at.Key}.String())
	for _, reader := range slices.Backward(known.GetReaders()) {
		row := ReaderRow{Reader: reader}
		if n := at.Number; n > 0 {
			if n < reader.LowestVersion || n > reader.HighestVersion {
				continue
			}
			row.Perhaps = n != reader.LowestVersion && n != reader.HighestVersion
		}
		rows = append(rows, row)
	}
	return at.String(), rows, known.GetForgotten(), nil
}

// neverWas answers not_found for a ref to what is not there and was not, else nil.
func neverWas(b *state.Board, ref state.Ref) *boardpb.Result {
	var newest uint64
	if ref.Kind == state.RefLease {
		newest = b.Lease(ref.Key).GetGeneration()
	} else if k := b.Key(ref.Key); k != nil {
		newest = k.Newest().Version
	}
	if newest == 0 || ref.Number > newest {
		return Explain(&boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Key: ref.String(), Version: newest})
	}
	return nil
}
