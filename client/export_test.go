package client

import (
	"context"

	boardpb "raftboard/fsm/pb"
)

// What the nodes refuse more of, for the comparison with their own numbers.
const (
	WindowSize      = windowSize
	MaxLeases       = maxLeases
	LoopsPerCommand = loopsPerCommand
	MaxReason       = maxReason
)

// MaxEndpoints bounds what a client knows.
const MaxEndpoints = maxEndpoints

// Endpoints lists the addresses that a client knows, in the order in which it asks them.
func (c *Client) Endpoints() (addrs []string) {
	c.routes.mu.Lock()
	defer c.routes.mu.Unlock()
	for _, ep := range c.routes.all {
		addrs = append(addrs, ep.addr)
	}
	return addrs
}

// DoBare sends a command as it is, for the test of what becomes of one without identity:
// every exported call gives its command one.
func (c *Client) DoBare(ctx context.Context, cmd *boardpb.Command) error {
	_, err := c.do(ctx, cmd)
	return err
}
