package report

import (
	"fmt"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

const (
	mostElements = 6000 // strokes per reader
	mostReaders  = 12
)

// fates are the ends of an element, the worst first, each with its colour.
func fates() []struct {
	Fate  check.Fate
	Class string
} {
	return []struct {
		Fate  check.Fate
		Class string
	}{
		{check.LostPrefix, "lost"}, {check.LostMiddle, "lost"}, {check.LostSuffix, "lost"}, {check.Doubled, "doubled"},
		{check.Ghost, "ghost"}, {check.UnknownKept, "info"}, {check.UnknownGone, "absent"}, {check.Kept, "ok"},
	}
}

// appends are the counts beside the picture of what was appended.
type appends struct {
	Readers []string
	Rows    []fateRow
	Extra   []string
}

type fateRow struct {
	Fate     string
	Class    string
	ByReader []int
	Bad      bool
}

// element is one element as one reader saw it.
type element struct {
	check.AppendElement
	key string
}

// appended has a row per final reader: every element at the time at which it was sent.
func (f *facts) appended() (*plot, *appends, string) {
	sends := false
	for i := range f.h.Ops {
		sends = sends || f.h.Ops[i].Kind == history.Append
	}
	lists := f.j.Appends
	switch {
	case !sends:
		return nil, nil, "This load appends nothing."
	case lists == nil:
		return nil, nil, "What became of each element is worked out for the workload append alone."
	case len(lists.Readers) == 0:
		return nil, nil, "Nobody read the board at the end, so what was lost cannot be told."
	}
	readers, note := lists.Readers, "A stroke per element, at the time its append began, in a row per final reader."
	if len(readers) > mostReaders {
		note += fmt.Sprintf(" %d of %d readers are drawn.", mostReaders, len(readers))
		readers = readers[:mostReaders]
	}
	var all []element
	for _, l := range lists.Lists {
		for _, e := range l.Elements {
			all = append(all, element{e, l.Key})
		}
	}
	if n := len(all)/mostElements + 1; n > 1 {
		note += fmt.Sprintf(" A sample is drawn: of elements that are kept, one in %d.", n)
	}
	const row, gap = 20.0, 8.0
	height := float64(len(readers)) * (row + gap)
	p := newPlot("What was appended, and whether each reader saw it at the end", f.whole, height)
	f.bandsOn(p, f.whole, height)
	for i, reader := range readers {
		top := float64(i)*(row+gap) + gap
		p.name(top+13, reader, one(reader))
		f.readerRow(p, all, i, top, row)
	}
	return p, tally(lists, readers, all), note
}

// readerRow draws what one reader saw: what is as it should be as one path, the rest with a
// text each.
func (f *facts) readerRow(p *plot, all []element, reader int, top, height float64) {
	classes := map[check.Fate]string{}
	for _, known := range fates() {
		classes[known.Fate] = known.Class
	}
	oneIn, texts := len(all)/mostElements+1, 0
	strokesOf := map[string][]point{}
	for i, e := range all {
		if reader >= len(e.Fates) || classes[e.Fates[reader]] == "" {
			continue
		}
		fate, class := e.Fates[reader], classes[e.Fates[reader]]
		x := f.whole.x(f.whole.clamp(e.At))
		switch {
		case fate == check.Kept && i%oneIn != 0:
		case fate != check.Kept && texts < mostTips:
			texts++
			p.rect(x-1, top-3, 2.4, height+6, "element "+class, fmt.Sprintf("%s of %s, operation %d at %s: %s",
				clip(e.Value, 40), clip(e.key, 40), e.Op, seconds(e.At), fate))
		default:
			strokesOf[class] = append(strokesOf[class], point{x, top})
		}
	}
	for _, known := range fates() {
		p.path(strokes(strokesOf[known.Class], height), "element "+known.Class, "")
		delete(strokesOf, known.Class)
	}
}

func tally(lists *check.AppendPlot, readers []string, all []element) *appends {
	t := &appends{}
	for _, r := range readers {
		t.Readers = append(t.Readers, clip(r, 30))
	}
	for _, known := range fates() {
		row := fateRow{Fate: string(known.Fate), Class: known.Class, ByReader: make([]int, len(readers))}
		for _, e := range all {
			for i := range readers {
				row.ByReader[i] += boolInt(i < len(e.Fates) && e.Fates[i] == known.Fate)
			}
		}
		row.Bad = known.Class == "lost" || known.Class == "doubled" || known.Class == "ghost"
		t.Rows = append(t.Rows, row)
	}
	t.Extra = append(t.Extra,
		fmt.Sprintf("%s sent to %s.", count(len(all), "element"), count(len(lists.Lists), "list")),
		fmt.Sprintf("Stale reads (they missed something acknowledged before they began): %s.", thousands(lists.Stale)),
		fmt.Sprintf("Acknowledged and in no read before the end: %s.", thousands(lists.Unread)))
	if v := lists.Visible; len(v) > 0 {
		t.Extra = append(t.Extra, fmt.Sprintf("Time from the call of an append to the end of the first read that showed it: median %s, 99th percentile %s, longest %s.",
			brief(quantile(v, 0.5)), brief(quantile(v, 0.99)), brief(max(v[len(v)-1], time.Duration(0)))))
	}
	return t
}
