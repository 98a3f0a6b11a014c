package clustertest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// connected is a connection between two hosts of a network with 2 ms a hop.
func connected(t *testing.T) (n *Network, near, far net.Conn) {
	t.Helper()
	n = NewNetwork(2 * time.Millisecond)
	l, err := n.Listen("b:1")
	if err != nil {
		t.Fatal(err)
	}
	if near, err = n.Dial(t.Context(), "a", "b:1"); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Reset("") })
	return n, near, far
}

func TestEveryHopTakesItsTimeAndABytesOrderIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, near, far := connected(t)
		began := time.Now()
		near.Write([]byte("one "))
		near.Write([]byte("two"))
		text := make([]byte, 7)
		if _, err := io.ReadFull(far, text); err != nil || string(text) != "one two" {
			t.Errorf("got %q, %v", text, err)
		}
		if took := time.Since(began); took != 2*time.Millisecond {
			t.Errorf("a hop took %v", took)
		}
	})
}

func TestACutHoldsOneDirectionBackAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, near, far := connected(t)
		n.SetCut("a", "b", true)
		near.Write([]byte("x"))
		far.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("over a cut link: %v", err)
		}
		far.SetReadDeadline(time.Time{})
		far.Write([]byte("y")) // the other direction is whole
		if _, err := near.Read(make([]byte, 1)); err != nil {
			t.Errorf("the other direction: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Dial(ctx, "a", "b:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a dial over a cut link: %v", err)
		}
		n.SetCut("a", "b", false)
		if _, err := far.Read(make([]byte, 1)); err != nil {
			t.Errorf("after the link was mended: %v", err)
		}
	})
}

func TestAHostThatIsDownIsRefusedAndItsConnectionsAreReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, near, far := connected(t)
		near.Write([]byte("x")) // on its way, and lost
		n.SetDown("b", true)
		if _, err := near.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the other end of a dead host reads %v", err)
		}
		if _, err := far.Read(make([]byte, 1)); err == nil {
			t.Error("a dead host still reads")
		}
		if _, err := n.Dial(t.Context(), "a", "b:1"); err == nil {
			t.Error("a dead host was dialled")
		}
		n.SetDown("b", false)
		if _, err := n.Listen("b:1"); err != nil {
			t.Errorf("it cannot listen again: %v", err)
		}
	})
}

func TestACloseLetsTheOtherEndReadWhatWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, near, far := connected(t)
		near.Write([]byte("bye"))
		near.Close()
		text, err := io.ReadAll(far)
		if err != nil || string(text) != "bye" {
			t.Errorf("got %q, %v", text, err)
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) && err == nil {
			t.Errorf("a closed end reads: %v", err)
		}
	})
}

func TestAWriterWaitsForAReaderThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, near, far := connected(t)
		near.SetWriteDeadline(time.Now().Add(time.Second))
		var err error
		sent := 0
		for err == nil && sent < 10*pipeBytes {
			var k int
			k, err = near.Write(make([]byte, pipeBytes/4))
			sent += k
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || sent > 2*pipeBytes {
			t.Errorf("%d bytes were taken, %v", sent, err)
		}
		io.ReadFull(far, make([]byte, sent))
		near.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := near.Write([]byte("x")); err != nil {
			t.Errorf("after room was made: %v", err)
		}
	})
}

// shaped is a connection from a client to node b, whose link has a shape in one direction.
func shaped(t *testing.T, s Shape) (n *Network, near, far net.Conn) {
	t.Helper()
	n, near, far = connected(t)
	n.AddNode("b")
	n.SetShape(Others, "b", s)
	return n, near, far
}

// takes sends one way and answers how long that took.
func takes(t *testing.T, from, to net.Conn, bytes int) time.Duration {
	t.Helper()
	began := time.Now()
	if _, err := from.Write(make([]byte, bytes)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(to, make([]byte, bytes)); err != nil {
		t.Fatal(err)
	}
	return time.Since(began)
}

func TestAShapedLinkIsSlowInOneDirection(t *testing.T) {
	for name, c := range map[string]struct {
		shape       Shape
		bytes       int
		least, most time.Duration
	}{
		"delay":  {Shape{Delay: 100 * time.Millisecond}, 1, 102 * time.Millisecond, 102 * time.Millisecond},
		"jitter": {Shape{Jitter: 100 * time.Millisecond}, 1, 2 * time.Millisecond, 102 * time.Millisecond},
		"rate":   {Shape{Rate: 1000}, 500, 502 * time.Millisecond, 502 * time.Millisecond},
		"loss":   {Shape{Loss: 1}, 1, time.Second, 2 * retransmit << mostResends},
		"whole":  {Shape{}, 1, 2 * time.Millisecond, 2 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, near, far := shaped(t, c.shape)
				before := n.Lost("b")
				if took := takes(t, near, far, c.bytes); took < c.least || took > c.most {
					t.Errorf("it took %v, want %v to %v", took, c.least, c.most)
				}
				if bit := n.Lost("b") > before; bit != (c.shape != Shape{}) {
					t.Errorf("the link counted from %d to %d", before, n.Lost("b"))
				}
				if took := takes(t, far, near, c.bytes); took != 2*time.Millisecond {
					t.Errorf("the way back took %v", took)
				}
			})
		})
	}
}

func TestOrderIsKeptWhenALinkBecomesFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, near, far := shaped(t, Shape{Delay: time.Second})
		near.Write([]byte("one "))
		n.SetShape(Others, "b", Shape{})
		near.Write([]byte("two"))
		text := make([]byte, 7)
		if _, err := io.ReadFull(far, text); err != nil || string(text) != "one two" {
			t.Errorf("got %q, %v", text, err)
		}
	})
}

func TestConnectionsOverATornLinkBreakWhenTheyAreUsedAndAreNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, near, far := shaped(t, Shape{Reset: true})
		far.Write([]byte("x")) // the way back is whole
		if _, err := near.Read(make([]byte, 1)); err != nil {
			t.Errorf("the way back: %v", err)
		}
		if _, err := near.Write([]byte("x")); err == nil {
			t.Error("the torn way was used")
		}
		if _, err := far.Read(make([]byte, 1)); err == nil {
			t.Error("the other end is still connected")
		}
		if _, err := n.Dial(t.Context(), "a", "b:1"); err == nil {
			t.Error("a connection was made")
		}
		if n.Lost("b") < 2 {
			t.Errorf("the link counted %d", n.Lost("b"))
		}
	})
}

func TestAHeldHostGoesOnWithWhatWasOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, near, far := connected(t)
		far.Write([]byte("w")) // sent before
		n.Hold("b")
		if _, err := near.Read(make([]byte, 1)); err != nil {
			t.Errorf("what was sent before: %v", err)
		}
		near.Write([]byte("x"))
		far.Write([]byte("y"))
		late, err := n.Dial(t.Context(), "late", "b:1") // it is connected, and not heard
		if err != nil {
			t.Fatal(err)
		}
		late.Write([]byte("z"))
		time.Sleep(time.Minute)
		for _, end := range []net.Conn{near, far} {
			end.SetReadDeadline(time.Now())
			if _, err := end.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("while it is held: %v", err)
			}
			end.SetReadDeadline(time.Time{})
		}
		if n.Lost("b") < 3 {
			t.Errorf("three things were held up, counted are %d", n.Lost("b"))
		}
		n.Release("b", time.Second, 0)
		for _, end := range []net.Conn{near, far} {
			if _, err := end.Read(make([]byte, 1)); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		}
		time.Sleep(time.Second)
		if n.way("a", "b").deaf != 0 || n.way("b", "late").stopped != 0 {
			t.Error("a link is still held")
		}
	})
}

func TestABrokenLinkCanBeUsedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, near, _ := shaped(t, Shape{})
		n.Break("b", "c")
		if _, err := near.Write([]byte("x")); err != nil {
			t.Errorf("another link was broken: %v", err)
		}
		n.Break("b", Others)
		if _, err := near.Write([]byte("x")); err == nil {
			t.Error("the connection is still there")
		}
		if _, err := n.Dial(t.Context(), "a", "b:1"); err != nil {
			t.Error(err)
		}
	})
}
