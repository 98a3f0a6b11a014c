package nodetest

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	dialFailureCost = 50 * time.Millisecond // virtual price of dialling over a cut link
	writePoll       = 5 * time.Millisecond  // how often a write on a cut link looks again
	writeGiveUp     = 10 * time.Second      // after this a write on a cut link fails
)

// Network joins named ends by net.Pipe connections. A link has a direction; cutting one
// direction holds back the writes that go that way, and both ends keep their connection, as
// they do when packets are lost. Every write takes Hop.
type Network struct {
	Hop time.Duration

	mu        sync.Mutex
	listeners map[string]*Listener
	cuts      map[link]bool
	conns     map[*conn]struct{}
}

type link struct{ from, to string }

// NewNetwork makes a network without cuts.
func NewNetwork(hop time.Duration) *Network {
	return &Network{Hop: hop, listeners: map[string]*Listener{}, cuts: map[link]bool{}, conns: map[*conn]struct{}{}}
}

// Listen puts an end on the network. A second call with one name replaces the first, as a
// restarted process does.
func (n *Network) Listen(name string) *Listener {
	l := &Listener{network: n, name: name, incoming: make(chan net.Conn), done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[name] = l
	return l
}

// SetCut opens or closes the link in one direction.
func (n *Network) SetCut(from, to string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[link{from, to}] = cut
}

// IsCut tells whether writes from one end to another are held back.
func (n *Network) IsCut(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cuts[link{from, to}]
}

// Drop closes every connection of one end, as the death of its process does; "" is everybody.
func (n *Network) Drop(name string) {
	n.mu.Lock()
	var mine []*conn
	for c := range n.conns {
		if name == "" || c.from == name || c.to == name {
			mine = append(mine, c)
		}
	}
	n.mu.Unlock()
	for _, c := range mine {
		c.Close()
	}
}

// Dial connects one end to another.
func (n *Network) Dial(from, to string) (net.Conn, error) {
	n.mu.Lock()
	remote, cut := n.listeners[to], n.cuts[link{from, to}]
	n.mu.Unlock()
	if remote == nil || cut || remote.closed() {
		// A failure that takes no virtual time would be retried without end.
		time.Sleep(dialFailureCost)
		return nil, errors.New("unreachable")
	}
	a, b := net.Pipe()
	near := &conn{Conn: a, network: n, from: from, to: to, closed: make(chan struct{})}
	far := &conn{Conn: b, network: n, from: to, to: from, closed: make(chan struct{})}
	n.mu.Lock()
	n.conns[near], n.conns[far] = struct{}{}, struct{}{}
	n.mu.Unlock()
	select {
	case remote.incoming <- far:
		return near, nil
	case <-remote.done:
		near.Close()
		far.Close()
		time.Sleep(dialFailureCost)
		return nil, io.EOF
	}
}

// Listener is one end of the network: a net.Listener and a raft.StreamLayer.
type Listener struct {
	network  *Network
	name     string
	incoming chan net.Conn
	done     chan struct{}
	once     sync.Once
}

var _ raft.StreamLayer = (*Listener)(nil)

// Accept waits for a connection.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *Listener) closed() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// Close ends listening.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr is the end's name.
func (l *Listener) Addr() net.Addr { return address(l.name) }

// Dial connects to another end by its raft address, which is its name.
func (l *Listener) Dial(target raft.ServerAddress, _ time.Duration) (net.Conn, error) {
	return l.network.Dial(l.name, string(target))
}

// conn is one end of a pipe that honours delay and cuts.
type conn struct {
	net.Conn
	network  *Network
	from, to string
	closed   chan struct{}
	once     sync.Once
}

func (c *conn) Write(b []byte) (int, error) {
	time.Sleep(c.network.Hop)
	for waited := time.Duration(0); c.network.IsCut(c.from, c.to); waited += writePoll {
		if waited >= writeGiveUp {
			return 0, errors.New("write on a cut link timed out")
		}
		select {
		case <-time.After(writePoll):
		case <-c.closed:
			return 0, io.ErrClosedPipe
		}
	}
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.network.mu.Lock()
	delete(c.network.conns, c)
	c.network.mu.Unlock()
	return c.Conn.Close()
}

type address string

func (address) Network() string  { return "memory" }
func (a address) String() string { return string(a) }
