package check

import (
	"math"
	"slices"
	"time"

	"raftboard/jepsen/history"
)

// AppendPlot is what became of the elements of W2, for a report to draw.
type AppendPlot struct {
	Readers []string // who read the board at the end
	Lists   []AppendList
	Fates   map[Fate]int // of all elements; one that readers disagree on has the worst fate any of them saw
	Stale   int          // reads that missed something acknowledged before they began
	Unread  int          // elements acknowledged and in no read before the end
	Visible []time.Duration
	// Visible has, for every element that was read, the time from its call to the end of the
	// first read that showed it, the shortest first.
}

// AppendList is one list.
type AppendList struct {
	Key      string
	Elements []AppendElement // in the order of the final list, then those that are not in it, as they were sent
}

// AppendElement is one element of a list.
type AppendElement struct {
	Value   string
	Op      uint64
	At      time.Duration // when it was sent
	Acked   time.Duration // 0: never
	Visible time.Duration // when the first read that showed it ended; 0: none did
	Fates   []Fate        // by reader at the end
}

// Fate is what became of an element.
type Fate string

// The fates. Lost elements had been acknowledged; whether they stand before, between or behind
// what was kept tells how they were lost. The worst is the first.
const (
	LostPrefix  Fate = "lost prefix"
	LostMiddle  Fate = "lost middle"
	LostSuffix  Fate = "lost suffix"
	Doubled     Fate = "doubled"
	Ghost       Fate = "refused, and there"
	UnknownKept Fate = "unknown, and there"
	UnknownGone Fate = "unknown, and not there"
	Refused     Fate = "refused"
	Kept        Fate = "kept"
)

// fates is a constant: from the worst to the best.
var fates = []Fate{LostPrefix, LostMiddle, LostSuffix, Doubled, Ghost, UnknownKept, UnknownGone, Refused, Kept}

// add draws a list.
func (p *AppendPlot) add(l *list) {
	visible := map[string]time.Duration{}
	var atEnd []map[string]int // per final read: how often an element is there
	for i := range l.reads {
		r := &l.reads[i]
		if r.op == 0 {
			counts := map[string]int{}
			for _, item := range r.items {
				counts[item]++
			}
			atEnd = append(atEnd, counts)
			continue
		}
		if len(l.missing(r)) > 0 {
			p.Stale++
		}
		for _, item := range r.items {
			if at, known := visible[item]; !known || r.returned < at {
				visible[item] = r.returned
			}
		}
	}
	drawn := AppendList{Key: l.key}
	kept := l.keptBetween()
	for _, op := range l.drawn() {
		e := AppendElement{Value: op.Args.Value, Op: op.ID, At: op.Invoke, Visible: visible[op.Args.Value]}
		if op.Outcome == history.OK {
			e.Acked = op.Return
			if e.Visible == 0 {
				p.Unread++
			}
		}
		if e.Visible > 0 {
			p.Visible = append(p.Visible, e.Visible-e.At)
		}
		worst := len(fates) - 1
		for i, counts := range atEnd {
			f := fateOf(op, counts[e.Value], kept[i])
			e.Fates = append(e.Fates, f)
			worst = min(worst, slices.Index(fates, f))
		}
		if len(atEnd) > 0 {
			p.Fates[fates[worst]]++
		}
		drawn.Elements = append(drawn.Elements, e)
	}
	p.Lists = append(p.Lists, drawn)
}

// drawn are the elements in the order of a final list, then those that are in none.
func (l *list) drawn() (out []*history.Op) {
	in := map[string]bool{}
	for i := range l.reads {
		for _, item := range l.reads[i].items {
			if op := l.sent[item]; op != nil && l.reads[i].op == 0 && !in[item] {
				in[item], out = true, append(out, op)
			}
		}
	}
	for _, op := range l.order {
		if !in[op.Args.Value] {
			out = append(out, op)
		}
	}
	return out
}

// keptBetween gives, for each final read, when the first and the last of the acknowledged
// elements in it were sent; without any the first is later than the last.
func (l *list) keptBetween() (out [][2]uint64) {
	for i := range l.reads {
		r := &l.reads[i]
		if r.op != 0 {
			continue
		}
		between := [2]uint64{math.MaxUint64, 0}
		for _, item := range r.items {
			if op := l.sent[item]; op != nil && op.Outcome == history.OK {
				between[0], between[1] = min(between[0], op.Began), max(between[1], op.Began)
			}
		}
		out = append(out, between)
	}
	return out
}

func fateOf(op *history.Op, n int, kept [2]uint64) Fate {
	switch {
	case n > 1:
		return Doubled
	case op.Outcome == history.OK && n == 1:
		return Kept
	case op.Outcome == history.OK && op.Began > kept[1]:
		return LostSuffix // also where nothing was kept
	case op.Outcome == history.OK && op.Began < kept[0]:
		return LostPrefix
	case op.Outcome == history.OK:
		return LostMiddle
	case op.Outcome == history.Failed && n == 1:
		return Ghost
	case op.Outcome == history.Failed:
		return Refused
	case n == 1:
		return UnknownKept
	}
	return UnknownGone
}
