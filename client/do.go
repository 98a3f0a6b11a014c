package client

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/planted"
	wirepb "raftboard/transport/pb"
)

// firstTry bounds the first try of a call; each further try may take twice as long, so
// that a slow cluster is not asked for ever at a pace it cannot keep.
const firstTry = 2 * time.Second

// shortestTry is what even a nearly spent call gives a node to answer.
const shortestTry = 50 * time.Millisecond

// request is one call as do.go sees it: what to send, and what may be done with it.
type request struct {
	apply *wirepb.ApplyRequest
	read  *wirepb.ReadRequest
	// repeat: safe to send again after its answer was lost, because it carries an
	// identity, or changes nothing, or changes nothing twice.
	repeat bool
	want   place
}

// answer is what came back. sentAt is the moment before the try that was answered was
// written: nothing in the answer is older than that.
type answer struct {
	result *boardpb.Result
	read   *wirepb.ReadResponse
	sentAt time.Time
	wait   time.Duration // before the next try, when the node asked for it
	led    bool          // the node named a leader
	leases []*Lease      // made of what the result grants; loop.go fills it in
}

// verdict is what one try came to.
type verdict int

const (
	answered    verdict = iota
	notDone             // never proposed: any node may be asked again
	unknown             // perhaps done: only the same identity may be sent again
	refusedAll          // the session itself was refused: no try will do better
	tooMany             // admission: the node has too much in flight
	readTooLate         // the node could not show the revision in time; another may
)

// do is the road of every command: a Result, or an *Error. Not done goes to another
// node; unknown goes out again under the same identity; without an identity an unknown
// outcome is returned at once. The command must not be changed afterwards.
func (c *Client) do(ctx context.Context, cmd *boardpb.Command) (answer, error) {
	identity := cmd.IdempotencyKey != "" || (cmd.Loop != "" && cmd.Seq != 0)
	return c.call(ctx, request{apply: &wirepb.ApplyRequest{Command: cmd}, repeat: identity || harmless(cmd)})
}

// harmless commands may be repeated without an identity: doing them twice is doing them
// once. A loop is opened under its nonce, a keepalive only moves deadlines forward.
func harmless(cmd *boardpb.Command) bool {
	switch cmd.Op.(type) {
	case *boardpb.Command_LoopOpen, *boardpb.Command_LoopKeepalive:
		return true
	}
	return false
}

// call makes tries until one gives an answer, the context ends, or nobody leads.
func (c *Client) call(ctx context.Context, req request) (answer, error) {
	start := time.Now()
	_, own := ctx.Deadline()
	if !own {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
	}
	proposed := boardpb.Proposed_PROPOSED_NO
	var last answer
	var leaderless bool // the last node asked was unreachable or knew no leader
	for n := 0; ; n++ {
		if err := c.mayTry(ctx); err != nil {
			return c.givenUp(last, proposed, err)
		}
		ep, healthy := c.routes.pick(req.want)
		if n > 0 && (!healthy || last.wait > 0) {
			pause := max(last.wait, backoff(n-1, 50*time.Millisecond, time.Second))
			if !own && leaderless {
				pause = min(pause, c.cfg.NoLeader-time.Since(start)) // one more try, then the end
			}
			if err := c.rest(ctx, pause); err != nil {
				return c.givenUp(last, proposed, err)
			}
			ep, _ = c.routes.pick(req.want)
		}
		d := tryTime(ctx, n)
		if !own && leaderless {
			d = min(d, max(c.cfg.NoLeader-time.Since(start), shortestTry))
		}
		ans, v, err := ep.try(ctx, d, req)
		if v == answered || v == refusedAll {
			return ans, err
		}
		last = ans
		if v == unknown && req.read == nil {
			if !planted.Bug("M13") { // the bug: what nobody knows is reported as not done
				proposed = boardpb.Proposed_PROPOSED_UNKNOWN
			}
			if planted.Bug("M14") { // the bug: the next try has no identity
				req.apply = &wirepb.ApplyRequest{Command: proto.CloneOf(req.apply.Command)}
				req.apply.Command.Seq, req.apply.Command.IdempotencyKey = 0, ""
			}
			if !req.repeat {
				return answer{}, unanswered(proposed, err, "the answer of %s was lost: %v", ep.addr, err)
			}
		}
		leaderless = v == notDone && !ans.led // with a leader it is only busy
		if !own && leaderless && time.Since(start) >= c.cfg.NoLeader {
			return c.givenUp(last, proposed, nil)
		}
	}
}

func (c *Client) mayTry(ctx context.Context) error {
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	return ctx.Err()
}

// givenUp is the error of a call whose tries all failed. What a node said of itself (too
// many requests, a revision it has not reached) is passed on; else each endpoint's last
// cause is named. Once a try may have been done, the whole call is unknown.
func (c *Client) givenUp(last answer, proposed boardpb.Proposed, cause error) (answer, error) {
	if res := last.result; res != nil && res.Code != boardpb.Code_CODE_UNAVAILABLE && proposed == boardpb.Proposed_PROPOSED_NO {
		return answer{}, &Error{Result: res, cause: cause}
	}
	return answer{}, unanswered(proposed, cause, "no node gave an answer: %s", c.routes.causes())
}

// rest waits, unless the context or the client ends first.
func (c *Client) rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return ErrClosed
	}
}

// tryTime gives the n-th try its time: always less than what is left, so that a node
// which never answers leaves time for the others.
func tryTime(ctx context.Context, n int) time.Duration {
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline)
	return max(min(firstTry<<min(n, 8), left/2), shortestTry)
}

// try asks this endpoint once, within d.
func (e *endpoint) try(ctx context.Context, d time.Duration, req request) (answer, verdict, error) {
	tctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	s, err := e.session(tctx)
	if err != nil {
		switch {
		case ctx.Err() != nil: // the caller left: no blame on the node
		case errors.Is(err, errConnect):
			e.c.routes.failed(e, failedSilent, err, nil)
		default:
			e.c.routes.failed(e, failedSoon, err, nil)
		}
		return answer{}, notDone, err
	}
	resp, at, sent, err := s.call(tctx, req.onSession(d))
	if err == nil {
		ans, v := e.judge(req, resp)
		ans.sentAt = at
		if v == unknown {
			return ans, v, errors.New("the node does not know whether it was done")
		}
		return ans, v, nil
	}
	if refused := s.refused(err); refused != nil {
		return answer{}, refusedAll, refused
	}
	switch {
	case ctx.Err() != nil:
	case tctx.Err() != nil && sent:
		e.c.routes.failed(e, failedSilent, errSilent, nil)
	default:
		e.c.routes.failed(e, failedSoon, err, nil)
	}
	if sent {
		return answer{}, unknown, err
	}
	return answer{}, notDone, err
}

var errSilent = errors.New("took the call and did not answer in time")

// onSession makes the message of one try. The server gets a little less time than the
// try has, so that its own word (queued: not done; proposed: unknown) arrives in time.
func (r request) onSession(d time.Duration) *wirepb.SessionRequest {
	msg := &wirepb.SessionRequest{TimeoutMs: max(d*9/10, time.Millisecond).Milliseconds()}
	if r.read != nil {
		msg.Call = &wirepb.SessionRequest_Read{Read: r.read}
	} else {
		msg.Call = &wirepb.SessionRequest_Apply{Apply: r.apply}
	}
	return msg
}

// judge reads an answer: a Result for the caller, or a node's reason to try again.
func (e *endpoint) judge(req request, resp *wirepb.SessionResponse) (answer, verdict) {
	var ans answer
	var leader *wirepb.Leader
	var node string
	if req.read != nil {
		ans.read = resp.GetRead()
		ans.result = ans.read.GetFailure()
		leader, node = ans.read.GetLeader(), ans.read.GetNodeId()
	} else {
		ans.result = resp.GetApplied().GetResult()
		leader, node = resp.GetApplied().GetLeader(), resp.GetApplied().GetNodeId()
	}
	ans.led = leader != nil
	res := ans.result
	switch {
	case res == nil && ans.read == nil:
		ans.result = &boardpb.Result{Code: boardpb.Code_CODE_INTERNAL, Message: "the node's answer does not fit the call"}
		ans.read = &wirepb.ReadResponse{Failure: ans.result}
		return ans, answered
	case res.GetCode() == boardpb.Code_CODE_UNAVAILABLE:
		e.c.routes.failed(e, failedBusy, errors.New(res.Message), leader)
		ans.wait = e.pause(res, leader)
		if res.Proposed == boardpb.Proposed_PROPOSED_UNKNOWN && req.read == nil {
			return ans, unknown
		}
		return ans, notDone
	case res.GetCode() == boardpb.Code_CODE_LIMIT_REQUESTS:
		e.c.routes.answered(e, node, leader)
		ans.wait = max(time.Duration(res.RetryAfterMs)*time.Millisecond, 50*time.Millisecond)
		return ans, tooMany
	case res.GetCode() == boardpb.Code_CODE_READ_TIMEOUT:
		e.c.routes.failed(e, failedBusy, errors.New(res.Message), leader)
		return ans, readTooLate
	}
	e.c.routes.answered(e, node, leader)
	return ans, answered
}

// pause is how long a node asked to wait; none when it named a leader to go to instead.
func (e *endpoint) pause(res *boardpb.Result, leader *wirepb.Leader) time.Duration {
	if leader.GetGrpcAddr() != "" && leader.GetGrpcAddr() != e.addr {
		return 0
	}
	return min(time.Duration(res.RetryAfterMs)*time.Millisecond, time.Second)
}

// refused says that the node refused the session itself before it answered anything: for
// who the client says it is, no other node will say differently.
func (s *session) refused(err error) *Error {
	var e *Error
	if !errors.As(err, &e) {
		return nil
	}
	s.mu.Lock()
	heard := s.heard
	s.mu.Unlock()
	if heard {
		return nil
	}
	switch e.Result.Code {
	case boardpb.Code_CODE_UNAUTHENTICATED, boardpb.Code_CODE_FORBIDDEN, boardpb.Code_CODE_BAD_REQUEST:
		return e
	}
	return nil
}
