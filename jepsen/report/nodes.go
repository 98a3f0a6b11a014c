package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"raftboard/jepsen/history"
)

// stretch is a part of a lane.
type stretch struct {
	from, to time.Duration
	class    string
	text     string
}

// lanes shows each node's role and term, what was done to it, and the snapshots it went on
// from.
func (f *facts) lanes() (*plot, string) {
	if len(f.nodes) == 0 {
		return nil, "The history names no node."
	}
	note := ""
	if len(f.h.Roles) == 0 {
		note = "Roles were not recorded in this run; who led is taken from the entries with which a leader opens its leadership."
	}
	const lane, hurt, gap = 18.0, 13.0, 10.0
	places := map[string][]placed{}
	height := gap
	for _, node := range f.nodes {
		places[node] = f.hurts(node)
		height += lane + hurt*float64(depth(places[node])) + gap
	}
	p := newPlot("What each node was, and what was done to it", f.whole, height)
	for _, l := range f.leaders {
		p.line(f.whole.x(l.at), 0, 0, height, "lead")
	}
	top := gap
	for _, node := range f.nodes {
		p.name(top+13, node, "")
		p.rect(0, top, inner, lane, "role unknown", "nothing was recorded of "+one(node)+" here")
		for _, s := range f.roles(node) {
			x := f.whole.x(s.from)
			w := f.whole.x(s.to) - x
			p.rect(x, top, w, lane, "role "+s.class, fmt.Sprintf("%s: %s, %s to %s", one(node), s.text, seconds(s.from), seconds(s.to)))
			before := 4.0
			if f.installs(node, s.from) {
				before = 10 // behind the mark of the snapshot
			}
			if room := charWidth * float64(len(s.text)); w > room+before+2 {
				p.text(x+before, top+13, "start", "in "+s.class, s.text)
			}
		}
		for _, h := range places[node] {
			x, y := f.whole.x(h.from), top+lane+hurt*float64(h.row)
			w := max(f.whole.x(h.to)-x, 2)
			p.rect(x, y+1, w, hurt-2, "hurt", h.tip)
			p.text(min(x+3, inner-charWidth*float64(len(h.text))), y+hurt-3, "start", "hurtname", h.text)
		}
		for _, in := range f.h.Install {
			if in.Node == node {
				x := f.whole.x(f.whole.clamp(in.At))
				p.Data = append(p.Data, shape{Kind: "path", D: fmt.Sprintf("M%s %sl5 6l-5 6l-5 -6z", number(x), number(top+3)), X: x, Class: "install", Keep: true,
					Tip: fmt.Sprintf("%s went on from a snapshot of entry %d, term %d, at %s (life %d)", one(node), in.Index, in.Term, seconds(in.At), in.Life)})
			}
		}
		top += lane + hurt*float64(depth(places[node])) + gap
	}
	return p, note
}

// placed is a fault in the lane of a node.
type placed struct {
	stretch
	row int
	tip string
}

func depth(all []placed) (n int) {
	for _, p := range all {
		n = max(n, p.row+1)
	}
	return n
}

func (f *facts) hurts(node string) (out []placed) {
	r := rows{most: 4}
	for _, one := range f.faults {
		if one.derived || !slices.Contains(one.Targets, node) {
			continue
		}
		from, to := f.whole.clamp(one.Start), f.whole.clamp(one.End)
		text := clip(one.Name, 24)
		row, ok := r.place(f.whole.x(from), max(f.whole.x(to)-f.whole.x(from), charWidth*float64(len(text)))+6)
		if !ok {
			row = r.most - 1
		}
		tip := one.tip()
		if one.Witness != "" {
			tip += ": " + clip(one.Witness, 200)
		}
		out = append(out, placed{stretch{from, to, "", text}, row, tip})
	}
	return out
}

// roles are the stretches of a node's lane.
func (f *facts) roles(node string) (out []stretch) {
	var mine []history.Role
	for _, r := range f.h.Roles {
		if r.Node == node {
			mine = append(mine, r)
		}
	}
	slices.SortStableFunc(mine, func(a, b history.Role) int { return cmp.Compare(a.At, b.At) })
	for i, r := range mine {
		to := f.whole.to
		if i+1 < len(mine) {
			to = mine[i+1].At
		}
		text := one(r.Role)
		if r.Role == "leader" {
			text += fmt.Sprintf(", term %d", r.Term) // of the others it is only known when they became it
		}
		out = append(out, stretch{r.At, to, roleClass(r.Role), text})
	}
	if len(mine) > 0 {
		return out
	}
	type ends struct{ from, to time.Duration }
	lives := map[int]ends{}
	for i := range f.h.Applied {
		if a := &f.h.Applied[i]; a.Node == node && a.At > 0 {
			e, any := lives[a.Life]
			if !any {
				e.from = a.At
			}
			e.to = max(e.to, a.At)
			lives[a.Life] = e
		}
	}
	for _, n := range sortedKeys(lives) {
		out = append(out, stretch{lives[n].from, lives[n].to, "alive", fmt.Sprintf("applies, life %d", n)})
	}
	return out
}

// installs says whether a node went on from a snapshot at about this moment.
func (f *facts) installs(node string, at time.Duration) bool {
	return slices.ContainsFunc(f.h.Install, func(in history.Installed) bool {
		return in.Node == node && math.Abs(f.whole.x(in.At)-f.whole.x(at)) < 8
	})
}

// roleClass is the colour of a role; other people's words have none.
func roleClass(role string) string {
	switch role {
	case "leader", "follower", "candidate", "down":
		return role
	case "shutdown":
		return "down"
	}
	return "unknown"
}

// lag is how many entries each node is behind the newest that any node has applied.
func (f *facts) lag() (*plot, string) {
	var applied []*history.Applied
	for i := range f.h.Applied {
		if a := &f.h.Applied[i]; a.At > 0 {
			applied = append(applied, a)
		}
	}
	if len(applied) == 0 {
		return nil, "The history does not say when nodes applied what, so how far they were behind cannot be drawn."
	}
	slices.SortStableFunc(applied, func(a, b *history.Applied) int { return cmp.Compare(a.At, b.At) })
	const columns = 540
	worst := map[string]*[columns]uint64{}
	at, newest := map[string]uint64{}, uint64(0)
	next, deepest := 0, uint64(1)
	for column := range columns {
		until := f.whole.to * time.Duration(column+1) / columns
		note := func(node string) {
			if worst[node] == nil {
				worst[node] = new([columns]uint64)
			}
			worst[node][column] = max(worst[node][column], newest-at[node])
			deepest = max(deepest, newest-at[node])
		}
		for ; next < len(applied) && applied[next].At <= until; next++ {
			a := applied[next]
			at[a.Node] = a.Index
			newest = max(newest, a.Index)
			note(a.Node)
		}
		for _, node := range f.nodes {
			if at[node] > 0 {
				note(node)
			}
		}
	}
	return f.lagPlot(worst, deepest), "How many entries a node had applied less than the newest applied anywhere; a node that starts again goes through its log from its snapshot on. Also while it is down."
}

func (f *facts) lagPlot(worst map[string]*[540]uint64, deepest uint64) *plot {
	const row, gap = 34.0, 12.0
	p := newPlot("How many entries each node is behind", f.whole, float64(len(f.nodes))*(row+gap))
	f.bandsOn(p, f.whole, float64(len(f.nodes))*(row+gap))
	for i, node := range f.nodes {
		top := float64(i)*(row+gap) + gap
		p.name(top+row/2-1, node, "")
		p.Fixed = append(p.Fixed, shape{Kind: "text", X: gutter - 8, Y: round(top + row/2 + 12), Anchor: "end", Class: "tick", Text: "0 … " + thousands(int(deepest))})
		p.line(0, top+row, inner, 0, "base")
		if worst[node] == nil {
			continue
		}
		line := []point{{0, top + row}}
		for column, n := range worst[node] {
			y := top + row - row*math.Log1p(float64(n))/math.Log1p(float64(deepest))
			if last := line[len(line)-1]; round(last.y) != round(y) {
				line = append(line, point{inner * float64(column) / float64(len(worst[node])), y})
			}
		}
		line = append(line, point{inner, line[len(line)-1].y})
		p.path(stairs(line)+fmt.Sprintf("V%sH0z", number(top+row)), "lag", one(node))
	}
	return p
}
