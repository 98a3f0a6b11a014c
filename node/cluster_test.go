package node_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/node"
	"raftboard/node/nodetest"
)

// operator is who the commands of these tests are from.
var operator = &boardpb.Actor{Principal: "op", Roles: []boardpb.Role{boardpb.Role_ROLE_OPERATOR}}

// create is a write that takes effect once: making a board.
func create(name string) *boardpb.Command {
	return &boardpb.Command{Actor: operator, IdempotencyKey: "create-" + name,
		Op: &boardpb.Command_BoardCreate{BoardCreate: &boardpb.BoardCreate{Name: name}}}
}

func propose(n *node.Node, c *boardpb.Command, within time.Duration) (*boardpb.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return n.Propose(ctx, c)
}

func mustPropose(t *testing.T, n *node.Node, c *boardpb.Command) *boardpb.Result {
	t.Helper()
	r, err := propose(n, c, 5*time.Second)
	if err != nil || r.GetCode() != boardpb.Code_CODE_UNSPECIFIED {
		t.Fatalf("%v, %v", r, err)
	}
	return r
}

func TestAClusterElectsWritesAndReadsOnEveryNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.Start(t, nodetest.Options{})
		leader := c.WaitLeader()
		mustPropose(t, leader.Node, create("a"))
		for _, m := range c.Members {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			v, err := m.Node.Read(ctx, node.Consistency{})
			cancel()
			if err != nil || v.Board("a") == nil {
				t.Errorf("%s reads %v, error %v: the board is missing", m.Name, v, err)
			}
		}
		c.WaitSame()
		if got := len(leader.Node.View().Cluster().GetNodes()); got != 3 {
			c.Eventually("every founder has a record", func() bool { return len(leader.Node.View().Cluster().GetNodes()) == 3 })
		}
		var not *node.NotDone
		follower := c.Members[(leader.Index+1)%3]
		if _, err := propose(follower.Node, create("b"), time.Second); !errors.As(err, &not) || not.LeaderID != leader.ID {
			t.Errorf("a follower answers %v; expected not done, naming %s", err, leader.ID)
		}
	})
}
