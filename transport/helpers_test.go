package transport_test

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"

	"raftboard/transport"
	"raftboard/transport/clustertest"
)

func protoSize(m proto.Message) int { return proto.Size(m) }

// clientPings are the ping settings that clients may have (ECOSYSTEM §3): every 20 s by
// default, and the fastest that servers allow.
func clientPings() map[string][]grpc.DialOption {
	pings := map[string][]grpc.DialOption{}
	for name, every := range map[string]time.Duration{"default": 20 * time.Second, "fastest": 10 * time.Second} {
		pings[name] = []grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: every, Timeout: 10 * time.Second, PermitWithoutStream: true}),
		}
	}
	return pings
}

func countedDialer(c *clustertest.Cluster, dials *int) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		*dials++
		return c.Dial(ctx, addr)
	})
}

// limitInFlight bounds the calls of every node.
func limitInFlight(n int) func(int, *transport.Config) {
	return func(_ int, cfg *transport.Config) { cfg.Limits.InFlight = n }
}

// dialTCP connects as the host "client", whatever the protocol above is.
func dialTCP(c *clustertest.Cluster) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) }
}
