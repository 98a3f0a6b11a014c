package node

import (
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// loopback is a stream layer on TCP.
type loopback struct{ net.Listener }

func (loopback) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", string(to), timeout)
}

// refusingFollower answers every append with "my log does not match", and answers its address.
func refusingFollower(t *testing.T) (raft.ServerAddress, Transport) {
	t.Helper()
	var ends [2]*raft.NetworkTransport
	for i := range ends {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = NewTransport(loopback{l}, nil)
		t.Cleanup(func() { ends[i].Close() })
	}
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		for {
			select {
			case rpc := <-ends[0].Consumer():
				rpc.Respond(&raft.AppendEntriesResponse{Term: 1}, nil)
			case <-done:
				return
			}
		}
	}()
	return ends[0].LocalAddr(), ends[1]
}

// sendsAfterRefusal counts the requests that can still be sent when the reader of answers has
// ended with the first refusal, as raft's does.
func sendsAfterRefusal(t *testing.T, p raft.AppendPipeline, want int) (sent int) {
	t.Helper()
	send := func() error {
		_, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: 1}, new(raft.AppendEntriesResponse))
		return err
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	if refusal := <-p.Consumer(); refusal.Response().Success {
		t.Fatal("the follower did not refuse")
	}
	progress := make(chan struct{})
	go func() {
		defer close(progress)
		for range want {
			if send() != nil {
				return
			}
			progress <- struct{}{}
		}
	}()
	for {
		select {
		case _, more := <-progress:
			if !more {
				return sent
			}
			sent++
		case <-time.After(time.Second):
			p.Close() // lets the blocked sender go
			for range progress {
			}
			return sent
		}
	}
}

func TestARefusedAppendDoesNotBlockTheSenderForEver(t *testing.T) {
	const sends = 8 // raft's sender notices the refusal within a few
	addr, tr := refusingFollower(t)
	stock, err := tr.AppendEntriesPipeline("f", addr)
	if err != nil {
		t.Fatal(err)
	}
	if n := sendsAfterRefusal(t, stock, sends); n == sends {
		t.Error("the library's own pipeline does not block any more: reconsider the guard (hashicorp/raft#612)")
	}
	guarded, err := guardTransport(tr, func() time.Duration { return 0 }).AppendEntriesPipeline("f", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer guarded.Close()
	if n := sendsAfterRefusal(t, guarded, sends); n != sends {
		t.Errorf("blocked after %d of %d requests", n, sends)
	}
}
