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

// Txn is W3: transactions over the lists of a group and its mark, and reads of whole groups.
// A transaction of raftboard reads nothing itself; it names the versions it was made for. So
// clients read a group in one read, which shows one rev, and then append under guards that
// what they read is still so: then the read stands at the rev of the transaction. Others
// append without guards, twice to one list, or with an operation that must be refused at the
// end, when the ones before it have run.
type Txn struct {
	Clients int
	Groups  int // in use at the same time
}

const (
	perGroup = 80 // operations a group gets before a fresh one takes its place
	logs     = 4  // lists of a group
)

// Name implements Workload.
func (Txn) Name() string { return "txn" }

// Watched implements Workload.
func (Txn) Watched() bool { return false }

// Settings of the board that W3 needs.
func (Txn) Settings() *boardpb.BoardSettings {
	return &boardpb.BoardSettings{Namespaces: []*boardpb.Namespace{
		{Pattern: "txn/*/log-*", Mode: boardpb.Mode_MODE_APPEND, Purpose: "lists of the fault tests"},
		{Pattern: "txn/*/mark", Mode: boardpb.Mode_MODE_SHARED, Purpose: "registers written along with them"},
	}}
}

// Run lets the clients work until they are to stop or ctx ends, and waits for what they still
// have out.
func (x Txn) Run(ctx context.Context, e Env) error {
	load, cancel := e.loading(ctx)
	defer cancel()
	groups := newSerials(x.Groups, perGroup)
	var clients sync.WaitGroup
	defer clients.Wait()
	for i := range x.Clients {
		name := fmt.Sprintf("client-%d", i+1)
		c, err := e.Cluster.Dial(name, i%len(e.Cluster.Nodes()))
		if err != nil {
			cancel()
			return err
		}
		w := &transactor{env: e, name: name, b: c.Board(e.Board), groups: groups, dice: e.dice(i), loops: i%2 == 0}
		clients.Go(func() {
			defer c.Close()
			w.run(load, ctx, e.pace(x.Clients))
		})
	}
	return nil
}

// transactor is one client: one operation at a time.
type transactor struct {
	env    Env
	name   string
	b      *client.Board
	groups *serials
	dice   *rand.Rand
	loops  bool // it writes through a loop
	loop   *client.Loop
	writes int

	group string            // that it read last
	known map[string]uint64 // the versions it saw then
}

// run begins operations until load ends, and waits for the last one until hard does.
func (w *transactor) run(load, hard context.Context, pace time.Duration) {
	for rest(load, time.Duration(1+w.dice.Int64N(int64(pace)))) {
		ctx, cancel := context.WithTimeout(hard, patience(w.dice))
		w.one(ctx)
		cancel()
	}
	closeLoop(hard, w.loop)
}

func (w *transactor) one(ctx context.Context) {
	at := w.dice.IntN(len(w.groups.left))
	group := fmt.Sprintf("txn/%d-%d", at, w.groups.next(at))
	switch n := w.dice.IntN(100); {
	case n < 20:
		w.read(ctx, group)
	case n < 45:
		w.learn(group, w.env.dumpAt(ctx, someNode(w.env, w.dice), w.name, group+"/*", groupKeys(group)))
	case n < 70:
		w.append(ctx, group, nil)
	default:
		// Mostly it reads first; else it goes by what it saw some time ago, and conflicts.
		if w.group != group || w.dice.IntN(3) > 0 {
			w.read(ctx, group)
		}
		if w.group == group {
			w.append(ctx, group, w.guards(group))
		}
	}
}

func groupKeys(group string) (keys []string) {
	for i := range logs {
		keys = append(keys, logKey(group, i))
	}
	return append(keys, group+"/mark")
}

func logKey(group string, i int) string { return fmt.Sprintf("%s/log-%d", group, i) }

func (w *transactor) read(ctx context.Context, group string) {
	w.learn(group, w.env.dump(ctx, w.b, w.name, group+"/*", groupKeys(group)))
}

func (w *transactor) learn(group string, seen []history.Seen) {
	if seen == nil {
		return
	}
	w.group, w.known = group, map[string]uint64{}
	for _, s := range seen {
		w.known[s.Key] = uint64(len(s.Items))
		if len(s.Versions) > 0 {
			w.known[s.Key] = s.Versions[len(s.Versions)-1]
		}
	}
}

// guards names the versions of one to three lists that were read.
func (w *transactor) guards(group string) (parts []history.Part) {
	for _, i := range w.dice.Perm(logs)[:1+w.dice.IntN(3)] {
		key := logKey(group, i)
		parts = append(parts, history.Part{Do: history.Get, Key: key, Version: w.known[key]})
	}
	return parts
}

// append sends one transaction.
func (w *transactor) append(ctx context.Context, group string, parts []history.Part) {
	for _, i := range w.dice.Perm(logs)[:1+w.dice.IntN(3)] {
		parts = append(parts, history.Part{Do: history.Append, Key: logKey(group, i), Value: w.value()})
	}
	if w.dice.IntN(4) == 0 { // twice to one list: nobody may see the first one last
		parts = append(parts, history.Part{Do: history.Append, Key: parts[len(parts)-1].Key, Value: w.value()})
	}
	switch mark := group + "/mark"; {
	case w.dice.IntN(8) == 0: // lists are not set: refused, behind what was done before it
		parts = append(parts, history.Part{Do: history.Set, Key: logKey(group, w.dice.IntN(logs)), Value: w.value()})
	case w.group == group && w.dice.IntN(3) == 0:
		parts = append(parts, history.Part{Do: history.Set, Key: mark, Value: w.value(), Version: w.known[mark]})
	}
	op := history.Op{Client: w.name, Kind: history.Txn, Args: history.Args{Parts: parts}}
	send := w.b.Txn
	if w.loops {
		w.loop = keepOpen(ctx, w.b, w.loop, client.LoopOptions{Label: w.name})
	}
	if w.loop != nil {
		op.Loop, send = w.loop.ID(), w.loop.Txn
	}
	guards, ops := messages(parts)
	_, err := w.env.call(ctx, op, func(ctx context.Context) (*boardpb.Result, error) { return send(ctx, guards, ops) })
	if errors.Is(err, client.ErrLoopEnded) {
		w.loop = nil
	}
}

func (w *transactor) value() string {
	w.writes++
	return fmt.Sprintf("%q", fmt.Sprintf("%s.%d", w.name, w.writes))
}

// messages are the parts as they are sent.
func messages(parts []history.Part) (guards []*boardpb.Guard, ops []*boardpb.TxnOp) {
	for _, p := range parts {
		switch p.Do {
		case history.Get:
			guards = append(guards, &boardpb.Guard{Test: &boardpb.Guard_Version{Version: &boardpb.VersionIs{Key: p.Key, Version: p.Version}}})
		case history.Append:
			ops = append(ops, &boardpb.TxnOp{Op: &boardpb.TxnOp_Append{Append: &boardpb.Append{Key: p.Key, Value: []byte(p.Value)}}})
		case history.Set:
			ops = append(ops, &boardpb.TxnOp{Op: &boardpb.TxnOp_Set{Set: &boardpb.Set{Key: p.Key, Value: []byte(p.Value), IfVersion: p.Version}}})
		}
	}
	return guards, ops
}
