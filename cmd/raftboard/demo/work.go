package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// work lets the workers work, breaks things meanwhile, and returns when every item is done.
func (d *demo) work(ctx context.Context) error {
	all := len(d.names)
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.poster.upTo(gctx, all-d.poster.keptBack()) })
	group.Go(func() error {
		if err := d.faults(gctx); err != nil {
			return err
		}
		if d.o.Inject == "double" {
			return d.reopenOne(gctx)
		}
		return nil
	})
	done := make(chan error, 1)
	progress, stop := context.WithCancel(ctx)
	defer stop()
	go func() { done <- d.awaitDone(progress, all) }() // ends with progress
	if err := group.Wait(); err != nil {
		return err
	}
	if err := d.poster.upTo(ctx, all); err != nil {
		return err
	}
	if err := <-done; err != nil {
		return err
	}
	d.stopWorkers()
	return nil
}

// stopWorkers lets the workers finish what they hold.
func (d *demo) stopWorkers() {
	for _, w := range d.workers {
		w.stop(10 * time.Second)
	}
}

// awaitDone shows the progress until every item is done; a standstill is an error.
func (d *demo) awaitDone(ctx context.Context, items int) error {
	last, since := -1, time.Now()
	for {
		if done, err := d.countDone(ctx); err == nil {
			if done != last {
				last, since = done, time.Now()
			}
			d.o.Progress(done, items, "")
			if done >= items {
				return nil
			}
		}
		if time.Since(since) > stalledAfter {
			return fmt.Errorf("%d of %d items are done, and none in the last %v", max(last, 0), items, stalledAfter)
		}
		if err := rest(ctx, 5*pollEvery); err != nil {
			return err
		}
	}
}

// countDone asks for the kept count of finished items. It only tells when to stop: nothing is judged by it.
func (d *demo) countDone(ctx context.Context) (int, error) {
	answer, _, err := d.board.Describe(ctx, client.ReadOptions{Consistency: client.Stale})
	if err != nil {
		return 0, err
	}
	for _, ns := range answer.GetCounts() {
		if ns.GetPattern() == "claims/*" {
			return int(ns.GetDone()), nil
		}
	}
	return 0, nil
}

func (d *demo) leaseOf(ctx context.Context, key string) (*boardpb.Lease, error) {
	answer, _, err := d.board.Get(ctx, key, client.ReadOptions{})
	return answer.GetLease(), err
}

// reopenOne injects a double completion: a finished item is made claimable once more.
func (d *demo) reopenOne(ctx context.Context) error {
	for {
		answer, _, err := d.board.Leases(ctx, &wirepb.LeasesQuery{States: []boardpb.LeaseState{boardpb.LeaseState_LEASE_STATE_DONE}, Limit: 1},
			client.ReadOptions{})
		if err == nil && len(answer.GetLeases()) > 0 {
			key := answer.GetLeases()[0].GetLease().GetKey()
			if _, err := d.board.Reopen(ctx, key); err != nil {
				return err
			}
			d.o.Say("demo", "injected: "+key+" is reopened and will be completed twice")
			return nil
		}
		if err := rest(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// judge reads both witnesses and compares them.
func (d *demo) judge(ctx context.Context) (*Report, error) {
	feed, err := d.readFeed(ctx)
	if err != nil {
		return nil, err
	}
	acks, err := readAckLogs(d.home)
	if err != nil {
		return nil, err
	}
	changes := 0
	if s := d.status(ctx); s != nil {
		changes = leaderChanges(s.GetCluster().GetLeaderships())
	}
	items, alone := len(d.names), d.alone
	if d.o.Keys != nil { // the files were done as often as somebody wanted to watch
		items = d.poster.posted()
		if alone, err = d.expected(items); err != nil {
			return nil, err
		}
	}
	r := judge(items, alone, acks, feed, changes)
	if d.o.Keys == nil {
		r.expectFaults(acks)
	}
	r.DiskSyncsPerS = d.syncs
	return r, nil
}

// expected counts alone what went round the files.
func (d *demo) expected(items int) (Totals, error) {
	counts := make(map[string]Count, items)
	for n := 1; n <= items; n++ {
		c, err := countFile(filepath.Join(d.input, d.names[(n-1)%len(d.names)]))
		if err != nil {
			return Totals{}, err
		}
		counts[itemKey(n)] = c
	}
	return total(counts), nil
}

// leaderChanges counts how often another leadership began; a resumed one is the same leader's.
func leaderChanges(list []*boardpb.Leadership) int {
	changes := -1
	last := uint64(0)
	for _, l := range list {
		if l.GetTerm() != last && !l.GetResumed() {
			changes, last = changes+1, l.GetTerm()
		}
	}
	return max(changes, 0)
}

// readFeed reads every event from rev 1.
func (d *demo) readFeed(ctx context.Context) (*feedTally, error) {
	feed, q := newFeedTally(), &wirepb.EventsQuery{Limit: 1000}
	for {
		answer, _, err := d.board.Events(ctx, q, client.ReadOptions{})
		if err != nil {
			return nil, fmt.Errorf("reading the feed from rev 1: %w", err)
		}
		for _, e := range answer.GetEvents() {
			feed.add(e)
			q.AfterRev, q.AfterSub = e.GetRev(), e.GetSub()
		}
		if !answer.GetHasMore() || len(answer.GetEvents()) == 0 {
			return feed, nil
		}
	}
}
