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
)

// perKey is how often a key is used before a fresh one takes its place: what overlaps on one
// key is what makes it hard to judge. One use is up to eight operations, a change that meets
// conflicts; the checker takes 200 of a key.
const perKey = 150

// Register is W1: versioned reads, sets and deletes of a few keys, through the client and
// directly from each node, and now and then changes of one key by all clients at once.
type Register struct {
	Clients int
	Keys    int // in use at the same time
}

// Name implements Workload.
func (Register) Name() string { return "register" }

// Watched implements Workload.
func (Register) Watched() bool { return false }

// Settings of the board that W1 needs.
func (Register) Settings() *boardpb.BoardSettings {
	return &boardpb.BoardSettings{Namespaces: []*boardpb.Namespace{
		{Pattern: "reg/*", Mode: boardpb.Mode_MODE_SHARED, Purpose: "registers of the fault tests"},
	}}
}

// Run lets the clients work until they are to stop or ctx ends, and waits for what they still
// have out.
func (r Register) Run(ctx context.Context, e Env) error {
	load, cancel := e.loading(ctx)
	defer cancel()
	keys := newSerials(r.Keys, perKey)
	rushes := rushes{began: e.Log.Now(), seed: e.Seed, keys: r.Keys}
	var group sync.WaitGroup
	defer group.Wait()
	for i := range r.Clients {
		name := fmt.Sprintf("client-%d", i+1)
		c, err := e.Cluster.Dial(name, i%len(e.Cluster.Nodes()))
		if err != nil {
			cancel()
			return err
		}
		u := &user{env: e, name: name, b: c.Board(e.Board), keys: keys, rushes: rushes, dice: e.dice(i), known: map[string]uint64{}}
		group.Go(func() {
			defer c.Close()
			u.run(load, e.pace(r.Clients))
		})
	}
	return nil
}

// register uses the i-th key once.
func register(keys *serials, i int) string { return fmt.Sprintf("reg/%d-%d", i, keys.next(i)) }

// user is one client: one operation at a time.
type user struct {
	env    Env
	name   string
	b      *client.Board
	keys   *serials
	rushes rushes
	rushed int // how many of them are over
	dice   *rand.Rand
	known  map[string]uint64 // the version last seen of a key
	writes int
}

func (u *user) run(ctx context.Context, pace time.Duration) {
	for u.idle(ctx, time.Duration(1+u.dice.Int64N(int64(pace)))) {
		u.patiently(ctx, func(ctx context.Context) { u.one(ctx, register(u.keys, u.dice.IntN(len(u.keys.left)))) })
	}
}

// patiently gives an operation as long as the dice say. It may take longer than the run: what
// is out is waited for.
func (u *user) patiently(ctx context.Context, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience(u.dice))
	defer cancel()
	do(ctx)
}

func (u *user) one(ctx context.Context, key string) {
	switch n := u.dice.IntN(100); {
	case n < 25:
		u.look(ctx, key)
	case n < 50:
		u.env.getAt(ctx, someNode(u.env, u.dice), u.name, key)
	case n < 80:
		u.set(ctx, key)
	case n < 92:
		u.mutate(ctx, key)
	default:
		// Mostly of what is there: a run under heavy faults has few deletes, and one without a
		// success proves nothing about them. Conflicts are met by sets.
		if n < 98 {
			u.look(ctx, key)
		}
		u.remove(ctx, key)
	}
}

// look reads a key, and keeps the version for the next write.
func (u *user) look(ctx context.Context, key string) {
	entry, missing := u.env.get(ctx, u.b, u.name, key)
	if entry != nil {
		u.known[key] = entry.Version
	} else if missing != nil {
		u.known[key] = missing.Version
	}
}

// value is JSON, and nobody else's.
func (u *user) value() string {
	u.writes++
	return fmt.Sprintf("%q", fmt.Sprintf("%s.%d", u.name, u.writes))
}

func (u *user) learn(key string, res *boardpb.Result) {
	if res.GetVersion() > 0 {
		u.known[key] = res.Version
	}
}

func (u *user) set(ctx context.Context, key string) {
	args := history.Args{Value: u.value(), IfVersion: u.known[key]}
	op := history.Op{Client: u.name, Kind: history.Set, Key: key, Args: args}
	res, _ := u.env.call(ctx, op, func(ctx context.Context) (*boardpb.Result, error) {
		return u.b.Set(ctx, key, []byte(args.Value), client.SetOptions{IfVersion: args.IfVersion})
	})
	u.learn(key, res)
}

func (u *user) remove(ctx context.Context, key string) {
	args := history.Args{IfVersion: max(u.known[key], 1)}
	op := history.Op{Client: u.name, Kind: history.Delete, Key: key, Args: args}
	res, _ := u.env.call(ctx, op, func(ctx context.Context) (*boardpb.Result, error) {
		return u.b.Delete(ctx, key, client.DeleteOptions{IfVersion: args.IfVersion})
	})
	u.learn(key, res)
}

func (u *user) mutate(ctx context.Context, key string) {
	res := u.env.mutate(ctx, history.Op{Client: u.name, Key: key}, u.value, func(ctx context.Context, fn change) (*boardpb.Result, error) {
		return u.b.Mutate(ctx, key, fn)
	})
	u.learn(key, res)
}
