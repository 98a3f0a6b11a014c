package state

import (
	"cmp"
	"slices"

	"github.com/tidwall/btree"

	boardpb "raftboard/fsm/pb"
)

// Current is one item that a key holds now: the newest version, of append keys every item
// since the last delete. What a reader sorts out by stands beside the Entry, so that a walk
// over a large board touches only the entries it shows.
type Current struct {
	Entry  *boardpb.Entry
	Space  int32  // the number of its namespace; -1: none
	Author uint32 // the number of who wrote it; see Board.Author
}

// Newer orders items as NewestFirst gives them: by rev, backwards, and those of one rev by
// key and version, backwards too.
func (c Current) Newer(than Current) int {
	x, y := c.Entry, than.Entry
	return -cmp.Or(cmp.Compare(x.Rev, y.Rev), cmp.Compare(x.Key, y.Key), cmp.Compare(x.Version, y.Version))
}

// perRev is how many items one rev may store: a txn has MaxTxn operations.
const perRev = 1024

// order is the current items of a board by rev. It is derived: Commit keeps it, a restore
// makes it anew. Readers get copies, which share what did not change.
type order = btree.Map[uint64, Current]

// authors numbers those whose items are current, so that a walk compares numbers. A number
// is given anew when the last item of its name is gone, and means nothing outside a View.
type authors struct {
	byName map[string]*authored
	last   uint32
	index  btree.Map[string, uint32] // what readers get a copy of; changes when a name comes or goes
}

type authored struct {
	number uint32
	items  int
}

func newAuthors() authors { return authors{byName: map[string]*authored{}} }

func (a *authors) add(name string) uint32 {
	who := a.byName[name]
	if who == nil {
		a.last++
		who = &authored{number: a.last}
		a.byName[name] = who
		a.index.Set(name, who.number)
	}
	who.items++
	return who.number
}

func (a *authors) forget(name string) {
	if who := a.byName[name]; who.items > 1 {
		who.items--
		return
	}
	delete(a.byName, name)
	a.index.Delete(name)
}

// followCurrent moves one key's items along with its record. It costs what changed: one
// more item of a long append key does not look at the others, only a delete does.
func (b *board) followCurrent(key string, old, k *Key) {
	space := b.schema.Find(key)
	if space != nil && space.Mode == boardpb.Mode_MODE_APPEND && old != nil && k != nil && !old.Newest().Deleted {
		if added := k.behind(old.Newest().Version); !slices.ContainsFunc(added, (*boardpb.Entry).GetDeleted) {
			for _, e := range old.versions {
				if e.Version >= k.versions[0].Version {
					break
				}
				b.forgetCurrent(e)
			}
			for _, e := range added {
				b.addCurrent(space, e)
			}
			return
		}
	}
	for _, e := range currentOf(space, old) {
		b.forgetCurrent(e)
	}
	for _, e := range currentOf(space, k) {
		b.addCurrent(space, e)
	}
}

// behind are the retained versions above one.
func (k *Key) behind(version uint64) []*boardpb.Entry {
	return k.versions[FindVersion(k.versions, version+1):]
}

// currentOf is what a record's versions hold now, oldest first.
func currentOf(space *Space, k *Key) []*boardpb.Entry {
	if k == nil {
		return nil
	}
	return k.Current(space)
}

// Current are the versions that make up what a key of that namespace holds now, oldest
// first: of an append key all since it was last deleted, of another key the newest.
func (k *Key) Current(space *Space) []*boardpb.Entry {
	versions := k.versions
	switch {
	case k.Newest().Deleted:
		return nil
	case space == nil || space.Mode != boardpb.Mode_MODE_APPEND:
		return versions[len(versions)-1:]
	}
	for i := len(versions) - 1; i >= 0; i-- {
		if versions[i].Deleted {
			return versions[i+1:]
		}
	}
	return versions
}

func (b *board) addCurrent(space *Space, e *boardpb.Entry) {
	c := Current{Entry: e, Space: -1, Author: b.authors.add(e.Author)}
	if space != nil {
		c.Space = int32(space.Number)
	}
	at := e.Rev * perRev
	for {
		if _, taken := b.current.Get(at); !taken {
			break
		}
		at++
	}
	b.current.Set(at, c)
}

func (b *board) forgetCurrent(e *boardpb.Entry) {
	first := e.Rev * perRev
	b.current.Ascend(first, func(at uint64, c Current) bool {
		if at >= first+perRev {
			return false
		}
		if c.Entry.Version == e.Version && c.Entry.Key == e.Key {
			b.current.Delete(at)
			b.authors.forget(e.Author)
			return false
		}
		return true
	})
}

// Author is the number that this board's items of a principal carry, or 0 if it has none.
func (b *Board) Author(name string) uint32 {
	number, _ := b.authors.Get(name)
	return number
}

// NewestFirst calls each for every item the board's keys hold now, the newest first, until
// it answers false. A board that shows the past has no such order.
func (b *Board) NewestFirst(each func(Current) bool) {
	var last Current // not given yet: others of its rev may follow
	var same []Current
	flush := func() bool {
		if len(same) == 0 {
			return last.Entry == nil || each(last)
		}
		same = append(same, last)
		slices.SortFunc(same, Current.Newer)
		for _, c := range same {
			if !each(c) {
				return false
			}
		}
		same = same[:0]
		return true
	}
	going, rev := true, uint64(0)
	b.current.Reverse(func(at uint64, c Current) bool {
		if at/perRev == rev {
			same = append(same, last)
		} else {
			going, rev = flush(), at/perRev
		}
		last = c
		return going
	})
	if going {
		flush()
	}
}
