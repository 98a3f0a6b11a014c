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
)

// Work is W5: items are posted and workers claim, renew, store partial work, complete and
// fail them. Worker 1 crashes while it holds an item, and another process takes its place;
// worker 2 is paused past its lease and then hands in late; worker 3 fails at least once.
type Work struct {
	Items   int
	Workers int           // at least 3, so that somebody is left for what the first two lose
	Lease   time.Duration // of each item
	Step    time.Duration // the longest time that half an item takes
}

const (
	items        = "claims/*"
	onItem       = 3 // the item, counted per worker, at which crash, pause and failure happen
	failOneIn    = 12
	handInTimes  = 40              // how often a worker repeats a completion that nobody answered
	pauseAtMost  = 3 * time.Minute // of the paused worker; a lease and its grace end far sooner
	replacedIn   = 5 * time.Second // by another process, after a crash
	callPatience = 4 * time.Second

	// loopTTL outlasts a pause: the late write is then turned away by its generation, and
	// not because its loop is gone.
	loopTTL = 5 * time.Minute
)

// Run posts the items and lets the workers work until every item is done or ctx ends. done
// is the number of completions acknowledged so far, for a nemesis that waits for its moment.
func (w Work) Run(ctx context.Context, e Env, done *atomic.Int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := e.Cluster.Dial("poster", 0)
	if err != nil {
		return err
	}
	defer c.Close()
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel() // before the wait
	for i := range w.Workers {
		name := fmt.Sprintf("worker-%d", i+1)
		group.Go(func() { w.employ(ctx, e, c, i, name, done) })
	}
	return w.post(ctx, e, c)
}

// post puts the items on the board and then waits until the board counts them all as done.
func (w Work) post(ctx context.Context, e Env, c *client.Client) error {
	b, dice := c.Board(e.Board), e.dice(-1)
	for i := 0; i < w.Items && rest(ctx, time.Duration(dice.Int64N(int64(w.Step)))/4); i++ {
		key := fmt.Sprintf("claims/i-%d", i)
		value := fmt.Sprintf(`{"item":%d}`, i)
		op := history.Op{Client: "poster", Kind: history.Post, Key: key, Args: history.Args{Value: value}}
		callCtx, cancel := context.WithTimeout(ctx, callPatience)
		e.call(callCtx, op, func(ctx context.Context) (*boardpb.Result, error) { return b.Post(ctx, key, []byte(value)) })
		cancel()
	}
	for rest(ctx, time.Second) {
		got, _, err := b.Describe(ctx, client.ReadOptions{})
		if err != nil {
			continue
		}
		for _, n := range got.Counts {
			if n.Pattern == items && n.Entries > 0 && n.Done == n.Entries {
				return nil
			}
		}
	}
	return nil
}

// employ runs one worker and, where it crashes, its successor.
func (w Work) employ(ctx context.Context, e Env, poster *client.Client, i int, name string, done *atomic.Int64) {
	for life := 1; ctx.Err() == nil; life++ {
		c, err := e.Cluster.Dial(name, i%len(e.Cluster.Nodes()))
		if err != nil {
			return
		}
		p := &process{work: w, env: e, name: fmt.Sprintf("%s/%d", name, life), as: name, c: c, poster: poster, dice: e.dice(100*life + i), done: done}
		p.crashes, p.pauses, p.fails = i == 0 && life == 1, i == 1, i == 2
		p.run(ctx)
		c.Close()
		if !p.crashed {
			return
		}
		rest(ctx, replacedIn)
	}
}

// process is one life of a worker: a client, a loop, one item at a time.
type process struct {
	work            Work
	env             Env
	name, as        string
	c, poster       *client.Client
	dice            *rand.Rand
	done            *atomic.Int64
	crashes, pauses bool
	fails           bool

	loop    *client.Loop
	count   int
	crashed bool
}

func (p *process) run(ctx context.Context) {
	for ctx.Err() == nil && !p.crashed {
		if p.loop == nil {
			loop, err := p.c.Board(p.env.Board).OpenLoop(ctx, client.LoopOptions{TTL: loopTTL, Label: p.name})
			if err != nil {
				rest(ctx, 200*time.Millisecond)
				continue
			}
			p.loop = loop
		}
		if !p.item(ctx) {
			rest(ctx, 200*time.Millisecond)
		}
	}
	if p.loop != nil && !p.crashed {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callPatience)
		defer cancel()
		_ = p.loop.Close(ctx)
	}
}

func (p *process) step(ctx context.Context) bool {
	return rest(ctx, time.Duration(p.dice.Int64N(int64(p.work.Step))))
}

// item claims and works on one item; false if there was none.
func (p *process) item(ctx context.Context) bool {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var lease *client.Lease
	op := history.Op{Client: p.name, Loop: p.loop.ID(), Kind: history.ClaimNext, Args: history.Args{Pattern: items}}
	_, err := p.env.call(work, op, func(work context.Context) (res *boardpb.Result, err error) {
		lease, res, err = p.loop.ClaimNext(work, items, client.ClaimOptions{Duration: p.work.Lease, Timeout: callPatience})
		return res, err
	})
	if errors.Is(err, client.ErrLoopEnded) {
		p.loop = nil
	}
	if lease == nil {
		return false
	}
	p.count++
	p.step(work)
	p.partial(work, lease)
	switch {
	case p.crashes && p.count == onItem:
		p.crash(lease)
	case p.pauses && p.count == onItem:
		p.pause(work, lease)
		p.complete(work, lease)
	case p.step(work) && (p.fails && p.count == onItem || p.dice.IntN(failOneIn) == 0):
		p.fail(work, lease)
	default:
		p.complete(work, lease)
	}
	return true
}

// partial stores half of the work under the claim.
func (p *process) partial(ctx context.Context, lease *client.Lease) {
	key := p.resultsKey(lease, fmt.Sprintf("part-%d", lease.Generation()))
	args := history.Args{Value: fmt.Sprintf("%q", p.name+" half"), Generation: lease.Generation(), ForClaim: lease.Key()}
	op := history.Op{Client: p.name, Loop: p.loop.ID(), Kind: history.Partial, Key: key, Args: args}
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	p.env.call(ctx, op, func(ctx context.Context) (*boardpb.Result, error) {
		return p.loop.Set(ctx, key, []byte(args.Value), lease.Attach(client.SetOptions{Overwrite: true}))
	})
}

func (p *process) resultsKey(lease *client.Lease, what string) string {
	return "results/" + p.as + "/" + strings.TrimPrefix(lease.Key(), "claims/") + "-" + what
}

// crash leaves everything as it is: the process is gone, and tells nobody.
func (p *process) crash(lease *client.Lease) {
	p.crashed = true
	at := p.env.Log.Now()
	p.c.Close()
	p.env.Log.Fault(history.Fault{Name: "crash", Targets: []string{p.name}, Start: at, End: at,
		Witness: fmt.Sprintf("held %s under generation %d", lease.Key(), lease.Generation())})
}

// pause keeps the worker from everything until another one holds its item, or a time is up.
func (p *process) pause(ctx context.Context, lease *client.Lease) {
	f := history.Fault{Name: "pause", Targets: []string{p.name}, Start: p.env.Log.Now()}
	thaw := p.env.Cluster.Freeze(p.as)
	for f.Witness == "" && p.env.Log.Now()-f.Start < pauseAtMost && rest(ctx, time.Second/2) {
		got, _, err := p.poster.Board(p.env.Board).Get(ctx, lease.Key(), client.ReadOptions{})
		if now := got.GetLease().GetGeneration(); err == nil && now > lease.Generation() {
			f.Witness = fmt.Sprintf("%s went on to generation %d", lease.Key(), now)
		}
	}
	thaw()
	f.End = p.env.Log.Now()
	p.env.Log.Fault(f)
}

func (p *process) fail(ctx context.Context, lease *client.Lease) {
	args := history.Args{Generation: lease.Generation(), Reason: "the dice said so"}
	op := history.Op{Client: p.name, Loop: lease.Loop().ID(), Kind: history.Fail, Key: lease.Key(), Args: args}
	p.env.call(ctx, op, func(ctx context.Context) (*boardpb.Result, error) {
		ctx, cancel := context.WithTimeout(ctx, callPatience)
		defer cancel()
		return lease.Fail(ctx, args.Reason, 500*time.Millisecond)
	})
}

// complete hands the result in, and repeats that while nobody answers: whatever became of
// the attempts before, the board accepts at most one.
func (p *process) complete(ctx context.Context, lease *client.Lease) {
	key := p.resultsKey(lease, "result")
	args := history.Args{Value: fmt.Sprintf("%q", fmt.Sprintf("%s %s under %d", p.name, lease.Key(), lease.Generation())),
		Generation: lease.Generation(), ResultsKey: key}
	for range handInTimes {
		op := history.Op{Client: p.name, Loop: lease.Loop().ID(), Kind: history.Complete, Key: lease.Key(), Args: args}
		_, err := p.env.call(ctx, op, func(ctx context.Context) (*boardpb.Result, error) {
			ctx, cancel := context.WithTimeout(ctx, callPatience)
			defer cancel()
			return lease.Complete(ctx, []byte(args.Value), key)
		})
		if err == nil {
			p.done.Add(1)
		}
		if !errors.Is(err, client.ErrUnavailable) || !rest(ctx, 500*time.Millisecond) {
			return
		}
	}
}
