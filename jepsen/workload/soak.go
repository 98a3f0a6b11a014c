package workload

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// Soak is W10: agents do the real thing. A planner writes plans and posts items; agents watch
// the plan, claim items, read the plan when they hear of a new one, change drafts at the
// version they read, add findings and read those of others, store partial work and complete.
// They crash and pause as in W5. Views are not part of it until the board has them.
type Soak struct{}

const (
	plans    = "plan/*"
	perPlan  = 5 // versions of a plan until another one takes its place
	planEach = 6 // items between two versions, about
)

// Name implements Workload.
func (Soak) Name() string { return "soak" }

// Watched implements Workload.
func (Soak) Watched() bool { return true }

// Settings of the board that W10 needs.
func (Soak) Settings() *boardpb.BoardSettings {
	s := settingsOf(Work{}, Register{}, Append{})
	s.Namespaces = append(s.Namespaces, &boardpb.Namespace{Pattern: plans, Mode: boardpb.Mode_MODE_SINGLE, Writer: "planner",
		Purpose: "what is to be done"})
	return s
}

// Run implements Workload.
func (Soak) Run(ctx context.Context, e Env) error {
	load, cancel := e.loading(ctx)
	defer cancel()
	c, err := e.Cluster.Dial("planner", 0)
	if err != nil {
		return err
	}
	defer c.Close()
	e.Rate = max(1, e.Rate/2) // an item costs about twice of what it costs in W5
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { plan(load, e, c.Board(e.Board)) })
	drafts := newSerials(3, perKey)
	lists := newSerials(2, perList)
	return Work{}.run(ctx, e, func(p *process) (func(context.Context), func()) {
		name := strings.ReplaceAll(p.name, "/", "-") // reads of one node state it
		a := &agent{process: p,
			user: &user{env: e, name: name, b: p.c.Board(e.Board), keys: drafts, dice: p.dice, known: map[string]uint64{}},
			list: &appender{env: e, name: name, b: p.c.Board(e.Board), lists: lists, dice: p.dice}}
		return a.between, a.follow()
	})
}

// plan writes plans, each at the version that the one before left behind.
func plan(ctx context.Context, e Env, b *client.Board) {
	dice := e.dice(-2)
	interval := int64(planEach * perItem * float64(time.Second) / float64(max(e.Rate, 1)))
	version, key := uint64(0), ""
	for n := 0; rest(ctx, time.Duration(1+dice.Int64N(2*interval))); n++ {
		if next := fmt.Sprintf("plan/p-%d", n/perPlan); next != key {
			key, version = next, 0
		}
		args := history.Args{Value: fmt.Sprintf("%q", fmt.Sprintf("plan %d", n)), IfVersion: version}
		op := history.Op{Client: "planner", Kind: history.Set, Key: key, Args: args}
		callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*callPatience)
		res, _ := e.call(callCtx, op, func(ctx context.Context) (*boardpb.Result, error) {
			return b.Set(ctx, key, []byte(args.Value), client.SetOptions{IfVersion: version})
		})
		cancel()
		if res.GetVersion() > 0 {
			version = res.Version // also of a conflict: the answer before it was lost
		}
	}
}

// agent is a process of W5 that does more: one thing at a time, under one name.
type agent struct {
	*process
	user  *user
	list  *appender
	heard atomic.Pointer[boardpb.Event] // the newest of the plan, until it was read
}

// follow begins to watch the plan, and gives what ends that.
func (a *agent) follow() (lay func()) {
	ctx, cancel := context.WithCancel(a.hard)
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			a.listen(ctx)
			rest(ctx, time.Second)
		}
	})
	return func() {
		cancel()
		group.Wait()
	}
}

// listen hears of the plan until the watch ends.
func (a *agent) listen(ctx context.Context) {
	watch, err := a.c.Board(a.env.Board).Watch(ctx, client.WatchOptions{Patterns: []string{plans}})
	for err == nil {
		var m client.Message
		if m, err = watch.Next(ctx); err == nil && m.Kind == client.MessageEvent {
			a.heard.Store(m.Event)
		}
	}
}

// between is what an agent does with half of an item: it reads the plan if it heard of a new
// one, which the read must then show; it changes a draft and looks at another; it adds a
// finding and reads what others found.
func (a *agent) between(ctx context.Context) {
	bounded := func(do func(ctx context.Context)) {
		ctx, cancel := context.WithTimeout(ctx, callPatience)
		defer cancel()
		do(ctx)
	}
	if event := a.heard.Swap(nil); event != nil {
		bounded(func(ctx context.Context) {
			a.env.getAs(ctx, a.user.b, history.Op{Client: a.name, Key: event.Key, Args: history.Args{AtLeast: event.Rev}})
		})
	}
	for range 2 {
		bounded(func(ctx context.Context) {
			a.user.one(ctx, register(a.user.keys, a.dice.IntN(len(a.user.keys.left))))
		})
	}
	bounded(a.list.one)
}
