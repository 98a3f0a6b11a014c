package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
	wirepb "raftboard/transport/pb"
)

// Feed is W7: writers, and watchers of every kind on every node. Through the client: from rev 1,
// and from a snapshot. Below it, one stream at a time: one that stays with each node, one that
// moves from node to node, one that asks for some keys only, one from now on, one that reads
// slowly; and a prober, which asks for the future, for what is just acknowledged elsewhere, for
// what was compacted, and for snapshots. An operator compacts the older part of the board.
type Feed struct {
	Writers int
}

const (
	manyOps    = 64 // of a txn that makes the feed large
	manyTxns   = 12
	largeValue = 4 << 10
	slowStop   = 12 * time.Second // a server cuts off who takes nothing for 10 s
	farAhead   = 1000
	endKey     = "end/all" // written last, and every watcher asks for it
)

// Name implements Workload.
func (Feed) Name() string { return "feed" }

// Watched implements Workload: it watches by itself.
func (Feed) Watched() bool { return false }

// Settings of the board that W7 needs.
func (Feed) Settings() *boardpb.BoardSettings {
	return &boardpb.BoardSettings{Namespaces: []*boardpb.Namespace{
		{Pattern: "feed/*", Mode: boardpb.Mode_MODE_APPEND, Purpose: "what writers write most"},
		{Pattern: "cells/*", Mode: boardpb.Mode_MODE_SHARED, Purpose: "values that are set at a version"},
		{Pattern: "bulk/*", Mode: boardpb.Mode_MODE_APPEND, Purpose: "much at once, for slow readers"},
		{Pattern: "end/*", Mode: boardpb.Mode_MODE_APPEND, Purpose: "the last event"},
	}}
}

// feedRun is one run of it.
type feedRun struct {
	env   Env
	ctx   context.Context // outlives the load
	known atomic.Uint64   // the highest rev that was acknowledged to anybody

	libs    []*Watcher
	streams []*stream
}

// Run lets writers write and watchers watch until the load is to stop. Then it writes one last
// event, and every watcher is given a minute to be told of it.
func (f Feed) Run(ctx context.Context, e Env) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	load, stop := e.loading(ctx)
	defer stop()
	r := &feedRun{env: e, ctx: ctx}
	var group sync.WaitGroup
	err := r.watchThroughClients()
	for i := 0; i < f.Writers && err == nil; i++ {
		name := fmt.Sprintf("writer-%d", i+1)
		var c *client.Client
		if c, err = e.Cluster.Dial(name, i%len(e.Cluster.Nodes())); err != nil {
			break
		}
		w := &writer{run: r, name: name, b: c.Board(e.Board), keyed: i == f.Writers-1, dice: e.dice(i), versions: map[string]uint64{}}
		group.Go(func() {
			defer c.Close()
			w.work(load, e.pace(f.Writers), w.name == "writer-1" && e.dice(-2).IntN(3) == 0)
		})
	}
	operator, dialErr := e.Cluster.Dial("steward", 0)
	if err = errors.Join(err, dialErr); err == nil {
		group.Go(func() { r.compact(load, operator) })
		group.Go(func() { r.watchSnapshot(load) })
		r.watchBelow(load, &group)
	} else {
		stop()
	}
	group.Wait()
	if err == nil {
		r.finish(operator)
	}
	for _, w := range r.libs {
		w.Close()
	}
	if operator != nil {
		operator.Close()
	}
	return err
}

// learn takes note of a rev that somebody was told of.
func (r *feedRun) learn(rev uint64) {
	for was := r.known.Load(); rev > was && !r.known.CompareAndSwap(was, rev); was = r.known.Load() {
	}
}

func (r *feedRun) watchThroughClients() error {
	for i, node := range r.env.Cluster.Nodes() {
		if node == "" {
			continue
		}
		w, err := Watch(r.ctx, r.env, "client-of-"+node, i)
		if err != nil {
			return err
		}
		r.libs = append(r.libs, w)
	}
	return nil
}

// begun waits until the board holds something.
func (r *feedRun) begun(load context.Context) {
	for r.known.Load() < 20 && rest(load, 50*time.Millisecond) {
	}
}

// watchSnapshot watches through a client, from a snapshot on.
func (r *feedRun) watchSnapshot(load context.Context) {
	r.begun(load)
	opts := client.WatchOptions{Patterns: []string{"feed/*", "cells/*", "end/*"}, Snapshot: true}
	for load.Err() == nil {
		w, err := watch(r.ctx, r.env, "client-snapshot", 0, opts)
		if err == nil {
			r.libs = append(r.libs, w)
			return
		}
		rest(load, 200*time.Millisecond)
	}
}

// watchBelow starts the watchers that know streams only.
func (r *feedRun) watchBelow(load context.Context, group *sync.WaitGroup) {
	start := func(name string, home int, patterns ...string) *stream {
		s := &stream{env: r.env, name: name, dice: r.env.dice(200 + len(r.streams)), patterns: patterns, home: home, known: &r.known}
		r.streams = append(r.streams, s)
		return s
	}
	stays := func() time.Duration { return 0 }
	moves := func(s *stream) func() time.Duration {
		return func() time.Duration {
			return 300*time.Millisecond + time.Duration(s.dice.Int64N(int64(3*time.Second)))
		}
	}
	for i, node := range r.env.Cluster.Nodes() {
		if node == "" {
			continue
		}
		s := start("stream-of-"+node, i, "**")
		group.Go(func() { s.follow(load, history.Asked{Mode: "from"}, stays, nil) })
	}
	mover := start("mover", -1, "**")
	group.Go(func() {
		r.begun(load)
		mover.next = max(r.known.Load()/2, 1) // the middle
		mover.follow(load, mover.from(), moves(mover), nil)
	})
	picky := start("picky", -1, "feed/f-1", "cells/*", "end/*")
	group.Go(func() { picky.follow(load, history.Asked{Mode: "from"}, moves(picky), nil) })
	tip := start("tip", -1, "**")
	group.Go(func() { tip.follow(load, history.Asked{Mode: "now"}, stays, nil) })
	slow := start("slow", -1, "**")
	slow.values = true
	group.Go(func() {
		rest(load, 3*time.Second) // until there is something to be slow with
		slow.follow(load, history.Asked{Mode: "from"}, stays, func(ctx context.Context) {
			if slow.dice.IntN(3) == 0 {
				rest(ctx, slowStop)
			}
		})
	})
	prober := &stream{env: r.env, name: "prober", dice: r.env.dice(199), patterns: []string{"**"}, home: -1, known: &r.known}
	group.Go(func() { r.probe(load, prober) })
}

// probe asks for starts that are out of the ordinary, one kind after the other, and stays for a
// moment.
func (r *feedRun) probe(load context.Context, s *stream) {
	for n := 0; rest(load, time.Duration(s.dice.Int64N(int64(600*time.Millisecond)))); n++ {
		moment, cancel := context.WithTimeout(load, 200*time.Millisecond+time.Duration(s.dice.Int64N(int64(2*time.Second))))
		known := r.known.Load()
		switch n % 5 {
		case 2: // the cluster has it or is about to; this node perhaps does not yet
			s.listen(moment, s.node(), history.Asked{Mode: "from", From: known + uint64(s.dice.IntN(2))}, 0, nil)
		case 0:
			patient, end := context.WithTimeout(load, 6*time.Second)
			s.listen(patient, s.node(), history.Asked{Mode: "from", From: known + farAhead}, 0, nil)
			end()
		case 1, 3:
			s.listen(moment, s.node(), history.Asked{Mode: "snapshot"}, 0, nil)
		default: // what may have been compacted
			s.listen(moment, s.node(), history.Asked{Mode: "from", From: 1 + uint64(s.dice.Int64N(int64(known/2+1)))}, 0, nil)
		}
		cancel()
	}
}

// compact is what an operator does now and then: the older half, about, is given up. He tries
// again soon when nobody answered, for a short run has room for it once or twice.
func (r *feedRun) compact(load context.Context, c *client.Client) {
	const soon = time.Second / 4
	dice := r.env.dice(198)
	seldom := func() time.Duration { return 2*time.Second + time.Duration(dice.Int64N(int64(3*time.Second))) }
	for wait := seldom(); rest(load, wait); {
		known := r.known.Load()
		if known < 50 {
			wait = soon
			continue
		}
		before := known/4 + uint64(dice.Int64N(int64(known/2)))
		out, cancel := context.WithTimeout(context.WithoutCancel(load), callPatience)
		_, err := r.env.call(out, history.Op{Client: "steward", Kind: history.Compact}, func(ctx context.Context) (*boardpb.Result, error) {
			return c.CompactBoard(ctx, r.env.Board, before)
		})
		cancel()
		if wait = seldom(); err != nil {
			wait = soon
		}
	}
}

// finish writes the last event and lets every watcher come to it; then each node's feed is read
// page by page.
func (r *feedRun) finish(c *client.Client) {
	goal := uint64(0)
	within, cancel := context.WithTimeout(r.ctx, reachWithin)
	defer cancel()
	for n := 1; goal == 0 && within.Err() == nil; n++ {
		op := history.Op{Client: "steward", Kind: history.Append, Key: endKey, Args: history.Args{Value: fmt.Sprintf(`"end.%d"`, n)}}
		ctx, cancel := context.WithTimeout(within, callPatience)
		res, err := r.env.call(ctx, op, func(ctx context.Context) (*boardpb.Result, error) {
			return c.Board(r.env.Board).Append(ctx, endKey, []byte(op.Args.Value), client.AppendOptions{})
		})
		if cancel(); err == nil && res.Outcome == boardpb.Outcome_OUTCOME_OK {
			goal = res.Rev
		} else {
			rest(within, 200*time.Millisecond)
		}
	}
	if goal == 0 {
		return
	}
	var group sync.WaitGroup
	for _, w := range r.libs {
		group.Go(func() {
			within, cancel := context.WithTimeout(r.ctx, reachWithin)
			defer cancel()
			if w.Reach(within, goal); r.ctx.Err() == nil {
				w.tell(history.Told{Goal: goal})
			}
		})
	}
	for _, s := range r.streams {
		group.Go(func() { s.finish(r.ctx, goal) })
	}
	for i, node := range r.env.Cluster.Nodes() {
		if node != "" {
			group.Go(func() { r.pages(i, node, goal) })
		}
	}
	group.Wait()
}

// pages reads one node's feed from its oldest rev to the goal.
func (r *feedRun) pages(node int, name string, goal uint64) {
	s := &stream{env: r.env, name: "pages-of-" + name, patterns: []string{"**"}, known: &r.known, next: 1}
	ctx, cancel := context.WithTimeout(r.ctx, reachWithin)
	defer cancel()
	asked := func() {
		s.tell(history.Told{Asked: &history.Asked{Node: name, Mode: "pages", From: s.next, Patterns: s.patterns}})
	}
	asked()
	for ctx.Err() == nil && s.next <= goal {
		q := &wirepb.EventsQuery{AfterRev: s.next - 1, AfterWholeRev: s.next > 1, Limit: 100}
		resp, err := r.env.Cluster.Ask(s.name, node).Read(as(ctx, s.name), &wirepb.ReadRequest{Board: r.env.Board, Query: &wirepb.ReadRequest_Events{Events: q}})
		if refused := refusalOf(err); refused.GetCode() == boardpb.Code_CODE_COMPACTED {
			s.tell(refusedBy(refused, "a page"))
			s.next = max(refused.OldestRev, s.next+1)
			asked()
			continue
		}
		if err != nil {
			rest(ctx, 200*time.Millisecond)
			continue
		}
		s.page(resp.GetEvents())
	}
	if r.ctx.Err() == nil {
		s.tell(history.Told{Goal: goal})
	}
}

// page takes whole revs from a page: what it has of its last rev may go on, unless it is the
// only one, or the page is the last.
func (s *stream) page(a *wirepb.EventsAnswer) {
	events := a.GetEvents()
	n := len(events)
	if a.GetHasMore() && n > 0 && events[0].Rev != events[n-1].Rev {
		for last := events[n-1].Rev; events[n-1].Rev == last; n-- {
		}
	}
	for _, e := range events[:n] {
		s.tell(history.Told{Event: e})
		s.next = max(s.next, e.Rev+1)
	}
	if !a.GetHasMore() {
		s.tell(history.Told{Bookmark: a.GetLastRev()})
		s.next = max(s.next, a.GetLastRev()+1)
	}
}

// writer is one client that writes: one operation at a time.
type writer struct {
	run      *feedRun
	name     string
	b        *client.Board
	keyed    bool // writes without a loop
	loop     *client.Loop
	dice     *rand.Rand
	versions map[string]uint64
	written  int
}

func (w *writer) work(load context.Context, pace time.Duration, bulk bool) {
	for n := 0; bulk && n < manyTxns && rest(load, pace); n++ {
		w.many(context.WithoutCancel(load), fmt.Sprintf("bulk/b-%d", n))
	}
	for rest(load, time.Duration(1+w.dice.Int64N(int64(pace)))) {
		out, cancel := context.WithTimeout(context.WithoutCancel(load), patience(w.dice))
		w.one(out)
		cancel()
	}
	closeLoop(w.run.ctx, w.loop) // the load is over
}

func (w *writer) value() string {
	w.written++
	return fmt.Sprintf("%q", fmt.Sprintf("%s.%d", w.name, w.written))
}

// ready opens the loop if there is to be one and is none.
func (w *writer) ready(ctx context.Context) bool {
	if !w.keyed {
		w.loop = keepOpen(ctx, w.b, w.loop, client.LoopOptions{Label: w.name})
	}
	return w.keyed || w.loop != nil
}

func (w *writer) one(ctx context.Context) {
	if !w.ready(ctx) {
		return
	}
	feed, cell := fmt.Sprintf("feed/f-%d", w.dice.IntN(3)), fmt.Sprintf("cells/c-%d", w.dice.IntN(3))
	args := history.Args{Value: w.value()}
	value := []byte(args.Value)
	switch n := w.dice.IntN(100); {
	case n < 45:
		w.send(ctx, history.Op{Kind: history.Append, Key: feed, Args: args}, &boardpb.Command{Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: feed, Value: value}}})
	case n < 75:
		args.IfVersion = w.versions[cell] // often an old one: a conflict is a note
		set := &boardpb.Set{Key: cell, Value: value, IfVersion: args.IfVersion}
		w.send(ctx, history.Op{Kind: history.Set, Key: cell, Args: args}, &boardpb.Command{Op: &boardpb.Command_Set{Set: set}})
	case n < 82:
		del := &boardpb.Delete{Key: cell, IfVersion: max(w.versions[cell], 1)}
		w.send(ctx, history.Op{Kind: history.Delete, Key: cell, Args: history.Args{IfVersion: del.IfVersion}}, &boardpb.Command{Op: &boardpb.Command_Delete{Delete: del}})
	default:
		txn := &boardpb.Txn{}
		for i := range 2 + w.dice.IntN(4) {
			key := fmt.Sprintf("feed/f-%d", (i+w.dice.IntN(2))%3)
			txn.Ops = append(txn.Ops, &boardpb.TxnOp{Op: &boardpb.TxnOp_Append{Append: &boardpb.Append{Key: key, Value: []byte(w.value())}}})
		}
		w.send(ctx, history.Op{Kind: history.Txn}, &boardpb.Command{Op: &boardpb.Command_Txn{Txn: txn}})
	}
}

// many writes much in one rev.
func (w *writer) many(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	if !w.ready(ctx) {
		return
	}
	txn := &boardpb.Txn{}
	value := []byte(`"` + strings.Repeat("x", largeValue) + `"`)
	for range manyOps {
		txn.Ops = append(txn.Ops, &boardpb.TxnOp{Op: &boardpb.TxnOp_Append{Append: &boardpb.Append{Key: key, Value: value}}})
	}
	w.send(ctx, history.Op{Kind: history.Txn}, &boardpb.Command{Op: &boardpb.Command_Txn{Txn: txn}})
}

func (w *writer) send(ctx context.Context, op history.Op, cmd *boardpb.Command) {
	op.Client = w.name
	do := w.b.Do
	if !w.keyed {
		op.Loop, do = w.loop.ID(), w.loop.Do
	}
	res, err := w.run.env.call(ctx, op, func(ctx context.Context) (*boardpb.Result, error) { return do(ctx, cmd) })
	w.run.learn(res.GetRev())
	if op.Kind != history.Txn && res.GetVersion() > 0 {
		w.versions[op.Key] = res.Version
	}
	if errors.Is(err, client.ErrLoopEnded) {
		w.loop = nil
	}
}
