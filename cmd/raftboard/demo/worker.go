package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"
	"time"

	"raftboard/client"
	"raftboard/cmd/raftboard/exitcode"
	boardpb "raftboard/fsm/pb"
)

// The times of the demo's leases.
const (
	leaseTime = 3 * time.Second
	graceTime = 2 * time.Second
	loopTTL   = 60 * time.Second // outlives the pause: a late write must be judged by its lease
	holdTime  = 2 * time.Second  // how long a worker that was asked to stays on one item
	idleTime  = 100 * time.Millisecond
	lastCalls = time.Minute     // for a completion: sits out several elections
	lastItem  = 8 * time.Second // for the item at hand, once the parent wants an end or is gone
)

// WorkerOptions are those of one worker process.
type WorkerOptions struct {
	Endpoints []string
	Name      string
	Dir       string // where the files are
	AckLog    string
	Pace      time.Duration // of each item, besides the reading
	AtOnce    int           // items worked on at the same time
	Lie       bool          // once, log a completion that was never sent (an injected loss)
}

// item is the value of an item: paths are no keys.
type item struct {
	N    int    `json:"n"`
	Path string `json:"path"`
}

// worker is one worker process: claim, read, complete, and write down every answer.
type worker struct {
	o     WorkerOptions
	log   *ackLog
	board *client.Board
	hold  atomic.Bool // the item at hand, or the next, is a long one
	lie   atomic.Bool
	loop  atomic.Pointer[client.Loop]
	life  context.Context // of the item at hand: ends a while after the wish to stop
}

// Work runs a worker until its standard input closes. A line "hold" there makes the item at
// hand, or the next one, long.
func Work(ctx context.Context, o WorkerOptions, stdin io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log, err := openAckLog(o.AckLog)
	if err != nil {
		return err
	}
	defer log.close()
	cfg := client.DefaultConfig()
	cfg.Endpoints, cfg.As, cfg.Name = o.Endpoints, o.Name, "raftboard-demo"
	c, err := client.Dial(cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	w := &worker{o: o, log: log, board: c.Board("default")}
	w.lie.Store(o.Lie)
	var end context.CancelFunc
	w.life, end = context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	go func() { // ends when the parent closes the pipe, or dies
		defer time.AfterFunc(lastItem, end)
		defer cancel()
		for lines := bufio.NewScanner(stdin); lines.Scan(); {
			w.hold.Store(lines.Text() == "hold")
		}
	}()
	if err := w.open(ctx); err != nil {
		return err
	}
	hands := make(chan error, o.AtOnce)
	for range o.AtOnce {
		go func() { hands <- w.hand(ctx) }() // ends with ctx, or with a refusal that no retry can mend
	}
	for range o.AtOnce {
		if e := <-hands; e != nil && err == nil {
			err = e
			cancel()
		}
	}
	goodbye, stop := context.WithTimeout(w.life, 5*time.Second)
	defer stop()
	return errors.Join(err, w.loop.Load().Close(goodbye))
}

// open opens the worker's loop; while nobody leads it tries on.
func (w *worker) open(ctx context.Context) error {
	for {
		loop, err := w.board.OpenLoop(ctx, client.LoopOptions{TTL: loopTTL, Label: w.o.Name})
		if err == nil {
			w.loop.Store(loop)
			return nil
		}
		if !passing(err) || rest(ctx, idleTime) != nil {
			return err
		}
	}
}

// passing errors go away by waiting.
func passing(err error) bool {
	return errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrLimitRequests) || errors.Is(err,
		client.ErrReadTimeout)
}

func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hand works on one item after the other.
func (w *worker) hand(ctx context.Context) error {
	for ctx.Err() == nil {
		work, cancel := context.WithCancel(w.life)
		lease, _, err := w.loop.Load().ClaimNext(work, "claims/*", client.ClaimOptions{Duration: leaseTime})
		switch {
		case lease != nil:
			err = w.one(lease)
		case err == nil, passing(err), ctx.Err() != nil:
			err = nil
			_ = rest(ctx, idleTime)
		}
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// one does an item. Whether the lease is still ours is the board's to say: the result is sent in any
// case, and a late one is refused there.
func (w *worker) one(lease *client.Lease) error {
	a := Ack{Kind: Claimed, Key: lease.Key(), Generation: lease.Generation()}
	if err := w.log.append(a); err != nil {
		return err
	}
	_ = rest(w.life, w.o.Pace)
	if w.hold.CompareAndSwap(true, false) {
		a.Kind = Holding
		if err := w.log.append(a); err != nil {
			return err
		}
		_ = rest(w.life, holdTime)
	}
	var it item
	if err := json.Unmarshal(lease.Value(), &it); err != nil {
		return fmt.Errorf("%s holds %q: %w", lease.Key(), lease.Value(), err)
	}
	count, err := countFile(filepath.Join(w.o.Dir, filepath.FromSlash(it.Path)))
	if err != nil {
		return err
	}
	a.Kind, a.Count = Completing, &count
	if err := w.log.append(a); err != nil {
		return err
	}
	return w.finish(lease, a, count)
}

// finish sends the result and writes down what was answered.
func (w *worker) finish(lease *client.Lease, a Ack, count Count) error {
	a.Count = nil
	if w.lie.CompareAndSwap(true, false) {
		a.Kind = Completed // never sent: the lease runs out, another worker does the item
		return w.log.append(a)
	}
	result, err := json.Marshal(count)
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(w.life, lastCalls)
	defer cancel()
	r, err := lease.Complete(call, result, resultKey(w.o.Name, lease.Key()))
	var refused *client.Error
	switch {
	case err == nil && r.GetOutcome() == boardpb.Outcome_OUTCOME_OK:
		a.Kind, a.Rev = Completed, r.GetRev()
	case err == nil:
		a.Kind, a.Code = Refused, exitcode.Word(r)
	case passing(err), w.life.Err() != nil:
		return nil // no answer: nothing was acknowledged
	case errors.As(err, &refused):
		a.Kind, a.Code = Refused, exitcode.Word(refused.Result)
	default:
		return err
	}
	return w.log.append(a)
}
