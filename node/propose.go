package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"raftboard/fsm"
	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/planted"
)

const (
	// maxEnqueue bounds how long a batch is offered to raft's main goroutine, which takes none
	// while it stores.
	maxEnqueue = 10 * time.Second

	fieldEntropy  = 9 // of Command
	fieldCommands = 3 // of Batch
)

// Propose puts a command into the log and answers its Result, which may be a refusal. The
// error is *NotDone or *Unknown. The command is encoded before Propose waits and is never
// changed.
func (n *Node) Propose(ctx context.Context, cmd *boardpb.Command) (*boardpb.Result, error) {
	if r := fsm.Check(cmd); r != nil {
		return r, nil
	}
	if err := n.mayPropose(); err != nil {
		return nil, err
	}
	if err := n.roomToWrite(); err != nil {
		return nil, err
	}
	if level := n.fsm.View().Cluster().GetLevel(); fsm.RequiredLevel(cmd) > level {
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_ACTIVE, Got: uint64(level), Limit: uint64(fsm.RequiredLevel(cmd)),
			Message: "not every node of the cluster knows this operation yet",
			Hint:    "upgrade all nodes: the feature level rises by itself"}, nil
	}
	n.writes.Add(1)
	return n.submit(ctx, cmd, false)
}

// mayPropose says why this node takes no commands now, or nil.
func (n *Node) mayPropose() error {
	if err := n.Failure(); err != nil {
		return &NotDone{Why: "this node has stopped: " + err.Error(), Cause: err}
	}
	if err := n.doubt.Load(); err != nil {
		return &NotDone{Why: (*err).Error(), Cause: *err}
	}
	if _, ok := n.readyTerm(); !ok {
		return n.notLeading()
	}
	return nil
}

// notLeading tells who might lead instead.
func (n *Node) notLeading() *NotDone {
	id, term := n.Leader()
	e := &NotDone{Why: "no leader is known", LeaderID: id, Term: term}
	switch id {
	case "":
		e.Hint = "a majority of the voters must be up and reach each other; try again"
	case n.cfg.ID:
		e.Why, e.LeaderID = "this node was just elected and is not ready yet", ""
	default:
		e.Why = "this node does not lead"
	}
	return e
}

// submit queues a command and waits for its answer.
func (n *Node) submit(ctx context.Context, cmd *boardpb.Command, ahead bool) (*boardpb.Result, error) {
	data, err := encodeCommand(cmd)
	if err != nil {
		return nil, &NotDone{Why: "the command cannot be encoded: " + err.Error(), Cause: err}
	}
	p := newProposal(ctx, data)
	if err := n.queue.push(p, ahead); err != nil {
		return nil, err
	}
	select {
	case a := <-p.answer:
		return a.result, a.err
	case <-ctx.Done():
	}
	if n.queue.withdraw(p) {
		select {
		case a := <-p.answer: // it was refused at the same moment
			return a.result, a.err
		default:
		}
		return nil, &NotDone{Why: "the caller gave up before the command was proposed", Cause: ctx.Err()}
	}
	select {
	case a := <-p.answer:
		return a.result, a.err
	default:
		return nil, &Unknown{Why: "the caller gave up after the command was proposed", Cause: ctx.Err()}
	}
}

// encodeCommand encodes a command with fresh random bits of this leader. The bits are written
// behind the rest, where they overrule any the message carried.
func encodeCommand(cmd *boardpb.Command) ([]byte, error) {
	data, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 0, proto.Size(cmd)+16), cmd)
	if err != nil {
		return nil, err
	}
	data = protowire.AppendTag(data, fieldEntropy, protowire.VarintType)
	return protowire.AppendVarint(data, rand.Uint64()|1), nil
}

// encodeBatch writes one log entry: format, stamp, and the commands as they are.
func encodeBatch(stamp *boardpb.Stamp, commands ...[]byte) ([]byte, error) {
	head, err := proto.Marshal(&boardpb.Batch{Format: fsm.Format, Stamp: stamp})
	if err != nil {
		return nil, err
	}
	size := len(head)
	for _, c := range commands {
		size += len(c) + 8
	}
	data := append(make([]byte, 0, size), head...)
	for _, c := range commands {
		data = protowire.AppendTag(data, fieldCommands, protowire.BytesType)
		data = protowire.AppendBytes(data, c)
	}
	return data, nil
}

// proposer is the one goroutine that proposes. Leads go ahead of everything, one at a time,
// and nothing is stamped beside one.
type proposer struct {
	n *Node

	mu       sync.Mutex
	inFlight int
	leadDue  *lead // asked for and not sent yet
	leading  bool  // a Lead is on its way

	offered uint64 // of the proposer's goroutine: the clock's id of a batch raft did not take yet
}

type lead struct {
	term    uint64
	resumed bool
}

// requestLead asks for a Lead, unless one is due or on its way.
func (p *proposer) requestLead(l lead) {
	p.mu.Lock()
	if p.leadDue == nil && !p.leading {
		p.leadDue = &l
	}
	p.mu.Unlock()
	p.n.queue.poke()
}

func (p *proposer) run() {
	for {
		select {
		case <-p.n.stop:
			return
		case <-p.n.queue.wake:
		}
		for p.turn() {
		}
	}
}

// turn does one thing and answers whether there may be more to do now.
func (p *proposer) turn() bool {
	n := p.n
	if p.offered != 0 && n.queue.empty() {
		n.clock.finish(p.offered)
		p.offered = 0
	}
	p.mu.Lock()
	due, leading, full := p.leadDue, p.leading, p.inFlight >= maxInFlight
	p.leadDue = nil
	p.leading = leading || due != nil
	p.mu.Unlock()
	switch {
	case due != nil:
		p.sendLead(*due)
		return true
	case leading || full || n.queue.empty():
		return false
	}
	term, ok := n.readyTerm()
	if !ok {
		n.queue.refuse(n.notLeading())
		return true
	}
	t, wall, state := n.clock.stamp(term)
	switch state {
	case notRunning:
		return false // the Lead was applied this moment: its waiter starts the clock and pokes
	case stalled:
		p.requestLead(lead{term: term, resumed: true})
		return true
	}
	batch, late := n.queue.take(time.Now())
	for _, l := range late {
		l.answer <- answer{err: &NotDone{Why: "the command's deadline passed before it was proposed",
			Cause: context.DeadlineExceeded}}
	}
	if len(batch) > 0 {
		p.sendBatch(&boardpb.Stamp{TMs: t, WallMs: wall, Term: term}, batch)
	}
	return true
}

// sendBatch hands one entry to raft. raft.Apply blocks while raft's main goroutine stores, so
// the batch is offered only until the first of its deadlines and then goes back to the queue:
// in a long stall callers hear "not done" in time, and what has more time left is offered
// again, with another stamp.
func (p *proposer) sendBatch(stamp *boardpb.Stamp, batch []*proposal) {
	n := p.n
	commands := make([][]byte, len(batch))
	offer := maxEnqueue
	for i, b := range batch {
		commands[i] = b.data
		if !b.deadline.IsZero() {
			offer = min(offer, time.Until(b.deadline)-lastWord)
		}
	}
	data, err := encodeBatch(stamp, commands...)
	if err != nil {
		n.deliver(batch, nil, &NotDone{Why: "the batch cannot be encoded: " + err.Error(), Cause: err})
		return
	}
	if p.offered == 0 { // else the stall began with the first offer
		p.offered = n.clock.begin()
	}
	planted.Point("propose-before")
	future := n.raft.Apply(data, max(offer, time.Millisecond))
	if errors.Is(refusal(future), raft.ErrEnqueueTimeout) {
		n.queue.putBack(batch)
		return
	}
	id := p.offered
	p.offered = 0
	p.mu.Lock()
	p.inFlight++
	alone := p.inFlight == 1
	p.mu.Unlock()
	if planted.Bug("M17") { // the bug: what is appended is told
		n.emitAtAppend(data, stamp.Term, alone)
	}
	if planted.Bug("M12") { // the bug: what is appended is acknowledged
		acknowledge(batch)
	}
	n.futures.Go(func() {
		err := future.Error()
		n.transfer.heard(err)
		n.clock.finish(id)
		if err != nil {
			n.deliver(batch, nil, n.outcome(err))
		} else {
			applied, _ := future.Response().(*fsm.Applied)
			n.deliver(batch, applied, nil)
		}
		p.mu.Lock()
		p.inFlight--
		p.mu.Unlock()
		n.queue.poke()
	})
}

// refusal is the error of a future that raft answered at once, without an entry; nil for one
// that has to be waited for. The first kind is a plain value, the second a pointer.
func refusal(f raft.ApplyFuture) error {
	if reflect.TypeOf(f).Kind() == reflect.Pointer {
		return nil
	}
	return f.Error()
}

// outcome classifies an error and adds who might lead.
func (n *Node) outcome(err error) error {
	out := classify(err)
	var not *NotDone
	if errors.As(out, &not) && not.LeaderID == "" {
		not.LeaderID, not.Term = n.Leader()
	}
	return out
}

// deliver answers every caller of a batch.
func (n *Node) deliver(batch []*proposal, applied *fsm.Applied, err error) {
	switch {
	case err != nil:
	case applied == nil || n.Failure() != nil: // a stopped state machine says "voided" too
		err = &Unknown{Why: "the state machine stopped while it applied the command"}
	case applied.Voided:
		err = &NotDone{Why: "the leadership changed under the command; nothing ran"}
	case len(applied.Results) != len(batch):
		err = &Unknown{Why: "the state machine answered another number of results"}
	}
	for i, p := range batch {
		if err != nil {
			p.answer <- answer{err: err}
			continue
		}
		p.answer <- answer{result: applied.Results[i]}
	}
}

// sendLead opens a leadership, or reopens one after a long stall. It carries no time. When it
// is applied, board time runs on from the time applied.
func (p *proposer) sendLead(l lead) {
	n := p.n
	done := func(ok bool) {
		if ok {
			v := n.fsm.View()
			n.clock.start(l.term, v.T(), v.Wall())
		}
		p.mu.Lock()
		p.leading = false
		p.mu.Unlock()
		n.queue.poke()
	}
	command, err := encodeCommand(&boardpb.Command{Actor: board.SystemActor(),
		Op: &boardpb.Command_Lead{Lead: &boardpb.Lead{NodeId: n.cfg.ID, Resumed: l.resumed}}})
	if err != nil {
		done(false)
		return
	}
	data, err := encodeBatch(&boardpb.Stamp{Term: l.term}, command)
	if err != nil {
		done(false)
		return
	}
	id := n.clock.begin()
	planted.Point("propose-before")
	future := n.raft.Apply(data, maxEnqueue)
	n.futures.Go(func() {
		err := future.Error()
		n.transfer.heard(err)
		n.clock.finish(id)
		if err != nil {
			n.log.Debug("a leadership was not opened", "term", l.term, "error", err)
			done(false)
			return
		}
		applied, _ := future.Response().(*fsm.Applied)
		ok := applied != nil && !applied.Voided && !slices.ContainsFunc(applied.Results, func(r *boardpb.Result) bool {
			return r.GetCode() != boardpb.Code_CODE_UNSPECIFIED
		})
		done(ok)
	})
}
