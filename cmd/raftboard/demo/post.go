package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
)

// postsAtOnce bounds how many posts are under way: enough to fill the batches of the log.
const postsAtOnce = 128

// postWithin bounds one post: it sits out several elections.
const postWithin = time.Minute

// poster offers files as items. A part is kept back until the faults are over, so that they fall
// inside the work however fast it is.
type poster struct {
	d    *demo
	loop *client.Loop

	mu   sync.Mutex
	next int // how many items have been posted, or are under way
}

func newPoster(ctx context.Context, d *demo) (*poster, error) {
	loop, err := d.board.OpenLoop(ctx, client.LoopOptions{TTL: loopTTL, Label: "demo"})
	if err != nil {
		return nil, err
	}
	return &poster{d: d, loop: loop}, nil
}

// keptBack is how many items wait for the end of the faults.
func (p *poster) keptBack() int { return min(max(8, len(p.d.names)/20), len(p.d.names)/2) }

// upTo posts items until this many have been.
func (p *poster) upTo(ctx context.Context, n int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(postsAtOnce)
	for {
		number, left := p.take(n)
		if !left {
			return group.Wait()
		}
		group.Go(func() error { return p.post(ctx, number) })
	}
}

// take gives the number of the next item to post, unless n have been.
func (p *poster) take(n int) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next >= n {
		return 0, false
	}
	p.next++
	return p.next, true
}

func (p *poster) posted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// one posts the next item that was kept back, if there is one: a worker must have something to hold.
func (p *poster) one(ctx context.Context) error {
	number, left := p.take(len(p.d.names))
	if !left {
		return nil
	}
	return p.post(ctx, number)
}

func (p *poster) post(ctx context.Context, n int) error {
	name := p.d.names[(n-1)%len(p.d.names)]
	value, err := json.Marshal(item{N: n, Path: filepath.ToSlash(name)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, postWithin)
	defer cancel()
	r, err := p.loop.Post(ctx, itemKey(n), value)
	if err != nil {
		return fmt.Errorf("posting %s: %w", itemKey(n), err)
	}
	if r.GetOutcome() != boardpb.Outcome_OUTCOME_OK {
		return fmt.Errorf("posting %s: %v", itemKey(n), r)
	}
	return p.d.acks.append(Ack{Kind: Posted, Key: itemKey(n), Rev: r.GetRev()})
}
