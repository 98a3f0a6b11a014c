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
