package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	wirepb "raftboard/transport/pb"
)

// connectTimeout bounds one attempt to reach a node. It is far below the time of a call,
// so that an address which swallows packets costs a call one try and not its life.
const connectTimeout = 2 * time.Second

// pingEvery and pingTimeout: a path that went silent is noticed within their sum. The
// server allows a ping each 10 s.
const (
	pingEvery   = 20 * time.Second
	pingTimeout = 5 * time.Second
)

// endpoint is one node's address: its connection, and the session on it while one is open.
type endpoint struct {
	c      *Client
	addr   string
	conn   *grpc.ClientConn
	board  wirepb.BoardClient
	health health // guarded by router.mu

	configured bool // in the Config: never given up
	member     bool // in the newest list of members; guarded by router.mu

	mu      sync.Mutex
	current *session
	opening chan struct{} // closed when the attempt under way is over; nil: none
	failure error         // of the last attempt
	dialed  error         // why the last dial failed
	open    int           // sessions, watches and unary calls under way
	retired bool          // given up: the connection is closed
}

func newEndpoint(c *Client, addr string) (*endpoint, error) {
	e := &endpoint{c: c, addr: addr}
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			nc, err := c.cfg.Dialer(ctx, addr)
			if err != nil {
				e.mu.Lock()
				e.dialed = err
				e.mu.Unlock()
			}
			return nc, err
		}),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(), // retries live in do.go alone
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
	)
	if err != nil {
		return nil, err
	}
	e.conn, e.board = conn, wirepb.NewBoardClient(conn)
	return e, nil
}

// enter counts a stream or a call in, under which the connection is not given up; exit
// counts it out. It fails once the endpoint is given up, before anything was done.
func (e *endpoint) enter() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.retired {
		return errRetired
	}
	e.open++
	return nil
}

func (e *endpoint) exit() {
	e.mu.Lock()
	e.open--
	e.mu.Unlock()
}

// retire gives the endpoint up, unless something is under way on it; a session on which
// nobody waits for anything is nothing.
func (e *endpoint) retire() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	busy := e.open
	if s := e.current; s != nil && !s.over() && busy == 1 && s.leave(errRetired) {
		busy = 0
	}
	if e.opening != nil || busy > 0 {
		return false
	}
	e.retired = true
	closing := func() { e.conn.Close() } // it says farewell, which takes long where nobody listens
	if !e.c.start(closing) {
		closing()
	}
	return true
}

// connected says whether the connection stands.
func (e *endpoint) connected() bool { return e.conn.GetState() == connectivity.Ready }

// errRetired is the end of an endpoint whose node is in the cluster no more.
var errRetired = errors.New("the node is no member any more")

// connect waits until the connection stands, for callers that must know that a failure
// before that did nothing. It gives up when one attempt failed, or when ctx ends.
func (e *endpoint) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	e.conn.Connect()
	for {
		state := e.conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.Shutdown:
			return ErrClosed
		case connectivity.TransientFailure:
			e.mu.Lock()
			err := e.dialed
			e.mu.Unlock()
			if err == nil {
				err = errors.New("the connection failed")
			}
			return err
		}
		if !e.conn.WaitForStateChange(ctx, state) {
			return errConnect
		}
	}
}

// session gives the open session, or waits for one until ctx ends. The attempt itself
// goes on for connectTimeout whatever ctx does: the next caller profits from it.
func (e *endpoint) session(ctx context.Context) (*session, error) {
	for {
		e.mu.Lock()
		if e.retired {
			e.mu.Unlock()
			return nil, errRetired
		}
		if s := e.current; s != nil && !s.over() {
			e.mu.Unlock()
			return s, nil
		}
		e.current = nil
		wait := e.opening
		mine := wait == nil
		if mine {
			wait = make(chan struct{})
			e.opening = wait
			if !e.c.start(e.begin) {
				e.opening = nil
				e.mu.Unlock()
				return nil, ErrClosed
			}
		}
		e.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, errConnect
		}
		e.mu.Lock()
		s, failure := e.current, e.failure
		e.mu.Unlock()
		if s == nil && failure != nil {
			return nil, failure
		}
	}
}

// errConnect is an attempt that led to nothing in its time: perhaps packets are swallowed.
var errConnect = fmt.Errorf("did not answer within %v", connectTimeout)

// begin makes one attempt to open a session and wakes those who wait for it.
func (e *endpoint) begin() {
	s, err := e.attempt()
	e.mu.Lock()
	e.current, e.failure = s, err
	close(e.opening)
	e.opening = nil
	e.mu.Unlock()
	if err == nil {
		e.c.state(StateConnected, e.addr, nil)
	}
}

func (e *endpoint) attempt() (*session, error) {
	ctx, cancel := context.WithCancel(e.c.ctx)
	timer := time.AfterFunc(connectTimeout, cancel)
	// gRPC opens a stream that a node refused again by itself, and holds the stream's lock until it
	// is connected: whoever sends meanwhile waits for that lock, whatever its own time. A stream
	// that nothing is kept of for that, and that something was sent on, is never opened again. The
	// first request asks to forget a call that there is not; it has no answer.
	stream, err := e.board.Session(ctx, grpc.MaxRetryRPCBufferSize(0))
	if err == nil {
		_ = stream.Send(&wirepb.SessionRequest{Call: &wirepb.SessionRequest_Cancel{Cancel: &wirepb.Cancel{}}}) // receive learns why not
	}
	inTime := timer.Stop()
	if err == nil && inTime {
		s := newSession(e, stream, cancel)
		_ = e.enter() // an attempt under way keeps the endpoint; session.end is the exit
		if e.c.start(s.send) && e.c.start(s.receive) {
			return s, nil
		}
	}
	cancel()
	switch {
	case e.c.ctx.Err() != nil:
		return nil, ErrClosed
	case !inTime:
		return nil, errConnect
	default:
		return nil, errors.New(fromStatus(err).Result.Message)
	}
}

// drop forgets a session that ended or is about to; the next call opens another.
func (e *endpoint) drop(s *session) {
	e.mu.Lock()
	if e.current == s {
		e.current = nil
	}
	e.mu.Unlock()
}
