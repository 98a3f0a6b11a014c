package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
	wirepb "raftboard/transport/pb"
)

// Lease is W4: holders claim a few keys, renew them, write them, and other things that depend
// on them, delete them and make them anew, and give them back. Now and then one goes silent,
// crashes, is paused, or is taken its lease by an operator; whoever lost one writes once more.
// Half of the holders leave renewals to the client, the others send each as an operation.
//
// The zero value has as many holders as keep up with the rate.
type Lease struct {
	Holders int // at least 4, one for each fate
	Keys    int // in use at the same time; fewer than holders, so that they meet
	// Calm holders all do as they should, and nobody takes a key from them: then no two
	// believe to hold one at once, whatever is done to the cluster.
	Calm bool
}

const (
	perLease  = 30 // grants of a key before a fresh one takes its place
	leased    = "lease/*"
	guardedBy = "log/*" // appended to only under the lease of the same name
	forceMost = 3 * time.Second
	goneMost  = 4 * time.Second // until another process takes the place of one that crashed
)

// Name implements Workload.
func (Lease) Name() string { return "lease" }

// Watched implements Workload: the feed tells when a lease expired.
func (Lease) Watched() bool { return true }

// Settings of the board that W4 needs.
func (Lease) Settings() *boardpb.BoardSettings {
	return &boardpb.BoardSettings{Namespaces: []*boardpb.Namespace{
		{Pattern: leased, Mode: boardpb.Mode_MODE_LEASED, Purpose: "leases of the fault tests"},
		{Pattern: guardedBy, Mode: boardpb.Mode_MODE_APPEND, Purpose: "what the leases guard"},
	}}
}

// fitted fills in what was left open.
func (l Lease) fitted(rate int) Lease {
	l.Holders = cmp.Or(l.Holders, min(max(rate/12, 6), 16))
	l.Keys = cmp.Or(l.Keys, (3*l.Holders+3)/4)
	return l
}

// Run lets the holders work until they are to stop or ctx ends; they give back what they hold.
func (l Lease) Run(ctx context.Context, e Env) error {
	l = l.fitted(e.Rate)
	load, cancel := e.loading(ctx)
	defer cancel()
	c, err := e.Cluster.Dial("forcer", 0)
	if err != nil {
		return err
	}
	defer c.Close()
	var group sync.WaitGroup
	defer group.Wait()
	h := &house{env: e, load: load, hard: ctx, keys: newSerials(l.Keys, perLease), out: newOutside(e.Log), forcer: c,
		forcing: make(chan struct{}, 1), pace: e.pace(l.Holders), calm: l.Calm, most: l.Holders / 3}
	for i := range l.Holders {
		group.Go(func() { h.lodge(i) })
	}
	if !l.Calm {
		h.force()
	}
	return nil
}

// house is what the holders of one run share.
type house struct {
	env    Env
	load   context.Context // ends when nothing new is to be invented
	hard   context.Context // ends when the run has to return
	keys   *serials
	out    *outside
	forcer *client.Client
	// forcing holds one: the forcer does one thing at a time. It is no mutex, because virtual time
	// passes while somebody waits.
	forcing chan struct{}
	pace    time.Duration // the longest rest between two operations of a holder
	calm    bool
	away    atomic.Int32 // holders that are coming to a fate
	most    int          // at the same time
}

// key is the i-th one that is in use.
func (h *house) key(i int) string { return fmt.Sprintf("lease/%d-%d", i, max(1, h.keys.newest(i))) }

// lodge runs one holder and, where it crashes, its successor of the same name.
func (h *house) lodge(i int) {
	as := fmt.Sprintf("holder-%d", i+1)
	for life := 1; h.load.Err() == nil; life++ {
		c, err := h.env.Cluster.Dial(as, i%len(h.env.Cluster.Nodes()))
		if err != nil {
			return
		}
		o := &holder{house: h, name: fmt.Sprintf("%s/%d", as, life), as: as, c: c, b: c.Board(h.env.Board),
			dice: h.env.dice(100*life + i), manual: i%2 == 1}
		o.due = time.Now().Add(fateEvery/2 + time.Duration(o.dice.Int64N(int64(fateEvery))))
		if life == 1 { // soon each of these has happened once
			o.first = []fate{fateNone, fateCrash, fatePause, fateSilent}[i%4]
			o.due = time.Now().Add(fateEvery/5 + time.Duration(o.dice.Int64N(int64(fateEvery/5))))
		}
		o.run()
		c.Close()
		rest(h.load, time.Second+time.Duration(o.dice.Int64N(int64(goneMost))))
	}
}

// force takes a key from its holder now and then, until the load ends.
func (h *house) force() {
	dice := h.env.dice(-1)
	for rest(h.load, time.Duration(1+dice.Int64N(int64(forceMost)))) {
		for _, i := range dice.Perm(len(h.keys.left)) { // until one of them is held
			if err := h.forceOff(h.key(i), "the dice said so"); err == nil || errors.Is(err, client.ErrUnavailable) {
				break
			}
		}
	}
}

// forceOff takes a key from whoever holds it, as an operator does.
func (h *house) forceOff(key, reason string) error {
	h.forcing <- struct{}{}
	defer func() { <-h.forcing }()
	op := history.Op{Client: "forcer", Kind: history.Force, Key: key, Args: history.Args{Reason: reason}}
	ctx, cancel := context.WithTimeout(h.hard, callPatience)
	defer cancel()
	_, err := h.env.call(ctx, op, func(ctx context.Context) (*boardpb.Result, error) {
		return h.forcer.Board(h.env.Board).ForceRelease(ctx, key, reason)
	})
	return err
}

// unseat takes the key of a holder that was away for long and that nobody has succeeded:
// elections prolong leases, and in a run that is full of them nobody would come back too late.
func (h *house) unseat(lease *client.Lease) {
	if h.moved(h.hard, lease.Key()) == lease.Generation() {
		_ = h.forceOff(lease.Key(), "its holder does not come back") // what became of it is in the record
	}
}

// moved is the newest generation of a key, as far as anybody who is not frozen can tell.
func (h *house) moved(ctx context.Context, key string) uint64 {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	got, _, err := h.forcer.Board(h.env.Board).Get(ctx, key, client.ReadOptions{})
	if err != nil {
		return 0
	}
	return got.GetLease().GetGeneration()
}

// cutOff says what shows that a client is cut off from all nodes; "" if one answers it.
func (h *house) cutOff(as string) string {
	ctx, cancel := context.WithTimeout(h.hard, 200*time.Millisecond)
	defer cancel()
	query := &wirepb.ReadRequest{Board: h.env.Board, Consistency: wirepb.Consistency_CONSISTENCY_STALE,
		Query: &wirepb.ReadRequest_Describe{Describe: &wirepb.DescribeQuery{}}}
	var group sync.WaitGroup
	answers := make([]bool, len(h.env.Cluster.Nodes()))
	for i, node := range h.env.Cluster.Nodes() {
		if node == "" {
			continue
		}
		group.Go(func() {
			_, err := h.env.Cluster.Ask(as, i).Read(ctx, query)
			answers[i] = err == nil
		})
	}
	group.Wait()
	for _, answered := range answers {
		if answered {
			return ""
		}
	}
	return "no node answered it"
}
