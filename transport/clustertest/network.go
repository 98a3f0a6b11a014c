package clustertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

const (
	refusedCost = 50 * time.Millisecond // virtual price of dialling where nobody listens: a retry must take time
	pipeBytes   = 256 << 10             // in flight in one direction of a connection
)

// Network joins named hosts. A link has a direction. Cutting one holds back what goes that
// way, as lost packets do: both ends keep their connection, and what was on its way arrives
// when the link is whole again.
type Network struct {
	hop time.Duration

	mu        sync.Mutex
	listeners map[string]*listener // by host:port
	cuts      map[link]bool
	down      map[string]bool
	changed   chan struct{} // closed at every change of a cut
	conns     map[*conn]struct{}
}

type link struct{ from, to string }

// NewNetwork makes a network without cuts where every hop takes a while.
func NewNetwork(hop time.Duration) *Network {
	return &Network{hop: hop, listeners: map[string]*listener{}, cuts: map[link]bool{},
		down: map[string]bool{}, changed: make(chan struct{}), conns: map[*conn]struct{}{}}
}

// SetCut opens or closes the link between two hosts in one direction.
func (n *Network) SetCut(from, to string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cuts[link{from, to}] == cut {
		return
	}
	n.cuts[link{from, to}] = cut
	close(n.changed)
	n.changed = make(chan struct{})
}

// cut says whether a link is cut, and when to look again.
func (n *Network) cut(from, to string) (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cuts[link{from, to}], n.changed
}

// SetDown takes a host off the network, as the end of its process does: its connections and
// listeners are gone, and whatever still runs of it reaches nobody.
func (n *Network) SetDown(host string, down bool) {
	n.mu.Lock()
	n.down[host] = down
	for addr := range n.listeners {
		if on, _, err := net.SplitHostPort(addr); err == nil && on == host && down {
			delete(n.listeners, addr)
		}
	}
	n.mu.Unlock()
	if down {
		n.Reset(host)
	}
}

// Reset breaks every connection of a host at once, as the end of its process does. "" is
// every host.
func (n *Network) Reset(host string) {
	n.mu.Lock()
	var broken []*conn
	for c := range n.conns {
		if host == "" || c.from == host || c.to == host {
			broken = append(broken, c)
		}
	}
	n.mu.Unlock()
	for _, c := range broken {
		c.reset()
	}
}

// Listen puts host:port on the network.
func (n *Network) Listen(addr string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		return nil, fmt.Errorf("listen %s: address already in use", addr)
	}
	l := &listener{network: n, addr: addr, incoming: make(chan net.Conn, 64), done: make(chan struct{})}
	n.listeners[addr] = l
	return l, nil
}

// Dial connects a host to an address. Where nobody listens it is refused; over a cut link it
// waits as long as the context lets it.
func (n *Network) Dial(ctx context.Context, from, addr string) (net.Conn, error) {
	to, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	for _, way := range []link{{from, to}, {to, from}} {
		for {
			cut, changed := n.cut(way.from, way.to)
			if !cut {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, fmt.Errorf("dial %s: %w", addr, context.Cause(ctx))
			}
		}
	}
	time.Sleep(2 * n.hop)
	n.mu.Lock()
	l := n.listeners[addr]
	if n.down[from] {
		l = nil
	}
	n.mu.Unlock()
	if l == nil {
		time.Sleep(refusedCost)
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	near, far := n.pair(from, to, addr)
	select {
	case l.incoming <- far:
		return near, nil
	case <-l.done:
		near.reset()
		time.Sleep(refusedCost)
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	case <-ctx.Done():
		near.reset()
		return nil, fmt.Errorf("dial %s: %w", addr, context.Cause(ctx))
	}
}

// pair makes a connection; near is the end of the host that dialled.
func (n *Network) pair(from, to, addr string) (near, far *conn) {
	there, back := newPipe(n, from, to), newPipe(n, to, from)
	near = &conn{network: n, from: from, to: to, local: address(from + ":0"), remote: address(addr), in: back, out: there}
	far = &conn{network: n, from: to, to: from, local: address(addr), remote: address(from + ":0"), in: there, out: back}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[near], n.conns[far] = struct{}{}, struct{}{}
	return near, far
}

func (n *Network) forget(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

type listener struct {
	network  *Network
	addr     string
	incoming chan net.Conn
	done     chan struct{}
	once     sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.network.mu.Lock()
		if l.network.listeners[l.addr] == l {
			delete(l.network.listeners, l.addr)
		}
		l.network.mu.Unlock()
		close(l.done)
		for {
			select {
			case c := <-l.incoming:
				c.Close()
			default:
				return
			}
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return address(l.addr) }

type address string

func (address) Network() string  { return "memory" }
func (a address) String() string { return string(a) }

// pipe is one direction of a connection: chunks that arrive a hop after they were sent, and
// not while the link is cut. One goroutine reads and one writes at a time.
type pipe struct {
	network  *Network
	from, to string

	mu     sync.Mutex
	chunks []chunk
	bytes  int
	ended  error // what the reader gets behind the last chunk
	broken bool  // nothing more arrives, not even what was sent

	news chan struct{} // something arrived or ended; holds one
	room chan struct{} // something was read or ended; holds one
}

type chunk struct {
	at   time.Time
	data []byte
}

func newPipe(n *Network, from, to string) *pipe {
	return &pipe{network: n, from: from, to: to, news: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (p *pipe) end(err error, broken bool) {
	p.mu.Lock()
	if p.ended == nil {
		p.ended = err
	}
	p.broken = p.broken || broken
	p.mu.Unlock()
	poke(p.news)
	poke(p.room)
}

func (p *pipe) write(b []byte, d *deadline) (int, error) {
	for {
		p.mu.Lock()
		if p.ended != nil {
			p.mu.Unlock()
			return 0, errors.New("write: broken pipe")
		}
		if p.bytes < pipeBytes {
			p.chunks = append(p.chunks, chunk{time.Now().Add(p.network.hop), append([]byte(nil), b...)})
			p.bytes += len(b)
			p.mu.Unlock()
			poke(p.news)
			return len(b), nil
		}
		p.mu.Unlock()
		moved := d.changed()
		timer, expired := d.timer()
		if expired {
			return 0, os.ErrDeadlineExceeded
		}
		select {
		case <-p.room:
		case <-moved:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (p *pipe) read(b []byte, d *deadline) (int, error) {
	for {
		cut, changed := p.network.cut(p.from, p.to)
		n, wait, err := p.take(b, cut)
		if n > 0 || err != nil {
			return n, err
		}
		moved := d.changed()
		timer, expired := d.timer()
		if expired {
			return 0, os.ErrDeadlineExceeded
		}
		arrival := time.NewTimer(wait)
		select {
		case <-arrival.C:
		case <-p.news:
		case <-changed:
		case <-moved:
		case <-timer.C:
		}
		arrival.Stop()
		timer.Stop()
	}
}

// take copies what has arrived, or says how long until something does.
func (p *pipe) take(b []byte, cut bool) (n int, wait time.Duration, err error) {
	const long = 24 * time.Hour
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.broken:
		return 0, 0, errors.New("read: connection reset by peer")
	case cut:
		return 0, long, nil
	case len(p.chunks) == 0:
		return 0, long, p.ended
	}
	if wait := time.Until(p.chunks[0].at); wait > 0 {
		return 0, wait, nil
	}
	for n < len(b) && len(p.chunks) > 0 && time.Until(p.chunks[0].at) <= 0 {
		first := &p.chunks[0]
		size := copy(b[n:], first.data)
		n += size
		if first.data = first.data[size:]; len(first.data) == 0 {
			p.chunks = p.chunks[1:]
		}
	}
	p.bytes -= n
	poke(p.room)
	return n, 0, nil
}
