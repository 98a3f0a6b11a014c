package transport

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// layer is a stream layer on TCP loopback that admits its own cluster.
func layer(t *testing.T, id, cluster string) *streamLayer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	self := &boardpb.Node{Id: id, Name: "name-" + id, RaftAddr: l.Addr().String(), GrpcAddr: "grpc-" + id}
	s := newStreamLayer(streamLayerConfig{
		id: id, listener: l,
		dial: func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		},
		book:  openAddressBook(filepath.Join(t.TempDir(), "addresses.json"), hclog.NewNullLogger()),
		hello: func() *wirepb.HelloRequest { return &wirepb.HelloRequest{ClusterId: cluster, Node: self} },
		admit: func(r *wirepb.HelloRequest) *wirepb.HelloResponse {
			answer := &wirepb.HelloResponse{ClusterId: cluster, Node: self}
			if r.ClusterId != cluster {
				answer.Refused = "another cluster"
			} else if r.To != id {
				answer.Refused = "another node"
			}
			return answer
		},
		logger: hclog.NewNullLogger(),
	})
	t.Cleanup(func() { s.Close() })
	return s
}

func TestP27ADialGoesByIDAndTheHandshakeTeachesBothAddresses(t *testing.T) {
	a, b := layer(t, "a", "c"), layer(t, "b", "c")
	if a.Addr().String() != "a" {
		t.Errorf("the layer's address is %q, want the node's id", a.Addr())
	}
	if _, err := a.Dial("b", time.Second); err == nil {
		t.Error("a node without a known address was dialled")
	}
	a.book.learn(&boardpb.Node{Id: "b", Name: "old", RaftAddr: b.listener.Addr().String()})
	conn, err := a.Dial("b", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if name := a.book.node("b").GetName(); name != "name-b" {
		t.Errorf("the caller knows b as %q", name)
	}
	if addr := b.book.node("a").GetGrpcAddr(); addr != "grpc-a" {
		t.Errorf("the other side knows a at %q", addr)
	}
	// Exactly its own bytes: what is written right behind the handshake arrives whole.
	go conn.Write([]byte("raft speaks"))
	text := make([]byte, 11)
	if _, err := io.ReadFull(got, text); err != nil || string(text) != "raft speaks" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestP26AnotherClusterOrNodeIsRefusedWithTheReason(t *testing.T) {
	a, b, other := layer(t, "a", "c"), layer(t, "b", "c"), layer(t, "x", "c2")
	for want, dial := range map[string]struct {
		from *streamLayer
		to   string
		addr string
	}{
		"another cluster": {other, "b", b.listener.Addr().String()},
		"another node":    {a, "z", b.listener.Addr().String()}, // the address is b's by now
	} {
		dial.from.book.learn(&boardpb.Node{Id: dial.to, RaftAddr: dial.addr})
		if _, err := dial.from.Dial(raft.ServerAddress(dial.to), time.Second); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want a refusal that says %q, got %v", want, err)
		}
	}
}

func TestASilentCallerDoesNotHoldUpAccept(t *testing.T) {
	a, b := layer(t, "a", "c"), layer(t, "b", "c")
	silent, err := net.Dial("tcp", b.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	a.book.learn(&boardpb.Node{Id: "b", RaftAddr: b.listener.Addr().String()})
	conn, err := a.Dial("b", time.Second)
	if err != nil {
		t.Fatal("a silent connection held up the next one: ", err)
	}
	conn.Close()
	if _, err := b.Accept(); err != nil {
		t.Fatal(err)
	}
}

func TestAStrangersFirstBytesAreNotTakenForAHello(t *testing.T) {
	b := layer(t, "b", "c")
	huge := binary.BigEndian.AppendUint32([]byte(handshakeMagic), 1<<31)
	for what, bytes := range map[string][]byte{
		"HTTP":            []byte("GET / HTTP/1.1\r\nHost: b\r\n\r\n"),
		"a huge hello":    huge,
		"a broken hello":  append(binary.BigEndian.AppendUint32([]byte(handshakeMagic), 3), 0xff, 0xff, 0xff),
		"a gRPC preface":  []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		"the first bytes": []byte("RB"),
	} {
		conn, err := net.Dial("tcp", b.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(bytes)
		conn.(*net.TCPConn).CloseWrite()
		conn.SetReadDeadline(time.Now().Add(3 * time.Second))
		if n, err := conn.Read(make([]byte, 1)); n != 0 || os.IsTimeout(err) {
			t.Errorf("%s was answered or left hanging: %d bytes, %v", what, n, err)
		}
		conn.Close()
	}
}

func TestCloseEndsConnectionsThatRaftStillHolds(t *testing.T) {
	a, b := layer(t, "a", "c"), layer(t, "b", "c")
	a.book.learn(&boardpb.Node{Id: "b", RaftAddr: b.listener.Addr().String()})
	conn, err := a.Dial("b", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Accept(); err != nil {
		t.Fatal(err)
	}
	b.Close()
	conn.SetReadDeadline(time.Now().Add(3 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the connection is still open: %v", err)
	}
	if _, err := b.Accept(); err != net.ErrClosed {
		t.Errorf("Accept of a closed layer: %v", err)
	}
}

func TestP27TheAddressBookSurvivesARestartAndADamagedFileIsForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "addresses.json")
	book := openAddressBook(path, hclog.NewNullLogger())
	book.learn(&boardpb.Node{Id: "b", Name: "nb", RaftAddr: "h:1", GrpcAddr: "h:2"})
	book.hearsay(&boardpb.Node{Id: "b", Name: "nb", RaftAddr: "wrong:1"})
	book.hearsay(&boardpb.Node{Id: "c", Name: "nc", RaftAddr: "h:3", GrpcAddr: "h:4"})
	book.learn(&boardpb.Node{Id: "b", Name: "nb", RaftAddr: "moved:1", GrpcAddr: "h:2"})
	again := openAddressBook(path, hclog.NewNullLogger())
	for id, want := range map[string]string{"b": "moved:1", "c": "h:3"} {
		if got, known := again.raftAddr(id); !known || got != want {
			t.Errorf("%s is at %q (%v), want %q", id, got, known, want)
		}
	}
	again.forget("b")
	if _, known := openAddressBook(path, hclog.NewNullLogger()).raftAddr("b"); known {
		t.Error("a removed node is still in the book")
	}
	if err := os.WriteFile(path, []byte(`{"nodes":[{"id"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := len(openAddressBook(path, hclog.NewNullLogger()).all()); n != 0 {
		t.Errorf("a damaged book has %d nodes", n)
	}
}
