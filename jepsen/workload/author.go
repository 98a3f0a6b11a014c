package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
	wirepb "raftboard/transport/pb"
)

// Author is W11: callers store text that looks like anything, read each other's, and try to be
// taken for somebody else, to be given what is another's, and to store what must be refused.
// They speak through the client and directly to any node, so that what they claim is forwarded
// too. Every caller is who it states to be, as it is without credentials, which are for when
// they exist.
type Author struct{}

// Name implements Workload.
func (Author) Name() string { return "author" }

// Watched implements Workload.
func (Author) Watched() bool { return true }

// Settings of the board that W11 needs.
func (Author) Settings() *boardpb.BoardSettings {
	return &boardpb.BoardSettings{Namespaces: []*boardpb.Namespace{
		{Pattern: "doc/*", Mode: boardpb.Mode_MODE_SHARED, Purpose: "texts of all kinds"},
		{Pattern: "note/*", Mode: boardpb.Mode_MODE_APPEND, Purpose: "the same, appended"},
		{Pattern: results, Mode: boardpb.Mode_MODE_OWNED, Purpose: "what belongs to one caller"},
		{Pattern: plans, Mode: boardpb.Mode_MODE_SINGLE, Writer: authors()[0], Purpose: "what one caller writes"},
		{Pattern: items, Mode: boardpb.Mode_MODE_LEASED, Purpose: "what callers hold"},
	}}
}

func authors() []string { return []string{"alice", "bob", "carol", "dave"} }

// possessions are what callers have that others would like to use.
type possessions struct {
	mu   sync.Mutex
	loop map[string]string // caller → its loop
	held map[string]*boardpb.LeaseRef
}

func (p *possessions) set(name, loop string, held *boardpb.LeaseRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loop[name], p.held[name] = loop, held
}

func (p *possessions) of(name string) (loop string, held *boardpb.LeaseRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loop[name], p.held[name]
}

// Run implements Workload.
func (Author) Run(ctx context.Context, e Env) error {
	load, cancel := e.loading(ctx)
	defer cancel()
	all := &possessions{loop: map[string]string{}, held: map[string]*boardpb.LeaseRef{}}
	var group sync.WaitGroup
	defer group.Wait()
	for i, name := range authors() {
		c, err := e.Cluster.Dial(name, i%len(e.Cluster.Nodes()))
		if err != nil {
			cancel()
			return err
		}
		a := &author{env: e, name: name, b: c.Board(e.Board), dice: e.dice(i), all: all}
		group.Go(func() {
			defer c.Close()
			a.run(ctx, load, e.pace(len(authors())))
		})
	}
	return nil
}

// author is one caller: one operation at a time.
type author struct {
	env  Env
	name string
	b    *client.Board
	dice *rand.Rand
	all  *possessions
	loop *client.Loop
	held *client.Lease
	said int
	mine []string // keys that it wrote
}

func (a *author) run(ctx, load context.Context, pace time.Duration) {
	for rest(load, time.Duration(1+a.dice.Int64N(int64(pace)))) {
		callCtx, cancel := context.WithTimeout(ctx, callPatience)
		switch n := a.dice.IntN(100); {
		case n < 5 || a.loop == nil:
			a.settleIn(callCtx, ctx)
		case n < 30:
			a.say(callCtx)
		case n < 40:
			a.readBack(callCtx)
		case n < 50:
			a.view(callCtx)
		default:
			a.forge(callCtx)
		}
		cancel()
	}
	closeLoop(ctx, a.loop)
}

// settleIn sees to it that the caller has something that others want: a loop, and an item.
// The work under the item lasts as long as the run.
func (a *author) settleIn(ctx, run context.Context) {
	a.loop = keepOpen(ctx, a.b, a.loop, client.LoopOptions{TTL: loopTTL, Label: a.name})
	if a.loop == nil {
		return
	}
	key := "claims/of-" + a.name
	post := history.Op{Client: a.name, Kind: history.Post, Key: key, Args: history.Args{Value: "1", As: a.name}}
	a.env.call(ctx, post, func(ctx context.Context) (*boardpb.Result, error) { return a.b.Post(ctx, key, []byte("1")) })
	claim := history.Op{Client: a.name, Loop: a.loop.ID(), Kind: history.Claim, Key: key, Args: history.Args{As: a.name}}
	var lease *client.Lease
	_, err := a.env.call(run, claim, func(work context.Context) (res *boardpb.Result, err error) {
		lease, res, err = a.loop.Claim(work, key, client.ClaimOptions{Duration: time.Minute, Timeout: callPatience})
		return res, err
	})
	if err == nil && lease != nil {
		a.held = lease
	}
	if a.held != nil {
		a.all.set(a.name, a.loop.ID(), a.held.For())
	}
}

// say stores a text under a key of its own, through the client or a node.
func (a *author) say(ctx context.Context) {
	a.said++
	value := []byte(a.text())
	key := fmt.Sprintf("doc/%s-%d", a.name, a.said)
	op := history.Op{Client: a.name, Kind: history.Set, Key: key, Args: history.Args{Value: history.Text(value), As: a.name}}
	cmd := &boardpb.Command{Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: key, Value: value, Source: a.source()}}}
	if a.dice.IntN(4) == 0 {
		key = fmt.Sprintf("note/%s-%d", a.name, a.said)
		op.Kind, op.Key = history.Append, key
		cmd.Op = &boardpb.Command_Append{Append: &boardpb.Append{Key: key, Value: value, Source: a.source()}}
	}
	a.mine = append(a.mine, key)
	switch a.dice.IntN(3) {
	case 0:
		a.env.call(ctx, op, func(ctx context.Context) (*boardpb.Result, error) { return a.b.Do(ctx, cmd) })
	case 1:
		op.Loop = a.loop.ID()
		a.env.call(ctx, op, func(ctx context.Context) (*boardpb.Result, error) { return a.loop.Do(ctx, cmd) })
	default:
		cmd.Board, cmd.IdempotencyKey = a.env.Board, a.unique()
		a.env.applyAt(ctx, someNode(a.env, a.dice), a.name, op, cmd)
	}
}

// unique is an idempotency key.
func (a *author) unique() string { return fmt.Sprintf("%s-%d-%d", a.name, a.said, a.dice.Uint32()) }

// readBack reads a text through any node.
func (a *author) readBack(ctx context.Context) {
	if len(a.mine) == 0 {
		return
	}
	key, node := a.mine[a.dice.IntN(len(a.mine))], someNode(a.env, a.dice)
	rec := a.env.Log.Begin(history.Op{Client: a.name, Kind: history.Get, Board: a.env.Board, Key: key, Asked: a.env.Cluster.Nodes()[node]})
	ctx, cancel := context.WithTimeout(as(ctx, a.name), askTimeout)
	defer cancel()
	resp, err := a.env.Cluster.Ask(a.name, node).Read(ctx, &wirepb.ReadRequest{Board: a.env.Board, CallId: rec.CallID(),
		Query: &wirepb.ReadRequest_Get{Get: &wirepb.GetQuery{Key: key}}})
	entry := resp.GetGet().GetEntry()
	a.env.Log.End(rec, func(o *history.Op) {
		look(o, entry, resp.GetRev(), resp.GetNodeId(), missingOf(refusalOf(err)), err)
		if entry != nil {
			o.Result.Value = history.Text(entry.Value)
		}
	})
}

// view reads what the others wrote, through any node, within a budget that is too small.
func (a *author) view(ctx context.Context) {
	a.said++
	node, q := someNode(a.env, a.dice), &wirepb.ViewQuery{Subscribe: []string{"doc/*", "note/*"}, Pinned: []string{"note/bob*"},
		LimitTokens: uint32(120 + a.dice.IntN(400)), Nonce: fmt.Sprintf("%s-%08d", a.name, a.dice.Uint32()%100_000_000)}
	rec := a.env.Log.Begin(history.Op{Client: a.name, Kind: history.View, Board: a.env.Board, Asked: a.env.Cluster.Nodes()[node],
		Args: history.Args{As: a.name, Limit: uint64(q.LimitTokens), Identity: q.Nonce}})
	ctx, cancel := context.WithTimeout(as(ctx, a.name), askTimeout)
	defer cancel()
	resp, err := a.env.Cluster.Ask(a.name, node).Read(ctx, &wirepb.ReadRequest{Board: a.env.Board, CallId: rec.CallID(),
		Query: &wirepb.ReadRequest_View{View: q}})
	a.env.Log.End(rec, func(o *history.Op) {
		look(o, nil, resp.GetRev(), resp.GetNodeId(), nil, err)
		o.Result.Value = resp.GetView().GetText()
	})
}

// forge tries something that must be refused.
func (a *author) forge(ctx context.Context) {
	a.said++
	victim := authors()[a.dice.IntN(len(authors()))]
	for victim == a.name {
		victim = authors()[a.dice.IntN(len(authors()))]
	}
	key := fmt.Sprintf("doc/%s-%d", a.name, a.said)
	f := forgery{as: []string{a.name}, key: key, cmd: &boardpb.Command{Board: a.env.Board, IdempotencyKey: a.unique(),
		Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: key, Value: []byte(fmt.Sprintf("%q", a.unique()))}}}}
	loop, held := a.all.of(victim)
	all := append(append(tricks(), stolen(loop, held, a.loop.ID())...), malformed()...)
	trick := all[a.dice.IntN(len(all))]
	trick.do(&f, victim)
	op := history.Op{Client: a.name, Kind: history.Forged, Key: f.key, Args: history.Args{Trick: trick.name, Reason: victim}}
	if len(f.as) == 1 && f.as[0] == a.name {
		op.Args.As = a.name
	}
	for _, name := range f.as {
		ctx = as(ctx, name)
	}
	a.env.applyFrom(ctx, someNode(a.env, a.dice), a.name, op, f.cmd)
}
