package state

import (
	"slices"
	"sort"

	boardpb "raftboard/fsm/pb"
)

// The default duration of a lease follows from how long work took (SPEC LS-4): three times
// the 95th percentile of enough completions, within bounds.
const (
	minSamples   = 20
	minDerivedMs = 10_000
	p95Times     = 3
	workBuckets  = 40
)

// workEdge is the upper edge of a bucket, in ms: 100, 150, 200, 300, 400, 600 … and for all
// that took longer the longest lease. The edges are part of the state's meaning.
func workEdge(i int) int64 {
	if i >= workBuckets-1 {
		return MaxLeaseMs
	}
	edge := int64(100) << (i / 2)
	return min(edge+edge/2*int64(i%2), MaxLeaseMs)
}

// workBucket is the bucket of a time; an edge belongs to the bucket below it.
func workBucket(ms int64) int {
	return sort.Search(workBuckets-1, func(i int) bool { return ms <= workEdge(i) })
}

// WorkTime is the 95th percentile of the times from claim to complete, and of how many; it
// is the upper edge of a bucket.
func WorkTime(u *boardpb.Usage) (p95 int64, samples uint64) {
	for _, n := range u.GetWork() {
		samples += n
	}
	if samples == 0 {
		return 0, 0
	}
	left := (samples*95 + 99) / 100
	for i, n := range u.Work {
		if n >= left {
			return workEdge(i), samples
		}
		left -= n
	}
	return MaxLeaseMs, samples
}

// leaseDefault is the duration of a claim that names none: what the namespace says, or what
// its work says, or the constant.
func leaseDefault(s *Space, u *boardpb.Usage) int64 {
	if s.LeaseMs > 0 {
		return s.LeaseMs
	}
	if p95, samples := WorkTime(u); samples >= minSamples {
		return min(max(minDerivedMs, p95Times*p95), MaxLeaseMs)
	}
	return DefaultLeaseMs
}

// LeaseDefault is the duration of a claim that names none.
func (x *Txn) LeaseDefault(s *Space) int64 {
	return leaseDefault(s, x.usageOf(s))
}

// LeaseDefault is the same as a reader is told it.
func (b *Board) LeaseDefault(s *Space) int64 { return leaseDefault(s, b.Usage(s)) }

// Usage is what the board remembers of how a namespace is used, or nil.
func (b *Board) Usage(s *Space) *boardpb.Usage {
	u, _ := b.usage.get(s.Pattern.String(), b.at)
	return u
}

func (x *Txn) usageOf(s *Space) *boardpb.Usage {
	u, _ := lookup(&x.usage, &x.b.usage, s.Pattern.String())
	return u
}

// Use counts something in the namespace of a key, if it has one.
func (x *Txn) Use(key string, count func(u *boardpb.Usage)) {
	s := x.b.schema.Find(key)
	if s == nil {
		return
	}
	next := &boardpb.Usage{Pattern: s.Pattern.String()}
	if u := x.usageOf(s); u != nil {
		next = CloneUsage(u)
	}
	count(next)
	x.usage.put(next.Pattern, next, false)
}

// Worked adds one time from claim to complete.
func Worked(u *boardpb.Usage, ms int64) {
	work := slices.Clone(u.Work)
	i := workBucket(ms)
	for len(work) <= i {
		work = append(work, 0)
	}
	work[i]++
	u.Work = work
}

// forgetUsage drops what was counted of namespaces that a new table no longer has.
func (x *Txn) forgetUsage(schema *Schema) {
	kept := map[string]bool{}
	for _, s := range schema.spaces {
		kept[s.Pattern.String()] = true
	}
	x.b.usage.index.Scan(func(pattern string, _ *Record[*boardpb.Usage]) bool {
		if !kept[pattern] {
			x.usage.put(pattern, nil, true)
		}
		return true
	})
}
