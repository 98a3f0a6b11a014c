package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

const (
	early, late  = 2, 40 // about how many items into its life, and then again, a worker meets its fate
	failOneIn    = 12
	tallyOneIn   = 6
	handInTimes  = 40              // how often a worker repeats a completion that nobody answered
	pauseAtMost  = 2 * time.Minute // of a paused worker; a lease and its grace end far sooner
	replacedIn   = 5 * time.Second // by another process, after a crash
	shortestRest = 100 * time.Millisecond

	// loopTTL outlasts a pause: the late write is then turned away by its generation, and
	// not because its loop is gone.
	loopTTL = 5 * time.Minute
)

// process is one life of a worker: a client, a loop, one item at a time.
type process struct {
	*staff
	name, as        string
	c               *client.Client
	dice            *rand.Rand
	crashes, pauses bool
	fails           bool
	between         func(ctx context.Context) // done with half of an item; may be nil

	loop    *client.Loop
	count   int // items that it claimed
	next    int // the item at which it crashes, pauses or fails
	crashed bool
}

// fate draws the item at which it happens next: soon the first time, so that short runs have
// it, and later not so often that nobody works.
func (p *process) fate() {
	if p.next == 0 {
		p.next = 2 + p.dice.IntN(early)
		return
	}
	p.next += late/2 + p.dice.IntN(late)
}

// run works until ctx ends, and then hands back what the process holds.
func (p *process) run(ctx context.Context) {
	for ctx.Err() == nil && !p.crashed {
		if p.loop == nil {
			loop, err := p.c.Board(p.env.Board).OpenLoop(ctx, client.LoopOptions{TTL: loopTTL, Label: p.name})
			if err != nil {
				p.pauseBriefly(ctx)
				continue
			}
			p.loop = loop
		}
		if !p.item(ctx) {
			p.pauseBriefly(ctx)
		}
	}
	if !p.crashed {
		closeLoop(context.WithoutCancel(ctx), p.loop)
	}
}

func (p *process) pauseBriefly(ctx context.Context) {
	rest(ctx, shortestRest+time.Duration(p.dice.Int64N(int64(3*shortestRest))))
}

func (p *process) step(ctx context.Context) bool {
	return rest(ctx, time.Duration(p.dice.Int64N(int64(p.work.Step))))
}

// item claims and works on one item; false if there was none. What was begun is finished also
// when the workers are dismissed: only the end of the run stops it.
func (p *process) item(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	work, cancel := context.WithCancel(p.hard)
	defer cancel()
	var lease *client.Lease
	op := history.Op{Client: p.name, Loop: p.loop.ID(), Kind: history.ClaimNext, Args: history.Args{Pattern: items}}
	_, err := p.env.call(work, op, func(work context.Context) (res *boardpb.Result, err error) {
		lease, res, err = p.loop.ClaimNext(work, items, client.ClaimOptions{Duration: p.work.Lease, Timeout: shortly(p.dice)})
		return res, err
	})
	if errors.Is(err, client.ErrLoopEnded) {
		p.loop = nil
	}
	if lease == nil {
		return false
	}
	p.count++
	due := p.count == p.next && (p.next <= 2+early || p.load.Err() == nil)
	if p.count == p.next {
		p.fate()
	}
	p.step(work)
	if inherited(lease) && p.dice.IntN(3) > 0 {
		rest(work, time.Second+time.Duration(p.dice.Int64N(int64(2*time.Second))))
	}
	p.partial(work, lease)
	if p.between != nil {
		p.between(work)
	}
	switch {
	case due && p.crashes:
		p.crash(lease)
	case due && p.pauses:
		p.pause(work, lease)
		p.complete(work, lease)
	case p.step(work) && (due && p.fails || p.dice.IntN(failsOneIn(lease)) == 0):
		p.fail(work, lease)
	default:
		p.complete(work, lease)
	}
	if !p.crashed && p.dice.IntN(tallyOneIn) == 0 {
		p.tally(work)
	}
	return true
}

// failsOneIn: what was failed once is often failed again, so that items are tried out.
func failsOneIn(lease *client.Lease) int {
	if last := lease.Previous(); len(last) > 0 && last[0].EndedBy == boardpb.EndedBy_ENDED_BY_FAILED {
		return 2
	}
	return failOneIn
}

// inherited says that the item was lost by somebody. Who takes it over mostly looks at what was
// left for a while, so that a holder that is back meets it at work, and not done.
func inherited(lease *client.Lease) bool {
	p := lease.Previous()
	return len(p) > 0 && p[0].EndedBy == boardpb.EndedBy_ENDED_BY_EXPIRED
}

// partial stores half of the work under the claim.
func (p *process) partial(ctx context.Context, lease *client.Lease) {
	key := p.resultsKey(lease, fmt.Sprintf("part-%d", lease.Generation()))
	args := history.Args{Value: fmt.Sprintf("%q", p.name+" half"), Generation: lease.Generation(), ForClaim: lease.Key()}
	op := history.Op{Client: p.name, Loop: lease.Loop().ID(), Kind: history.Partial, Key: key, Args: args}
	ctx, cancel := context.WithTimeout(ctx, shortly(p.dice))
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
	for f.Witness == "" && p.env.Log.Now()-f.Start < pauseAtMost && rest(ctx, time.Second/4) {
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
		ctx, cancel := context.WithTimeout(ctx, shortly(p.dice))
		defer cancel()
		return lease.Fail(ctx, args.Reason, 500*time.Millisecond)
	})
}

// complete writes outside and then hands the result in, whatever the outside said: the board
// must turn a late one away by itself. It repeats that while nobody answers: whatever became
// of the attempts before, the board accepts at most one.
func (p *process) complete(ctx context.Context, lease *client.Lease) {
	p.out.write(p.name, lease.Key(), lease.Generation())
	key := p.resultsKey(lease, "result")
	args := history.Args{Value: fmt.Sprintf("%q", fmt.Sprintf("%s %s under %d", p.name, lease.Key(), lease.Generation())),
		Generation: lease.Generation(), ResultsKey: key}
	for range handInTimes {
		op := history.Op{Client: p.name, Loop: lease.Loop().ID(), Kind: history.Complete, Key: lease.Key(), Args: args}
		_, err := p.env.call(ctx, op, func(ctx context.Context) (*boardpb.Result, error) {
			ctx, cancel := context.WithTimeout(ctx, shortly(p.dice))
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

// tally counts an item where all workers do, so that they meet.
func (p *process) tally(ctx context.Context) {
	key := fmt.Sprintf("tally/%d", p.done.Load()/perTally)
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	attempts := 0
	value := func() string {
		attempts++
		return fmt.Sprintf("%q", fmt.Sprintf("%s.%d.%d", p.name, p.count, attempts))
	}
	p.env.mutate(ctx, history.Op{Client: p.name, Loop: p.loop.ID(), Key: key}, value, func(ctx context.Context, fn change) (*boardpb.Result, error) {
		return p.loop.Mutate(ctx, key, fn)
	})
}
