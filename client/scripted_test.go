package client_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// A stage is a set of scripted nodes on in-memory pipes: real gRPC servers whose every
// answer a test writes down, to bring about what a real cluster does only by chance.
type stage struct {
	t     testing.TB
	nodes map[string]*scripted
	ended []client.Ended
	mu    sync.Mutex
}

// scripted is one node. answer is called for each call, in its own goroutine; what it
// returns is sent, nil is a call that is never answered.
type scripted struct {
	wirepb.UnimplementedBoardServer
	wirepb.UnimplementedClusterServer
	addr   string
	server *grpc.Server
	lis    *pipeListener

	mu     sync.Mutex
	answer func(*call) *wirepb.SessionResponse
	watch  func(*wirepb.WatchRequest, grpc.ServerStreamingServer[wirepb.WatchResponse]) error
	calls  []*wirepb.SessionRequest
	refuse error // of every session
	remove func() error
	list   *wirepb.MembersResponse // nil: an older server, which does not know the question
	asked  int                     // for the list
	mute   bool                    // to that question
	open   atomic.Int32            // sessions
}

// call is one request as a script sees it.
type call struct {
	node *scripted
	n    int // 1, 2, … at this node
	req  *wirepb.SessionRequest
	cmd  *boardpb.Command
	read *wirepb.ReadRequest
	more func(*wirepb.SessionResponse) // sends a message beside the answer
}

func newStage(t testing.TB, addrs ...string) *stage {
	s := &stage{t: t, nodes: map[string]*scripted{}}
	for _, addr := range addrs {
		n := &scripted{addr: addr, lis: newPipeListener(), server: grpc.NewServer(grpc.KeepaliveEnforcementPolicy(
			keepalive.EnforcementPolicy{MinTime: 10 * time.Second})), answer: (*call).routine}
		wirepb.RegisterBoardServer(n.server, n)
		wirepb.RegisterClusterServer(n.server, n)
		go n.server.Serve(n.lis)
		s.nodes[addr] = n
		t.Cleanup(n.server.Stop)
	}
	return s
}

// client dials the stage; cfg may be the zero value.
func (s *stage) client(cfg client.Config, endpoints ...string) *client.Client {
	cfg.Endpoints = endpoints
	cfg.As = "w1"
	cfg.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
		n := s.nodes[addr]
		if n == nil {
			return nil, errors.New("no such host")
		}
		return n.lis.dial(ctx)
	}
	if cfg.OnEnded == nil {
		cfg.OnEnded = func(e client.Ended) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ended = append(s.ended, e)
		}
	}
	c, err := client.Dial(cfg)
	if err != nil {
		s.t.Fatalf("Dial: %v", err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

func (s *stage) told() []client.Ended {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]client.Ended(nil), s.ended...)
}

func (n *scripted) play(answer func(*call) *wirepb.SessionResponse) {
	n.mu.Lock()
	n.answer = answer
	n.mu.Unlock()
}

func (n *scripted) seen() []*wirepb.SessionRequest {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]*wirepb.SessionRequest(nil), n.calls...)
}

// Session hands each request to the script.
func (n *scripted) Session(stream wirepb.Board_SessionServer) error {
	n.mu.Lock()
	refuse := n.refuse
	n.mu.Unlock()
	if refuse != nil {
		return refuse
	}
	n.open.Add(1)
	defer n.open.Add(-1)
	var sending sync.Mutex
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		if req.GetCancel() != nil {
			continue
		}
		n.mu.Lock()
		n.calls = append(n.calls, req)
		c := &call{node: n, n: len(n.calls), req: req, cmd: req.GetApply().GetCommand(), read: req.GetRead()}
		c.more = func(resp *wirepb.SessionResponse) {
			sending.Lock()
			defer sending.Unlock()
			stream.Send(resp)
		}
		answer := n.answer
		n.mu.Unlock()
		go func() {
			if resp := answer(c); resp != nil {
				resp.Id = req.Id
				c.more(resp)
			}
		}()
	}
}

func (n *scripted) Watch(req *wirepb.WatchRequest, stream grpc.ServerStreamingServer[wirepb.WatchResponse]) error {
	n.mu.Lock()
	watch := n.watch
	n.mu.Unlock()
	if watch == nil {
		return status.Error(codes.Unavailable, "no script for a watch")
	}
	return watch(req, stream)
}

// Members answers the list of the script.
func (n *scripted) Members(ctx context.Context, req *wirepb.MembersRequest) (*wirepb.MembersResponse, error) {
	n.mu.Lock()
	list, mute := n.list, n.mute
	n.asked++
	n.mu.Unlock()
	if mute {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if list == nil {
		return n.UnimplementedClusterServer.Members(ctx, req)
	}
	return list, nil
}

// knows makes a node answer with the members at these addresses.
func (n *scripted) knows(applied uint64, addrs ...string) {
	list := &wirepb.MembersResponse{ClusterId: "c", NodeId: "id-" + n.addr, Applied: applied}
	for _, addr := range addrs {
		list.Members = append(list.Members, &boardpb.Node{Id: "id-" + addr, Name: addr, GrpcAddr: addr})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = list
}

func (n *scripted) timesAsked() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

func (n *scripted) Remove(context.Context, *wirepb.RemoveRequest) (*wirepb.RemoveResponse, error) {
	if err := n.remove(); err != nil {
		return nil, err
	}
	return &wirepb.RemoveResponse{Message: "removed"}, nil
}

// applied answers a command with a Result; the node names no leader.
func (c *call) applied(res *boardpb.Result) *wirepb.SessionResponse {
	return c.appliedBy(res, nil)
}

func (c *call) appliedBy(res *boardpb.Result, leader *wirepb.Leader) *wirepb.SessionResponse {
	return &wirepb.SessionResponse{Answer: &wirepb.SessionResponse_Applied{
		Applied: &wirepb.ApplyResponse{Result: res, NodeId: "id-" + c.node.addr, Leader: leader}}}
}

func (c *call) readAnswer(resp *wirepb.ReadResponse) *wirepb.SessionResponse {
	resp.NodeId = "id-" + c.node.addr
	return &wirepb.SessionResponse{Answer: &wirepb.SessionResponse_Read{Read: resp}}
}

// routine answers what every script needs and few are about: loops open, keepalives and
// heartbeats are accepted, anything else is ok at a rising version.
func (c *call) routine() *wirepb.SessionResponse {
	if c.cmd == nil {
		return c.readAnswer(&wirepb.ReadResponse{Rev: 1})
	}
	ok := boardpb.Outcome_OUTCOME_OK
	switch op := c.cmd.Op.(type) {
	case *boardpb.Command_LoopOpen:
		ttl := op.LoopOpen.TtlMs
		if ttl == 0 {
			ttl = 30_000
		}
		return c.applied(&boardpb.Result{Outcome: ok, Loop: "loop-" + op.LoopOpen.Nonce, TtlMs: ttl})
	case *boardpb.Command_LoopKeepalive:
		res := &boardpb.Result{Outcome: ok}
		for _, l := range op.LoopKeepalive.Loops {
			res.Loops = append(res.Loops, &boardpb.LoopStatus{Loop: l.Loop, State: boardpb.LoopState_LOOP_STATE_ACTIVE})
		}
		return c.applied(res)
	case *boardpb.Command_Claim:
		return c.applied(granted(op.Claim.Key, 1, op.Claim.GetDurationMs()))
	}
	return c.applied(&boardpb.Result{Outcome: ok, Version: uint64(c.n)})
}

func granted(key string, generation uint64, ms int64) *boardpb.Result {
	return &boardpb.Result{
		Outcome: boardpb.Outcome_OUTCOME_OK, Key: key, Generation: generation, DurationMs: ms, ExpiresInMs: ms, TMs: 1000, ExpiresTMs: 1000 + ms,
	}
}

func unavailable(c *call, proposed boardpb.Proposed) *wirepb.SessionResponse {
	res := &boardpb.Result{Code: boardpb.Code_CODE_UNAVAILABLE, Proposed: proposed, Message: "no leader"}
	if c.read != nil {
		return c.readAnswer(&wirepb.ReadResponse{Failure: res})
	}
	return c.applied(res)
}

// pipeListener serves connections made of net.Pipe. A swallowing one takes connections
// and bytes and gives nothing back, as a firewall does that drops packets.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once

	mu      sync.Mutex
	down    bool
	swallow bool
	open    []net.Conn
	dials   int
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	l.mu.Lock()
	l.dials++
	down, swallow := l.down, l.swallow
	l.mu.Unlock()
	if down {
		return nil, errors.New("connection refused")
	}
	mine, theirs := net.Pipe()
	l.mu.Lock()
	l.open = append(l.open, mine, theirs)
	l.mu.Unlock()
	if swallow {
		go func() {
			buf := make([]byte, 4096)
			for {
				if _, err := theirs.Read(buf); err != nil {
					return
				}
			}
		}()
		return mine, nil
	}
	select {
	case l.conns <- theirs:
		return &mutableConn{Conn: mine, l: l}, nil
	case <-l.done:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// mutableConn drops what is written once its listener swallows.
type mutableConn struct {
	net.Conn
	l *pipeListener
}

func (c *mutableConn) Write(b []byte) (int, error) {
	c.l.mu.Lock()
	swallow := c.l.swallow
	c.l.mu.Unlock()
	if swallow {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// cut breaks all connections; down says whether new ones are refused.
func (l *pipeListener) cut(down bool) {
	l.mu.Lock()
	l.down = down
	open := l.open
	l.open = nil
	l.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}

func (l *pipeListener) setSwallow(on bool) {
	l.mu.Lock()
	l.swallow = on
	l.mu.Unlock()
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	l.cut(true)
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "scripted", Net: "pipe"} }

func background(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func openLoop(t testing.TB, c *client.Client, opts client.LoopOptions) *client.Loop {
	t.Helper()
	l, err := c.Board("default").OpenLoop(background(t), opts)
	if err != nil {
		t.Fatalf("OpenLoop: %v", err)
	}
	return l
}
