package clustertest

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// conn is one end of a connection.
type conn struct {
	network       *Network
	from, to      string // this host, the other host
	local, remote net.Addr
	in, out       *pipe
	reads, writes deadline
}

func (c *conn) Read(b []byte) (int, error) { return c.in.read(b, &c.reads) }

func (c *conn) Write(b []byte) (int, error) {
	if c.out.way.resets() {
		c.reset()
		return 0, errors.New("write: connection reset by peer")
	}
	n, err := c.out.write(b, &c.writes)
	if passes, _ := c.in.way.holds(); err != nil && passes != open && c.out.unread() {
		return len(b), nil // what says that nobody reads does not arrive either
	}
	return n, err
}

// unread says whether the other side has closed, and reads no more.
func (p *pipe) unread() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Is(p.ended, net.ErrClosed)
}

// Close ends both directions: the other side still reads what was sent.
func (c *conn) Close() error {
	c.network.forget(c)
	c.out.end(io.EOF, false)
	c.in.end(net.ErrClosed, true)
	return nil
}

// reset breaks both directions, for both ends.
func (c *conn) reset() {
	c.network.forget(c)
	c.out.end(io.ErrUnexpectedEOF, true)
	c.in.end(io.ErrUnexpectedEOF, true)
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	c.reads.set(t)
	c.writes.set(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.reads.set(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.writes.set(t)
	return nil
}

// deadline is when an end gives up waiting. The zero value never does.
type deadline struct {
	mu   sync.Mutex
	at   time.Time
	wake chan struct{}
}

func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = at
	if d.wake != nil {
		close(d.wake)
		d.wake = nil
	}
}

// look says how long is left, and what is closed when that changes.
func (d *deadline) look() (moved <-chan struct{}, left time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wake == nil {
		d.wake = make(chan struct{})
	}
	if d.at.IsZero() {
		return d.wake, forever
	}
	return d.wake, time.Until(d.at)
}
