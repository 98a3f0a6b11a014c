package demo

import (
	"fmt"
	"sort"

	boardpb "raftboard/fsm/pb"
)

// grant names one lease: a completion belongs to exactly one.
type grant struct {
	key        string
	generation uint64
	worker     string
}

// feedTally is what the feed says, taken event by event from rev 1.
type feedTally struct {
	posts       map[string]bool
	completes   map[grant]bool
	perKey      map[string]int
	done        map[string]grant // the first completion of a key
	reclaims    int
	fenced      int
	conflicts   int
	sets        int
	last        *boardpb.Event
	outOfOrder  int
	outOfOrderT string
}

func newFeedTally() *feedTally {
	return &feedTally{posts: map[string]bool{}, completes: map[grant]bool{}, perKey: map[string]int{},
		done: map[string]grant{}}
}

// add takes the next event. The feed has every rev once and in order.
func (f *feedTally) add(e *boardpb.Event) {
	if !follows(f.last, e) {
		f.outOfOrder++
		f.outOfOrderT = fmt.Sprintf("%d.%d after %d.%d", e.GetRev(), e.GetSub(), f.last.GetRev(), f.last.GetSub())
	}
	f.last = e
	switch e.GetKind() {
	case boardpb.Kind_KIND_POST:
		f.posts[e.GetKey()] = true
		f.sets++
	case boardpb.Kind_KIND_SET:
		f.sets++
	case boardpb.Kind_KIND_CONFLICT:
		f.conflicts++
	case boardpb.Kind_KIND_RECLAIM:
		f.reclaims++
	case boardpb.Kind_KIND_FENCE_REJECTED:
		f.fenced++
	case boardpb.Kind_KIND_COMPLETE:
		g := grant{e.GetKey(), e.GetGeneration(), e.GetAuthor()}
		f.completes[g] = true
		f.perKey[g.key]++
		if f.perKey[g.key] == 1 {
			f.done[g.key] = g
		}
	}
}

func follows(last, e *boardpb.Event) bool {
	if e.GetRev() == last.GetRev() {
		return last != nil && e.GetSub() == last.GetSub()+1
	}
	return e.GetRev() == last.GetRev()+1 && e.GetSub() == 0
}

// Report is what the demo found. Problems says why it does not pass.
type Report struct {
	Items          int
	Completed      int
	CompletedTwice int
	Lost           int
	FencedWrites   int
	Reclaims       int
	LeaderChanges  int
	LongestPauseMS int64
	ConflictRate   float64
	WritesPerS     float64
	TotalsMatch    bool
	Writes         int
	Seconds        float64
	DiskSyncsPerS  float64
	Totals         Totals
	Problems       []string
}

// Passed tells whether everything held.
func (r *Report) Passed() bool { return len(r.Problems) == 0 }

// judge compares the two witnesses with each other and with the totals of one process.
func judge(items int, alone Totals, acks map[string][]Ack, feed *feedTally, leaderChanges int) *Report {
	r := &Report{Items: items, Completed: len(feed.perKey), FencedWrites: feed.fenced, Reclaims: feed.reclaims,
		LeaderChanges: leaderChanges, Totals: alone}
	if all := feed.sets + feed.conflicts; all > 0 {
		r.ConflictRate = float64(feed.conflicts) / float64(all)
	}
	for key, n := range feed.perKey {
		if n > 1 {
			r.CompletedTwice += n - 1
			r.problem("%s was completed %d times", key, n)
		}
	}
	intents := r.compareLogs(acks, feed)
	counts := make(map[string]Count, len(feed.done))
	for key, g := range feed.done {
		if c, known := intents[g]; known {
			counts[key] = c
		} else {
			r.problem("%s was completed by %s under generation %d, which is in no log", key, g.worker, g.generation)
		}
	}
	r.TotalsMatch = total(counts) == alone
	if r.Completed != r.Items {
		r.problem("%d of %d items were completed", r.Completed, r.Items)
	}
	if !r.TotalsMatch {
		r.problem("the workers' totals differ from those of one process")
	}
	if feed.outOfOrder > 0 {
		r.problem("the feed has %d gaps or repeats, the last at %s", feed.outOfOrder, feed.outOfOrderT)
	}
	return r
}

// compareLogs walks the workers' logs: every acknowledgement must be in the feed, and no refused write may be.
func (r *Report) compareLogs(acks map[string][]Ack, feed *feedTally) map[grant]Count {
	intents := map[grant]Count{}
	var times []int64
	for worker, lines := range acks {
		for _, a := range lines {
			g := grant{a.Key, a.Generation, worker}
			switch a.Kind {
			case Posted:
				times = append(times, a.At)
				if !feed.posts[a.Key] {
					r.Lost++
					r.problem("%s was acknowledged as posted but is not in the feed", a.Key)
				}
			case Claimed:
				times = append(times, a.At)
			case Completing:
				if a.Count != nil {
					intents[g] = *a.Count
				}
			case Completed:
				times = append(times, a.At)
				if !feed.completes[g] {
					r.Lost++
					r.problem("%s was acknowledged as completed (%s, generation %d) but is not in the feed",
						a.Key, worker, a.Generation)
				}
			case Refused:
				if feed.completes[g] {
					r.problem("%s: the write of %s under generation %d was refused and took effect", a.Key, worker, a.Generation)
				}
			}
		}
	}
	r.pace(times)
	return intents
}

// pace finds the longest time without an acknowledged write, and the mean rate.
func (r *Report) pace(times []int64) {
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	r.Writes = len(times)
	if len(times) < 2 {
		return
	}
	for i := 1; i < len(times); i++ {
		r.LongestPauseMS = max(r.LongestPauseMS, (times[i]-times[i-1])/1e6)
	}
	r.Seconds = float64(times[len(times)-1]-times[0]) / 1e9
	if r.Seconds > 0 {
		r.WritesPerS = float64(r.Writes) / r.Seconds
	}
}

// expectFaults states what a run on its own must show besides: each fault left its trace.
func (r *Report) expectFaults(acks map[string][]Ack) {
	refusals := 0
	for _, lines := range acks {
		for _, a := range lines {
			if a.Kind == Refused {
				refusals++
			}
		}
	}
	if r.FencedWrites < 1 || refusals < 1 {
		r.problem("no late write was refused (feed %d, logs %d)", r.FencedWrites, refusals)
	}
	if r.Reclaims < 1 {
		r.problem("no item was claimed again after an expiry")
	}
	if r.LeaderChanges < 1 {
		r.problem("the leader did not change")
	}
}

// maxProblems bounds the list: a thousand lost items are one message too many.
const maxProblems = 50

func (r *Report) problem(format string, args ...any) {
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}
