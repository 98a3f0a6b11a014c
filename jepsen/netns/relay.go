package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

const (
	// pending bounds the connections to one port of a face that are being made; nodes keep a
	// few to each other.
	pending = 256
	// reachPatience bounds the relay's own attempt to reach a node; it is above that of nodes.
	reachPatience = 10 * time.Second
)

// relay lets connections between nodes pass through the hub. What node a sends to the address
// of node b is redirected in a's namespace to b's face in the hub, and the relay connects to b
// from a's face. So b, and its firewall, can tell by the address whose packets they are.
type relay struct {
	c         *Cluster
	ctx       context.Context // ends with close
	cancel    context.CancelFunc
	mu        sync.Mutex
	listeners []net.Listener
	group     sync.WaitGroup
}

func newRelay(c *Cluster) *relay {
	r := &relay{c: c}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// join redirects what a node sends to others, and listens for what others send to it.
func (r *relay) join(n *node) error {
	var others []string
	for i := range maxNodes {
		if i != n.index {
			others = append(others, nodeAddr(i)+" : "+faceAddr(i))
		}
	}
	_, err := n.space.run(fmt.Sprintf(`table ip relay {
		chain out {
			type nat hook output priority -100; policy accept;
			tcp dport { %s, %s } dnat to ip daddr map { %s }
		}
	}`, grpcPort, raftPort, strings.Join(others, ", ")), "nft", "-f", "-")
	if err != nil {
		return err
	}
	for _, port := range []string{grpcPort, raftPort} {
		l, err := r.c.hub.listen(faceAddr(n.index) + ":" + port)
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.listeners = append(r.listeners, l)
		r.group.Go(func() { r.accept(l, n.index, nodeAddr(n.index)+":"+port) })
		r.mu.Unlock()
	}
	return nil
}

// accept takes connections to one port of a node, until the listener is closed.
func (r *relay) accept(l net.Listener, to int, addr string) {
	places := make(chan struct{}, pending)
	for {
		near, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // no descriptors, or the caller has gone already
			continue
		}
		from, ok := caller(near)
		select {
		case places <- struct{}{}:
		default:
			ok = false
		}
		if !ok {
			abort(near)
			continue
		}
		r.group.Go(func() {
			defer func() { <-places }()
			r.pass(near, from, to, addr)
		})
	}
}

// caller is the node that a connection comes from.
func caller(conn net.Conn) (int, bool) {
	addr, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return 0, false
	}
	return numberAt(addr.Addr())
}

// pass reaches the node that somebody meant, and ties both connections together.
func (r *relay) pass(near net.Conn, from, to int, addr string) {
	ctx, cancel := context.WithTimeout(r.ctx, reachPatience)
	defer cancel()
	out, in := r.c.gate(from, to), r.c.gate(to, from)
	if !out.pass(time.Now(), 0, ctx.Done()) { // the first packet, which asks for the connection
		abort(near)
		return
	}
	far, err := r.c.hub.dial(ctx, faceAddr(from), addr)
	if err != nil {
		abort(near)
		return
	}
	r.c.joints.tie(from, to, near, far, []*gate{out}, []*gate{in})
}

// close ends listening, and waits until nothing is being connected any more.
func (r *relay) close() {
	r.cancel()
	r.mu.Lock()
	for _, l := range r.listeners {
		l.Close()
	}
	r.mu.Unlock()
	r.group.Wait()
}
