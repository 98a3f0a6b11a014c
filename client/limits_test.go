package client_test

import (
	"fmt"
	"strings"
	"testing"

	"raftboard/client"
	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// The client may not import the state machine, so its numbers are written a second time.
func TestTheClientsLimitsAreThoseOfTheStateMachine(t *testing.T) {
	for _, l := range []struct {
		name         string
		client, node int
	}{
		{"seqs in flight", client.WindowSize, state.InFlight},
		{"leases of a loop", client.MaxLeases, state.MaxLeases},
		{"bytes of a reason", client.MaxReason, state.MaxText},
	} {
		if l.client != l.node {
			t.Errorf("%s: the client says %d, the state machine %d", l.name, l.client, l.node)
		}
	}
}

func TestTheFullestKeepaliveOfTheClientIsTheFullestTheNodesTake(t *testing.T) {
	full := func(loops, letGo int) *boardpb.Command {
		op := &boardpb.LoopKeepalive{}
		for i := range loops {
			op.Loops = append(op.Loops, &boardpb.LoopRenewal{Loop: fmt.Sprintf("l-%d", i), Floor: 1})
		}
		for i := range letGo {
			op.LetGo = append(op.LetGo, &boardpb.LeaseRef{Key: fmt.Sprintf("claims/%d", i), Generation: 1})
		}
		return &boardpb.Command{
			Board: "default", Op: &boardpb.Command_LoopKeepalive{LoopKeepalive: op},
			Actor: &boardpb.Actor{Principal: "w1", Roles: []boardpb.Role{boardpb.Role_ROLE_WORKER}},
		}
	}
	if res := fsm.Check(full(client.LoopsPerCommand, client.MaxLeases)); res != nil {
		t.Errorf("the fullest keepalive is refused: %v", res)
	}
	for name, cmd := range map[string]*boardpb.Command{
		"one loop more":  full(client.LoopsPerCommand+1, client.MaxLeases),
		"one lease more": full(client.LoopsPerCommand, client.MaxLeases+1),
	} {
		if res := fsm.Check(cmd); res == nil || !strings.Contains(res.Message, "loops") {
			t.Errorf("%s: %v; want a refusal for the number", name, res)
		}
	}
}
