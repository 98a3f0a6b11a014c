package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"raftboard/jepsen/history"
)

const (
	mostPoints = 20_000 // operations drawn in the scatter
	mostTips   = 1500   // of them with a text of their own
	mostKinds  = 16     // rows of the rate
)

// bandsOn shades the faults of the cluster in a picture, behind everything else, and marks
// the moments at which somebody began to lead.
func (f *facts) bandsOn(p *plot, s span, height float64) {
	for _, one := range f.faults {
		if one.End < s.from || one.Start > s.to {
			continue
		}
		class := "band"
		if one.onClient {
			class = "band client"
		}
		x := s.x(s.clamp(one.Start))
		p.rect(x, 0, max(s.x(s.clamp(one.End))-x, 1.5), height, class, one.tip())
	}
	for _, l := range f.leaders {
		if l.at >= s.from && l.at <= s.to {
			p.line(s.x(l.at), 0, 0, height, "lead")
		}
	}
	if at := f.h.Run.Healed; at > s.from && at < s.to {
		p.line(s.x(at), 0, 0, height, "heal")
	}
}

// legendOn writes above a picture what its bands and ticks are, where there is room; it
// answers how high that is.
func (f *facts) legendOn(p *plot, s span) float64 {
	names := rows{most: 4}
	type label struct {
		x    float64
		row  int
		text string
	}
	var labels []label
	for _, one := range f.faults {
		if one.onClient || one.derived || one.End < s.from || one.Start > s.to {
			continue
		}
		text := clip(one.Name+" "+one.targets(), 28)
		x := min(s.x(s.clamp(one.Start)), inner-charWidth*float64(len([]rune(text))))
		if row, ok := names.place(x, charWidth*float64(len([]rune(text)))+8); ok {
			labels = append(labels, label{x, row, text})
		}
	}
	terms := rows{most: 1}
	for _, l := range f.leaders {
		if l.at < s.from || l.at > s.to {
			continue
		}
		text := fmt.Sprintf("term %d: %s", l.term, clip(l.node, 12))
		width := charWidth * float64(len([]rune(text)))
		x := min(s.x(l.at)+3, inner-width)
		if _, ok := terms.place(x, width+6); ok {
			labels = append(labels, label{x, -1, text})
		}
	}
	for _, l := range labels {
		class, y := "bandname", float64(13*(l.row+2)-3)
		if l.row < 0 {
			class, y = "leadname", 10
		}
		p.text(l.x, y, "start", class, l.text)
	}
	return float64(13*(len(names.ends)+1) + 4)
}

// latency is the scatter of all operations, and what it leaves out.
func (f *facts) latency() (*plot, string) {
	ops := each(f.h.Ops)
	if len(ops) == 0 {
		return nil, "No operation was recorded, so there is no latency to show."
	}
	drawn, note := sample(ops)
	lowest, highest := time.Hour, time.Duration(0)
	for _, o := range drawn {
		if d := f.took(o); d > 0 {
			lowest, highest = min(lowest, d), max(highest, d)
		}
	}
	const height = 250.0
	p := newPlot("Latency of every operation over the run, on a logarithmic scale", f.whole, 0)
	top := f.legendOn(p, f.whole)
	p = newPlot(p.Label, f.whole, top+height)
	f.bandsOn(p, f.whole, top+height)
	f.legendOn(p, f.whole)
	scale := newLogScale(lowest, highest, height)
	scale.levels(p, top)
	groups := map[history.Outcome][]point{}
	tips := 0
	for _, o := range drawn {
		at := point{f.whole.x(o.Invoke), top + scale.y(f.took(o))}
		if o.Outcome != history.OK && tips < mostTips {
			tips++
			p.dot(at.x, at.y, "dot "+string(o.Outcome), fmt.Sprintf("operation %d of %s, %s at %s: %s after %s: %s", o.ID, clip(o.Client, 40),
				wish(o), seconds(o.Invoke), outcomeWord(o.Outcome), brief(f.took(o)), reply(o)))
			continue
		}
		groups[o.Outcome] = append(groups[o.Outcome], at)
	}
	for _, outcome := range []history.Outcome{history.OK, history.Failed, history.Info} {
		p.path(dots(groups[outcome]), "dot "+string(outcome), "")
	}
	f.quantileLines(p, scale, top, ops)
	if tips == mostTips {
		note += fmt.Sprintf(" The first %s marks that are not ok have a text of their own.", thousands(mostTips))
	}
	return p, strings.TrimSpace(note)
}

// took is how long an operation was out; one that never returned was until the end.
func (f *facts) took(o *history.Op) time.Duration {
	if o.Ended == 0 {
		return max(f.whole.to-o.Invoke, 0)
	}
	return o.Return - o.Invoke
}

func each(ops []history.Op) (out []*history.Op) {
	for i := range ops {
		out = append(out, &ops[i])
	}
	return out
}

// sample keeps what is rare and thins out what is not, evenly, and says so.
func sample(ops []*history.Op) ([]*history.Op, string) {
	if len(ops) <= mostPoints {
		return ops, ""
	}
	var rare, common []*history.Op
	for _, o := range ops {
		if o.Outcome == history.OK {
			common = append(common, o)
		} else {
			rare = append(rare, o)
		}
	}
	nrare, ncommon := len(rare), len(common)
	rare = every(rare, max(mostPoints/2, mostPoints-ncommon))
	common = every(common, mostPoints-len(rare))
	return append(rare, common...), fmt.Sprintf("A sample is drawn: %s of %s ok operations and %s of %s others, evenly over the run. Tables count all of them.",
		thousands(len(common)), thousands(ncommon), thousands(len(rare)), thousands(nrare))
}

// every takes at most so many, evenly.
func every[T any](all []T, most int) []T {
	if len(all) <= most {
		return all
	}
	out := make([]T, 0, most)
	for i := range most {
		out = append(out, all[i*len(all)/most])
	}
	return out
}

// quantileLines draws median and 99th percentile of the ok operations in slices of the run.
func (f *facts) quantileLines(p *plot, scale logScale, top float64, ops []*history.Op) {
	step := f.slice(60)
	buckets := map[int][]time.Duration{}
	for _, o := range ops {
		if o.Outcome == history.OK {
			at := int(o.Invoke / step)
			buckets[at] = append(buckets[at], f.took(o))
		}
	}
	var middle, high []point
	before := -1
	flush := func() {
		p.path(run(middle), "median", "median of the ok operations")
		p.path(run(high), "p99", "99th percentile of the ok operations")
		middle, high = nil, nil
	}
	for _, at := range sortedKeys(buckets) {
		if len(buckets[at]) < 5 {
			continue
		}
		if before >= 0 && at != before+1 {
			flush() // nothing is known in between
		}
		before = at
		slices.Sort(buckets[at])
		x := f.whole.x(f.whole.clamp(time.Duration(at)*step + step/2))
		middle = append(middle, point{x, top + scale.y(quantile(buckets[at], 0.5))})
		high = append(high, point{x, top + scale.y(quantile(buckets[at], 0.99))})
	}
	flush()
}

// slice is a round part of the run, so that there are at most so many.
func (f *facts) slice(most int) time.Duration {
	return time.Duration(niceStep(max(f.whole.to.Seconds()/float64(most), 0.1)) * float64(time.Second))
}

// rate has a row per kind of operation: how many returned per second, by outcome.
func (f *facts) rate() (*plot, string) {
	byKind := map[history.Kind][]*history.Op{}
	for i := range f.h.Ops {
		o := &f.h.Ops[i]
		byKind[o.Kind] = append(byKind[o.Kind], o)
	}
	if len(byKind) == 0 {
		return nil, "No operation was recorded, so there is no rate to show."
	}
	kinds, note := sortedKeys(byKind), ""
	if len(kinds) > mostKinds {
		note = fmt.Sprintf("%d of %d kinds are drawn.", mostKinds, len(kinds))
		kinds = kinds[:mostKinds]
	}
	const row, gap = 44.0, 10.0
	top := f.failoversOn(newPlot("", f.whole, 0))
	height := top + float64(len(kinds))*(row+gap)
	p := newPlot("Operations per second by kind and outcome", f.whole, height)
	f.bandsOn(p, f.whole, height)
	f.failoversOn(p)
	step := f.slice(150)
	for i, kind := range kinds {
		f.rateRow(p, string(kind), byKind[kind], step, top+float64(i)*(row+gap)+gap, row)
	}
	return p, note
}

// failoversOn writes above each fault how long it took until an operation was ok again; it
// answers how high that is.
func (f *facts) failoversOn(p *plot) float64 {
	places := rows{most: 3}
	for _, one := range f.faults {
		if one.onClient || one.derived {
			continue
		}
		text := "no ok after it"
		if one.answered {
			text = "ok after " + brief(one.first)
		}
		width := charWidth * float64(len(text))
		x := min(f.whole.x(f.whole.clamp(one.Start)), inner-width)
		if row, ok := places.place(x, width+8); ok {
			p.text(x, float64(13*(row+1)-2), "start", "bandname", text)
		}
	}
	return float64(13 * len(places.ends))
}

func (f *facts) rateRow(p *plot, kind string, ops []*history.Op, step time.Duration, top, height float64) {
	last := int(f.whole.to/step) + 1
	counts := map[history.Outcome][]int{}
	most := 1
	for _, o := range ops {
		if counts[o.Outcome] == nil {
			counts[o.Outcome] = make([]int, last+1)
		}
		at := o.Return
		if o.Ended == 0 {
			at = f.whole.to
		}
		n := &counts[o.Outcome][min(int(at/step), last)]
		*n++
		most = max(most, *n)
	}
	p.name(top+height/2, kind, "")
	perSecond := float64(most) / step.Seconds()
	p.Fixed = append(p.Fixed, shape{Kind: "text", X: gutter - 8, Y: round(top + height/2 + 13), Anchor: "end", Class: "tick",
		Text: "up to " + number(perSecond) + "/s"})
	p.line(0, top+height, inner, 0, "base")
	for _, outcome := range []history.Outcome{history.OK, history.Failed, history.Info} {
		p.path(f.blocks(counts[outcome], step, top, height, most), "rate "+string(outcome), one(kind)+", "+outcomeWord(outcome))
	}
}

// blocks is the outline of counts per slice of the run; where there are none, there is no line.
func (f *facts) blocks(counts []int, step time.Duration, top, height float64, most int) string {
	var b strings.Builder
	foot := top + height
	open := false
	for at, n := range counts {
		x := f.whole.x(f.whole.clamp(time.Duration(at) * step))
		y := foot - height*float64(n)/float64(most)
		switch {
		case n > 0 && !open:
			fmt.Fprintf(&b, "M%s %sV%s", number(x), number(foot), number(y))
		case open:
			fmt.Fprintf(&b, "H%sV%s", number(x), number(y))
		}
		open = n > 0
	}
	if open {
		fmt.Fprintf(&b, "H%sV%s", number(f.whole.x(f.whole.to)), number(foot))
	}
	return b.String()
}
