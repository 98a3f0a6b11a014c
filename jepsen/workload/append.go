package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// Append is W2: every client appends elements that nobody else has to a few append-only keys,
// and reads them whole, through the client and directly from each node. Every other client
// writes through a loop, which keeps its elements in order, the rest under keys of their own.
type Append struct {
	Clients int
	Keys    int // in use at the same time
}

// perList is how many operations a list gets before a fresh one takes its place.
const perList = 120

// Name implements Workload.
func (Append) Name() string { return "append" }

// Watched implements Workload.
func (Append) Watched() bool { return false }

// Settings of the board that W2 needs.
func (Append) Settings() *boardpb.BoardSettings {
	return &boardpb.BoardSettings{Namespaces: []*boardpb.Namespace{
		{Pattern: "list/*", Mode: boardpb.Mode_MODE_APPEND, Purpose: "append-only lists of the fault tests"},
	}}
}

// Run lets the clients work until they are to stop or ctx ends, and waits for what they still
// have out.
func (a Append) Run(ctx context.Context, e Env) error {
	load, cancel := e.loading(ctx)
	defer cancel()
	lists := newSerials(a.Keys, perList)
	var group sync.WaitGroup
	defer group.Wait()
	for i := range a.Clients {
		name := fmt.Sprintf("client-%d", i+1)
		c, err := e.Cluster.Dial(name, i%len(e.Cluster.Nodes()))
		if err != nil {
			cancel()
			return err
		}
		w := &appender{env: e, name: name, b: c.Board(e.Board), lists: lists, dice: e.dice(i), loops: i%2 == 0}
		group.Go(func() {
			defer c.Close()
			w.run(load, ctx, e.pace(a.Clients))
		})
	}
	return nil
}

// appender is one client: one operation at a time.
type appender struct {
	env    Env
	name   string
	b      *client.Board
	lists  *serials
	dice   *rand.Rand
	loops  bool // it writes through a loop
	loop   *client.Loop
	writes int
}

// run begins operations until load ends, and waits for the last one until hard does.
func (w *appender) run(load, hard context.Context, pace time.Duration) {
	for rest(load, time.Duration(1+w.dice.Int64N(int64(pace)))) {
		ctx, cancel := context.WithTimeout(hard, patience(w.dice))
		w.one(ctx)
		cancel()
	}
	closeLoop(hard, w.loop)
}

// patience is how long a client waits for one operation: mostly longer than an election takes,
// and sometimes far too short.
func patience(dice *rand.Rand) time.Duration {
	return 300*time.Millisecond + time.Duration(dice.Int64N(int64(8*time.Second)))
}

func (w *appender) one(ctx context.Context) {
	at := w.dice.IntN(len(w.lists.left))
	switch n := w.dice.IntN(100); {
	case n < 55:
		w.add(ctx, listKey(at, w.lists.next(at)))
	case n < 70:
		key := w.some(at)
		w.env.dump(ctx, w.b, w.name, key, []string{key})
	case n < 75:
		w.env.past(ctx, w.b, w.name, w.some(at))
	default:
		key := w.some(at)
		w.env.dumpAt(ctx, someNode(w.env, w.dice), w.name, key, []string{key})
	}
}

func listKey(at, serial int) string { return fmt.Sprintf("list/%d-%d", at, serial) }

// some is a list to read: now and then one that was retired, which must not change any more.
func (w *appender) some(at int) string {
	if newest := w.lists.newest(at); newest > 1 && w.dice.IntN(12) == 0 {
		return listKey(at, 1+w.dice.IntN(newest-1))
	}
	return listKey(at, w.lists.next(at))
}

func (w *appender) add(ctx context.Context, key string) {
	w.writes++
	value := fmt.Sprintf("%q", fmt.Sprintf("%s.%d", w.name, w.writes))
	op := history.Op{Client: w.name, Kind: history.Append, Key: key, Args: history.Args{Value: value}}
	send := w.b.Append
	if w.loops {
		w.loop = keepOpen(ctx, w.b, w.loop, client.LoopOptions{Label: w.name})
	}
	if w.loop != nil {
		op.Loop, send = w.loop.ID(), w.loop.Append
	}
	_, err := w.env.call(ctx, op, func(ctx context.Context) (*boardpb.Result, error) {
		return send(ctx, key, []byte(value), client.AppendOptions{})
	})
	if errors.Is(err, client.ErrLoopEnded) {
		w.loop = nil
	}
}

// keepOpen gives the loop, or opens another if it ended; nil if that could not be done now.
func keepOpen(ctx context.Context, b *client.Board, loop *client.Loop, opts client.LoopOptions) *client.Loop {
	if loop != nil {
		select {
		case <-loop.Ended():
		default:
			return loop
		}
	}
	opened, err := b.OpenLoop(ctx, opts)
	if err != nil {
		return nil
	}
	return opened
}

// closeLoop ends a loop in order.
func closeLoop(ctx context.Context, loop *client.Loop) {
	if loop == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	_ = loop.Close(ctx)
}
