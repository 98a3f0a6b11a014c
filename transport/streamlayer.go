package transport

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"golang.org/x/time/rate"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

const (
	// maxHandshakes bounds the connections that are being greeted at one time.
	maxHandshakes = 64
	// rejectLogEvery bounds how often a rejected handshake is logged.
	rejectLogEvery = time.Second
)

// streamLayer gives Raft its connections (raft.StreamLayer). Its address is the node's
// id, and Dial takes the id of another node: configurations and vote records hold ids,
// never host and port (RAFT P27). Every connection begins with a handshake that compares
// cluster and node ids (P26), in a goroutine of its own, so that a silent caller never
// holds up Accept.
type streamLayer struct {
	id       string
	listener net.Listener
	dial     func(ctx context.Context, addr string) (net.Conn, error)
	book     *addressBook
	hello    func() *wirepb.HelloRequest
	admit    func(*wirepb.HelloRequest) *wirepb.HelloResponse
	logger   hclog.Logger
	rejects  rate.Sometimes

	greeting chan struct{} // a token for each handshake under way
	accepted chan net.Conn
	done     chan struct{}
	closing  sync.Once
	running  sync.WaitGroup

	mu   sync.Mutex
	open map[*trackedConn]struct{} // raft leaves its connections open when it stops
}

var _ raft.StreamLayer = (*streamLayer)(nil)

type streamLayerConfig struct {
	id       string
	listener net.Listener
	dial     func(ctx context.Context, addr string) (net.Conn, error)
	book     *addressBook
	hello    func() *wirepb.HelloRequest                      // who we are; To is filled in
	admit    func(*wirepb.HelloRequest) *wirepb.HelloResponse // our answer to a caller
	logger   hclog.Logger
}

func newStreamLayer(cfg streamLayerConfig) *streamLayer {
	l := &streamLayer{
		id: cfg.id, listener: cfg.listener, dial: cfg.dial, book: cfg.book,
		hello: cfg.hello, admit: cfg.admit, logger: cfg.logger,
		rejects:  rate.Sometimes{First: 1, Interval: rejectLogEvery},
		greeting: make(chan struct{}, maxHandshakes),
		accepted: make(chan net.Conn),
		done:     make(chan struct{}),
		open:     map[*trackedConn]struct{}{},
	}
	l.running.Go(l.listen)
	return l
}

// listen takes connections from the listener until Close.
func (l *streamLayer) listen() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			select {
			case <-l.done:
				return
			case <-time.After(50 * time.Millisecond): // out of descriptors, perhaps: never spin
				continue
			}
		}
		select {
		case l.greeting <- struct{}{}:
			l.running.Go(func() { l.welcome(l.track(conn)) })
		default:
			conn.Close()
			l.reject(conn, fmt.Errorf("%d handshakes are under way", maxHandshakes))
		}
	}
}

// welcome greets one caller and hands the connection to Accept.
func (l *streamLayer) welcome(conn net.Conn) {
	defer func() { <-l.greeting }()
	hello, err := welcome(conn, l.admit)
	if err != nil {
		conn.Close()
		l.reject(conn, err)
		return
	}
	l.book.learn(hello.Node)
	select {
	case l.accepted <- conn:
	case <-l.done:
		conn.Close()
	}
}

func (l *streamLayer) reject(conn net.Conn, err error) {
	l.rejects.Do(func() {
		l.logger.Warn("rejected a connection to the Raft port", "from", conn.RemoteAddr(), "error", err)
	})
}

// Accept answers the next connection whose handshake is done.
func (l *streamLayer) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Dial connects to the node with this id at the address the book has for it.
func (l *streamLayer) Dial(id raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	addr, known := l.book.raftAddr(string(id))
	if !known {
		return nil, fmt.Errorf("no address is known for node %s", id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	raw, err := l.dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("node %s at %s: %w", id, addr, err)
	}
	conn := l.track(raw)
	hello := l.hello()
	hello.To = string(id)
	answer, err := greet(conn, hello)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("node %s at %s: %w", id, addr, err)
	}
	l.book.learn(answer.Node)
	return conn, nil
}

// Close ends the listener and every connection, also those raft still holds.
func (l *streamLayer) Close() error {
	var err error
	l.closing.Do(func() {
		close(l.done)
		err = l.listener.Close()
		l.mu.Lock()
		open := l.open
		l.open = nil
		l.mu.Unlock()
		for conn := range open {
			conn.Conn.Close()
		}
		l.running.Wait()
	})
	return err
}

// Addr is the node's id.
func (l *streamLayer) Addr() net.Addr { return nodeAddr(l.id) }

type nodeAddr string

func (nodeAddr) Network() string  { return "raftboard" }
func (a nodeAddr) String() string { return string(a) }

// trackedConn is a connection that Close of the layer can find.
type trackedConn struct {
	net.Conn
	layer *streamLayer
}

func (l *streamLayer) track(conn net.Conn) net.Conn {
	t := &trackedConn{Conn: conn, layer: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil { // closed meanwhile
		conn.Close()
		return t
	}
	l.open[t] = struct{}{}
	return t
}

func (c *trackedConn) Close() error {
	c.layer.mu.Lock()
	delete(c.layer.open, c)
	c.layer.mu.Unlock()
	return c.Conn.Close()
}

// sameNode says whether a says of itself what b says.
func sameNode(a, b *boardpb.Node) bool {
	return a.GetId() == b.GetId() && a.GetName() == b.GetName() &&
		a.GetRaftAddr() == b.GetRaftAddr() && a.GetGrpcAddr() == b.GetGrpcAddr()
}
