package check

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"raftboard/jepsen/history"
)

// transaction is one node of the graph of T2.
type transaction struct {
	op      *history.Op
	who     string // where it is no operation of a client
	began   uint64
	ended   uint64 // math.MaxUint64: nobody knows, or at the end
	appends []history.Part
	reads   []listSeen
}

// listSeen is a read of the first n items of a list.
type listSeen struct {
	key string
	n   int
}

// describe is a transaction in one line.
func (x *transaction) describe(order map[string][]string) string {
	var parts []string
	for _, r := range x.reads {
		parts = append(parts, fmt.Sprintf("read %s = %s", r.key, short(order[r.key][:min(r.n, len(order[r.key]))])))
	}
	for _, p := range x.appends {
		parts = append(parts, fmt.Sprintf("appended %s to %s", p.Value, p.Key))
	}
	if x.op == nil {
		return x.who + " " + strings.Join(parts, ", ")
	}
	return fmt.Sprintf("%s at %v, %s, rev %d: %s", x.op.Client, x.op.Invoke, x.op.Outcome, x.op.Result.Rev, strings.Join(parts, ", "))
}

// short shows the end of a list, which is what matters of it.
func short(items []string) string {
	const most = 4
	if len(items) <= most {
		return "[" + strings.Join(items, " ") + "]"
	}
	return fmt.Sprintf("[… %d more, %s]", len(items)-most, strings.Join(items[len(items)-most:], " "))
}

func (x *transaction) name() string {
	switch {
	case x.op == nil:
		return x.who
	case x.op.Kind == history.Txn && len(x.appends) == 0:
		return fmt.Sprintf("the refusal of %d", x.op.ID)
	}
	return fmt.Sprintf("operation %d", x.op.ID)
}

// realTime ties transactions that ended to those that began afterwards, leaving out what
// follows from the rest: so there are only as many ties as overlap.
func realTime(g *graph, all []*transaction, which []int) {
	type moment struct {
		count uint64
		node  int
		ends  bool
	}
	var moments []moment
	for _, i := range which {
		x := all[i]
		moments = append(moments, moment{x.began, i, false})
		if x.ended != math.MaxUint64 {
			moments = append(moments, moment{x.ended, i, true})
		}
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.count, b.count) })
	over := map[int]bool{}    // ended, and not implied by another that ended later
	behind := map[int][]int{} // by node: those that were over when it began
	for _, m := range moments {
		if !m.ends {
			behind[m.node] = slices.Sorted(maps.Keys(over))
			for _, n := range behind[m.node] {
				g.add(edge{from: n, to: m.node, tie: rt})
			}
			continue
		}
		for _, n := range behind[m.node] {
			delete(over, n)
		}
		over[m.node] = true
	}
}

// book is what all clients wrote and read of append-only lists.
type book struct {
	all    []*transaction
	writer map[string]int      // by element: the transaction that appended it
	order  map[string][]string // by key: the longest list that anybody read
	keys   []string
	found  []Finding
}

func (k *book) say(format string, args ...any) func(ops ...uint64) {
	f := violation("T2", format, args...)
	return func(ops ...uint64) { k.found = append(k.found, f.of(ops...)) }
}

// Serializable is T2: the version order of every list from the longest read, and from it who
// must stand before whom. It finds reads that no order could explain (lists of one key that
// contradict each other, elements twice, never sent, refused (G1a) or in the middle of a
// transaction (G1b)) and circles: G0, G1c, G-single and G2, and the same closed by real time.
func Serializable(h *history.History) []Finding {
	k := &book{writer: map[string]int{}, order: map[string][]string{}}
	lists := k.collect(h)
	slices.Sort(k.keys)
	for _, key := range k.keys {
		k.versions(key, lists[key])
	}
	for _, x := range k.all {
		k.guards(x)
	}
	for _, c := range k.tied().cycles() {
		var ops []uint64
		for _, e := range c.edges {
			if op := k.all[e.from].op; op != nil {
				ops = append(ops, op.ID)
			}
		}
		text := c.tell(func(n int) string { return k.all[n].name() }, func(n int) string { return k.all[n].describe(k.order) })
		k.say("%s", text)(ops...)
	}
	return k.found
}

// reading is one read of one list.
type reading struct {
	x     *transaction
	key   string
	items []string
}

// collect makes the transactions, and lists what was read of each key.
func (k *book) collect(h *history.History) map[string][]reading {
	lists := map[string][]reading{}
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Kind == history.Txn {
			k.write(op, lists)
		}
	}
	read := func(x *transaction, s *history.Seen) {
		if _, is := lists[s.Key]; !is {
			return // nobody appends to it
		}
		x.reads = append(x.reads, listSeen{s.Key, len(s.Items)})
		lists[s.Key] = append(lists[s.Key], reading{x, s.Key, s.Items})
		if s.Versions != nil && !isCount(s.Versions) {
			k.say("%s read %s with the versions %v: items are missing", x.name(), s.Key, s.Versions)(x.ops()...)
		}
	}
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Kind == history.Dump && op.Outcome == history.OK {
			x := &transaction{op: op, began: op.Began, ended: op.Ended}
			for n := range op.Result.Seen {
				read(x, &op.Result.Seen[n])
			}
			k.all = append(k.all, x)
		}
	}
	for _, reader := range finalReaders(h) {
		for _, key := range k.keys { // each by itself: pages are not of one moment
			x := &transaction{who: "the end as seen by " + reader.name, began: math.MaxUint64, ended: math.MaxUint64}
			s := reader.keys[key]
			if s == nil {
				s = &history.Seen{Key: key}
			}
			read(x, s)
			k.all = append(k.all, x)
		}
	}
	return lists
}

func (x *transaction) ops() []uint64 {
	if x.op == nil {
		return nil
	}
	return []uint64{x.op.ID}
}

func isCount(versions []uint64) bool {
	for i, v := range versions {
		if v != uint64(i+1) {
			return false
		}
	}
	return true
}

// write takes a transaction that writes. The guards of one that was done are reads; one that
// was refused by a guard or a version is a read of what it was told.
func (k *book) write(op *history.Op, lists map[string][]reading) {
	x := &transaction{op: op, began: op.Began, ended: op.Ended}
	if op.Outcome == history.Info || op.Ended == 0 {
		x.ended = math.MaxUint64
	}
	for _, p := range op.Args.Parts {
		if p.Do == history.Append {
			if _, known := lists[p.Key]; !known {
				lists[p.Key], k.keys = nil, append(k.keys, p.Key)
			}
			if twin, twice := k.writer[p.Value]; twice {
				k.found = append(k.found, invalid("%s was appended twice: what a read saw cannot be told", p.Value).
					of(k.all[twin].op.ID, op.ID))
			}
			k.writer[p.Value] = len(k.all)
			x.appends = append(x.appends, p)
		}
		if p.Do == history.Get && op.Outcome != history.Failed {
			x.reads = append(x.reads, listSeen{p.Key, int(p.Version)})
		}
	}
	k.all = append(k.all, x)
	if op.Outcome == history.Failed && op.Result.Answer == "conflict" && op.Result.Key != "" {
		k.all = append(k.all, &transaction{op: op, began: op.Began, ended: op.Ended,
			reads: []listSeen{{op.Result.Key, int(op.Result.Version)}}})
	}
}

// versions takes the longest list that was read of a key as the order of its elements, and
// checks that nothing contradicts it.
func (k *book) versions(key string, lists []reading) {
	longest := longestOf(lists)
	k.order[key] = longest
	for _, l := range lists {
		if n := firstDifference(l.items, longest); n < len(l.items) {
			k.say("incompatible order: %s read %s as item %d of %s, another read shows %s", l.x.name(), l.items[n], n+1, key, longest[n])(l.x.ops()...)
		}
		k.justified(l)
	}
}

func longestOf(lists []reading) (longest []string) {
	for _, l := range lists {
		if len(l.items) > len(longest) {
			longest = l.items
		}
	}
	return longest
}

// justified: whatever a read shows was sent, once, not refused, and not half of what its
// transaction appended.
func (k *book) justified(l reading) {
	seen := map[string]bool{}
	for i, item := range l.items {
		n, sent := k.writer[item]
		switch {
		case seen[item]:
			k.say("%s read %s twice in %s", l.x.name(), item, l.key)(l.x.ops()...)
		case !sent:
			k.say("%s read %s in %s, which nobody appended", l.x.name(), item, l.key)(l.x.ops()...)
		case k.all[n].op.Outcome == history.Failed:
			k.say("G1a, an aborted read: %s read %s in %s, which transaction %d had appended, and that was answered %s",
				l.x.name(), item, l.key, k.all[n].op.ID, k.all[n].op.Result.Answer)(append(l.x.ops(), k.all[n].op.ID)...)
		case i == len(l.items)-1 && k.all[n].last(l.key) != item:
			k.say("G1b, an intermediate read: %s read %s up to %s, and transaction %d appended %s behind it",
				l.x.name(), l.key, item, k.all[n].op.ID, k.all[n].last(l.key))(append(l.x.ops(), k.all[n].op.ID)...)
		}
		seen[item] = true
	}
}

// guards checks what a transaction named, or was told when it was refused: a version is a
// list of so many items.
func (k *book) guards(x *transaction) {
	if x.op == nil || x.op.Kind != history.Txn || x.op.Outcome == history.Info {
		return
	}
	for _, r := range x.reads {
		order, isList := k.order[r.key]
		if !isList || r.n == 0 {
			continue
		}
		if r.n > len(order) {
			k.say("%s knows %s at version %d, and nobody read more than %d items", x.name(), r.key, r.n, len(order))(x.ops()...)
			continue
		}
		item := order[r.n-1]
		if x.op.Outcome == history.Failed && x.op.Result.Value != item {
			k.say("%s was told that item %d of %s is %s, readers saw %s", x.name(), r.n, r.key, x.op.Result.Value, item)(x.ops()...)
		}
		if w, sent := k.writer[item]; sent && k.all[w] != x && k.all[w].last(r.key) != item {
			k.say("G1b, an intermediate read: %s knows %s up to %s, and transaction %d appended %s behind it",
				x.name(), r.key, item, k.all[w].op.ID, k.all[w].last(r.key))(append(x.ops(), k.all[w].op.ID)...)
		}
	}
}

// last is the last element that a transaction appended to a key.
func (x *transaction) last(key string) (value string) {
	for _, p := range x.appends {
		if p.Key == key {
			value = p.Value
		}
	}
	return value
}

// done says that a transaction took effect: it was acknowledged, or something of it was read.
func (x *transaction) done(read map[string]bool) bool {
	switch {
	case x.op == nil, x.op.Kind == history.Dump, x.op.Outcome == history.OK:
		return true
	case x.op.Outcome == history.Failed:
		return len(x.appends) == 0 // it is what its refusal tells
	}
	return slices.ContainsFunc(x.appends, func(p history.Part) bool { return read[p.Value] })
}

// tied draws the graph.
func (k *book) tied() *graph {
	g := newGraph(len(k.all))
	read := map[string]bool{}
	for _, items := range k.order {
		for _, item := range items {
			read[item] = true
		}
	}
	unread := map[string][]history.Part{} // acknowledged, and behind everything that was read
	var timed []int
	for n, x := range k.all {
		if !x.done(read) {
			continue
		}
		timed = append(timed, n)
		for _, p := range x.appends {
			if !read[p.Value] {
				unread[p.Key] = append(unread[p.Key], p)
			}
		}
	}
	for _, key := range k.keys {
		k.tieWrites(g, key, unread[key])
	}
	for _, n := range timed {
		for _, r := range k.all[n].reads {
			k.tieRead(g, n, r, unread[r.key])
		}
	}
	realTime(g, k.all, timed)
	return g
}

// tieWrites: what stands side by side in a list was written one after the other.
func (k *book) tieWrites(g *graph, key string, unread []history.Part) {
	last := -1
	for _, item := range k.order[key] {
		n, sent := k.writer[item]
		if !sent {
			continue
		}
		if last >= 0 {
			g.add(edge{from: last, to: n, tie: ww, key: key, item: item})
		}
		last = n
	}
	for _, p := range unread {
		if last >= 0 {
			g.add(edge{from: last, to: k.writer[p.Value], tie: ww, key: key, item: p.Value})
		}
	}
}

// tieRead: a read stands behind the writer of the last element it saw, and before the writer
// of the first one that it did not see.
func (k *book) tieRead(g *graph, n int, r listSeen, unread []history.Part) {
	order, isList := k.order[r.key]
	if !isList {
		return
	}
	if r.n > 0 {
		item := ""
		if r.n <= len(order) {
			item = order[r.n-1]
		}
		if w, sent := k.writer[item]; sent {
			g.add(edge{from: w, to: n, tie: wr, key: r.key, item: item})
		}
	}
	if r.n < len(order) {
		if w, sent := k.writer[order[r.n]]; sent {
			g.add(edge{from: n, to: w, tie: rw, key: r.key, item: order[r.n]})
		}
		return
	}
	for _, p := range unread {
		g.add(edge{from: n, to: k.writer[p.Value], tie: rw, key: r.key, item: p.Value})
	}
}
