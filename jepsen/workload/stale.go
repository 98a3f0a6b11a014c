package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
	wirepb "raftboard/transport/pb"
)

// StaleReads is W8: one writer counts up, and readers ask every node, in all three consistencies,
// hardest the one that led until now: in the first seconds after another one leads, or after a
// node that had been silent answers again. The count is the version of its key, so every answer
// can be held against every other one. Knockers write elsewhere, to any node directly, and wait
// longer than a node may let them: they see what a node without a majority says.
type StaleReads struct {
	Readers  int // each asks one node at a time, by itself
	Clients  int // read through the client library
	Knockers int
}

const (
	theCount   = "count/n"
	hotFor     = 5 * time.Second // after a change of leaders, or the end of a silence
	hotOf4     = 3               // of four reads, how many go to the hot node
	hotPace    = 4               // how much faster readers are meanwhile
	silentFor  = time.Second     // a node that did not answer for so long, and does, was away
	waitsLong  = 8 * time.Second // longer than a server may take to say that it is unavailable
	oneInWaits = 4

	// Once nothing was served for a moment, an election may be under way: then every node is
	// asked often and shortly, so that the first answers of a new leader are among those asked.
	leaderless  = 250 * time.Millisecond
	electing    = 4 * time.Second
	restless    = 4 // so many readers do it
	restlessFor = 50 * time.Millisecond
)

// Name implements Workload.
func (StaleReads) Name() string { return "stale-reads" }

// Watched implements Workload.
func (StaleReads) Watched() bool { return false }

// Settings of the board that W8 needs.
func (StaleReads) Settings() *boardpb.BoardSettings {
	return &boardpb.BoardSettings{Namespaces: []*boardpb.Namespace{
		{Pattern: "count/*", Mode: boardpb.Mode_MODE_SHARED, Purpose: "what one writer counts"},
		{Pattern: "knocks/*", Mode: boardpb.Mode_MODE_APPEND, Purpose: "writes that ask whether a node serves"},
	}}
}

// Run lets the writer count and the readers read until they are to stop, and waits for what they
// still have out.
func (s StaleReads) Run(ctx context.Context, e Env) error {
	load, cancel := e.loading(ctx)
	defer cancel()
	l := &lookout{nodes: map[string]int{}, heard: map[int]time.Duration{}, hot: -1}
	pace, countPace := e.pace((s.Readers+s.Clients)*4/3), e.pace(4) // a quarter of all counts
	var group sync.WaitGroup
	defer group.Wait()
	for i := range 1 + s.Clients {
		name := "counter"
		if i > 0 {
			name = fmt.Sprintf("client-%d", i)
		}
		c, err := e.Cluster.Dial(name, i%len(e.Cluster.Nodes()))
		if err != nil {
			cancel()
			return err
		}
		r := &reader{env: e, name: name, dice: e.dice(i), lookout: l, b: c.Board(e.Board)}
		do, each := r.readThroughClient, pace
		if i == 0 {
			do, each = r.count, countPace
		}
		group.Go(func() {
			defer c.Close()
			r.work(load, each, do)
		})
	}
	for i := range s.Readers + s.Knockers {
		r := &reader{env: e, name: fmt.Sprintf("reader-%d", i+1), dice: e.dice(100 + i), lookout: l, restive: i < restless}
		do, each := r.ask, pace
		if i >= s.Readers {
			r.name = fmt.Sprintf("knocker-%d", i+1-s.Readers)
			do, each = r.knock, 4*pace
		}
		group.Go(func() { r.work(load, each, do) })
	}
	return nil
}

// lookout knows which node is to be asked hardest: the one that led before, or that was silent.
type lookout struct {
	mu     sync.Mutex
	nodes  map[string]int        // number by id, as answers name them
	heard  map[int]time.Duration // when a node answered last, whatever it answered
	term   uint64
	leader string
	hot    int
	until  time.Duration
	served time.Duration // when somebody was last served by a majority

	acked atomic.Uint64 // the highest rev that was acknowledged to anybody
}

// saw takes what an answer of a node says of itself and of the leader.
func (l *lookout) saw(now time.Duration, node int, id string, leader *wirepb.Leader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id != "" {
		l.nodes[id] = node
	}
	if was, before := l.heard[node]; before && now-was > silentFor {
		l.hot, l.until = node, now+hotFor
	}
	l.heard[node] = now
	if leader.GetTerm() <= l.term {
		return
	}
	if old, known := l.nodes[l.leader]; known && l.leader != leader.NodeId {
		l.hot, l.until = old, now+hotFor
	}
	l.term, l.leader = leader.Term, leader.NodeId
}

// serves notes that a default read or a write was done.
func (l *lookout) serves(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.served = now
}

// election says that nobody was served for a while, and that it may soon be over.
func (l *lookout) election(now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.served > 0 && now-l.served > leaderless && now-l.served < electing
}

// hottest is the node to be asked hardest now; none if there is no reason.
func (l *lookout) hottest(now time.Duration) (node int, any bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hot, l.hot >= 0 && now < l.until
}

// reader is one client: one operation at a time.
type reader struct {
	env     Env
	name    string
	dice    *rand.Rand
	lookout *lookout
	b       *client.Board // nil without the client library
	restive bool          // asks often and shortly while an election may be under way

	floor   uint64 // the highest rev this one was shown
	version uint64 // of the count, as the writer knows it; of a knocker how often it knocked
	sure    bool   // the writer knows what became of its last write
}

func (r *reader) work(load context.Context, pace time.Duration, do func(context.Context)) {
	for {
		pause := time.Duration(1 + r.dice.Int64N(int64(pace)))
		if _, hot := r.lookout.hottest(r.env.Log.Now()); hot && r.b == nil {
			pause /= hotPace
		}
		if r.restive && r.lookout.election(r.env.Log.Now()) {
			pause = min(pause, time.Duration(1+r.dice.Int64N(int64(restlessFor/2))))
		}
		if !rest(load, pause+time.Millisecond) {
			return
		}
		wait := patience(r.dice)
		if r.dice.IntN(oneInWaits) == 0 {
			wait = waitsLong
		}
		out, cancel := context.WithTimeout(context.WithoutCancel(load), wait)
		do(out)
		cancel()
	}
}

// node is the one to ask.
func (r *reader) node() int {
	if hot, any := r.lookout.hottest(r.env.Log.Now()); any && r.dice.IntN(4) < hotOf4 && r.env.Cluster.Nodes()[hot] != "" {
		return hot
	}
	return someNode(r.env, r.dice)
}

// count writes the next number, at the version it follows; a write that nobody answered is
// looked for first. Most writes go through the client, some to one node directly.
func (r *reader) count(ctx context.Context) {
	if !r.sure {
		entry, missing := r.env.get(ctx, r.b, r.name, theCount)
		if entry == nil && missing == nil {
			return
		}
		r.version, r.sure = max(r.version, entry.GetVersion(), missing.GetVersion()), true
	}
	next := r.version + 1
	value := strconv.FormatUint(next, 10)
	op := history.Op{Client: r.name, Kind: history.Set, Key: theCount, Args: history.Args{Value: value, IfVersion: r.version}}
	var res *boardpb.Result
	if r.dice.IntN(3) == 0 {
		op.Args.Identity = fmt.Sprintf("count.%d.%d", next, r.dice.Uint64())
		res = r.env.applyAt(ctx, r.node(), r.name, op, &boardpb.Command{Board: r.env.Board, IdempotencyKey: op.Args.Identity,
			Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: theCount, Value: []byte(value), IfVersion: r.version}}})
	} else {
		res, _ = r.env.call(ctx, op, func(ctx context.Context) (*boardpb.Result, error) {
			return r.b.Set(ctx, theCount, []byte(value), client.SetOptions{IfVersion: op.Args.IfVersion})
		})
	}
	r.sure = res.GetOutcome() == boardpb.Outcome_OUTCOME_OK
	if r.sure {
		r.version = res.Version
		r.acked(res.Rev)
	}
}

// knock writes something to one node directly. It waits for long whatever the others do.
func (r *reader) knock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitsLong)
	defer cancel()
	r.version++
	op := history.Op{Client: r.name, Kind: history.Append, Key: "knocks/" + r.name,
		Args: history.Args{Value: fmt.Sprintf("%q", fmt.Sprintf("%s.%d", r.name, r.version))}}
	op.Args.Identity = op.Args.Value
	res := r.env.applyAt(ctx, someNode(r.env, r.dice), r.name, op, &boardpb.Command{Board: r.env.Board, IdempotencyKey: op.Args.Identity,
		Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: op.Key, Value: []byte(op.Args.Value)}}})
	if res.GetOutcome() == boardpb.Outcome_OUTCOME_OK {
		r.acked(res.Rev)
	}
}

// acked takes note of a write that was done.
func (r *reader) acked(rev uint64) {
	r.lookout.serves(r.env.Log.Now())
	for was := r.lookout.acked.Load(); rev > was && !r.lookout.acked.CompareAndSwap(was, rev); was = r.lookout.acked.Load() {
	}
}

// consistency is that of one read.
func (r *reader) consistency() (kind history.Kind, c wirepb.Consistency, atLeast uint64) {
	switch r.dice.IntN(10) {
	case 0:
		return history.GetAtLeast, client.AtLeast, r.floor // what this one saw
	case 1, 2:
		return history.GetAtLeast, client.AtLeast, r.lookout.acked.Load() // what somebody else was told
	case 3, 4:
		return history.GetStale, client.Stale, 0
	}
	return history.Get, client.Linearizable, 0
}

// ask reads the count from one node.
func (r *reader) ask(ctx context.Context) {
	node := r.node()
	kind, consistency, atLeast := r.consistency()
	if r.restive && r.lookout.election(r.env.Log.Now()) {
		node, kind, consistency, atLeast = someNode(r.env, r.dice), history.Get, client.Linearizable, 0
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, restlessFor)
		defer cancel()
	}
	rec := r.env.Log.Begin(history.Op{Client: r.name, Kind: kind, Board: r.env.Board, Key: theCount,
		Asked: r.env.Cluster.Nodes()[node], Args: history.Args{AtLeast: atLeast}})
	resp, err := r.env.Cluster.Ask(r.name, node).Read(as(ctx, r.name), &wirepb.ReadRequest{Board: r.env.Board, CallId: rec.CallID(),
		Consistency: consistency, AtLeastRev: atLeast, Query: &wirepb.ReadRequest_Get{Get: &wirepb.GetQuery{Key: theCount}}})
	refused := refusalOf(err)
	r.env.Log.End(rec, func(o *history.Op) {
		look(o, resp.GetGet().GetEntry(), resp.GetRev(), resp.GetNodeId(), missingOf(refused), err)
		said(o, refused)
	})
	if err == nil || refused != nil {
		r.lookout.saw(r.env.Log.Now(), node, resp.GetNodeId(), resp.GetLeader())
	}
	if kind == history.Get && (err == nil || missingOf(refused) != nil) {
		r.lookout.serves(r.env.Log.Now())
	}
	r.floor = max(r.floor, resp.GetRev())
}

// readThroughClient reads the count as a worker would.
func (r *reader) readThroughClient(ctx context.Context) {
	kind, consistency, atLeast := r.consistency()
	rec := r.env.Log.Begin(history.Op{Client: r.name, Kind: kind, Board: r.env.Board, Key: theCount, Args: history.Args{AtLeast: atLeast}})
	got, at, err := r.b.Get(client.WithCallID(ctx, rec.CallID()), theCount, client.ReadOptions{Consistency: consistency, AtLeast: atLeast})
	refused := clientRefusal(err)
	r.env.Log.End(rec, func(o *history.Op) {
		look(o, got.GetEntry(), at.Rev, at.NodeID, missingOf(refused), err)
		said(o, refused)
	})
	r.floor = max(r.floor, at.Rev)
}

// said adds the name of a refusal to a read that got no answer.
func said(o *history.Op, refused *boardpb.Result) {
	if o.Outcome == history.Failed && refused != nil {
		o.Result.Answer = history.Answer(refused)
	}
}
