package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Pool is several loops of one board, for callers with more than 256 writes in flight.
// It opens loops as they are needed, up to its bound.
type Pool struct {
	b    *Board
	opts LoopOptions
	most int

	mu      sync.Mutex
	loops   []*Loop
	opening chan struct{} // closed when the opening under way is over; nil: none
	opened  int           // for distinct nonces
}

// OpenPool opens the first loop of a pool of at most loops. opts are those of each loop.
func (b *Board) OpenPool(ctx context.Context, loops int, opts LoopOptions) (*Pool, error) {
	if loops < 1 {
		return nil, fmt.Errorf("client: a pool of %d loops cannot work", loops)
	}
	if opts.Nonce == "" {
		opts.Nonce = randomHex(16)
	}
	p := &Pool{b: b, opts: opts, most: loops}
	if _, err := p.Loop(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Loop gives the loop with the most room in its window. If that is less than half a
// window, it opens another first, while the pool may grow. Loops that ended are replaced.
func (p *Pool) Loop(ctx context.Context) (*Loop, error) {
	for {
		p.mu.Lock()
		best := p.best()
		if best != nil && (best.win.inFlight() < windowSize/2 || len(p.loops) >= p.most) {
			p.mu.Unlock()
			return best, nil
		}
		wait := p.opening
		if wait == nil {
			p.opening = make(chan struct{})
			p.opened++
			opts := p.opts
			opts.Nonce = fmt.Sprintf("%s-%d", p.opts.Nonce, p.opened)
			p.mu.Unlock()
			return p.open(ctx, opts)
		}
		p.mu.Unlock()
		if best != nil {
			return best, nil // it has less room, but it is there
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (p *Pool) open(ctx context.Context, opts LoopOptions) (*Loop, error) {
	l, err := p.b.OpenLoop(ctx, opts)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.opening)
	p.opening = nil
	if err != nil {
		if best := p.best(); best != nil {
			return best, nil
		}
		return nil, err
	}
	p.loops = append(p.loops, l)
	return l, nil
}

// best drops loops that ended and gives the one with the most room. Called with p.mu held.
func (p *Pool) best() *Loop {
	var best *Loop
	live := p.loops[:0]
	for _, l := range p.loops {
		select {
		case <-l.ended:
			continue
		default:
		}
		live = append(live, l)
		if best == nil || l.win.inFlight() < best.win.inFlight() {
			best = l
		}
	}
	clear(p.loops[len(live):])
	p.loops = live
	return best
}

// Close closes the loops of the pool.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	loops := append([]*Loop(nil), p.loops...)
	p.loops = nil
	p.mu.Unlock()
	var errs []error
	for _, l := range loops {
		errs = append(errs, l.Close(ctx))
	}
	return errors.Join(errs...)
}
