package client

import (
	"context"

	boardpb "raftboard/fsm/pb"
)

// DoBare sends a command as it is, for the test of what becomes of one without identity:
// every exported call gives its command one.
func (c *Client) DoBare(ctx context.Context, cmd *boardpb.Command) error {
	_, err := c.do(ctx, cmd)
	return err
}
