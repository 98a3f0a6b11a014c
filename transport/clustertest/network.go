package clustertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// refusedCost is the virtual price of dialling where nobody listens: a retry must take time.
const refusedCost = 50 * time.Millisecond

// Others stands for all hosts that are no nodes, as one end of a shaped link.
const Others = ""

// Network joins named hosts. A link has a direction, and three things can hold one back: a cut
// between two hosts, a host that is held with all its links, and a Shape. Where a link is held
// back both ends keep their connection, and what was on its way arrives when it is whole again.
// Safe for several goroutines.
type Network struct {
	hop time.Duration

	mu        sync.Mutex
	listeners map[string]*listener // by host:port
	nodes     map[string]bool      // hosts that are no Others
	shapes    map[link]Shape
	held      map[string]int
	ways      map[link]*way
	down      map[string]bool
	conns     map[*conn]struct{}
}

type link struct{ from, to string }

// NewNetwork makes a network without cuts where every hop takes a while.
func NewNetwork(hop time.Duration) *Network {
	return &Network{hop: hop, listeners: map[string]*listener{}, nodes: map[string]bool{}, shapes: map[link]Shape{},
		held: map[string]int{}, ways: map[link]*way{}, down: map[string]bool{}, conns: map[*conn]struct{}{}}
}

// AddNode says that a host is a node, and none of the Others.
func (n *Network) AddNode(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes[host] = true
}

// end is as what a shaped link knows a host.
func (n *Network) end(host string) string {
	if n.nodes[host] {
		return host
	}
	return Others
}

// way is the link between two hosts.
func (n *Network) way(from, to string) *way {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wayLocked(from, to)
}

func (n *Network) wayLocked(from, to string) *way {
	w := n.ways[link{from, to}]
	if w == nil {
		w = &way{from: from, to: to, hop: n.hop, changed: make(chan struct{}), shape: n.shapes[link{n.end(from), n.end(to)}]}
		w.stopped, w.deaf = n.held[from], n.held[to]
		n.ways[link{from, to}] = w
	}
	return w
}

// SetCut opens or closes the link between two hosts in one direction.
func (n *Network) SetCut(from, to string, cut bool) {
	w := n.way(from, to)
	w.change(func() { w.cut = cut })
}

// Hold holds a host, as when its process is stopped: what it sends from then on waits, and
// what reaches it waits too. What it had sent arrives, and connections are still made to it.
// It holds as often as it is called.
func (n *Network) Hold(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[host]++
	for _, w := range n.ways {
		if w.from == host {
			w.change(func() { w.stopped++ })
		} else if w.to == host {
			w.change(func() { w.deaf++ })
		}
	}
}

// Release lets a host that is held go again. A process that goes on does not hear everybody
// at once: each link to it goes on by itself within the first time, each link from it within
// the second.
func (n *Network) Release(host string, hears, speaks time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held[host] == 0 {
		return
	}
	n.held[host]--
	for _, w := range n.ways {
		switch host {
		case w.from:
			later(speaks, func() { w.change(func() { w.stopped-- }) })
		case w.to:
			later(hears, func() { w.change(func() { w.deaf-- }) })
		}
	}
}

// later does something at some moment within a time; at once if there is none.
func later(within time.Duration, do func()) {
	if within <= 0 {
		do()
		return
	}
	time.AfterFunc(rand.N(within), do)
}

// SetShape shapes the link between two nodes, or a node and the Others, in one direction.
func (n *Network) SetShape(from, to string, s Shape) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shapes[link{from, to}] = s
	for _, w := range n.ways {
		if n.end(w.from) == from && n.end(w.to) == to {
			w.change(func() { w.shape = s })
		}
	}
}

// Lost counts the chunks on links of a host that were dropped, held or delayed so far.
func (n *Network) Lost(host string) (count uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.ways {
		if w.from == host || w.to == host {
			w.mu.Lock()
			count += w.count
			w.mu.Unlock()
		}
	}
	return count
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
	n.breakThose(func(c *conn) bool { return host == "" || c.from == host || c.to == host })
}

// Break breaks every connection between two ends: nodes, or a node and the Others.
func (n *Network) Break(a, b string) {
	n.breakThose(func(c *conn) bool {
		from, to := n.end(c.from), n.end(c.to)
		return from == a && to == b || from == b && to == a
	})
}

func (n *Network) breakThose(which func(*conn) bool) {
	n.mu.Lock()
	var broken []*conn
	for c := range n.conns {
		if which(c) {
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

// Dial connects a host to an address. Where nobody listens it is refused; over a link that is
// held back it waits as long as the context lets it.
func (n *Network) Dial(ctx context.Context, from, addr string) (net.Conn, error) {
	to, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	there, back := n.way(from, to), n.way(to, from)
	refused := func() (net.Conn, error) {
		time.Sleep(refusedCost)
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	for _, w := range []*way{there, back} {
		if err := w.cross(ctx); err != nil {
			return nil, fmt.Errorf("dial %s: %w", addr, err)
		}
	}
	n.mu.Lock()
	l := n.listeners[addr]
	if n.down[from] {
		l = nil
	}
	n.mu.Unlock()
	if l == nil || there.resets() || back.resets() {
		return refused()
	}
	near, far := n.pair(there, back, addr)
	select {
	case l.incoming <- far:
		return near, nil
	case <-l.done:
		near.reset()
		return refused()
	case <-ctx.Done():
		near.reset()
		return nil, fmt.Errorf("dial %s: %w", addr, context.Cause(ctx))
	}
}

// pair makes a connection; near is the end of the host that dialled.
func (n *Network) pair(there, back *way, addr string) (near, far *conn) {
	out, in := newPipe(there), newPipe(back)
	near = &conn{network: n, from: there.from, to: there.to, local: address(there.from + ":0"), remote: address(addr), in: in, out: out}
	far = &conn{network: n, from: there.to, to: there.from, local: address(addr), remote: address(there.from + ":0"), in: out, out: in}
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
