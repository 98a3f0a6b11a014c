package state

import (
	"fmt"
	"sort"
)

// Derived writes out everything that a state derives from its records and never stores:
// a state that was restored must have derived the same.
func (s *State) Derived() []string {
	var out []string
	s.deadlines.Scan(func(d Deadline) bool {
		out = append(out, fmt.Sprintf("deadline %v", d))
		return true
	})
	for _, name := range append([]string{ClusterBoard}, s.BoardNames()...) {
		b := s.boards[name]
		put := func(format string, args ...any) {
			out = append(out, fmt.Sprintf("%s: "+format, append([]any{name}, args...)...))
		}
		for i := range b.queues {
			b.queues[i].Scan(func(pos uint64, key string) bool { put("queue %d at %d: %s", i, pos, key); return true })
			put("counts %v", b.counts[i])
		}
		b.holdings.Scan(func(h string) bool { put("holding %q", h); return true })
		b.old.Scan(func(rk string) bool { put("replaced %q", rk); return true })
		b.citing.Scan(func(at string) bool { put("cited %q", at); return true })
		b.tombs.Scan(func(rk string) bool { put("tombstone %q", rk); return true })
		(&Board{published: b.publish(s.applied)}).NewestFirst(func(c Current) bool {
			put("current %s@%d of rev %d in %d", c.Entry.Key, c.Entry.Version, c.Entry.Rev, c.Space)
			return true
		})
		b.idem.byTime.Scan(func(at, id string) bool { put("idempotency key %q of %q", at, id); return true })
		var rest []string
		for who, n := range b.idem.count {
			rest = append(rest, fmt.Sprintf("%s: %d keys of %s", name, n, who))
		}
		for who, n := range b.authors.byName {
			rest = append(rest, fmt.Sprintf("%s: %d current items of %s", name, n.items, who))
		}
		for nonce, id := range b.nonces {
			rest = append(rest, fmt.Sprintf("%s: nonce %q is %s", name, nonce, id))
		}
		sort.Strings(rest)
		out = append(out, rest...)
		var sum Sum
		b.entries.index.Scan(func(_ string, r *Record[*Key]) bool { sum = sum.plus(r.newest().total); return true })
		put("sum of entries %x", sum)
	}
	return out
}
