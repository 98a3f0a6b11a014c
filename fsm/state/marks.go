package state

import (
	"strings"

	boardpb "raftboard/fsm/pb"
)

// Before is a key as it was before this commit, or nil: citations point to earlier commits
// only, and so never in a circle (SPEC F-29).
func (x *Txn) Before(key string) *Key {
	k, _ := x.b.entries.get(key)
	return k
}

// LeaseBefore is a lease as it was before this commit, or nil.
func (x *Txn) LeaseBefore(key string) *boardpb.Lease { return x.b.lease(key) }

// Invalidation is what is kept of a record that was invalidated, or nil.
func (x *Txn) Invalidation(ref string) *boardpb.Invalidation {
	v, _ := lookup(&x.marks, &x.b.marks, ref)
	return v
}

// PutInvalidation marks a record; who and when is filled in here.
func (x *Txn) PutInvalidation(v *boardpb.Invalidation) {
	v.Rev, v.TMs, v.WallMs = x.Rev(), x.T(), x.Wall()
	v.Author, v.ActingFor, v.Loop = Principal(x.cmd.GetActor()), x.actingBy(), x.cmd.GetLoop()
	x.head.liveBytes += MarkBytes(v)
	x.marks.put(v.Ref, v, false)
}

// MarkBytes is what an invalidation counts for against the board's cap.
func MarkBytes(v *boardpb.Invalidation) uint64 {
	return uint64(entryOverhead + len(v.Ref) + len(v.Reason) + len(v.Author))
}

// followCites keeps who cites what, both ways in one order: "cited NUL citing".
func (b *board) followCites(old, k *Key) {
	var oldest uint64 = 1<<64 - 1
	if k != nil {
		oldest = k.versions[0].Version
	}
	known := uint64(0)
	if old != nil {
		known = old.Newest().Version
		for _, e := range old.versions {
			if e.Version >= oldest {
				break
			}
			b.cite(e, false)
		}
	}
	if k == nil {
		return
	}
	for i := len(k.versions) - 1; i >= 0 && k.versions[i].Version > known; i-- {
		b.cite(k.versions[i], true)
	}
}

func (b *board) cite(e *boardpb.Entry, on bool) {
	if len(e.Cites) > 0 {
		b.shared = nil
	}
	for _, cited := range e.Cites {
		at := cited + "\x00" + EntryRef(e)
		if on {
			b.citing.Insert(at)
		} else {
			b.citing.Delete(at)
		}
	}
}

// Invalidation is what was kept of a record that was invalidated, or nil.
func (b *Board) Invalidation(ref string) *boardpb.Invalidation {
	v, _ := b.marks.get(ref, b.at)
	if v != nil && v.Rev > b.Rev() {
		return nil
	}
	return v
}

// CitedBy calls each for the records that cite one directly, in the order of their refs.
func (b *Board) CitedBy(ref string, each func(citing string) bool) {
	from := ref + "\x00"
	b.citing.Ascend(from, func(at string) bool {
		citing, is := strings.CutPrefix(at, from)
		return is && each(citing)
	})
}

// Invalidations is how many records of the board are marked.
func (b *Board) Invalidations() int { return b.marks.len() }

// maxAncestors bounds how many records are looked through for what one rests on.
const maxAncestors = 10_000

// MaxRestsOn bounds what a Mark names.
const MaxRestsOn = 64

// Mark is what a reader must know of an entry, or nil: that it was invalidated, and which
// invalidated records it rests on, directly or through others, as far as those are retained
// (SPEC F-18, F-31). It takes time in proportion to what the entry cites, and none where
// nothing was invalidated.
func (b *Board) Mark(e *boardpb.Entry) *boardpb.Mark {
	if e == nil || b.marks.len() == 0 {
		return nil
	}
	m := &boardpb.Mark{Ref: EntryRef(e)}
	m.Invalidation = b.Invalidation(m.Ref)
	seen, todo := map[string]bool{}, e.Cites
	for len(todo) > 0 {
		ref := todo[0]
		todo = todo[1:]
		if seen[ref] {
			continue
		}
		if len(seen) == maxAncestors || len(m.RestsOn) == MaxRestsOn {
			m.More = true
			break
		}
		seen[ref] = true
		if b.Invalidation(ref) != nil {
			m.RestsOn = append(m.RestsOn, ref)
		}
		todo = append(todo[:len(todo):len(todo)], b.CitesOf(ref)...)
	}
	if m.Invalidation == nil && len(m.RestsOn) == 0 && !m.More {
		return nil
	}
	return m
}

// CitesOf is what a record cites, as far as it is retained.
func (b *Board) CitesOf(ref string) []string { return b.EntryByRef(ref).GetCites() }

// EntryByRef is a retained version by its ref, or nil. It is the same at every rev.
func (b *Board) EntryByRef(text string) *boardpb.Entry {
	ref, why := ParseRef(text)
	if why != "" || ref.Kind != RefKey {
		return nil
	}
	if k, _ := b.entries.get(ref.Key, b.at); k != nil {
		return k.Version(ref.Number)
	}
	return nil
}
