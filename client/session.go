package client

import (
	"context"
	"errors"
	"sync"
	"time"

	wirepb "raftboard/transport/pb"
)

// maxPending bounds the calls in flight on one session; further calls wait.
const maxPending = 1024

// session is one multiplexed stream to one node. Two goroutines own it: send, which
// alone writes to the stream, and receive, which alone reads from it. When the stream
// ends, every pending call is told: what send had not taken from the queue was not done,
// the rest is unknown.
type session struct {
	ep     *endpoint
	stream wirepb.Board_SessionClient
	cancel context.CancelFunc
	queue  chan *exchange
	slots  chan struct{} // one token per pending call
	done   chan struct{} // closed when the stream ended

	mu      sync.Mutex
	pending map[uint64]*exchange
	lastID  uint64
	ended   bool
	leaving error // why to finish what is pending and begin nothing: the server said goodbye
	heard   bool  // anything at all came back
	err     error
}

// exchange is one call on one session.
type exchange struct {
	req    *wirepb.SessionRequest
	resp   *wirepb.SessionResponse // set before done is closed, unless the session ended
	done   chan struct{}
	sent   bool      // send took it: it may have reached the node; guarded by session.mu
	gone   bool      // its caller left; guarded by session.mu
	sentAt time.Time // before it was written to the stream
}

func newSession(ep *endpoint, stream wirepb.Board_SessionClient, cancel context.CancelFunc) *session {
	return &session{
		ep: ep, stream: stream, cancel: cancel,
		queue: make(chan *exchange, maxPending),
		slots: make(chan struct{}, maxPending),
		done:  make(chan struct{}), pending: map[uint64]*exchange{},
	}
}

// call sends one request and waits for its answer until ctx ends. sent says whether the
// node may have seen it; without an answer that is the difference between unknown and
// not done.
func (s *session) call(ctx context.Context, req *wirepb.SessionRequest) (resp *wirepb.SessionResponse, at time.Time, sent bool, err error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-s.done:
		return nil, at, false, s.cause()
	case <-ctx.Done():
		return nil, at, false, ctx.Err()
	}
	x, err := s.begin(req)
	if err != nil {
		return nil, at, false, err
	}
	select {
	case <-x.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x.gone = true
	if x.resp != nil {
		return x.resp, x.sentAt, true, nil
	}
	delete(s.pending, x.req.Id)
	s.closeIfDone()
	if err == nil {
		err = s.err
	} else if x.sent && !s.ended {
		s.tryCancel(x.req.Id)
	}
	return nil, x.sentAt, x.sent, err
}

// begin registers a call and queues it. The queue has a place for every slot.
func (s *session) begin(req *wirepb.SessionRequest) (*exchange, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, s.err
	}
	if s.leaving != nil {
		return nil, s.leaving
	}
	s.lastID++
	req.Id = s.lastID
	x := &exchange{req: req, done: make(chan struct{})}
	select {
	case s.queue <- x:
	default: // only cancels can have filled it: the node has stopped reading
		return nil, errors.New("the session's queue is full")
	}
	s.pending[req.Id] = x
	return x, nil
}

var errGoodbye = errors.New("the node is draining")

// tryCancel asks the node to forget a call nobody waits for. Best effort: what is
// already proposed may still be done. Called with s.mu held.
func (s *session) tryCancel(id uint64) {
	req := &wirepb.SessionRequest{Id: id, Call: &wirepb.SessionRequest_Cancel{Cancel: &wirepb.Cancel{}}}
	select {
	case s.queue <- &exchange{req: req, done: make(chan struct{})}:
	default:
	}
}

// over says whether the stream ended.
func (s *session) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (s *session) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// send writes queued requests to the stream until it ends.
func (s *session) send() {
	for {
		select {
		case x := <-s.queue:
			s.mu.Lock()
			skip := x.gone
			x.sent, x.sentAt = !skip, time.Now()
			s.mu.Unlock()
			if skip {
				continue
			}
			if err := s.stream.Send(x.req); err != nil {
				return // receive learns why
			}
		case <-s.done:
			return
		}
	}
}

// receive hands out answers until the stream ends, then tells everyone who still waits.
func (s *session) receive() {
	for {
		resp, err := s.stream.Recv()
		if err != nil {
			s.end(err)
			return
		}
		s.mu.Lock()
		s.heard = true
		if bye := resp.GetGoodbye(); bye != nil {
			s.leaving = errGoodbye
			s.closeIfDone()
			s.mu.Unlock()
			s.ep.drop(s)
			s.ep.c.routes.failed(s.ep, failedBusy, errGoodbye, bye.Leader)
			continue
		}
		if x := s.pending[resp.Id]; x != nil {
			delete(s.pending, resp.Id)
			x.resp = resp
			close(x.done)
		}
		s.closeIfDone()
		s.mu.Unlock()
	}
}

// leave ends the session if nobody waits for an answer on it.
func (s *session) leave(why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) > 0 {
		return false
	}
	s.leaving = why
	s.closeIfDone()
	return true
}

// closeIfDone ends a session that drained. Called with s.mu held.
func (s *session) closeIfDone() {
	if s.leaving != nil && len(s.pending) == 0 {
		s.cancel()
	}
}

func (s *session) end(err error) {
	s.cancel()
	s.ep.drop(s)
	defer s.ep.exit()
	s.mu.Lock()
	s.ended = true
	s.err = s.reason(err)
	for _, x := range s.pending {
		close(x.done)
	}
	clear(s.pending)
	close(s.done)
	cause := s.err
	s.mu.Unlock()
	s.ep.c.state(StateReconnecting, s.ep.addr, cause)
}

// reason turns the end of the stream into what callers are told. A status that names a
// refusal of the whole session (who the client is) is kept as such; see refused in do.go.
func (s *session) reason(err error) error {
	if s.leaving != nil {
		return s.leaving
	}
	if s.ep.c.ctx.Err() != nil {
		return ErrClosed
	}
	return fromStatus(err)
}
