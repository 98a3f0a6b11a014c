package netns

import (
	"net"
	"strings"
	"testing"

	"raftboard/jepsen/history"
)

// BridgeMAC is the hardware address that nodes know the hub by.
func (c *Cluster) BridgeMAC(t *testing.T) string {
	t.Helper()
	out, err := c.hub.run("", "ip", "-brief", "link", "show", "bridge")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(out)[2]
}

// Leaks is what Close looks for.
func (c *Cluster) Leaks() []history.Note { return leaks(c.nodes) }

// Connect makes a connection to a node that nothing is sent on, and that Close does not know of.
func (c *Cluster) Connect(t *testing.T, node int) net.Conn {
	t.Helper()
	conn, err := c.hub.dial(t.Context(), eyeAddr, nodeAddr(node)+":"+grpcPort)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
