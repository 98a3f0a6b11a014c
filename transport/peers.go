package transport

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	wirepb "raftboard/transport/pb"
)

const (
	// The metadata by which a node says that it belongs to the cluster. Peer calls other
	// than Hello, Intent and Join are refused without it (RAFT P26).
	clusterHeader = "raftboard-cluster"
	nodeHeader    = "raftboard-node"

	peerPing     = 20 * time.Second // of an idle link; servers allow one every 10 s
	peerPingWait = 10 * time.Second
	peerDialWait = 2 * time.Second
	fenceTry     = 2 * time.Second // one try: a leader that is cut off must not hold a read for longer
)

// peerLinks are this node's gRPC connections to the others: one each, made when first
// needed, made anew when the address book has another address.
type peerLinks struct {
	self    string
	cluster func() string
	book    *addressBook
	dial    func(ctx context.Context, addr string) (net.Conn, error)

	mu     sync.Mutex
	links  map[string]*peerLink
	closed bool
}

type peerLink struct {
	addr string
	conn *grpc.ClientConn
}

func newPeerLinks(self string, cluster func() string, book *addressBook,
	dial func(ctx context.Context, addr string) (net.Conn, error)) *peerLinks {
	return &peerLinks{self: self, cluster: cluster, book: book, dial: dial, links: map[string]*peerLink{}}
}

// dialPeer makes a connection that connects by itself and tries again soon.
func dialPeer(addr string, dial func(ctx context.Context, addr string) (net.Conn, error)) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: peerPing, Timeout: peerPingWait, PermitWithoutStream: true,
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
			},
			MinConnectTimeout: peerDialWait,
		}),
		grpc.WithDisableServiceConfig(),
	)
}

// to answers a client of the Peer service of a node. It does not block.
func (p *peerLinks) to(id string) (wirepb.PeerClient, error) {
	conn, err := p.conn(id)
	if err != nil {
		return nil, err
	}
	return wirepb.NewPeerClient(conn), nil
}

// conn answers the connection to a node, which may still be connecting.
func (p *peerLinks) conn(id string) (*grpc.ClientConn, error) {
	n := p.book.node(id)
	if n.GetGrpcAddr() == "" {
		return nil, fmt.Errorf("no address is known for node %s", id)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("this node is stopping")
	}
	link := p.links[id]
	if link != nil && link.addr == n.GrpcAddr {
		return link.conn, nil
	}
	conn, err := dialPeer(n.GrpcAddr, p.dial)
	if err != nil {
		return nil, err
	}
	if link != nil {
		link.conn.Close()
	}
	p.links[id] = &peerLink{addr: n.GrpcAddr, conn: conn}
	return conn, nil
}

// sign adds who we are to an outgoing Peer call.
func (p *peerLinks) sign(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, clusterHeader, p.cluster(), nodeHeader, p.self)
}

func (p *peerLinks) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, link := range p.links {
		link.conn.Close()
	}
}

// askPeers is how the node below asks other nodes (node.Peers).
type askPeers struct{ links *peerLinks }

// Fence asks a node, which believes to lead, for an index behind a read fence.
func (a askPeers) Fence(ctx context.Context, nodeID string) (uint64, error) {
	peer, err := a.links.to(nodeID)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, fenceTry)
	defer cancel()
	answer, err := peer.Fence(a.links.sign(ctx), &wirepb.FenceRequest{From: a.links.self})
	if err != nil {
		return 0, err
	}
	if f := answer.Failure; f != nil {
		return 0, fmt.Errorf("node %s: %s", nodeID, f.Message)
	}
	return answer.Index, nil
}

// Digest asks a node for its digest after an entry.
func (a askPeers) Digest(ctx context.Context, nodeID string, index uint64) (sum [16]byte, known bool, err error) {
	peer, err := a.links.to(nodeID)
	if err != nil {
		return sum, false, err
	}
	answer, err := peer.Digest(a.links.sign(ctx), &wirepb.DigestRequest{Index: index})
	if err != nil {
		return sum, false, err
	}
	return [16]byte(append(answer.Digest, make([]byte, 16)...)[:16]), answer.Known, nil
}

// checkPeer refuses a Peer call that does not come from a node of this cluster.
func checkPeer(ctx context.Context, cluster string, known func(id string) bool) error {
	md, _ := metadata.FromIncomingContext(ctx)
	clusters, nodes := md.Get(clusterHeader), md.Get(nodeHeader)
	if len(clusters) != 1 || len(nodes) != 1 {
		return status.Error(codes.PermissionDenied, "the Peer service is for nodes of this cluster only")
	}
	if clusters[0] != cluster {
		return status.Errorf(codes.PermissionDenied, "this is cluster %s, the call is from cluster %s",
			cluster, clip(clusters[0], 64))
	}
	if !known(nodes[0]) {
		return status.Errorf(codes.PermissionDenied, "node %s is not known in this cluster as another node", clip(nodes[0], 64))
	}
	return nil
}
