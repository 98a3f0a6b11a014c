package netns

import (
	"net"
	"sync"
	"time"
)

const (
	pieceBytes  = 16 << 10
	piecesAhead = 64 // in one direction; then the sender is made to wait
)

// joint is a connection that passes through the harness: two sockets, and between them in each
// direction a bounded queue and the gates of that direction. When one side has sent its last
// byte and the other has it, both are closed: no protocol here leaves a connection half open.
type joint struct {
	a, b int // its two ends: numbers of nodes, or nemesis.Clients
	near net.Conn
	far  net.Conn
	over chan struct{}
	once sync.Once
}

// joints are all of a cluster.
type joints struct {
	mu     sync.Mutex
	closed bool
	all    map[*joint]struct{}
	group  sync.WaitGroup
}

// piece is what was read at once; empty is the end.
type piece struct {
	sent  time.Time
	bytes []byte
}

// tie carries bytes between two connections: from near to far past gates out, and back past
// gates in. It owns both and ends with them, at the latest with close.
func (j *joints) tie(a, b int, near, far net.Conn, out, in []*gate) {
	link := &joint{a: a, b: b, near: near, far: far, over: make(chan struct{})}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		link.cut()
		return
	}
	j.all[link] = struct{}{}
	var sides sync.WaitGroup
	sides.Go(func() { link.carry(near, far, out) })
	sides.Go(func() { link.carry(far, near, in) })
	j.group.Go(func() {
		sides.Wait()
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.all, link)
	})
}

// cut ends both connections now; what is on its way is gone.
func (l *joint) cut() {
	l.once.Do(func() {
		close(l.over)
		abort(l.near)
		abort(l.far)
	})
}

// abort closes a connection without handing over what the kernel still has to send.
func abort(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	c.Close()
}

// carry is one direction.
func (l *joint) carry(from, to net.Conn, gates []*gate) {
	queue := make(chan piece, piecesAhead)
	var reader sync.WaitGroup
	reader.Go(func() { l.read(from, queue) })
	for p := range queue {
		if !l.deliver(p, to, gates) {
			break
		}
	}
	l.close()
	reader.Wait()
}

// deliver brings a piece past the gates to its end; false when nothing more will go this way.
func (l *joint) deliver(p piece, to net.Conn, gates []*gate) bool {
	for _, g := range gates {
		if !g.pass(p.sent, len(p.bytes), l.over) {
			return false
		}
	}
	if len(p.bytes) == 0 {
		return false
	}
	_, err := to.Write(p.bytes)
	return err == nil
}

// close ends both connections in the usual way: what was written still goes out.
func (l *joint) close() {
	l.once.Do(func() {
		close(l.over)
		l.near.Close()
		l.far.Close()
	})
}

// read fills the queue until the end of what comes, and closes it.
func (l *joint) read(from net.Conn, queue chan<- piece) {
	defer close(queue)
	for {
		buffer := make([]byte, pieceBytes)
		n, err := from.Read(buffer)
		p := piece{time.Now(), buffer[:n]}
		if n > 0 && !l.put(queue, p) {
			return
		}
		if err != nil {
			l.put(queue, piece{sent: p.sent})
			return
		}
	}
}

func (l *joint) put(queue chan<- piece, p piece) bool {
	select {
	case queue <- p:
		return true
	case <-l.over:
		return false
	}
}

// cut ends the connections between two ends.
func (j *joints) cut(a, b int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for l := range j.all {
		if l.a == a && l.b == b || l.a == b && l.b == a {
			l.cut()
		}
	}
}

// close ends all of them, and waits for their goroutines; what comes later is cut at once.
func (j *joints) close() {
	j.mu.Lock()
	j.closed = true
	for l := range j.all {
		l.cut()
	}
	j.mu.Unlock()
	j.group.Wait()
}
