package nemesis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"raftboard/jepsen/history"
)

const (
	// restartAfter is how long a node that ended by itself stays down, and mostRestarts how
	// often it is started again until somebody looks at it: RestartSec and StartLimitBurst of
	// deploy/systemd/raftboard.service.
	restartAfter = 2 * time.Second
	mostRestarts = 5
	lookEvery    = 50 * time.Millisecond
)

// process is what the supervisor knows of the process of a node.
type process struct {
	turn chan struct{} // holds one: who starts or ends it

	// guarded by Hand.mu
	off      bool // somebody wants it down
	restarts int  // since somebody started it
	ended    *ending
	blames   []*blame // the newest fault last
}

// ending is an end of a node by itself, from when it was seen until it was started again.
type ending struct {
	by *blame // nil: by no fault
	f  history.Fault
}

// blame is a fault that may make nodes end by themselves: an end of one of them while the
// fault lasts, until the node is well again, is its doing. Any other one condemns the run.
type blame struct {
	h     *Hand
	id    string // of the nemesis
	nodes []int

	// guarded by Hand.mu
	why     error  // of the first end
	spoiled string // the id of its node, when what is damaged there may be read only later
}

// process is that of a node.
func (h *Hand) process(i int) *process {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.processes == nil {
		h.processes = map[int]*process{}
	}
	if h.processes[i] == nil {
		h.processes[i] = &process{turn: make(chan struct{}, 1)}
	}
	return h.processes[i]
}

// hold is a process that nobody else starts or ends until give.
func (h *Hand) hold(i int) (p *process, give func()) {
	p = h.process(i)
	p.turn <- struct{}{} // not a mutex: virtual time passes while somebody waits
	return p, func() { <-p.turn }
}

// Supervise does for the nodes what systemd does: one that has ended by itself is started
// again after a while. It is the only one that asks why a node died. An end that a fault is to
// blame for is recorded as its consequence, any other is noted. end ends it, after a last look.
func (h *Hand) Supervise(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() { // ends with end
		defer close(over)
		var operators sync.WaitGroup
		defer operators.Wait()
		for rest(ctx, lookEvery) {
			for _, i := range h.live() {
				if id := h.tend(i); id != "" {
					operators.Go(func() {
						// If it cannot be done, no majority is left, or soon one is missing: that is seen.
						_ = h.replace(ctx, i, id)
					})
				}
			}
		}
	}()
	return func() {
		cancel()
		<-over
		for _, i := range h.live() {
			p, give := h.hold(i)
			h.look(i, p)
			h.recover(p)
			give()
		}
	}
}

// tend looks after one process. spoiled is the id of a node that found what was damaged in its
// data long before: no start would mend that, and an operator must replace it.
func (h *Hand) tend(i int) (spoiled string) {
	p, give := h.hold(i)
	defer give()
	h.look(i, p)
	h.mu.Lock()
	due := p.ended != nil && !p.off && p.restarts < mostRestarts && h.Log.Now()-p.ended.f.Start >= restartAfter
	if due {
		p.restarts++
		if p.ended.by != nil {
			spoiled = p.ended.by.spoiled
		}
		p.off = spoiled != ""
	}
	h.mu.Unlock()
	if !due {
		return ""
	}
	h.recover(p)
	if spoiled == "" {
		// What keeps it from starting keeps it from being ready too, and that is looked at by
		// whoever did it, and after everything was mended.
		_ = h.Target.Start(i)
	}
	return spoiled
}

// look asks whether a process has ended by itself. Called with its turn.
func (h *Hand) look(i int, p *process) {
	why := h.Target.Died(i)
	if why == nil {
		return
	}
	h.mu.Lock()
	var by *blame
	if n := len(p.blames); n > 0 {
		by = p.blames[n-1]
		if by.why == nil {
			by.why = why
		}
	}
	h.mu.Unlock()
	h.recover(p) // of an earlier end, if nobody did
	e := &ending{by: by, f: h.begin("ended", "", []int{i})}
	e.f.Witness = fmt.Sprintf("it ended by itself: %v", why)
	if by == nil {
		h.Log.Note(history.Note{Kind: history.NoteDied, Node: h.names([]int{i})[0], Text: why.Error()})
	} else {
		e.f.Nemesis = by.id
	}
	h.mu.Lock()
	p.ended = e
	h.mu.Unlock()
}

// recover closes the record of an end: what comes now is another life, or nothing more.
// Called with the turn of the process.
func (h *Hand) recover(p *process) {
	h.mu.Lock()
	e := p.ended
	p.ended = nil
	h.mu.Unlock()
	if e != nil && e.by != nil {
		e.f.End = h.Log.Now()
		h.Log.Fault(e.f)
	}
}

// blame says that from now on, until over, an end of these nodes by themselves is the doing of
// a fault.
func (h *Hand) blame(id string, nodes ...int) *blame {
	b := &blame{h: h, id: id, nodes: nodes}
	for _, i := range nodes {
		p := h.process(i)
		h.mu.Lock()
		p.blames = append(p.blames, b)
		h.mu.Unlock()
	}
	return b
}

func (b *blame) over() {
	for _, i := range b.nodes {
		p := b.h.process(i)
		b.h.mu.Lock()
		for at, other := range p.blames {
			if other == b {
				p.blames = append(p.blames[:at:at], p.blames[at+1:]...)
				break
			}
		}
		b.h.mu.Unlock()
	}
}

// last leaves the blame in place to the end of the run: the node is well, and yet something in
// its data is damaged that it may come to read.
func (b *blame) last(id string) {
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	b.spoiled = id
}

// died is why the first of its nodes ended by itself; nil if none did.
func (b *blame) died() error {
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	return b.why
}

// start starts a node again, on purpose and now.
func (h *Hand) start(i int) error { return h.turn(i, false, h.Target.Start) }

// kill ends a node that is not to be started until somebody does so on purpose; so do stop and
// retire.
func (h *Hand) kill(i int) error   { return h.turn(i, true, h.Target.Kill) }
func (h *Hand) stop(i int) error   { return h.turn(i, true, h.Target.Stop) }
func (h *Hand) retire(i int) error { return h.turn(i, true, h.Target.Retire) }

// turn does something to a process that is up or down on purpose afterwards.
func (h *Hand) turn(i int, off bool, do func(int) error) error {
	p, give := h.hold(i)
	defer give()
	h.purpose(i, p, off)
	return do(i)
}

// purpose says that a process is to be down, or up, from now on. Called with its turn.
func (h *Hand) purpose(i int, p *process, off bool) {
	h.look(i, p) // its end came before this
	h.recover(p)
	h.mu.Lock()
	defer h.mu.Unlock()
	p.off, p.restarts = off, 0
}

// powerOff cuts the power of nodes, which are not to be started until somebody does so.
func (h *Hand) powerOff(nodes ...int) error {
	for _, i := range slices.Compact(slices.Sorted(slices.Values(nodes))) { // in one order everywhere, so that nobody waits in a circle
		p, give := h.hold(i)
		defer give()
		h.purpose(i, p, true)
	}
	return h.Target.PowerOff(nodes...)
}
