package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/planted"
	wirepb "raftboard/transport/pb"
)

// streamAge is when a session or a watch is asked to open anew. It is shorter than what
// the connection is granted, so that no call is cut in the middle (ECOSYSTEM §3).
const streamAge = 30 * time.Minute

// session is one multiplexed stream: any number of calls at once, answered as they are
// done. Its main loop is the only one that sends; calls hand their answers over through a
// channel that has room for all of them, so none ever waits for a slow client. A client
// that does not read its answers is not read from either.
type session struct {
	service *service
	actor   *boardpb.Actor // resolved once, when the stream opened

	answers chan *wirepb.SessionResponse
	running sync.WaitGroup
	calls   map[uint64]context.CancelFunc // in flight; touched by the main loop alone
}

// serveSession answers the calls of one stream until the client ends it, or the server
// drains: then it says Goodbye, refuses what is new as not done, finishes what runs, and
// ends when the client has closed its side or the time for finishing is over.
func (s *service) serveSession(stream grpc.BidiStreamingServer[wirepb.SessionRequest, wirepb.SessionResponse]) error {
	actor, refused := resolveActor(stream.Context(), s.auth)
	if refused == nil {
		refused = s.sessions.enter()
	}
	if refused != nil {
		return statusOf(refused, s.leader())
	}
	defer s.sessions.leave()

	md, _ := metadata.FromIncomingContext(stream.Context())
	s.logger.Debug("a session opened", "as", actor.Principal, "client", clip(strings.Join(md.Get(ClientHeader), " "), 128))
	ctx, cancel := context.WithCancel(stream.Context())
	c := &session{
		service: s, actor: actor,
		answers: make(chan *wirepb.SessionResponse, s.limits.InFlightPerSession),
		calls:   map[uint64]context.CancelFunc{},
	}
	defer c.running.Wait()
	defer cancel()
	requests, ended := make(chan *wirepb.SessionRequest), make(chan error, 1)
	go func() { ended <- receiveSession(ctx, stream, requests) }()
	return c.loop(ctx, stream, requests, ended)
}

// receiveSession passes requests on until the stream ends; it ends with the handler's
// return, which ends the stream.
func receiveSession(ctx context.Context, stream grpc.BidiStreamingServer[wirepb.SessionRequest, wirepb.SessionResponse],
	requests chan<- *wirepb.SessionRequest) error {
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case requests <- request:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *session) loop(ctx context.Context, stream grpc.BidiStreamingServer[wirepb.SessionRequest, wirepb.SessionResponse],
	requests <-chan *wirepb.SessionRequest, ended <-chan error) error {
	age := time.NewTimer(streamAge)
	defer age.Stop()
	drain, over := c.service.draining, (<-chan struct{})(nil)
	leaving, halfClosed := false, false
	for !halfClosed || len(c.calls) > 0 {
		var goodbye string
		select {
		case request := <-requests:
			if answer := c.take(ctx, request, leaving); answer != nil {
				if err := stream.Send(answer); err != nil {
					return err
				}
			}
		case answer := <-c.answers:
			c.calls[answer.Id]()
			delete(c.calls, answer.Id)
			planted.Point("answer-send")
			if err := stream.Send(answer); err != nil {
				return err
			}
		case err := <-ended:
			if !errors.Is(err, io.EOF) {
				return err
			}
			halfClosed, ended = true, nil
		case <-drain:
			goodbye, drain, over = "this node is stopping", nil, c.service.finished
		case <-age.C:
			if leaving {
				return nil // the client was told and did not go
			}
			goodbye = "the stream is old; open another, so that load spreads"
			age.Reset(finishCalls)
		case <-over:
			return nil
		}
		if goodbye != "" && !leaving {
			leaving = true
			answer := &wirepb.SessionResponse{Answer: &wirepb.SessionResponse_Goodbye{
				Goodbye: &wirepb.Goodbye{Reason: goodbye, Leader: c.service.leader()},
			}}
			if err := stream.Send(answer); err != nil {
				return err
			}
		}
	}
	return nil
}

// take starts one call, or answers at once why it is not started. A cancel has no answer
// of its own.
func (c *session) take(ctx context.Context, request *wirepb.SessionRequest, leaving bool) *wirepb.SessionResponse {
	if request.GetCancel() != nil {
		if stop := c.calls[request.Id]; stop != nil {
			stop()
		}
		return nil
	}
	if refused := c.refuse(request, leaving); refused != nil {
		return c.refusal(request, refused)
	}
	timeout := defaultCallTimeout
	if request.TimeoutMs > 0 {
		timeout = min(time.Duration(min(request.TimeoutMs, maxCallTimeout.Milliseconds()))*time.Millisecond, maxCallTimeout)
	}
	call, cancel := context.WithTimeout(ctx, timeout)
	c.calls[request.Id] = cancel
	c.running.Go(func() { c.answers <- c.answer(call, request) })
	return nil
}

func (c *session) refuse(request *wirepb.SessionRequest, leaving bool) *boardpb.Result {
	switch {
	case request.Id == 0:
		return badField("id", "a call on a session needs an id above 0", "number the calls from 1")
	case c.calls[request.Id] != nil:
		return badField("id", fmt.Sprintf("call %d of this session is still running", request.Id), "give each call its own id")
	case request.TimeoutMs < 0:
		return badField("timeout_ms", fmt.Sprintf("timeout_ms is %d", request.TimeoutMs), "give the time left, or 0 for the default")
	case leaving:
		return notDone("this session is ending", "open a session at another node and repeat it there")
	case len(c.calls) >= c.service.limits.InFlightPerSession:
		r := refuse(boardpb.Code_CODE_LIMIT_REQUESTS,
			fmt.Sprintf("%d calls of this session are running; that is its limit", len(c.calls)), "wait for answers")
		r.Got, r.Limit = uint64(len(c.calls))+1, uint64(c.service.limits.InFlightPerSession)
		r.Proposed, r.RetryAfterMs = boardpb.Proposed_PROPOSED_NO, retryAfterMs
		return r
	}
	return nil
}

func (c *session) refusal(request *wirepb.SessionRequest, r *boardpb.Result) *wirepb.SessionResponse {
	answer := &wirepb.SessionResponse{Id: request.Id}
	if request.GetRead() != nil {
		answer.Answer = &wirepb.SessionResponse_Read{Read: c.service.failedRead(r)}
	} else {
		answer.Answer = &wirepb.SessionResponse_Applied{Applied: c.service.applied(r, nil)}
	}
	return answer
}

// answer runs one call. A panic in it is answered as internal and logged; it costs the
// others nothing.
func (c *session) answer(ctx context.Context, request *wirepb.SessionRequest) (answer *wirepb.SessionResponse) {
	defer func() {
		if p := recover(); p != nil {
			answer = c.refusal(request, c.service.panicked(p, debug.Stack()))
		}
	}()
	answer = &wirepb.SessionResponse{Id: request.Id}
	switch call := request.Call.(type) {
	case *wirepb.SessionRequest_Apply:
		answer.Answer = &wirepb.SessionResponse_Applied{Applied: c.service.apply(ctx, c.actor, call.Apply)}
	case *wirepb.SessionRequest_Read:
		answer.Answer = &wirepb.SessionResponse_Read{Read: c.service.read(ctx, c.actor, call.Read)}
	default:
		answer = c.refusal(request, badField("call", "the request holds no call this server knows", "send apply or read"))
	}
	return answer
}
