package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

const (
	mostTimelines = 3
	mostClients   = 12
	mostBars      = 400
	around        = 2 * time.Second // before and after what a finding names, at most
	readable      = 60              // operations beside each other
)

// timeline is what clients did around one failure.
type timeline struct {
	Title string
	Plot  *plot
	Note  string
}

// involved are the operations of a finding: those it names, and those whose commands are at
// the entry it names.
func (f *facts) involved(found check.Finding) (out []*history.Op) {
	ids := map[uint64]bool{}
	for _, id := range found.Ops {
		ids[id] = true
	}
	if found.Index > 0 && len(ids) == 0 && f.j.Order != nil {
		for i := range f.j.Order.Records {
			if r := &f.j.Order.Records[i]; r.Index == found.Index {
				ids[history.OpOf(r.Command.GetCallId())] = true
			}
		}
	}
	for i := range f.h.Ops {
		if ids[f.h.Ops[i].ID] {
			out = append(out, &f.h.Ops[i])
		}
	}
	return out
}

// timelines draws the first violations that name operations.
func (f *facts) timelines() (out []timeline, note string) {
	seen := map[uint64]bool{}
	for _, found := range f.j.Findings {
		if found.Class != check.Violation || len(out) == mostTimelines {
			break
		}
		ops := f.involved(found)
		if len(ops) == 0 || seen[ops[0].ID] {
			continue
		}
		seen[ops[0].ID] = true
		out = append(out, f.timeline(found, ops))
	}
	if len(out) == 0 {
		return nil, "No violation names an operation, so no timeline is drawn."
	}
	return out, ""
}

func (f *facts) timeline(found check.Finding, ops []*history.Op) timeline {
	beside := around
	s := f.around(ops, beside)
	for beside > 50*time.Millisecond && f.within(s) > readable {
		beside /= 2
		s = f.around(ops, beside)
	}
	named, keys := map[uint64]bool{}, map[string]bool{}
	clients := []string{}
	for _, o := range ops {
		named[o.ID], keys[keyOf(o)] = true, true
		if !slices.Contains(clients, o.Client) {
			clients = append(clients, o.Client)
		}
	}
	own := len(clients)
	var bars []*history.Op
	left := map[string]bool{}
	for i := range f.h.Ops {
		o := &f.h.Ops[i]
		if o.Invoke > s.to || o.Invoke+f.took(o) < s.from {
			continue
		}
		if !slices.Contains(clients, o.Client) {
			if !keys[keyOf(o)] {
				continue
			}
			if len(clients) >= max(mostClients, own) {
				left[o.Client] = true
				continue
			}
			clients = append(clients, o.Client)
		}
		bars = append(bars, o)
	}
	note := ""
	if len(bars) > mostBars {
		note = fmt.Sprintf("%d of %s operations are drawn, those nearest to the failure. ", mostBars, thousands(len(bars)))
		middle := ops[0].Invoke
		slices.SortStableFunc(bars, func(a, b *history.Op) int {
			return cmp.Compare((a.Invoke - middle).Abs(), (b.Invoke - middle).Abs())
		})
		bars = bars[:mostBars]
	}
	if len(left) > 0 {
		note += fmt.Sprintf("%s more touched the same key and are left out. ", count(len(left), "client"))
	}
	slices.Sort(clients[min(own, len(clients)):])
	p := f.clientPlot(s, clients, bars, named)
	return timeline{Title: fmt.Sprintf("%s, around %s", found.Checker, seconds(ops[0].Invoke)), Plot: p,
		Note: note + "Each bar is an operation from its call to its return; those the finding names have a red frame. Other clients are shown if they touched the same key."}
}

// keyOf is the key an operation was about, also where the answer chose it.
func keyOf(o *history.Op) string {
	return cmp.Or(o.Args.ForClaim, o.Key, o.Result.Key)
}

// around is the time of operations and a little more on both sides.
func (f *facts) around(ops []*history.Op, beside time.Duration) span {
	s := span{f.whole.to, 0}
	for _, o := range ops {
		s.from, s.to = min(s.from, o.Invoke), max(s.to, min(o.Invoke+f.took(o), o.Invoke+10*around))
	}
	return span{max(s.from-beside, 0), min(s.to+beside, f.whole.to)}
}

// within counts the operations that fall into a stretch of the run.
func (f *facts) within(s span) (n int) {
	for i := range f.h.Ops {
		n += boolInt(f.h.Ops[i].Invoke <= s.to && f.h.Ops[i].Invoke+f.took(&f.h.Ops[i]) >= s.from)
	}
	return n
}

func (f *facts) clientPlot(s span, clients []string, bars []*history.Op, named map[uint64]bool) *plot {
	const row, gap = 20.0, 6.0
	top := 0.0
	scratch := newPlot("", s, 0)
	top = f.legendOn(scratch, s) + 12
	height := top + float64(len(clients))*(row+gap)
	p := newPlot("What clients did around the failure", s, height)
	f.bandsOn(p, s, height)
	f.legendOn(p, s)
	for i, client := range clients {
		y := top + float64(i)*(row+gap)
		p.name(y+13, client, "")
		p.line(0, y+row/2, inner, 0, "base")
		for _, o := range bars {
			if o.Client != client {
				continue
			}
			class := "op " + string(o.Outcome)
			if named[o.ID] {
				class += " named"
			}
			from := s.x(s.clamp(o.Invoke))
			width := max(s.x(s.clamp(o.Invoke+f.took(o)))-from, 2)
			tip := fmt.Sprintf("operation %d, %s to %s: %s → %s: %s", o.ID, seconds(o.Invoke), seconds(o.Invoke+f.took(o)), wish(o), outcomeWord(o.Outcome), reply(o))
			p.rect(from, y, width, row, class, tip)
			if text := fmt.Sprintf("%s %d", o.Kind, o.ID); width > charWidth*float64(len(text))+4 {
				p.text(from+3, y+14, "start", "opname", text)
			} else if named[o.ID] {
				p.text(from, y-2, "start", "opname named", text)
			}
		}
	}
	return p
}
