package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// Board is one board of the cluster. Its writes carry an idempotency key made by the
// client, so they take effect once although they are retried; a worker that claims or
// writes much opens a loop instead.
//
// Reads through one Client never go backwards: no answer shows a lower revision than an
// earlier answer about the same board did, whatever node gave it.
type Board struct {
	writes
	c    *Client
	name string

	mu          sync.Mutex
	incarnation string // of the board this handle is bound to, once known
	rev         uint64 // highest revision any answer showed
	leases      map[leaseID]*Lease
	shown       map[leaseID]bool // endings already told, at most maxShown
	shownOrder  []leaseID
}

// maxBoards bounds the handles a client remembers; further ones are made anew each time.
const maxBoards = 1024

// Board gives the handle of a board; it asks nobody. The handle is bound to the
// incarnation of the board that the first answer names: once the board was restored or
// deleted and created again, its calls are refused with ErrReset, and a new call of
// Board gives a handle of the new one.
func (c *Client) Board(name string) *Board {
	if name == "" {
		name = "default"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.boards[name]; b != nil {
		return b
	}
	b := &Board{c: c, name: name, leases: map[leaseID]*Lease{}, shown: map[leaseID]bool{}}
	b.writes = writes{c: c, send: b.applyOnce}
	if len(c.boards) < maxBoards {
		c.boards[name] = b
	}
	return b
}

// Name is the board's name.
func (b *Board) Name() string { return b.name }

// Incarnation is the one this handle is bound to, or "" before the first answer.
func (b *Board) Incarnation() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.incarnation
}

// Rev is the highest revision an answer about this board has shown.
func (b *Board) Rev() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rev
}

// learned takes what an answer said about the board.
func (b *Board) learned(incarnation string, rev uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.incarnation == "" {
		b.incarnation = incarnation
	}
	if incarnation == "" || incarnation == b.incarnation {
		b.rev = max(b.rev, rev)
	}
}

// wasReset forgets the handle, so that the next Client.Board is about the new board.
func (b *Board) wasReset() {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if b.c.boards[b.name] == b {
		delete(b.c.boards, b.name)
	}
}

// applyOnce sends a command of no loop under an idempotency key.
func (b *Board) applyOnce(ctx context.Context, cmd *boardpb.Command) (*boardpb.Result, error) {
	cmd.IdempotencyKey = identityFrom(ctx)
	ans, err := b.submit(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return refusal(ans.result)
}

func identityFrom(ctx context.Context) string {
	if key := stringFrom(ctx, identityKey); key != "" {
		return key
	}
	return randomHex(16)
}

func randomHex(n int) string {
	raw := make([]byte, n)
	rand.Read(raw) // never fails (crypto/rand since Go 1.24)
	return hex.EncodeToString(raw)
}

// submit completes a new command of this board and sends it.
func (b *Board) submit(ctx context.Context, cmd *boardpb.Command) (answer, error) {
	cmd.Board = b.name
	cmd.Incarnation = b.Incarnation()
	cmd.CallId = stringFrom(ctx, callIDKey)
	return b.resubmit(ctx, cmd)
}

// resubmit sends a complete command, perhaps not for the first time, and takes from its
// answer what the handle keeps.
func (b *Board) resubmit(ctx context.Context, cmd *boardpb.Command) (answer, error) {
	ans, err := b.c.do(ctx, cmd)
	if err != nil {
		return ans, err
	}
	if ans.result.Code == boardpb.Code_CODE_RESET {
		b.wasReset()
		return ans, nil
	}
	b.learned(ans.result.Incarnation, ans.result.Rev)
	b.told(cmd.Loop, ans.result.Ended)
	return ans, nil
}

// Consistency of a read (DESIGN 6).
type Consistency = wirepb.Consistency

// The consistencies. Linearizable is the default: the read sees every write acknowledged
// before it began. AtLeast sees at least the revision asked for, and at least what this
// client has seen. Stale is answered by any node at once, but, as all reads here, never
// shows less than this client has seen.
const (
	Linearizable = wirepb.Consistency_CONSISTENCY_LINEARIZABLE
	AtLeast      = wirepb.Consistency_CONSISTENCY_AT_LEAST
	Stale        = wirepb.Consistency_CONSISTENCY_STALE
)

// ReadOptions are common to all reads; the zero value is a linearizable read.
type ReadOptions struct {
	Consistency Consistency
	AtLeast     uint64 // with AtLeast: the revision to see
	AtRev       uint64 // Get, History, List, Dump, View: as it was right after this commit; 0: now
	Loop        *Loop  // whose ended leases the answer is to tell
}

// Read is what every read answers besides its subject.
type Read struct {
	Rev    uint64 // the revision the answer shows
	TMs    int64  // board time of it
	Wall   time.Time
	NodeID string // who answered
}

// read asks one query. It blocks until an answer or the end of ctx and returns a
// refusal as *Error.
func (b *Board) read(ctx context.Context, opts ReadOptions, req *wirepb.ReadRequest) (*wirepb.ReadResponse, Read, error) {
	req.Board = b.name
	req.Consistency = opts.Consistency
	req.AtRev = opts.AtRev
	req.Incarnation = b.Incarnation()
	req.CallId = stringFrom(ctx, callIDKey)
	if opts.Loop != nil {
		req.Loop = opts.Loop.id
	}
	want := atLeader
	if opts.Consistency == AtLeast || opts.Consistency == Stale {
		want = anywhere
	}
	if opts.Consistency == AtLeast {
		req.AtLeastRev = max(opts.AtLeast, b.Rev(), opts.AtRev)
	}
	ans, err := b.c.call(ctx, request{read: req, repeat: true, want: want})
	if err != nil {
		return nil, Read{}, err
	}
	if opts.Consistency == Stale && opts.AtRev == 0 && ans.read.Failure == nil && ans.read.Rev < b.Rev() {
		again := proto.Clone(req).(*wirepb.ReadRequest)
		return b.read(ctx, ReadOptions{Consistency: AtLeast, Loop: opts.Loop}, again)
	}
	b.told(req.Loop, ans.read.Ended)
	if res := ans.read.Failure; res != nil {
		if res.Code == boardpb.Code_CODE_RESET {
			b.wasReset()
		}
		return nil, Read{}, &Error{Result: res}
	}
	b.learned(ans.read.Incarnation, ans.read.Rev)
	return ans.read, Read{
		Rev: ans.read.Rev, TMs: ans.read.TMs, Wall: time.UnixMilli(ans.read.WallMs).UTC(), NodeID: ans.read.NodeId,
	}, nil
}
