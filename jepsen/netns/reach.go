package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"raftboard/client"
	"raftboard/jepsen/nemesis"
	wirepb "raftboard/transport/pb"
)

// Dial implements workload.Cluster. Every client is in the hub namespace, behind one address.
func (c *Cluster) Dial(name string, first int) (*client.Client, error) {
	if _, err := c.node(first); err != nil {
		return nil, err
	}
	var addrs []string
	for i, node := range c.Nodes() {
		if node != "" || i == first {
			addrs = append(addrs, nodeAddr(i)+":"+grpcPort)
		}
		if i == first {
			addrs[0], addrs[len(addrs)-1] = addrs[len(addrs)-1], addrs[0]
		}
	}
	return client.Dial(client.Config{Endpoints: addrs, As: name, Name: "jepsen", Dialer: c.dialer(name)})
}

// dialer makes connections of one client: each is one end of a pipe, whose other end a joint
// ties to a socket in the hub namespace.
func (c *Cluster) dialer(name string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		to, err := netip.ParseAddrPort(addr)
		if err != nil {
			return nil, fmt.Errorf("netns: dial %s: %w", addr, err)
		}
		node, ok := numberAt(to.Addr())
		if !ok {
			return nil, fmt.Errorf("netns: dial %s: no node has that address", addr)
		}
		out, in := c.clientGates(name, node)
		for _, g := range out { // nothing is sent to a node that a client cannot reach
			if !g.pass(time.Now(), 0, ctx.Done()) {
				return nil, ctx.Err()
			}
		}
		far, err := c.hub.dial(ctx, clientsAddr, addr)
		if err != nil {
			return nil, err
		}
		own, near := net.Pipe()
		c.joints.tie(nemesis.Clients, node, near, far, out, in)
		return own, nil
	}
}

// clientGates are those of a client's connections to a node, and back.
func (c *Cluster) clientGates(name string, node int) (out, in []*gate) {
	own := c.own(name)
	return []*gate{own[0], c.gate(nemesis.Clients, node)}, []*gate{c.gate(node, nemesis.Clients), own[1]}
}

// own are the gates of one client, in front of all its connections: out and in.
func (c *Cluster) own(name string) [2]*gate {
	c.mu.Lock()
	defer c.mu.Unlock()
	gates, ok := c.holds[name]
	if !ok {
		gates = [2]*gate{newGate(), newGate()}
		c.holds[name] = gates
	}
	return gates
}

// gate is that of one direction of a link.
func (c *Cluster) gate(from, to int) *gate {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := [2]int{from, to}
	if c.gates[key] == nil {
		c.gates[key] = newGate()
	}
	return c.gates[key]
}

// Freeze implements workload.Cluster.
func (c *Cluster) Freeze(name string) (thaw func()) {
	gates := c.own(name)
	out, in := gates[0].hold(), gates[1].hold()
	return func() {
		out()
		in()
	}
}

// faceKey names a connection that goes to one node only.
type faceKey struct {
	name string
	node int
}

// eye is the name of the harness itself.
const eye = "harness"

type face struct{ conn *grpc.ClientConn }

// faces are those connections, made when they are first asked for.
type faces struct {
	mu     sync.Mutex
	closed bool
	conns  map[faceKey]face
}

func (f *faces) get(key faceKey, dial func(context.Context, string) (net.Conn, error)) (grpc.ClientConnInterface, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errClosed
	}
	if have, ok := f.conns[key]; ok {
		return have.conn, nil
	}
	conn, err := grpc.NewClient("passthrough:///"+nodeAddr(key.node)+":"+grpcPort,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second,
			Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 200 * time.Millisecond}}))
	if err != nil {
		return nil, err
	}
	f.conns[key] = face{conn}
	return conn, nil
}

func (f *faces) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, face := range f.conns {
		face.conn.Close()
	}
}

// Ask implements workload.Cluster.
func (c *Cluster) Ask(name string, node int) wirepb.BoardClient {
	conn, err := c.faces.get(faceKey{name, node}, c.dialer(name))
	if err != nil {
		return wirepb.NewBoardClient(broken{err})
	}
	return wirepb.NewBoardClient(conn)
}

// broken is a connection that there cannot be.
type broken struct{ err error }

func (b broken) Invoke(context.Context, string, any, any, ...grpc.CallOption) error { return b.err }

func (b broken) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, b.err
}

// statusPatience bounds one question to a node.
const statusPatience = time.Second

// Status implements nemesis.Target. It goes a way of its own that no fault touches.
func (c *Cluster) Status(ctx context.Context, node int) (s nemesis.Status, err error) {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "raftboard-as", eye), statusPatience)
	defer cancel()
	if _, err := c.node(node); err != nil {
		return s, err
	}
	conn, err := c.faces.get(faceKey{eye, node}, func(ctx context.Context, addr string) (net.Conn, error) {
		return c.hub.dial(ctx, eyeAddr, addr)
	})
	if err != nil {
		return s, err
	}
	resp, err := wirepb.NewClusterClient(conn).Status(ctx, &wirepb.StatusRequest{Local: true})
	if err != nil {
		return s, fmt.Errorf("status of node %d: %w", node, err)
	}
	if len(resp.Nodes) != 1 {
		return s, errors.Join(fmt.Errorf("status of node %d: it speaks of %d nodes, and not of itself", node, len(resp.Nodes)), ctx.Err())
	}
	own := resp.Nodes[0]
	return nemesis.Status{NodeID: resp.NodeId, Leader: own.Role == "leader" && own.Ready, Term: own.Term, Applied: own.Applied,
		First: own.FirstLog, Last: own.LastLog, Snapshot: own.SnapshotIndex, Ready: own.Ready}, nil
}
