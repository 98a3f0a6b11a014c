package state

import (
	"sync/atomic"

	"github.com/tidwall/btree"
)

// Record is one thing over time: a list of values, each stamped with the log index at
// which it was put. The apply goroutine alone appends; readers load the list and take
// the newest value at or below the index of their View, without a lock.
type Record[V any] struct {
	versions atomic.Pointer[[]version[V]]
}

type version[V any] struct {
	at    uint64
	gone  bool
	value V
}

// at returns the value a View of that index shows.
func (r *Record[V]) at(index uint64) (V, bool) {
	vs := *r.versions.Load()
	for i := len(vs) - 1; i >= 0; i-- {
		if vs[i].at <= index {
			return vs[i].value, !vs[i].gone
		}
	}
	var none V
	return none, false
}

func (r *Record[V]) newest() V {
	vs := *r.versions.Load()
	return vs[len(vs)-1].value
}

// push appends a version, and drops those no View with an index of floor or above can show.
func (r *Record[V]) push(v version[V], floor uint64) {
	var vs []version[V]
	if old := r.versions.Load(); old != nil {
		if vs = unreachable(*old, floor); len(vs) < len(*old) {
			// A copy: the dropped values must not stay reachable through the array.
			vs = append(make([]version[V], 0, len(vs)+1), vs...)
		}
	}
	vs = append(vs, v)
	r.versions.Store(&vs)
}

// trim drops what no View with an index of floor or above can show.
func (r *Record[V]) trim(floor uint64) {
	old := *r.versions.Load()
	if vs := unreachable(old, floor); len(vs) != len(old) {
		kept := append([]version[V](nil), vs...)
		r.versions.Store(&kept)
	}
}

func unreachable[V any](vs []version[V], floor uint64) []version[V] {
	for len(vs) > 1 && vs[1].at <= floor {
		vs = vs[1:]
	}
	return vs
}

// Table is all records of one kind: a map for the apply goroutine and an ordered
// index for readers, which changes only when a key comes or goes.
type Table[V any] struct {
	records   map[string]*Record[V]
	index     *btree.Map[string, *Record[V]]
	published Index[V]
	dirty     bool
	garbage   *garbage
}

func newTable[V any](g *garbage) Table[V] {
	return Table[V]{
		records: map[string]*Record[V]{},
		index:   btree.NewMap[string, *Record[V]](32),
		dirty:   true,
		garbage: g,
	}
}

func (t *Table[V]) get(key string) (V, bool) {
	if r := t.records[key]; r != nil {
		return r.newest(), true
	}
	var none V
	return none, false
}

func (t *Table[V]) put(at uint64, key string, value V) {
	r := t.records[key]
	if r == nil {
		r = &Record[V]{}
		t.records[key] = r
		t.index.Set(key, r)
		t.dirty = true
	} else {
		t.garbage.add(at, r)
	}
	r.push(version[V]{at: at, value: value}, t.garbage.floor)
}

// drop ends a record. Views that still hold it in their index go on showing it.
func (t *Table[V]) drop(at uint64, key string) {
	r := t.records[key]
	if r == nil {
		return
	}
	var none V
	r.push(version[V]{at: at, gone: true, value: none}, t.garbage.floor)
	delete(t.records, key)
	t.index.Delete(key)
	t.dirty = true
}

func (t *Table[V]) len() int { return len(t.records) }

// publish returns the index as readers may hold it for any time.
func (t *Table[V]) publish() Index[V] {
	if t.dirty {
		t.published = Index[V]{tree: t.index.Copy()}
		t.dirty = false
	}
	return t.published
}

// Index is the ordered index of a Table as it was when a View was published.
type Index[V any] struct {
	tree *btree.Map[string, *Record[V]]
}

func (x Index[V]) get(key string, at uint64) (V, bool) {
	var none V
	if x.tree == nil {
		return none, false
	}
	r, ok := x.tree.Get(key)
	if !ok {
		return none, false
	}
	return r.at(at)
}

// ascend calls each for the keys from `from` on, in order, until it answers false.
func (x Index[V]) ascend(from string, at uint64, each func(key string, v V) bool) {
	if x.tree == nil {
		return
	}
	x.tree.Ascend(from, func(key string, r *Record[V]) bool {
		v, ok := r.at(at)
		return !ok || each(key, v)
	})
}

func (x Index[V]) len() int {
	if x.tree == nil {
		return 0
	}
	return x.tree.Len()
}

// garbage remembers which records hold values that a later put made obsolete, in the
// order of the log, so that they are freed once no View can show them any more: without
// it a record that was hot once would keep what it held for ever.
type garbage struct {
	floor uint64 // the lowest index of a View that may still be read
	queue []obsolete
	head  int
	added int // since the last collection
}

const collectAtLeast = 1024

type obsolete struct {
	at     uint64
	record interface{ trim(floor uint64) }
}

func (g *garbage) add(at uint64, r interface{ trim(floor uint64) }) {
	g.queue = append(g.queue, obsolete{at, r})
	g.added++
}

// collect frees a bounded number of records, and more than were added since the last
// time: an entry may hold thousands of commands, and the queue must not trail behind.
func (g *garbage) collect(floor uint64) {
	g.floor = floor
	limit := collectAtLeast + g.added
	g.added = 0
	for n := 0; n < limit && g.head < len(g.queue) && g.queue[g.head].at <= floor; n++ {
		g.queue[g.head].record.trim(floor)
		g.queue[g.head] = obsolete{}
		g.head++
	}
	if g.head > 1024 && g.head*2 > len(g.queue) {
		g.queue = append([]obsolete(nil), g.queue[g.head:]...)
		g.head = 0
	}
}
