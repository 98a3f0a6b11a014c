package clustertest

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"raftboard/transport"
)

// Cluster is Servers under a test: what does not come to pass in time fails it. It stops
// itself when the test of its bubble ends.
type Cluster struct {
	*Servers
	t testing.TB
}

// Start makes a cluster that founds itself over Hello and Intent, as three fresh processes
// do, and waits until every node is ready. It must run inside a bubble.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if !o.Later {
		if err := s.Found(); err != nil {
			t.Fatal(err)
		}
	}
	return &Cluster{Servers: s, t: t}
}

// Dial is Dialer of the host "client".
func (c *Cluster) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return c.Net.Dial(ctx, "client", addr)
}

// Conn is a gRPC connection of a host to a node; it is closed with the cluster.
func (c *Cluster) Conn(host string, i int) *grpc.ClientConn {
	c.t.Helper()
	conn, err := c.TryConn(host, i)
	if err != nil {
		c.t.Fatal(err)
	}
	return conn
}

// As states a caller's name, as clients do under --auth off.
func As(ctx context.Context, name string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, transport.AsHeader, name)
}

// Restart starts a node that is down, on what it had stored.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	if err := c.TryRestart(i); err != nil {
		c.t.Fatalf("node %s does not start: %v", c.Members[i].Name, err)
	}
}

// Died waits until a node has stopped by itself and answers why.
func (c *Cluster) Died(i int) error {
	c.t.Helper()
	select {
	case err := <-c.Members[i].died:
		c.take(i)
		return err
	case <-time.After(patience):
		c.t.Fatalf("node %s did not stop within %v", c.Members[i].Name, patience)
		return nil
	}
}

// Wipe empties the disk of a node that is down: its data directory and its Raft state.
func (c *Cluster) Wipe(i int) {
	c.t.Helper()
	if err := c.TryWipe(i); err != nil {
		c.t.Fatal(err)
	}
}

// Add starts a fresh node that joins by itself and waits until it is ready.
func (c *Cluster) Add(name string) *Member {
	c.t.Helper()
	m, err := c.NewMember(name)
	if err != nil {
		c.t.Fatal(err)
	}
	c.Restart(m.Index)
	c.WaitReady(m.Index)
	return m
}

// Copy makes a member of a copy of another one's data directory and disk, as they are now:
// the same node id on another host. It is started with Restart or TryRestart.
func (c *Cluster) Copy(of int) *Member {
	c.t.Helper()
	m, err := c.CopyMember(of)
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// Isolate cuts a node off from all other nodes in both directions; clients still reach it.
func (c *Cluster) Isolate(i int) { c.isolate(i, true) }

// Rejoin mends what Isolate cut.
func (c *Cluster) Rejoin(i int) { c.isolate(i, false) }

func (c *Cluster) isolate(i int, cut bool) {
	for _, other := range c.Members {
		if other.Index != i {
			c.Net.SetCut(c.Members[i].Host, other.Host, cut)
			c.Net.SetCut(other.Host, c.Members[i].Host, cut)
		}
	}
}

// Leader waits until a node leads that is none of those excepted, and answers its index.
func (c *Cluster) Leader(except ...int) (found int) {
	c.t.Helper()
	c.Eventually("a node leads", func() (ok bool) {
		found, ok = c.FindLeader(except...)
		return ok
	})
	return found
}

// Follower waits for a leader and answers the index of a ready node that does not lead.
func (c *Cluster) Follower(except ...int) int {
	c.t.Helper()
	found := -1
	c.Eventually("a node follows", func() bool {
		leader := c.Leader()
		for _, m := range c.Members {
			if m.Index != leader && !slices.Contains(except, m.Index) && m.Server != nil && m.Server.Ready() == nil {
				found = m.Index
				return true
			}
		}
		return false
	})
	return found
}

// WaitReady waits until the given nodes, or all that run, are ready.
func (c *Cluster) WaitReady(only ...int) {
	c.t.Helper()
	c.Eventually("the nodes are ready", func() bool { return c.AllReady(only...) })
}

// Eventually waits, in virtual time, until something holds.
func (c *Cluster) Eventually(what string, holds func() bool) {
	c.t.Helper()
	if err := c.Await(what, holds); err != nil {
		c.t.Fatal(err)
	}
}
