package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

const (
	mostWindows = 3000
	mostHolders = 24
	mostShared  = 24 // keys that changed hands
)

// held is a window of a lease in the time of the run.
type held struct {
	*check.Window
	from, to time.Duration
}

// refusal is a write that came from a holder that was one no more.
type refusal struct {
	at  time.Duration
	who string
	key string
	tip string
}

func (f *facts) held() (out []held) {
	for _, w := range f.j.Windows {
		from, known := f.clock.real(w.From)
		if !known {
			return nil
		}
		to := f.whole.to
		if w.Cause != "" {
			to, _ = f.clock.real(w.To)
		}
		out = append(out, held{w, f.whole.clamp(from), f.whole.clamp(max(to, from))})
	}
	slices.SortStableFunc(out, func(a, b held) int { return cmp.Compare(a.from, b.from) })
	return out
}

func (f *facts) refusals() (out []refusal) {
	for i := range f.records() {
		a := &f.j.Order.Records[i]
		if !staleWrite(a) {
			continue
		}
		at, known := f.clock.when(a)
		if !known {
			continue
		}
		r := refusal{at: f.whole.clamp(at), who: a.Command.GetActor().GetPrincipal(),
			tip: fmt.Sprintf("refused at %s, entry %d: %s: %s", seconds(at), a.Index, command(a), resultOf(a))}
		if keys := keysOf(a); len(keys) > 0 {
			r.key = keys[0]
		}
		if claim := forClaim(a); claim != "" {
			r.key = claim
		}
		out = append(out, r)
	}
	for _, o := range f.h.Outside {
		if !o.Accepted {
			who, _, _ := strings.Cut(o.Client, "/")
			out = append(out, refusal{at: f.whole.clamp(o.At), who: who, key: o.Key, tip: fmt.Sprintf(
				"turned away outside the cluster at %s: %s wrote for %s under generation %d, and %d had been there", seconds(o.At), clip(o.Client, 40), clip(o.Key, 60), o.Generation, o.Greatest)})
		}
	}
	return out
}

// forClaim is the claimed key that a write of partial work was for.
func forClaim(a *history.Applied) string {
	switch {
	case a.Command.GetSet().GetForClaim() != nil:
		return a.Command.GetSet().ForClaim.Key
	case a.Command.GetAppend().GetForClaim() != nil:
		return a.Command.GetAppend().ForClaim.Key
	}
	return ""
}

// tip is what is said of a window.
func (w held) tip() string {
	ended := "lasts to the end of the run"
	if w.Cause != "" {
		ended = fmt.Sprintf("ended at %s: %s", boardTime(w.To), w.Cause)
	}
	return fmt.Sprintf("%s, generation %d, held by %s from %s (about %s); it %s", clip(w.Key, 60), w.Generation, clip(w.Owner, 40), boardTime(w.From), seconds(w.from), ended)
}

func (w held) class() string {
	switch {
	case w.Cause == "":
		return "window open"
	case w.Cause == "expired":
		return "window expired"
	}
	return "window"
}

// holders has a lane per holder: what it held when, and which of its writes came too late.
func (f *facts) holders() (*plot, string) {
	windows := f.held()
	if len(windows) == 0 {
		return nil, "No lease was granted in this run, or nothing says when."
	}
	note := ""
	if len(windows) > mostWindows {
		note = fmt.Sprintf("The first %s of %s windows are drawn. ", thousands(mostWindows), thousands(len(windows)))
		windows = windows[:mostWindows]
	}
	if !f.clock.exact {
		note += "When a node applied what was not recorded: board time is placed by the answers of clients, a little late. "
	}
	by := map[string][]held{}
	for _, w := range windows {
		by[w.Owner] = append(by[w.Owner], w)
	}
	names := sortedKeys(by)
	if len(names) > mostHolders {
		note += fmt.Sprintf("%d of %d holders are drawn.", mostHolders, len(names))
		names = names[:mostHolders]
	}
	return f.windowPlot("Leases by holder", names, by, func(r refusal) string { return r.who },
		func(w held) string { return fmt.Sprintf("%s·%d", shortKey(w.Key), w.Generation) }), note
}

// changedHands has a lane per key that more than one window was granted of.
func (f *facts) changedHands() (*plot, string) {
	by := map[string][]held{}
	for _, w := range f.held() {
		by[w.Key] = append(by[w.Key], w)
	}
	var names []string
	for _, key := range sortedKeys(by) {
		if len(by[key]) > 1 {
			names = append(names, key)
		}
	}
	if len(names) == 0 {
		return nil, "No key was granted twice."
	}
	note := fmt.Sprintf("%s of %d were granted more than once.", count(len(names), "key"), len(by))
	if len(names) > mostShared {
		note += fmt.Sprintf(" The first %d are drawn.", mostShared)
		names = names[:mostShared]
	}
	return f.windowPlot("Keys that changed hands", names, by, func(r refusal) string { return r.key },
		func(w held) string { return fmt.Sprintf("%d %s", w.Generation, clip(w.Owner, 20)) }), note
}

// windowPlot draws windows in lanes and refusals as crosses in the lane they belong to.
func (f *facts) windowPlot(label string, names []string, by map[string][]held, laneOf func(refusal) string, text func(held) string) *plot {
	const row, gap = 18.0, 8.0
	type lane struct {
		top   float64
		rows  []int
		depth int
	}
	lanes, height := map[string]*lane{}, gap
	for _, name := range names {
		l, r := &lane{top: height}, rows{most: 4}
		for _, w := range by[name] {
			at, _ := r.place(f.whole.x(w.from), f.whole.x(w.to)-f.whole.x(w.from))
			l.rows = append(l.rows, at)
		}
		l.depth = len(r.ends)
		height += row*float64(l.depth) + gap
		lanes[name] = l
	}
	p := newPlot(label, f.whole, height)
	f.bandsOn(p, f.whole, height)
	for _, name := range names {
		l := lanes[name]
		p.name(l.top+13, name, one(name))
		for i, w := range by[name] {
			x, y := f.whole.x(w.from), l.top+row*float64(l.rows[i])
			width := max(f.whole.x(w.to)-x, 1)
			p.rect(x, y, width, row-3, w.class(), w.tip())
			if t := text(w); width > charWidth*float64(len([]rune(t)))+4 {
				p.text(x+3, y+11, "start", "windowname", t)
			}
		}
	}
	for _, r := range f.refusals() {
		if l := lanes[laneOf(r)]; l != nil {
			p.cross(f.whole.x(r.at), l.top+row*float64(l.depth)/2-1, 5, "refused", r.tip)
		}
	}
	return p
}

// shortKey is the last part of a key.
func shortKey(key string) string {
	for i := len(key) - 1; i >= 0; i-- {
		if key[i] == '/' {
			return clip(key[i+1:], 14)
		}
	}
	return clip(key, 14)
}
