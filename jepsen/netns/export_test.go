package netns

import (
	"strings"
	"testing"
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
