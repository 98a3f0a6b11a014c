package transport

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

const (
	// forwardStreamAge is when a forwarding stream is replaced, well before the server
	// at the other end closes the connection for its age.
	forwardStreamAge = 15 * time.Minute
	// forwardQueue bounds the commands that wait to be written to the stream.
	forwardQueue = 1024
)

// forwarder carries commands from this node to the leader: one multiplexed stream to one
// node at a time, one hop at most (RAFT P33). When another leader or a newer term is
// heard of, the commands still out end as unknown: their client repeats them under the
// same identity and learns what became of them.
type forwarder struct {
	links   *peerLinks
	running sync.WaitGroup

	mu      sync.Mutex
	current *forwardStream
	closed  bool
}

// forwardStream is one stream to one leader of one term.
type forwardStream struct {
	to     string
	term   uint64
	opened time.Time
	cancel context.CancelFunc
	out    chan outgoing
	ended  chan struct{} // closed when nothing more can be answered
	why    error         // set before ended is closed

	mu      sync.Mutex
	next    uint64
	pending map[uint64]*forwardCall // nil once ended
	retired bool                    // takes no new command; ends when the last is answered
}

type outgoing struct {
	request *wirepb.ForwardRequest
	call    *forwardCall // nil for a cancel
}

// forwardCall is one command on its way.
type forwardCall struct {
	id     uint64
	answer chan *wirepb.ForwardResponse // has room for the one answer
	state  atomic.Int32                 // queued, then sent or abandoned, whichever comes first
}

const (
	callQueued int32 = iota
	callSent
	callAbandoned
)

func newForwarder(links *peerLinks) *forwarder { return &forwarder{links: links} }

// forward sends a command, whose actor is already resolved, to the leader and answers what
// the leader answered. Without an answer it is not done when the command certainly never
// left this node, and unknown otherwise. leader is the hint the other side gave.
func (f *forwarder) forward(ctx context.Context, to string, term uint64, c *boardpb.Command) (
	r *boardpb.Result, leader *wirepb.Leader) {
	s, err := f.stream(to, term)
	if err != nil {
		return notDone(fmt.Sprintf("the leader, node %s, cannot be reached: %v", to, err), "repeat it; any node will do"), nil
	}
	call := s.register()
	if call == nil {
		return notDone(fmt.Sprintf("the link to the leader, node %s, broke", to), "repeat it; any node will do"), nil
	}
	defer s.unregister(call)
	request := &wirepb.ForwardRequest{Id: call.id, Command: c}
	if deadline, set := ctx.Deadline(); set {
		request.TimeoutMs = max(time.Until(deadline).Milliseconds(), 1)
	}
	select {
	case s.out <- outgoing{request, call}:
	case <-s.ended:
		return s.lost(call), nil
	case <-ctx.Done():
		return notDone("the call ended before the command was sent to the leader", "repeat it"), nil
	}
	select {
	case a := <-call.answer:
		return a.Result, a.Leader
	case <-s.ended:
		select {
		case a := <-call.answer: // both were ready
			return a.Result, a.Leader
		default:
			return s.lost(call), nil
		}
	case <-ctx.Done():
		if call.abandon() {
			return notDone(fmt.Sprintf("the leader, node %s, could not be reached in time", to), "repeat it; any node will do"), nil
		}
		select { // a call nobody waits for any more should not stay in the leader's queue
		case s.out <- outgoing{&wirepb.ForwardRequest{Id: call.id, Cancel: true}, nil}:
		default:
		}
		return unknown(fmt.Sprintf("the leader, node %s, did not answer in time", to)), nil
	}
}

// abandon takes back a call that is still queued, and says whether it could.
func (c *forwardCall) abandon() bool {
	return c.state.CompareAndSwap(callQueued, callAbandoned)
}

// lost answers a call whose stream has ended.
func (s *forwardStream) lost(call *forwardCall) *boardpb.Result {
	if call.abandon() {
		return notDone(fmt.Sprintf("the leader, node %s, cannot be reached: %v", s.to, s.why), "repeat it; any node will do")
	}
	return unknown(fmt.Sprintf("the leader, node %s, was lost before it answered: %v", s.to, s.why))
}

// stream answers the stream to this leader in this term, opening it if need be. A stream
// to anybody else, or of an older term, is ended.
func (f *forwarder) stream(to string, term uint64) (*forwardStream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, fmt.Errorf("this node is stopping")
	}
	if s := f.current; s != nil {
		switch {
		case s.to != to || s.term != term:
			s.cancel()
		case time.Since(s.opened) > forwardStreamAge:
			s.retire()
		case s.alive():
			return s, nil
		}
		f.current = nil
	}
	peer, err := f.links.to(to)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(f.links.sign(context.Background()))
	s := &forwardStream{
		to: to, term: term, opened: time.Now(), cancel: cancel,
		out: make(chan outgoing, forwardQueue), ended: make(chan struct{}),
		pending: map[uint64]*forwardCall{},
	}
	f.running.Go(func() { s.run(ctx, peer) })
	f.current = s
	return s, nil
}

// heard tells the forwarder who leads now. Commands that are out to anybody else end.
func (f *forwarder) heard(leader string, term uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.current; s != nil && (s.term < term || leader != "" && s.to != leader) {
		s.cancel()
		f.current = nil
	}
}

func (f *forwarder) close() {
	f.mu.Lock()
	s := f.current
	f.closed, f.current = true, nil
	f.mu.Unlock()
	if s != nil {
		s.cancel()
	}
	f.running.Wait()
}

// run owns the stream from opening to end. It and its reader are the only goroutines
// that touch it.
func (s *forwardStream) run(ctx context.Context, peer wirepb.PeerClient) {
	defer s.cancel()
	// As in the client's sessions: gRPC must not open the stream again by itself, since a send
	// would wait for that without a bound of its own. The first request forgets no call.
	stream, err := peer.Forward(ctx, grpc.MaxRetryRPCBufferSize(0))
	if err != nil {
		s.end(err)
		return
	}
	_ = stream.Send(&wirepb.ForwardRequest{Cancel: true}) // the reader learns why not
	received := make(chan error, 1)
	go func() { received <- s.receive(stream) }()
	for {
		select {
		case o := <-s.out:
			if o.call != nil && !o.call.state.CompareAndSwap(callQueued, callSent) {
				continue // its caller gave up: it was not proposed and never will be
			}
			if err := stream.Send(o.request); err != nil {
				s.end(<-received) // the reader learns the reason
				return
			}
		case err := <-received:
			s.end(err)
			return
		}
	}
}

func (s *forwardStream) receive(stream grpc.BidiStreamingClient[wirepb.ForwardRequest, wirepb.ForwardResponse]) error {
	for {
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		s.mu.Lock()
		call := s.pending[answer.Id]
		delete(s.pending, answer.Id) // one answer each
		s.mu.Unlock()
		if call != nil {
			call.answer <- answer
		}
	}
}

// end marks that no more answers come.
func (s *forwardStream) end(why error) {
	s.mu.Lock()
	s.pending = nil
	s.mu.Unlock()
	s.why = why
	close(s.ended)
}

func (s *forwardStream) alive() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// register makes a place for an answer; nil if the stream has ended.
func (s *forwardStream) register() *forwardCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == nil {
		return nil
	}
	s.next++
	call := &forwardCall{id: s.next, answer: make(chan *wirepb.ForwardResponse, 1)}
	s.pending[s.next] = call
	return call
}

func (s *forwardStream) unregister(call *forwardCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, call.id)
	if s.retired && len(s.pending) == 0 {
		s.cancel()
	}
}

// retire lets the commands that are out be answered, and then ends the stream.
func (s *forwardStream) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	if len(s.pending) == 0 {
		s.cancel()
	}
}
