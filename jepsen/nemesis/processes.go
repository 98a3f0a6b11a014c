package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"raftboard/jepsen/planted/table"
)

// down is how long a node that was started may take to be ready, in election timeouts.
const down = 30

// kill is N7: one node, the leader, a majority or all of them die and come back, some of them
// several times.
func kill(ctx context.Context, h *Hand, length time.Duration) error {
	whom := []string{"leader", "leader", "one", "majority", "all"}[h.roll(5)]
	nodes, err := h.victims(ctx, whom)
	if err != nil {
		return err
	}
	free, ok := h.take(nodes, len(nodes) > h.minority())
	if !ok {
		return nil
	}
	defer free()
	moved := h.watchLeader(ctx)
	f := h.begin("kill", "N7", nodes)
	err = each(nodes, h.kill)
	back := h.deserted("N7", nodes)
	gone := h.silent(ctx, nodes)
	rest(ctx, length)
	back()
	after := ""
	if len(nodes) <= h.minority() {
		after = moved()
	}
	storms := h.roll(3)
	for range storms {
		err = errors.Join(err, each(nodes, h.start))
		rest(ctx, h.between(10*time.Millisecond, h.Timeout))
		err = errors.Join(err, each(nodes, h.kill))
	}
	err = errors.Join(err, each(nodes, h.start), h.ready(ctx, down*h.Timeout, nodes...))
	witness := ""
	if gone == len(nodes) {
		witness = join(fmt.Sprintf("%s: %d of %d answered no more, and began %d more lives", whom, gone, len(nodes), storms+1), after)
	}
	return h.end(f, witness, err)
}

// silent counts the nodes that do not answer.
func (h *Hand) silent(ctx context.Context, nodes []int) (n int) {
	for _, i := range nodes {
		if _, err := h.status(ctx, i); err != nil {
			n++
		}
	}
	return n
}

// pause is N8: whoever is paused goes on in the middle of what it did, as if no time had
// passed, while clients and nodes have waited for it or have given it up.
func pause(ctx context.Context, h *Hand, length time.Duration) error {
	whom := []string{"leader", "leader", "one", "majority"}[h.roll(4)]
	nodes, err := h.victims(ctx, whom)
	if err != nil {
		return err
	}
	free, ok := h.take(nodes, len(nodes) > h.minority())
	if !ok {
		return nil
	}
	defer free()
	moved := h.watchLeader(ctx)
	f := h.begin("pause", "N8", nodes)
	err = each(nodes, h.Target.Pause)
	back := h.deserted("N8", nodes)
	gone := h.silent(ctx, nodes)
	rest(ctx, length-(h.Log.Now()-f.Start))
	back()
	after := ""
	if len(nodes) <= h.minority() {
		after = moved()
	}
	err = errors.Join(err, each(nodes, h.Target.Resume))
	witness := ""
	if gone == len(nodes) {
		witness = join(fmt.Sprintf("%s: %d of %d did not answer", whom, gone, len(nodes)), after)
	}
	return h.end(f, witness, err)
}

// power is N9: one node loses power, or all at once, or by turns in the way that hurts most.
func power(ctx context.Context, h *Hand, length time.Duration) error {
	switch h.roll(3) {
	case 0:
		return h.unplug(ctx, "one", length)
	case 1:
		return h.unplug(ctx, "all", length)
	}
	return choreography(ctx, h, length)
}

func (h *Hand) unplug(ctx context.Context, whom string, length time.Duration) error {
	nodes, err := h.victims(ctx, whom)
	if err != nil {
		return err
	}
	free, ok := h.take(nodes, len(nodes) > h.minority())
	if !ok {
		return nil
	}
	defer free()
	f := h.begin("power", "N9", nodes)
	err = h.powerOff(nodes...)
	back := h.deserted("N9", nodes)
	gone := h.silent(ctx, nodes)
	rest(ctx, length)
	back()
	err = errors.Join(err, each(nodes, h.start), h.ready(ctx, down*h.Timeout, nodes...))
	witness := ""
	if gone == len(nodes) {
		witness = fmt.Sprintf("%s: the disks of %d nodes forgot what was not synced, and they began another life", whom, gone)
	}
	return h.end(f, witness, err)
}

// choreography: while a minority is paused the rest writes; one of the rest loses power, the
// others of it are paused, the minority resumes, and the one comes back. Whatever was
// acknowledged meanwhile lives on in one disk and in nodes that are held.
func choreography(ctx context.Context, h *Hand, length time.Duration) error {
	all := h.some(len(h.live()))
	free, ok := h.take(all, true)
	if !ok {
		return nil
	}
	defer free()
	few := h.minority()
	late, victim, rested := all[:few], all[few], all[few+1:]
	f := h.begin("power", "N9", all)
	err := each(late, h.Target.Pause)
	rest(ctx, max(length/2, 3*h.Timeout)) // the rest elects, if it must, and writes
	err = errors.Join(err, h.powerOff(victim))
	back := h.deserted("N9", append([]int{victim}, late...))
	gone := h.silent(ctx, []int{victim})
	back()
	err = errors.Join(err, each(rested, h.Target.Pause), each(late, h.Target.Resume), h.start(victim))
	rest(ctx, max(length/2, 3*h.Timeout))
	err = errors.Join(err, each(rested, h.Target.Resume), h.ready(ctx, down*h.Timeout, all...))
	witness := ""
	if gone == 1 {
		witness = fmt.Sprintf("%s lost power while %v were paused, and came back while %v were",
			h.Target.Nodes()[victim], h.names(late), h.names(rested))
	}
	return h.end(f, witness, err)
}

// cpu is N15: one node gets a small share of a core.
func cpu(ctx context.Context, h *Hand, length time.Duration) error {
	nodes, err := h.victims(ctx, []string{"leader", "one"}[h.roll(2)])
	if err != nil {
		return err
	}
	free, ok := h.take(nodes, false)
	if !ok {
		return nil
	}
	defer free()
	share := 0.02 + float64(h.roll(10))/100
	f := h.begin("cpu", "N15", nodes)
	err = h.Target.Starve(nodes[0], share)
	rest(ctx, max(length, 2*h.Timeout))
	err = errors.Join(err, h.Target.Starve(nodes[0], 0))
	return h.end(f, fmt.Sprintf("%s had %.0f hundredths of a core", h.Target.Nodes()[nodes[0]], 100*share), err)
}

// clock is N12: the wall clock of one node jumps or strobes, or its clocks drift.
func clock(ctx context.Context, h *Hand, length time.Duration) error {
	nodes, err := h.victims(ctx, []string{"leader", "one"}[h.roll(2)])
	if err != nil {
		return err
	}
	free, ok := h.take(nodes, false)
	if !ok {
		return nil
	}
	defer free()
	node, d := nodes[0], h.dice()
	jump := func() time.Duration { return time.Duration(d.IntN(7200)-3600) * time.Second }
	f := h.begin("clock", "N12", nodes)
	what := ""
	switch d.IntN(3) {
	case 0:
		by := jump()
		what = fmt.Sprintf("its wall clock jumped by %v", by)
		err = h.Target.Clock(node, ClockFault{Wall: by})
		rest(ctx, length)
	case 1:
		n := 0
		for began := time.Now(); time.Since(began) < length && err == nil; n++ {
			err = h.Target.Clock(node, ClockFault{Wall: jump()})
			rest(ctx, 200*time.Millisecond)
		}
		what = fmt.Sprintf("its wall clock jumped %d times", n)
	default:
		drift := float64(d.IntN(5)-2)/100 + 0.001
		what = fmt.Sprintf("its clocks ran at %.3f of their rate", 1+drift)
		err = h.Target.Clock(node, ClockFault{Drift: drift})
		rest(ctx, length)
	}
	err = errors.Join(err, h.Target.Clock(node, ClockFault{}))
	return h.end(f, what, err)
}

// rare points are come by at most a few times in the life of a node.
func rare(point string) bool {
	return strings.HasPrefix(point, "vote-") || strings.HasPrefix(point, "snapshot-") || point == "stable-write" || point == "feed-subscribe"
}

// failpoint is N16: a node breaks, or waits, at a named point of its code.
func failpoint(ctx context.Context, h *Hand, length time.Duration) error {
	nodes := h.some(1)
	free, ok := h.take(nodes, false)
	if !ok {
		return nil
	}
	defer free()
	node, d := nodes[0], h.dice()
	var err error
	for range failpointTries { // not every point is come by in time
		var broke bool
		if broke, err = h.breakAt(ctx, node, drawPoint(d), length); broke || err != nil {
			break
		}
	}
	return err
}

const failpointTries = 4

// drawPoint arms a point that a node without a planted bug comes by, at one of its first hits.
func drawPoint(d *rand.Rand) string {
	points := table.Points()
	point := points[d.IntN(len(points))].Name
	for point == "vote-between" || point == "state-alter" { // reached only with a bug beside them
		point = points[d.IntN(len(points))].Name
	}
	hits := 100
	if rare(point) {
		hits = 2
	}
	return fmt.Sprintf("%s:%d:panic", point, 1+d.IntN(hits))
}

// breakAt arms a point, begins another life, and says whether the node broke there.
func (h *Hand) breakAt(ctx context.Context, node int, spec string, length time.Duration) (broke bool, err error) {
	b := h.blame("N16", node)
	defer b.over()
	f := h.begin("failpoint", "N16", []int{node})
	err = errors.Join(h.Target.Failpoint(node, spec), h.kill(node), h.start(node))
	for began := time.Now(); b.died() == nil && time.Since(began) < length+3*h.Timeout && rest(ctx, lookEvery); {
	}
	died := b.died()
	err = errors.Join(err, h.Target.Failpoint(node, ""))
	if died == nil { // it did not come to that point, or only waited there
		err = errors.Join(err, h.kill(node))
	}
	err = errors.Join(err, h.start(node), h.ready(ctx, down*h.Timeout, node))
	if died == nil { // the point was not reached, or only waited at: what is sure is the restart
		f.Name, f.Nemesis = "kill", "N7"
		return false, h.end(f, fmt.Sprintf("armed with %s; it did not break, and was killed", spec), err)
	}
	return true, h.end(f, fmt.Sprintf("armed with %s; it broke: %v", spec, died), err)
}
