package nemesis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// link is one direction between two ends.
type link struct{ from, to int }

// both are the two directions between each of one side and each of the other.
func both(one, other []int) (links []link) {
	for _, a := range one {
		for _, b := range other {
			links = append(links, link{a, b}, link{b, a})
		}
	}
	return links
}

// between are the links between all pairs of nodes.
func between(nodes []int) (links []link) {
	for i := range nodes {
		links = append(links, both(nodes[i:i+1], nodes[i+1:])...)
	}
	return links
}

// shape puts a shape on links; heal mends them whatever happened before.
func (h *Hand) shape(links []link, s Shape) (err error) {
	for _, l := range links {
		err = errors.Join(err, h.Target.Link(l.from, l.to, s))
	}
	return err
}

// lost adds up what the links of nodes lost so far.
func (h *Hand) lost(nodes []int) (n uint64) {
	for _, i := range nodes {
		if lost, err := h.Target.Lost(i); err == nil {
			n += lost
		}
	}
	return n
}

// severed shapes links for a while. The witness is what they lost, and where leadership went.
func (h *Hand) severed(ctx context.Context, name, id string, nodes []int, links []link, s Shape, length time.Duration) error {
	moved, before := h.watchLeader(ctx), h.lost(h.live())
	f := h.begin(name, id, nodes)
	err := h.shape(links, s)
	rest(ctx, length)
	for h.lost(h.live()) == before && h.Log.Now()-f.Start < length+3*h.Timeout && rest(ctx, h.Timeout/20) {
		// while nobody leads, nobody may send anything for as long as a short fault lasts
	}
	lost := h.lost(h.live()) - before
	after := moved()
	err = errors.Join(err, h.shape(links, Shape{}))
	witness := ""
	if lost > 0 {
		witness = join(fmt.Sprintf("%d packets or pieces did not pass", lost), after)
	}
	return h.end(f, witness, err)
}

// partition is N1.
func partition(ctx context.Context, h *Hand, length time.Duration) error {
	kinds := []string{"leader", "leader", "one", "minority", "none"}
	kind := kinds[h.roll(len(kinds))]
	if kind == "none" {
		return nobody(ctx, h, length)
	}
	nodes, err := h.victims(ctx, kind)
	if err != nil {
		return err
	}
	free, ok := h.take(nodes, false)
	if !ok {
		return nil
	}
	defer free()
	return h.severed(ctx, "partition", "N1", nodes, both(nodes, h.others(nodes...)), Shape{Cut: true}, length)
}

// nobody has a majority: every node is alone, often for longer than a node may take to say that
// it is unavailable (4.5 s).
func nobody(ctx context.Context, h *Hand, length time.Duration) error {
	nodes := h.live()
	free, ok := h.take(nodes, true)
	if !ok {
		return nil
	}
	defer free()
	links, before := between(nodes), h.lost(nodes)
	f := h.begin("partition", "N1", nodes)
	err := h.shape(links, Shape{Cut: true})
	back := h.deserted("N1", nodes)
	least := []time.Duration{3 * h.Timeout, 8 * h.Timeout}
	rest(ctx, max(length, least[h.roll(len(least))]))
	lost := h.lost(nodes) - before
	back()
	err = errors.Join(err, h.shape(links, Shape{}))
	witness := ""
	if lost > 0 {
		witness = fmt.Sprintf("every node was alone; %d packets or pieces did not pass", lost)
	}
	return h.end(f, witness, err)
}

// bridge is N2: two groups that see each other only through one node in the middle; or, in a
// ring, every node sees a majority and no two see the same. The leader stands at the side:
// followers have little to say to each other.
func bridge(ctx context.Context, h *Hand, length time.Duration) error {
	leader, _, err := h.leader(ctx, 5*h.Timeout)
	if err != nil {
		return err
	}
	others := h.others(leader)
	h.dice().Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	nodes := append(others, leader)
	var links []link
	if h.roll(2) == 0 || len(nodes) < 5 {
		side := (len(nodes) - 1) / 2
		links = both(nodes[1:1+side], nodes[1+side:])
	} else {
		for i := range nodes { // each loses the two opposite to it
			links = append(links, both(nodes[i:i+1], []int{nodes[(i+2)%len(nodes)]})...)
		}
	}
	free, ok := h.take(nodes, true)
	if !ok {
		return nil
	}
	defer free()
	return h.severed(ctx, "bridge", "N2", nodes, links, Shape{Cut: true}, max(length, h.Timeout))
}

// oneWay is N3: a) packets of one direction are dropped; b) requests arrive and answers are
// lost; c) the reverse.
func oneWay(ctx context.Context, h *Hand, length time.Duration) error {
	whom := "one"
	if h.roll(3) > 0 {
		whom = "leader"
	}
	nodes, err := h.victims(ctx, whom)
	if err != nil {
		return err
	}
	free, ok := h.take(nodes, false)
	if !ok {
		return nil
	}
	defer free()
	node := nodes[0]
	var out, in []link
	for _, i := range h.others(node) {
		out, in = append(out, link{node, i}), append(in, link{i, node})
	}
	toClients, fromClients := []link{{node, Clients}}, []link{{Clients, node}}
	switch h.roll(6) {
	case 0:
		return h.severed(ctx, "one-way", "N3", nodes, out, Shape{Cut: true}, length)
	case 1:
		return h.severed(ctx, "one-way", "N3", nodes, in, Shape{Cut: true}, length)
	case 2:
		return h.unanswered(ctx, node, out, length)
	case 3:
		return h.unanswered(ctx, node, fromClients, length)
	}
	return h.unanswered(ctx, node, toClients, length)
}

// unanswered holds what goes one way, and then breaks the connections, so that what was held
// never arrives.
func (h *Hand) unanswered(ctx context.Context, node int, links []link, length time.Duration) error {
	before := h.lost(h.live())
	f := h.begin("one-way", "N3", []int{node})
	err := h.shape(links, Shape{Hold: true})
	rest(ctx, length)
	lost := h.lost(h.live()) - before
	for _, l := range links {
		err = errors.Join(err, h.Target.Break(l.from, l.to))
	}
	err = errors.Join(err, h.shape(links, Shape{}))
	witness := ""
	if lost > 0 {
		witness = fmt.Sprintf("%d pieces from %s to %s were sent and never arrived", lost, h.end1(links[0].from), h.end1(links[0].to))
	}
	return h.end(f, witness, err)
}

// end1 names one end of a link.
func (h *Hand) end1(i int) string {
	if i == Clients {
		return "clients"
	}
	return h.Target.Nodes()[i]
}

// flap is N4: links are cut, reset and mended again and again, one by one and at random.
func flap(ctx context.Context, h *Hand, length time.Duration) error {
	nodes := h.live()
	free, ok := h.take(nodes, true)
	if !ok {
		return nil
	}
	defer free()
	links := between(nodes)
	d, before, flaps := h.dice(), h.lost(nodes), 0
	f := h.begin("flap", "N4", nodes)
	var err error
	length = max(length, 3*h.Timeout)
	for began := time.Now(); time.Since(began) < length && ctx.Err() == nil; flaps++ {
		l := links[d.IntN(len(links))]
		if flaps == 0 {
			err = errors.Join(err, h.Target.Link(l.from, l.to, Shape{Cut: true}))
		} else if d.IntN(4) == 0 {
			err = errors.Join(err, h.Target.Break(l.from, l.to))
		} else {
			shapes := []Shape{{Cut: true}, {Reset: true}, {}}
			err = errors.Join(err, h.Target.Link(l.from, l.to, shapes[d.IntN(len(shapes))]))
		}
		rest(ctx, 50*time.Millisecond+time.Duration(d.IntN(450))*time.Millisecond)
	}
	lost := h.lost(nodes) - before
	d.Shuffle(len(links), func(i, j int) { links[i], links[j] = links[j], links[i] })
	for _, l := range links {
		err = errors.Join(err, h.Target.Link(l.from, l.to, Shape{}))
		rest(ctx, time.Duration(d.IntN(50))*time.Millisecond)
	}
	witness := ""
	if lost > 0 && flaps > 0 {
		witness = fmt.Sprintf("%d changes of links; %d packets or pieces did not pass", flaps, lost)
	}
	return h.end(f, witness, err)
}

// slow is N5: delay, jitter, loss, or a slow link, at one node or everywhere.
func slow(ctx context.Context, h *Hand, length time.Duration) error {
	nodes, err := h.victims(ctx, []string{"leader", "one", "all"}[h.roll(3)])
	if err != nil {
		return err
	}
	free, ok := h.take(nodes, len(nodes) > 1)
	if !ok {
		return nil
	}
	defer free()
	var links []link
	for _, a := range nodes {
		for _, b := range h.others(a) {
			links = append(links, link{a, b})
		}
	}
	shapes := []Shape{
		{Delay: h.between(h.Timeout/50, h.Timeout/4), Jitter: h.between(h.Timeout/50, h.Timeout/4)},
		{Loss: 0.02 + float64(h.roll(10))/100},
		{Rate: 20_000 + h.roll(200_000)},
	}
	return h.severed(ctx, "slow", "N5", nodes, links, shapes[h.roll(len(shapes))], length)
}

// replay is N6: requests that were applied are sent once more, seconds later and to another
// node, as a network may that keeps a copy.
func replay(ctx context.Context, h *Hand, length time.Duration) error {
	const atOnce = 8
	f := h.begin("replay", "N6", h.live())
	d, sent, again := h.dice(), 0, 0
	lasts := max(length, 2*h.Timeout)
	for began := time.Now(); rest(ctx, h.Timeout/5); {
		if took := time.Since(began); took > lasts && (again > 0 || took > lasts+5*h.Timeout) {
			break // without a leader nothing is answered for as long as a short fault lasts
		}
		old := h.Tail(2000)
		for range min(atOnce, len(old)) {
			a := old[d.IntN(len(old))]
			if a.Command.GetSeq() == 0 && a.Command.GetIdempotencyKey() == "" || a.Command.GetActor().GetPrincipal() == "" {
				continue
			}
			nodes := h.live()
			if h.resend(ctx, nodes[d.IntN(len(nodes))], a.Command).GetReplayed() {
				again++
			}
			sent++
		}
	}
	witness := ""
	if again > 0 {
		witness = fmt.Sprintf("%d requests were sent again, %d of them were answered from memory", sent, again)
	}
	return h.end(f, witness, nil)
}

// resend sends what a client once sent; nil when nobody answered.
func (h *Hand) resend(ctx context.Context, node int, c *boardpb.Command) *boardpb.Result {
	again := proto.CloneOf(c)
	name := again.Actor.Principal
	again.Actor, again.Entropy = nil, 0 // what the nodes put in, and no client
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "raftboard-as", name), statusPatience)
	defer cancel()
	resp, err := h.Ask(name, node).Apply(ctx, &wirepb.ApplyRequest{Command: again})
	if err != nil {
		return nil
	}
	return resp.Result
}
