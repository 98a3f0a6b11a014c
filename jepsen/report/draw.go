package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Measures of a plot, in pixels of a page that is 1200 wide.
const (
	pageWidth = 1200.0
	gutter    = 118.0 // on the left, for names and numbers
	inner     = pageWidth - gutter - 12
	axisRoom  = 20.0 // below, for times
	charWidth = 6.4  // of small text, about
)

// shape is one mark of a plot. Which fields count depends on Kind.
type shape struct {
	Kind       string // rect, line, path, text
	X, Y, W, H float64
	D          string // of a path
	Class      string
	Anchor     string // of a text: start, middle, end
	Text       string
	Tip        string // shown when pointed at
	Keep       bool   // keeps its shape when the time axis is stretched
}

// plot is one picture. Data is drawn in the inner box along a time axis and can be stretched;
// Fixed is drawn around it.
type plot struct {
	Label    string // says what is seen, for those who do not see it
	H        float64
	From, To float64 // seconds at the ends of the time axis
	Linked   bool    // is stretched together with the other pictures of the run
	Fixed    []shape
	Data     []shape
	Ticks    []shape
}

// The measures, for the template.
func (plot) W() float64     { return pageWidth }
func (plot) Left() float64  { return gutter }
func (plot) Inner() float64 { return inner }

// TickY is the baseline of the times.
func (p plot) TickY() float64 { return round(p.H - 6) }

// span is the time axis of a picture.
type span struct{ from, to time.Duration }

func (s span) x(at time.Duration) float64 {
	if s.to <= s.from {
		return 0
	}
	return round(inner * float64(at-s.from) / float64(s.to-s.from))
}

func (s span) clamp(at time.Duration) time.Duration { return min(max(at, s.from), s.to) }

// newPlot has a time axis with its ticks at the bottom.
func newPlot(label string, s span, height float64) *plot {
	p := &plot{Label: label, H: round(height + axisRoom), From: s.from.Seconds(), To: s.to.Seconds()}
	step := niceStep((s.to - s.from).Seconds() / 12)
	for at := math.Ceil(p.From/step) * step; at <= p.To+step/1e6 && len(p.Ticks) < 40; at += step {
		x := s.x(time.Duration(at * float64(time.Second)))
		p.Ticks = append(p.Ticks, shape{Kind: "text", X: x, Y: p.TickY(), Text: number(at) + " s", Anchor: "middle", Class: "tick"})
		p.Data = append(p.Data, shape{Kind: "line", X: x, Y: 0, W: 0, H: height, Class: "grid"})
	}
	return p
}

func (p *plot) rect(x, y, w, h float64, class, tip string) {
	p.Data = append(p.Data, shape{Kind: "rect", X: round(x), Y: round(y), W: round(max(w, 0.6)), H: round(h), Class: class, Tip: tip})
}

func (p *plot) line(x, y, w, h float64, class string) {
	p.Data = append(p.Data, shape{Kind: "line", X: round(x), Y: round(y), W: round(w), H: round(h), Class: class})
}

func (p *plot) path(d, class, tip string) {
	if d != "" {
		p.Data = append(p.Data, shape{Kind: "path", D: d, Class: class, Tip: tip})
	}
}

// dot is a round mark of its own; many of them are cheaper as one path of dots.
func (p *plot) dot(x, y float64, class, tip string) { p.path(dots([]point{{x, y}}), class, tip) }

// cross is a mark that no picture has by accident.
func (p *plot) cross(x, y, r float64, class, tip string) {
	d := fmt.Sprintf("M%s %sl%s %sm0 %sl%s %s", number(x-r), number(y-r), number(2*r), number(2*r), number(-2*r), number(-2*r), number(2*r))
	p.Data = append(p.Data, shape{Kind: "path", D: d, X: round(x), Class: class, Tip: tip, Keep: true})
}

// text stands in the box of the data.
func (p *plot) text(x, y float64, anchor, class, text string) {
	p.Data = append(p.Data, shape{Kind: "text", X: round(x), Y: round(y), Anchor: anchor, Class: class, Text: text, Keep: true})
}

// name stands left of the box, at the height of what it names.
func (p *plot) name(y float64, text, tip string) {
	p.Fixed = append(p.Fixed, shape{Kind: "text", X: gutter - 8, Y: round(y), Anchor: "end", Class: "name", Text: clip(text, 17), Tip: tip})
}

// level draws a horizontal line and says left of it what it stands for.
func (p *plot) level(y float64, text string) {
	p.Fixed = append(p.Fixed, shape{Kind: "text", X: gutter - 8, Y: round(y + 4), Anchor: "end", Class: "tick", Text: text})
	p.line(0, y, inner, 0, "grid")
}

type point struct{ x, y float64 }

// dots is a path of round dots: a line of no length with round ends.
func dots(at []point) string {
	var b strings.Builder
	for _, p := range at {
		fmt.Fprintf(&b, "M%s %sh0", number(p.x), number(p.y))
	}
	return b.String()
}

// strokes is a path of upright lines of one height that begin at the points.
func strokes(at []point, height float64) string {
	var b strings.Builder
	for _, p := range at {
		fmt.Fprintf(&b, "M%s %sv%s", number(p.x), number(p.y), number(height))
	}
	return b.String()
}

// run is a path through points.
func run(at []point) string {
	var b strings.Builder
	for i, p := range at {
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		fmt.Fprintf(&b, "%s%s %s", verb, number(p.x), number(p.y))
	}
	return b.String()
}

// stairs is a path that keeps each height until the next point.
func stairs(at []point) string {
	var b strings.Builder
	for i, p := range at {
		if i == 0 {
			fmt.Fprintf(&b, "M%s %s", number(p.x), number(p.y))
			continue
		}
		fmt.Fprintf(&b, "H%sV%s", number(p.x), number(p.y))
	}
	return b.String()
}

// thin keeps at most so many points, evenly, and the last one. Who calls it says so.
func thin(at []point, most int) []point {
	if len(at) <= most {
		return at
	}
	every := float64(len(at)) / float64(most)
	out := make([]point, 0, most+1)
	for i := range most {
		out = append(out, at[int(float64(i)*every)])
	}
	return append(out, at[len(at)-1])
}

// rows places labels on as few rows as they need not to overlap, at most so many; what finds
// no place is left out.
type rows struct {
	ends []float64
	most int
}

func (r *rows) place(x, width float64) (row int, ok bool) {
	for i := range r.ends {
		if r.ends[i] <= x {
			r.ends[i] = x + width
			return i, true
		}
	}
	if len(r.ends) == r.most {
		return 0, false
	}
	r.ends = append(r.ends, x+width)
	return len(r.ends) - 1, true
}

// logScale maps durations to heights by their order of magnitude.
type logScale struct{ low, high, height float64 }

// newLogScale spans the decades of milliseconds in which the values lie.
func newLogScale(lowest, highest time.Duration, height float64) logScale {
	low := math.Floor(math.Log10(max(ms(lowest), 0.1)))
	high := math.Ceil(math.Log10(max(ms(highest), 1)) + 0.01)
	return logScale{low, max(high, low+1), height}
}

func (s logScale) y(d time.Duration) float64 {
	at := (math.Log10(max(ms(d), math.Pow(10, s.low))) - s.low) / (s.high - s.low)
	return round(s.height - s.height*min(at, 1))
}

func (s logScale) levels(p *plot, top float64) {
	for e := s.low; e <= s.high; e++ {
		d := time.Duration(math.Pow(10, e) * float64(time.Millisecond))
		p.level(top+s.y(d), brief(d))
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// niceStep is the next larger of 1, 2, 5 times a power of ten.
func niceStep(least float64) float64 {
	if least <= 0 || math.IsInf(least, 0) || math.IsNaN(least) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= least*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// round keeps a tenth of a pixel.
func round(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return math.Round(v*10) / 10
}

// number is the shortest text of at most two decimals.
func number(v float64) string {
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}

// brief is a duration of at most three significant digits.
func brief(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + brief(-d)
	case d == 0:
		return "0"
	case d < time.Millisecond:
		return strconv.FormatFloat(ms(d), 'g', 2, 64) + " ms"
	case d < time.Second:
		return strconv.FormatFloat(ms(d), 'f', digits(ms(d)), 64) + " ms"
	case d < 2*time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', digits(d.Seconds()), 64) + " s"
	}
	return d.Round(time.Second).String()
}

func digits(v float64) int {
	switch {
	case v == math.Trunc(v), v >= 100:
		return 0
	case v >= 10:
		return 1
	}
	return 2
}

// quantile of sorted durations; 0 of none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(math.Ceil(q*float64(len(sorted))))-1+boolInt(q == 0), len(sorted)-1)]
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sortedKeys lists the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
