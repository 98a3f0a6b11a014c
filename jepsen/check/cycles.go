package check

import (
	"fmt"
	"slices"
	"strings"
)

// tie is why one transaction must stand before another.
type tie int

// The ties: a write that follows a write, a read of what was written, a write of what a read
// did not see yet, and an end before a beginning in real time.
const (
	ww tie = iota
	wr
	rw
	rt
	ties
)

// edge is one tie between two nodes of a graph; key and item say about what.
type edge struct {
	from, to  int
	tie       tie
	key, item string
}

// graph is transactions and what ties them. An order of them that explains everything exists
// if there is no circle in it.
type graph struct {
	out [][]edge // by node
}

func newGraph(nodes int) *graph { return &graph{out: make([][]edge, nodes)} }

// add ties two nodes. What ties a node to itself says nothing.
func (g *graph) add(e edge) {
	if e.from != e.to {
		g.out[e.from] = append(g.out[e.from], e)
	}
}

// kinds of ties that a search may use.
type kindSet [ties]bool

func (k kindSet) with(more ...tie) kindSet {
	for _, t := range more {
		k[t] = true
	}
	return k
}

// anomaly is a kind of circle, by Adya's names. A circle in real time needs an end before a
// beginning to close it: without a clock nobody would notice.
type anomaly struct {
	name string
	what string
}

// cycle is a circle of edges, each ending where the next begins.
type cycle struct {
	anomaly
	edges []edge
}

// mostSearched bounds the nodes of one component from which a shortest circle is sought.
const mostSearched = 300

// cycles finds one circle for each strongly connected component: the gravest kind in it, and
// of that kind a shortest one. Components that are closed by real time alone come second and
// only where there was no other.
func (g *graph) cycles() (out []cycle) {
	told := map[int]bool{}
	for _, clock := range []bool{false, true} {
		use := kindSet{}.with(ww, wr, rw)
		suffix := ""
		if clock {
			use, suffix = use.with(rt), "-realtime"
		}
		for _, part := range g.components(use) {
			if slices.ContainsFunc(part, func(n int) bool { return told[n] }) {
				continue
			}
			c := g.gravest(part, clock)
			if c == nil {
				continue
			}
			for _, n := range part {
				told[n] = true
			}
			c.name += suffix
			out = append(out, *c)
		}
	}
	return out
}

// gravest is the worst circle within a component.
func (g *graph) gravest(part []int, clock bool) *cycle {
	in := map[int]bool{}
	for _, n := range part {
		in[n] = true
	}
	var base kindSet
	if clock {
		base = base.with(rt)
	}
	if found := g.shortest(part, in, base.with(ww)); found != nil {
		return &cycle{anomaly{"G0", "a dirty write: writes of several transactions lie in between each other"}, found}
	}
	if found := g.shortest(part, in, base.with(ww, wr)); found != nil {
		return &cycle{anomaly{"G1c", "circular information flow: transactions each saw something of the other"}, found}
	}
	if found := g.single(part, in, base.with(ww, wr)); found != nil {
		return &cycle{anomaly{"G-single", "one anti-dependency: a transaction saw a part of what was done before it, and missed another"}, found}
	}
	if found := g.shortest(part, in, base.with(ww, wr, rw)); found != nil {
		return &cycle{anomaly{"G2", "several anti-dependencies: transactions each missed what the other wrote"}, found}
	}
	return nil
}

// shortest is a shortest circle in a component over some kinds of ties; nil if there is none.
func (g *graph) shortest(part []int, in map[int]bool, use kindSet) (best []edge) {
	for i, n := range part {
		if i == mostSearched {
			break
		}
		if c := g.path(n, n, in, use); c != nil && (best == nil || len(c) < len(best)) {
			best = c
		}
		if len(best) == 2 {
			break
		}
	}
	return best
}

// single is a shortest circle with exactly one anti-dependency.
func (g *graph) single(part []int, in map[int]bool, use kindSet) (best []edge) {
	searched := 0
	for _, n := range part {
		for _, e := range g.out[n] {
			if e.tie != rw || !in[e.to] {
				continue
			}
			if searched++; searched > mostSearched {
				return best
			}
			if back := g.path(e.to, e.from, in, use); back != nil && (best == nil || len(back)+1 < len(best)) {
				best = append([]edge{e}, back...)
			}
			if len(best) == 2 {
				return best
			}
		}
	}
	return best
}

// path is a shortest way of at least one edge from one node to another.
func (g *graph) path(from, to int, in map[int]bool, use kindSet) []edge {
	came := map[int]edge{}
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for _, e := range g.out[queue[0]] {
			if _, seen := came[e.to]; seen || !use[e.tie] || !in[e.to] {
				continue
			}
			came[e.to] = e
			if e.to == to {
				return unwind(came, from, to)
			}
			queue = append(queue, e.to)
		}
	}
	return nil
}

func unwind(came map[int]edge, from, to int) (path []edge) {
	for n := to; ; {
		e := came[n]
		path = append(path, e)
		if n = e.from; n == from {
			slices.Reverse(path)
			return path
		}
	}
}

// components lists the strongly connected components of two nodes or more (Tarjan), each with
// its nodes in order.
func (g *graph) components(use kindSet) (out [][]int) {
	n := len(g.out)
	index, low, on := make([]int, n), make([]int, n), make([]bool, n)
	var stack []int
	count := 0
	type frame struct{ node, edge int }
	for root := range n {
		if index[root] != 0 {
			continue
		}
		// The walk keeps its own stack: a chain of transactions may be as long as the run.
		walk := []frame{{root, 0}}
		for len(walk) > 0 {
			f := &walk[len(walk)-1]
			if f.edge == 0 {
				count++
				index[f.node], low[f.node], on[f.node] = count, count, true
				stack = append(stack, f.node)
			}
			down := -1
			for down < 0 && f.edge < len(g.out[f.node]) {
				e := g.out[f.node][f.edge]
				f.edge++
				switch {
				case !use[e.tie]:
				case index[e.to] == 0:
					down = e.to
				case on[e.to]:
					low[f.node] = min(low[f.node], index[e.to])
				}
			}
			if down >= 0 {
				walk = append(walk, frame{down, 0})
				continue
			}
			node := f.node
			if walk = walk[:len(walk)-1]; len(walk) > 0 {
				up := walk[len(walk)-1].node
				low[up] = min(low[up], low[node])
			}
			if low[node] != index[node] {
				continue
			}
			at := len(stack) - 1
			for stack[at] != node {
				at--
			}
			part := slices.Clone(stack[at:])
			for _, m := range part {
				on[m] = false
			}
			if stack = stack[:at]; len(part) > 1 {
				slices.Sort(part)
				out = append(out, part)
			}
		}
	}
	return out
}

// tell is a circle in words; say describes a node in one line.
func (c *cycle) tell(name func(int) string, say func(int) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s\n", c.name, c.what)
	for _, e := range c.edges {
		fmt.Fprintf(&b, "  %s: %s\n", name(e.from), say(e.from))
	}
	for _, e := range c.edges {
		from, to := name(e.from), name(e.to)
		switch e.tie {
		case ww:
			fmt.Fprintf(&b, "  %s is before %s: it wrote to %s right in front of %s\n", from, to, e.key, e.item)
		case wr:
			fmt.Fprintf(&b, "  %s is before %s: that read %s up to %s, which this one wrote\n", from, to, e.key, e.item)
		case rw:
			fmt.Fprintf(&b, "  %s is before %s: it read %s without %s, which that one wrote\n", from, to, e.key, e.item)
		case rt:
			fmt.Fprintf(&b, "  %s is before %s: it had ended when that one began\n", from, to)
		}
	}
	b.WriteString("  so no order of them explains what they saw")
	return b.String()
}
