package board

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// The bounds of one answer. Every read that could be larger answers a page and says how
// to go on. A limit of 0 is the default; one above the maximum is the maximum, since the
// answer says that there is more.
const (
	historyDefault, historyMax = 50, 500
	listDefault, listMax       = 200, 1000
	pageBytes                  = 1 << 20 // of records; one that is larger travels alone
	scanMost                   = 50_000  // keys looked at for one page
)

// Item is one live key in a list: its newest version, and for an append key how many
// items it has.
type Item struct {
	Entry *boardpb.Entry
	Count uint64
}

// Get returns the newest version of a key, for an append key also the number of its
// items, and for a leased key its lease. It answers bad_key, undeclared_namespace, or
// not_found with the last version the key had (0: it never existed); the lease and the
// mode come with not_found too.
func Get(b *state.Board, key string) (*boardpb.Entry, uint64, *boardpb.Lease, boardpb.Mode, *boardpb.Result) {
	space, r := readSpace(b, key)
	if r != nil {
		return nil, 0, nil, boardpb.Mode_MODE_UNSPECIFIED, r
	}
	lease := shown(b, b.Lease(key))
	k := b.Key(key)
	if k == nil || k.Newest().Deleted {
		return nil, 0, lease, space.Mode, missing(b, key, k, lease)
	}
	return k.Newest(), itemCount(space, k), lease, space.Mode, nil
}

// Marks are those of the entries of an answer, of those that have one.
func Marks(b *state.Board, entries ...*boardpb.Entry) (marks []*boardpb.Mark) {
	if b.Invalidations() == 0 {
		return nil
	}
	for _, e := range entries {
		if m := b.Mark(e); e != nil && m != nil {
			marks = append(marks, m)
		}
	}
	return marks
}

// missing is the answer for a key without a value. A deleted key still has a version: who
// writes it again names that one, or none (SPEC KV-1, KV-3).
func missing(b *state.Board, key string, k *state.Key, lease *boardpb.Lease) *boardpb.Result {
	r := &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Key: key,
		Message: fmt.Sprintf("%s was never written", key), Hint: "raftboard list shows what is there"}
	if b.Past() {
		r.Message = fmt.Sprintf("%s was not yet written at rev %d", key, b.Rev())
	}
	if k != nil {
		r.Version = k.Newest().Version
		r.Message = fmt.Sprintf("%s was deleted at version %d", key, r.Version)
	}
	if lease.GetState() == held && !b.Past() {
		r.Generation, r.Holder, r.HolderLoop = lease.Generation, lease.Owner, lease.Loop
		r.ExpiresTMs, r.ExpiresInMs = lease.ExpiresTMs, max(0, lease.ExpiresTMs-b.T())
	}
	return r
}

// History returns retained versions of a key, the newest first, tombstones included, and
// whether older ones are retained, and the oldest version that is. It answers bad_key,
// undeclared_namespace or not_found.
func History(b *state.Board, key string, limit uint32, before uint64) (entries []*boardpb.Entry, more bool, oldest uint64, r *boardpb.Result) {
	if _, r := readSpace(b, key); r != nil {
		return nil, false, 0, r
	}
	k := b.Key(key)
	if k == nil {
		return nil, false, 0, missing(b, key, nil, nil)
	}
	versions := k.Versions()
	oldest = versions[0].Version
	if before > 0 {
		versions = versions[:min(uint64(len(versions)), max(before, oldest)-oldest)]
	}
	page := newPage(limit, historyDefault, historyMax)
	for i := len(versions) - 1; i >= 0; i-- {
		if !page.fits(proto.Size(versions[i])) {
			return entries, true, oldest, nil
		}
		entries = append(entries, versions[i])
	}
	return entries, false, oldest, nil
}

// List returns the live keys that match a pattern, in order, behind the key `after`. A
// listing reserves nothing (TRIALS T-04). If next is not empty there may be more, and it
// is the next call's `after`; a page of a wide search may be empty and still have one. It
// answers bad_request for a pattern that is none, or undeclared_namespace for one that
// no key can match.
func List(b *state.Board, pattern string, limit uint32, after string) (items []Item, next string, r *boardpb.Result) {
	p, r := readPattern(b, pattern)
	if r == nil && after != "" {
		r = checkAfter(state.CheckKey(after))
	}
	if r != nil {
		return nil, "", r
	}
	page := newPage(limit, listDefault, listMax)
	items, next = listed(b, &page, p, after)
	return items, next, nil
}

// ListUnder is List of a key and of those below it: "findings" and "findings/" are findings
// and findings/a, and not findings-old (SPEC BB-1). "" is every key.
func ListUnder(b *state.Board, prefix string, limit uint32, after string) (items []Item, next string, r *boardpb.Result) {
	key := strings.TrimSuffix(prefix, "/")
	if prefix == "" {
		return List(b, "**", limit, after)
	}
	if why := state.CheckKey(key); why != "" {
		return nil, "", bad("prefix", "%+q %s", clip(prefix), why)
	}
	below, why := state.ParsePattern(key + "/**")
	none := why != "" || len(b.Schema().Meets(below)) == 0 // no key can be below it
	switch {
	case none && b.Schema().Find(key) == nil:
		return nil, "", Explain(&boardpb.Result{Code: boardpb.Code_CODE_UNDECLARED_NAMESPACE, Key: prefix, Field: "prefix"})
	case after != "" && state.CheckKey(after) != "":
		return nil, "", checkAfter(state.CheckKey(after))
	}
	page := newPage(limit, listDefault, listMax)
	if k := b.Key(key); k != nil && !k.Newest().Deleted && after < key && page.fits(0) {
		items = append(items, Item{k.Newest(), itemCount(b.Schema().Find(key), k)})
	}
	if none {
		return items, "", nil
	}
	rest, next := listed(b, &page, below, max(after, key))
	return append(items, rest...), next, nil
}

// listed walks the keys of a pattern for one page.
func listed(b *state.Board, page *page, p state.Pattern, after string) (items []Item, next string) {
	last, scanned := after, 0
	b.Keys(start(p, after), func(key string, k *state.Key) bool {
		if !strings.HasPrefix(key, p.Prefix()) {
			return false
		}
		if scanned++; scanned > scanMost || p.Match(key) && !k.Newest().Deleted && !page.fits(0) {
			next = last
			return false
		}
		last = key
		if p.Match(key) && !k.Newest().Deleted {
			items = append(items, Item{k.Newest(), itemCount(b.Schema().Find(key), k)})
		}
		return true
	})
	return items, next
}

// Dump returns what the keys of a pattern hold now: the newest version of each, every
// item of append keys, and the records of leases, posted or not. "" is the whole board.
// Entries and leases of one page cover the same keys; next, if not empty, is the next
// call's `after`. It answers as List does.
func Dump(b *state.Board, pattern string, limit uint32, after string) (
	entries []*boardpb.Entry, leases []*boardpb.Lease, next string, r *boardpb.Result) {
	if pattern == "" {
		pattern = "**"
	}
	p, r := readPattern(b, pattern)
	if r != nil {
		return nil, nil, "", r
	}
	key, version, ok := splitAfter(after)
	if !ok {
		return nil, nil, "", checkAfter("it is none that an answer gave")
	}
	d := dumper{b: b, p: p, page: newPage(limit, listDefault, listMax)}
	d.run(key, version)
	return d.entries, d.leases, d.next, nil
}

// dumper fills one page with the entries and leases of one key after the other.
type dumper struct {
	b       *state.Board
	p       state.Pattern
	page    page
	entries []*boardpb.Entry
	leases  []*boardpb.Lease
	next    string
	last    string // the key that was finished
	scanned int
}

// run goes on behind a version of a key; behind all of a key if version is 0.
func (d *dumper) run(key string, version uint64) {
	if version > 0 {
		if k := d.b.Key(key); k != nil && !d.items(key, k, version) {
			return
		}
	}
	d.last = key
	from := start(d.p, key)
	d.b.Keys(from, func(key string, k *state.Key) bool {
		if !strings.HasPrefix(key, d.p.Prefix()) {
			return false
		}
		// What lies between are leases of items that nobody posted.
		if !d.leasesOnly(from, key) || !d.key(key, k) {
			return false
		}
		d.last, from = key, key+"\x00"
		return true
	})
	if d.next == "" {
		d.leasesOnly(from, "")
	}
}

// key takes one key with its lease, which travels with it whatever its size.
func (d *dumper) key(key string, k *state.Key) (all bool) {
	if !d.p.Match(key) {
		return d.take(false, 0)
	}
	if !d.items(key, k, 0) {
		return false
	}
	if l := d.b.Lease(key); l != nil {
		d.leases = append(d.leases, shown(d.b, l))
		d.page.bytes += proto.Size(l)
	}
	return true
}

// leasesOnly takes the leases from one key up to, but not of, another; "" is the end.
func (d *dumper) leasesOnly(from, to string) (all bool) {
	all = true
	d.b.Leases(from, func(key string, l *boardpb.Lease) bool {
		if to != "" && key >= to || !strings.HasPrefix(key, d.p.Prefix()) {
			return false
		}
		match := d.p.Match(key)
		if all = d.take(match, proto.Size(l)); !all {
			return false
		}
		if match {
			d.leases = append(d.leases, shown(d.b, l))
		}
		d.last = key
		return true
	})
	return all
}

// items takes what a key holds now, behind one of its versions.
func (d *dumper) items(key string, k *state.Key, version uint64) (all bool) {
	current := Current(d.b, key, k)
	if len(current) == 0 {
		return d.take(false, 0)
	}
	if version > 0 {
		current = current[state.FindVersion(current, version+1):]
	}
	for _, e := range current {
		if !d.take(true, proto.Size(e)) {
			if version > 0 {
				d.next = fmt.Sprintf("%s@%d", key, version)
			}
			return false
		}
		d.entries = append(d.entries, e)
		version = e.Version
	}
	return true
}

// take tells whether one more record may be looked at and, if it matches, has room; if
// not, the page ends behind the last finished key.
func (d *dumper) take(matches bool, bytes int) bool {
	if d.scanned++; d.scanned > scanMost || matches && !d.page.fits(bytes) {
		d.next = d.last
		return false
	}
	return true
}

// splitAfter reads a dump's cursor: a key, or a version of an append key, as key@version.
func splitAfter(after string) (key string, version uint64, ok bool) {
	if after == "" {
		return "", 0, true
	}
	key, text, inside := strings.Cut(after, "@")
	if inside {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n == 0 {
			return "", 0, false
		}
		version = n
	}
	return key, version, state.CheckKey(key) == ""
}

// page counts what an answer holds.
type page struct {
	items, bytes, most int
}

func newPage(limit uint32, byDefault, most int) page {
	if limit == 0 {
		return page{most: byDefault}
	}
	return page{most: min(int(limit), most)}
}

// fits counts one more record, if it has room; the first always has.
func (p *page) fits(bytes int) bool {
	if p.items == p.most || p.items > 0 && p.bytes+bytes > pageBytes {
		return false
	}
	p.items++
	p.bytes += bytes
	return true
}

// start is where a walk over the keys of a pattern begins, behind `after`.
func start(p state.Pattern, after string) string {
	if after == "" {
		return p.Prefix()
	}
	return max(p.Prefix(), after+"\x00")
}

// UnknownIn names the first part of a request that carries fields this binary does not
// know, at any depth, or "".
func UnknownIn(request proto.Message) string { return unknownIn(request.ProtoReflect(), "request") }

// Current are the versions that make up what a key holds now: of an append key all since it
// was last deleted, of another key the newest, of a deleted key none.
func Current(b *state.Board, key string, k *state.Key) []*boardpb.Entry {
	return k.Current(b.Schema().Find(key))
}

func itemCount(space *state.Space, k *state.Key) uint64 {
	return uint64(len(k.Current(space)))
}

// readSpace returns the namespace of a key, or why the key cannot be read.
func readSpace(b *state.Board, key string) (*state.Space, *boardpb.Result) {
	if r := checkKey(key); r != nil {
		return nil, r
	}
	if space := b.Schema().Find(key); space != nil {
		return space, nil
	}
	return nil, Explain(&boardpb.Result{Code: boardpb.Code_CODE_UNDECLARED_NAMESPACE, Key: key})
}

// readPattern returns a pattern that can match a key of the board, or the refusal.
func readPattern(b *state.Board, text string) (state.Pattern, *boardpb.Result) {
	p, r := parsePattern("pattern", text)
	if r != nil {
		return p, r
	}
	if len(b.Schema().Meets(p)) == 0 {
		return p, Explain(&boardpb.Result{Code: boardpb.Code_CODE_UNDECLARED_NAMESPACE, Key: text, Field: "pattern"})
	}
	return p, nil
}

func parsePattern(field, text string) (state.Pattern, *boardpb.Result) {
	p, why := state.ParsePattern(text)
	if why != "" {
		return p, &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Field: field,
			Message: fmt.Sprintf("pattern %+q: %s", clip(text), why),
			Hint:    `a pattern is a key in which "*" stands for any run inside a segment and "**", last, for any segments`}
	}
	return p, nil
}

func checkAfter(why string) *boardpb.Result {
	if why == "" {
		return nil
	}
	return &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Field: "after", Message: "after: " + why,
		Hint: "give the `next` of the previous answer, or nothing"}
}
