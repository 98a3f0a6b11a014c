package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"raftboard/jepsen/history"
)

const (
	mostWatchers  = 16
	mostFeedMarks = 400  // crosses and cuts per watcher
	mostFeedDots  = 3000 // events drawn per watcher
)

// oddity is a place at which a watcher's feed is not one event after the other.
type oddity struct {
	at   int // in the watcher's log
	kind string
	text string
	said bool // the feed itself said that something is missing
}

// watchers are the feed logs of the run's board, by watcher.
func watchers(h *history.History) (names []string, logs map[string][]history.Told) {
	logs = map[string][]history.Told{}
	for _, t := range h.Feed {
		if t.Board != h.Run.Board {
			continue
		}
		if logs[t.Watcher] == nil {
			names = append(names, t.Watcher)
		}
		logs[t.Watcher] = append(logs[t.Watcher], t)
	}
	slices.Sort(names)
	return names, logs
}

// oddities are repeats, steps back and gaps within what was asked for at once. A watcher may
// begin anywhere, so nothing is missing before its first event; one that asked for some keys
// only is told of some revs only.
func oddities(log []history.Told) (out []oddity) {
	var rev uint64
	var sub uint32
	begun, said, all := false, false, true
	for i, t := range log {
		if t.Asked != nil {
			begun, all = false, len(t.Asked.Patterns) == 0 || slices.Contains(t.Asked.Patterns, "**")
		}
		said = said || t.Code == "compacted" || strings.Contains(t.Cut, "compacted") || strings.Contains(t.Ended, "compacted")
		e := t.Event
		if e == nil {
			continue
		}
		here, before := fmt.Sprintf("%d.%d", e.Rev, e.Sub), fmt.Sprintf("%d.%d", rev, sub)
		switch {
		case !begun:
		case e.Rev == rev && e.Sub == sub:
			out = append(out, oddity{i, "repeat", here + " was told twice", false})
		case e.Rev < rev || e.Rev == rev && e.Sub < sub:
			out = append(out, oddity{i, "step back", here + " was told after " + before, false})
			continue
		case !all:
		case e.Rev == rev && e.Sub != sub+1, e.Rev == rev+1 && e.Sub != 0, e.Rev > rev+1:
			out = append(out, oddity{i, "gap", here + " was told next to " + before, said})
		}
		begun, said = true, false
		rev, sub = e.Rev, e.Sub
	}
	return out
}

// feed has a row per watcher: which rev it was told when.
func (f *facts) feed() (*plot, string) {
	names, logs := watchers(f.h)
	if len(names) == 0 {
		return nil, "Nobody watched the feed in this run."
	}
	note := "A row per watcher: the rev it was told over time. A watcher that begins late, or reads pages at the end, climbs at once. " +
		"What a watcher is told is numbered by its rev and its place in it: 12.0 is the first event of rev 12."
	if len(names) > mostWatchers {
		note += fmt.Sprintf(" %d of %d watchers are drawn.", mostWatchers, len(names))
		names = names[:mostWatchers]
	}
	if slices.ContainsFunc(names, func(name string) bool { return len(logs[name]) > mostFeedDots }) {
		note += fmt.Sprintf(" Of a watcher that was told more than %s things a sample is drawn, evenly, and at most %d oddities; the numbers on the left count all.", thousands(mostFeedDots), mostFeedMarks)
	}
	const row, gap = 58.0, 10.0
	height := float64(len(names)) * (row + gap)
	p := newPlot("The feed: rev over time for each watcher", f.whole, height)
	f.bandsOn(p, f.whole, height)
	highest := uint64(1)
	for _, t := range f.h.Feed {
		highest = max(highest, t.Event.GetRev(), t.Bookmark)
	}
	for i, name := range names {
		f.watcherRow(p, name, logs[name], float64(i)*(row+gap)+gap, row, highest)
	}
	return p, note
}

func (f *facts) watcherRow(p *plot, name string, log []history.Told, top, height float64, highest uint64) {
	y := func(rev uint64) float64 { return top + height - height*float64(rev)/float64(highest) }
	x := func(at time.Duration) float64 { return f.whole.x(f.whole.clamp(at)) }
	var events, bookmarks []point
	n, last, marks := 0, uint64(0), 0
	for _, t := range log {
		switch {
		case t.Event != nil:
			events = append(events, point{x(t.At), y(t.Event.Rev)})
			n++
			last = max(last, t.Event.Rev)
		case t.Bookmark > 0:
			bookmarks = append(bookmarks, point{x(t.At), y(t.Bookmark)})
		}
	}
	p.line(0, top+height, inner, 0, "base")
	p.path(run(thin(events, mostFeedDots)), "feedline", "")
	p.path(dots(thin(bookmarks, mostFeedDots)), "bookmark", "bookmarks of "+one(name))
	p.path(dots(thin(events, mostFeedDots)), "dot feed", "")
	for _, t := range log {
		if why := t.Cut + t.Ended; why != "" && marks < mostFeedMarks {
			marks++
			verb := "was cut off and went on"
			if t.Ended != "" {
				verb = "ended"
			}
			p.Data = append(p.Data, shape{Kind: "rect", X: round(x(t.At) - 1), Y: round(top), W: 2, H: round(height), Class: "cut",
				Tip: fmt.Sprintf("%s %s at %s: %s", one(name), verb, seconds(t.At), clip(why, 160))})
		}
	}
	odd := oddities(log)
	for i, o := range odd {
		if i == mostFeedMarks {
			break
		}
		t := log[o.at]
		class := "refused"
		if o.said {
			class = "said"
		}
		p.cross(x(t.At), y(t.Event.Rev), 5, class, fmt.Sprintf("%s, %s: %s at %s", one(name), o.kind, o.text, seconds(t.At)))
	}
	p.name(top+height/2-6, name, fmt.Sprintf("%s, up to rev %d", count(n, "event"), last))
	p.Fixed = append(p.Fixed, shape{Kind: "text", X: gutter - 8, Y: round(top + height/2 + 7), Anchor: "end", Class: "tick", Text: count(n, "event")})
	text, class := "no gap, no repeat", "tick"
	if len(odd) > 0 {
		text, class = count(len(odd), "oddity"), "tick bad"
		if len(odd) > 1 {
			text = thousands(len(odd)) + " oddities"
		}
	}
	p.Fixed = append(p.Fixed, shape{Kind: "text", X: gutter - 8, Y: round(top + height/2 + 20), Anchor: "end", Class: class, Text: text})
}
