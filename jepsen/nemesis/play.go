package nemesis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Nemesis is one kind of fault.
type Nemesis struct {
	Name  string // as the command takes it
	ID    string // N1 …
	What  string // in one line
	Needs Needs
	do    func(ctx context.Context, h *Hand, length time.Duration) error
}

// Needs are what a cluster must have been started with for a fault.
type Needs struct {
	Relay   bool // links between nodes pass through the harness
	Power   bool // disks of their own, whose power can be cut
	Tagged  bool // nodes built with the tag "faults"
	Compact bool // small logs, so that snapshots happen in a short run
	Other   bool // another build of the same source
}

// Or is what either needs.
func (n Needs) Or(m Needs) Needs {
	return Needs{n.Relay || m.Relay, n.Power || m.Power, n.Tagged || m.Tagged, n.Compact || m.Compact, n.Other || m.Other}
}

// All lists the nemeses in the order N0 to N16.
func All() []Nemesis {
	return []Nemesis{
		{Name: "none", ID: "N0", What: "nothing: the control, and the baseline"},
		{Name: "partition", ID: "N1", What: "the leader, one node or a minority is cut off, or nobody has a majority", do: partition},
		{Name: "bridge", ID: "N2", What: "two groups that meet in one node only; a ring of majorities", do: bridge},
		{Name: "one-way", ID: "N3", What: "one direction is dropped; requests arrive and answers are lost; the reverse", Needs: Needs{Relay: true}, do: oneWay},
		{Name: "flap", ID: "N4", What: "links are cut, reset and mended every 50 to 500 ms", do: flap},
		{Name: "slow", ID: "N5", What: "delay, jitter, loss, a slow link", Needs: Needs{Relay: true}, do: slow},
		{Name: "replay", ID: "N6", What: "requests are sent again seconds later, to another node", do: replay},
		{Name: "kill", ID: "N7", What: "kill -9 of one node, the leader, a majority, all; restart storms", do: kill},
		{Name: "pause", ID: "N8", What: "the leader, one node or a majority stops and goes on", do: pause},
		{Name: "power", ID: "N9", What: "one or all lose power, also while others are paused: what was not synced is lost", Needs: Needs{Power: true}, do: power},
		{Name: "disk", ID: "N10", What: "a disk is slow, hangs, is full or fails", Needs: Needs{Power: true}, do: disk},
		{Name: "corrupt", ID: "N11", What: "what a dead node had stored is damaged", Needs: Needs{Compact: true}, do: corrupt},
		{Name: "clock", ID: "N12", What: "the clocks of a node jump, strobe or drift", Needs: Needs{Tagged: true}, do: clock},
		{Name: "members", ID: "N13", What: "leadership moves, members leave and join, votes are taken and given", Needs: Needs{Compact: true}, do: members},
		{Name: "transfer", ID: "N13", What: "leadership moves again and again", do: transfer},
		{Name: "wipe", ID: "N13", What: "a member loses its disk and is replaced under a new id", do: replaceWiped},
		{Name: "upgrade", ID: "N13", What: "a rolling restart with another build of the same source", Needs: Needs{Other: true}, do: upgrade},
		{Name: "compaction", ID: "N14", What: "a node, or the leader, is away until the log it would need is gone", Needs: Needs{Compact: true}, do: compaction},
		{Name: "cpu", ID: "N15", What: "a node gets a small share of a core", do: cpu},
		{Name: "failpoint", ID: "N16", What: "a node breaks or waits at a named point of its code", Needs: Needs{Tagged: true, Compact: true}, do: failpoint},
	}
}

// ByName finds nemeses by their names.
func ByName(names ...string) (found []Nemesis, err error) {
	var known []string
	for _, n := range All() {
		known = append(known, n.Name)
	}
next:
	for _, name := range names {
		for _, n := range All() {
			if n.Name == name {
				found = append(found, n)
				continue next
			}
		}
		return nil, fmt.Errorf("no nemesis %q: there are %s", name, strings.Join(known, ", "))
	}
	return found, nil
}

// lengths are what a fault may last, in election timeouts: around the limits at which
// something else happens, and not evenly.
func lengths() []float64 { return []float64{0.2, 1, 1, 3, 3, 10} }

// Play does faults of these kinds until a time is over. First each kind is done once, in a drawn
// order and however long that takes; then, every while, a drawn subset of them at once, in a
// quarter of the draws none. What has begun is undone before it returns. A fault that could not
// be done or undone says so in its record, and has no witness.
func Play(ctx context.Context, h *Hand, kinds []Nemesis, lasts time.Duration) {
	kinds = doing(kinds)
	began := time.Now()
	left := func() time.Duration { return lasts - time.Since(began) }
	d := h.dice()
	d.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for round := 0; len(kinds) > 0 && (round < len(kinds) || left() > h.Timeout) && ctx.Err() == nil; round++ {
		chosen := kinds[round%len(kinds) : round%len(kinds)+1]
		if round >= len(kinds) {
			chosen = draw(d.IntN, kinds)
		}
		h.together(ctx, chosen, max(left()/2, h.Timeout))
		gap := time.Duration(d.Int64N(int64(max(lasts/6, 1)))) + h.Timeout/2
		if len(chosen) == 0 {
			gap += h.Timeout
		}
		rest(ctx, min(gap, max(left(), 0)))
	}
	rest(ctx, left())
}

func doing(kinds []Nemesis) (some []Nemesis) {
	for _, n := range kinds {
		if n.do != nil {
			some = append(some, n)
		}
	}
	return some
}

// draw is none in a quarter of the draws, else a subset that is not empty.
func draw(dice func(int) int, kinds []Nemesis) (chosen []Nemesis) {
	if dice(4) == 0 {
		return nil
	}
	first := dice(len(kinds))
	for i, n := range kinds {
		if i == first || dice(3) == 0 {
			chosen = append(chosen, n)
		}
	}
	return chosen
}

// together does several faults at once, none much longer than most, and waits for all of them.
func (h *Hand) together(ctx context.Context, kinds []Nemesis, most time.Duration) {
	var group sync.WaitGroup
	for _, n := range kinds {
		length := time.Duration(lengths()[h.roll(len(lengths()))] * float64(h.Timeout))
		length = min(length, most)
		group.Go(func() {
			// What was begun and failed has said so in its record. What found nobody to hurt did
			// not happen; a kind that never happened makes the run INVALID.
			_ = n.do(ctx, h, length)
		})
	}
	group.Wait()
}

// Mend undoes whatever may still be in place, starts every node that is down, and waits until
// all are ready.
func (h *Hand) Mend(ctx context.Context) (err error) {
	nodes := h.live()
	err = errors.Join(h.shape(between(nodes), Shape{}), h.shape(both(nodes, []int{Clients}), Shape{}))
	for _, a := range nodes {
		for _, undo := range []error{h.Target.Disk(a, DiskFault{}), h.Target.Clock(a, ClockFault{}), h.Target.Starve(a, 0)} {
			if undo != nil && !errors.Is(undo, ErrUnsupported) {
				err = errors.Join(err, undo)
			}
		}
		err = errors.Join(err, h.Target.Resume(a), h.start(a))
	}
	return errors.Join(err, h.ready(ctx, 2*down*h.Timeout, nodes...))
}

// Replay ends all nodes at once, by their power if it can be cut, and starts them again, so
// that each goes through what its disk holds once more, in a new life.
func (h *Hand) Replay(ctx context.Context, power bool) error {
	nodes := h.live()
	f := h.begin("kill all", "N7", nodes)
	var err error
	if power {
		f.Name, f.Nemesis = "power off all", "N9"
		err = h.powerOff(nodes...)
	} else {
		err = each(nodes, h.kill)
	}
	gone := h.silent(ctx, nodes)
	err = errors.Join(err, each(nodes, h.start), h.ready(ctx, 2*down*h.Timeout, nodes...))
	witness := ""
	if gone == len(nodes) {
		witness = "no node answered, and every one began another life"
	}
	return h.end(f, witness, err)
}

// Level waits until every node has applied what any node had when it was called.
func (h *Hand) Level(ctx context.Context) error {
	var most uint64
	for _, i := range h.live() {
		if s, err := h.status(ctx, i); err == nil {
			most = max(most, s.Applied)
		}
	}
	for {
		behind := ""
		for _, i := range h.live() {
			if s, err := h.status(ctx, i); err != nil || s.Applied < most {
				behind = h.Target.Nodes()[i]
				break
			}
		}
		if behind == "" {
			return nil
		}
		if !rest(ctx, 50*time.Millisecond) {
			return fmt.Errorf("node %s has not applied entry %d, which another node has", behind, most)
		}
	}
}
