package workload

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
	wirepb "raftboard/transport/pb"
)

// Work is W5: items are posted at the pace of the run, and workers claim, renew, store partial
// work, write outside, complete and fail them; now and then they count themselves on a tally
// that all of them change. The first worker crashes while it holds an item, and another
// process takes its place; the second is paused past its lease and then hands in late; the
// third fails at least once. In longer runs this happens again and again. An item that was
// given back twice is parked, and the poster unparks it.
//
// The zero value makes as many workers and steps as keep up with the rate.
type Work struct {
	Items   int           // at most so many; 0: as long as the load lasts
	Workers int           // at least 3, so that somebody is left for what the first two lose
	Lease   time.Duration // of each item
	Step    time.Duration // the longest time that half an item takes
}

const (
	items   = "claims/*"
	tallies = "tally/*"
	results = "results/*/**"

	// perItem is how many operations an item costs, about: posted, claimed, half done, done,
	// and now and then a failure, an empty claim or the tally.
	perItem      = 4.5
	maxAttempts  = 2
	busy         = 0.5 // the part of their time that workers need to keep up
	fewest, most = 5, 24
	perTally     = 120             // items until another tally takes its place
	callPatience = 4 * time.Second // of one try of a call
	// straggler is how long a post whose answer was lost may be on its way.
	straggler = 8 * time.Second
)

// Name implements Workload.
func (Work) Name() string { return "work" }

// Watched implements Workload.
func (Work) Watched() bool { return true }

// Settings of the board that W5 needs.
func (Work) Settings() *boardpb.BoardSettings {
	return &boardpb.BoardSettings{Namespaces: []*boardpb.Namespace{
		{Pattern: items, Mode: boardpb.Mode_MODE_LEASED, Purpose: "items of the fault tests", MaxAttempts: maxAttempts},
		{Pattern: results, Mode: boardpb.Mode_MODE_OWNED, Purpose: "what workers made"},
		{Pattern: tallies, Mode: boardpb.Mode_MODE_SHARED, Purpose: "what all workers change"},
	}}
}

// fitted fills in what was left open, so that the workers are busy about half of the time.
func (w Work) fitted(rate int) Work {
	if rate <= 0 {
		w.Workers, w.Step = cmp.Or(w.Workers, fewest), cmp.Or(w.Step, time.Second)
	}
	w.Workers = cmp.Or(w.Workers, min(max(rate/10, fewest), most))
	w.Lease = cmp.Or(w.Lease, 3*time.Second)
	if w.Step == 0 {
		w.Step = time.Duration(busy * float64(w.Workers) * perItem * float64(time.Second) / float64(rate))
		w.Step = min(max(w.Step, 20*time.Millisecond), time.Second)
	}
	return w
}

// staff is what the processes of one run share.
type staff struct {
	work   Work
	env    Env
	load   context.Context // ends when nothing new is to be invented
	hard   context.Context // ends when the run has to return
	poster *client.Client
	out    *outside
	equip  func(p *process) (between func(context.Context), lay func()) // what else a process does; nil: nothing
	done   atomic.Int64                                                 // completions that were acknowledged
}

// Run implements Workload: the items are posted until the load ends, and Run returns when all
// are done, or ctx ends.
func (w Work) Run(ctx context.Context, e Env) error { return w.run(ctx, e, nil) }

func (w Work) run(ctx context.Context, e Env, equip func(*process) (func(context.Context), func())) error {
	load, cancel := e.loading(ctx)
	defer cancel()
	working, dismiss := context.WithCancel(ctx)
	c, err := e.Cluster.Dial("poster", 0)
	if err != nil {
		dismiss()
		return err
	}
	defer c.Close()
	var group sync.WaitGroup
	defer group.Wait()
	defer dismiss() // before the wait
	s := &staff{work: w.fitted(e.Rate), env: e, load: load, hard: ctx, poster: c, out: newOutside(e.Log), equip: equip}
	for i := range s.work.Workers {
		group.Go(func() { s.employ(working, i, fmt.Sprintf("worker-%d", i+1)) })
	}
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch() // before the wait
	group.Go(func() { s.unpark(watching) })
	s.post()
	return nil
}

// shortly is how long one try of a call may take: mostly longer than an election, and now and
// then so short that its outcome is unknown while there is one.
func shortly(dice *rand.Rand) time.Duration {
	if dice.IntN(6) == 0 {
		return 100*time.Millisecond + time.Duration(dice.Int64N(int64(600*time.Millisecond)))
	}
	return callPatience
}

// interval is how long the poster waits between two items, about.
func (s *staff) interval() time.Duration {
	if s.env.Rate <= 0 {
		return s.work.Step / 4
	}
	return time.Duration(perItem * float64(time.Second) / float64(s.env.Rate))
}

// post puts items on the board while the load lasts, and then waits until the board counts
// them all as done.
func (s *staff) post() {
	b, dice := s.poster.Board(s.env.Board), s.env.dice(-1)
	lost := time.Duration(-1) // when the last post was called whose outcome is unknown
	for i := 0; (s.work.Items == 0 || i < s.work.Items) && rest(s.load, time.Duration(1+dice.Int64N(2*int64(s.interval())))); i++ {
		key := fmt.Sprintf("claims/i-%d", i)
		value := fmt.Sprintf(`{"item":%d}`, i)
		op := history.Op{Client: "poster", Kind: history.Post, Key: key, Args: history.Args{Value: value}}
		callCtx, cancel := context.WithTimeout(s.hard, shortly(dice))
		_, err := s.env.call(callCtx, op, func(ctx context.Context) (*boardpb.Result, error) { return b.Post(ctx, key, []byte(value)) })
		cancel()
		if err != nil {
			lost = s.env.Log.Now()
		}
	}
	for rest(s.hard, time.Second/2) {
		got, _, err := b.Describe(s.hard, client.ReadOptions{})
		if err != nil || lost >= 0 && s.env.Log.Now() < lost+straggler {
			continue
		}
		for _, n := range got.Counts {
			if n.Pattern == items && n.Done == n.Entries {
				return
			}
		}
	}
}

// unpark gives items back that were tried out, until ctx ends.
func (s *staff) unpark(ctx context.Context) {
	b, dice := s.poster.Board(s.env.Board), s.env.dice(-2)
	parked := &wirepb.LeasesQuery{Pattern: items, States: []boardpb.LeaseState{boardpb.LeaseState_LEASE_STATE_PARKED}}
	for rest(ctx, time.Second/2) {
		got, _, err := b.Leases(ctx, parked, client.ReadOptions{})
		if err != nil {
			continue
		}
		for _, row := range got.Leases {
			op := history.Op{Client: "unparker", Kind: history.Unpark, Key: row.Lease.Key}
			callCtx, cancel := context.WithTimeout(ctx, shortly(dice))
			_, _ = s.env.call(callCtx, op, func(ctx context.Context) (*boardpb.Result, error) { return b.Unpark(ctx, op.Key) })
			cancel()
		}
	}
}

// employ runs one worker and, where it crashes, its successor.
func (s *staff) employ(ctx context.Context, i int, name string) {
	for life := 1; ctx.Err() == nil; life++ {
		c, err := s.env.Cluster.Dial(name, i%len(s.env.Cluster.Nodes()))
		if err != nil {
			return
		}
		p := &process{staff: s, name: fmt.Sprintf("%s/%d", name, life), as: name, c: c, dice: s.env.dice(100*life + i)}
		p.crashes, p.pauses, p.fails = i == 0, i == 1, i == 2
		p.next = early
		if life == 1 {
			p.next = 0
		}
		p.fate()
		lay := func() {}
		if s.equip != nil {
			p.between, lay = s.equip(p)
		}
		p.run(ctx)
		lay()
		c.Close()
		if !p.crashed {
			return
		}
		rest(ctx, replacedIn)
	}
}
