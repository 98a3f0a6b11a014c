package transport

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

func incoming(names ...string) context.Context {
	md := metadata.MD{}
	md.Append(AsHeader, names...)
	return metadata.NewIncomingContext(context.Background(), md)
}

func TestAStatedNameHoldsToTheGrammarAndToTheReservedNames(t *testing.T) {
	for _, good := range []string{"a", "worker-1", "x_y-z", "w" + strings.Repeat("9", 47), "swarm2", "role"} {
		actor, refused := resolveActor(incoming(good), AuthOff)
		if refused != nil || actor.Principal != good {
			t.Errorf("%q: got %v, %v", good, actor, refused)
		}
		if why := state.CheckName(good); why != "" {
			t.Errorf("%q: the state machine would not take it: %s", good, why)
		}
	}
	for _, bad := range []string{"", "A", "1a", "-a", "a b", "a/b", "a\u00e4", "a\x00", "w" + strings.Repeat("9", 48),
		"all", "swarm", "system", "anonymous", "operator", "role:worker", "role:"} {
		actor, refused := resolveActor(incoming(bad), AuthOff)
		if refused.GetCode() != boardpb.Code_CODE_BAD_REQUEST || refused.Hint == "" || actor != nil {
			t.Errorf("%q: got %v, %v", bad, actor, refused)
		}
	}
}

func TestACallWithoutANameOrWithTwoIsRefused(t *testing.T) {
	if _, r := resolveActor(incoming(), AuthOff); r.GetCode() != boardpb.Code_CODE_UNAUTHENTICATED {
		t.Errorf("without a name: %v", r)
	}
	if _, r := resolveActor(incoming("a", "b"), AuthOff); r.GetCode() != boardpb.Code_CODE_BAD_REQUEST {
		t.Errorf("with two: %v", r)
	}
	if _, r := resolveActor(incoming("a"), "token"); r.GetCode() != boardpb.Code_CODE_UNAUTHENTICATED {
		t.Errorf("under an authentication that is not built: %v", r)
	}
}

func TestAuthOffGrantsEveryRole(t *testing.T) {
	actor, _ := resolveActor(incoming("a"), AuthOff)
	for number := range boardpb.Role_name {
		if role := boardpb.Role(number); role != boardpb.Role_ROLE_UNSPECIFIED && !state.HasRole(actor, role) {
			t.Errorf("%v is not granted", role)
		}
	}
}

func TestWhatOnlyServersPutIntoACommandIsRefusedFromClients(t *testing.T) {
	set := &boardpb.Command_Set{Set: &boardpb.Set{Key: "draft", Value: []byte("1")}}
	for what, c := range map[string]*boardpb.Command{
		"nothing":        nil,
		"an actor":       {Board: "default", Actor: &boardpb.Actor{Principal: "other"}, Op: set},
		"an empty actor": {Board: "default", Actor: &boardpb.Actor{}, Op: set},
		"entropy":        {Board: "default", Entropy: 1, Op: set},
		"a Lead":         {Op: &boardpb.Command_Lead{Lead: &boardpb.Lead{NodeId: "x"}}},
		"a Tick":         {Op: &boardpb.Command_Tick{Tick: &boardpb.Tick{}}},
		"a Level":        {Op: &boardpb.Command_Level{Level: &boardpb.Level{Level: 9}}},
		"a NodePut":      {Op: &boardpb.Command_NodePut{NodePut: &boardpb.NodePut{}}},
		"a NodeDrop":     {Op: &boardpb.Command_NodeDrop{NodeDrop: &boardpb.NodeDrop{}}},
	} {
		if r := checkFromClient(c); r.GetCode() == boardpb.Code_CODE_UNSPECIFIED {
			t.Errorf("a command with %s passed", what)
		}
	}
	if r := checkFromClient(&boardpb.Command{Board: "default", Op: set}); r != nil {
		t.Errorf("a plain command is refused: %v", r)
	}
}

func TestAForwardedCommandIsCheckedAsAWholeWithItsActor(t *testing.T) {
	set := &boardpb.Command_Set{Set: &boardpb.Set{Key: "draft", Value: []byte("1")}}
	worker := &boardpb.Actor{Principal: "w1", Roles: []boardpb.Role{boardpb.Role_ROLE_WORKER}}
	behalf := &boardpb.Actor{Principal: "op", ActingFor: "w1", Roles: everyRole()}
	for _, actor := range []*boardpb.Actor{worker, behalf} {
		if r := checkForwarded(&boardpb.Command{Board: "default", Actor: actor, Op: set, Loop: "l", Seq: 1}); r != nil {
			t.Errorf("what nodes send is refused: %v", r)
		}
	}
	large := &boardpb.Command_Set{Set: &boardpb.Set{Key: "draft", Value: make([]byte, maxRequestBytes+maxActorBytes)}}
	for what, c := range map[string]*boardpb.Command{
		"nothing":                   nil,
		"no actor":                  {Board: "default", Op: set},
		"a reserved principal":      {Actor: &boardpb.Actor{Principal: "system"}, Op: set},
		"an actor for a reserved":   {Actor: &boardpb.Actor{Principal: "w1", ActingFor: "system", Roles: everyRole()}, Op: set},
		"an actor for no name":      {Actor: &boardpb.Actor{Principal: "w1", ActingFor: "a b"}, Op: set},
		"a role that is none":       {Actor: &boardpb.Actor{Principal: "w1", Roles: []boardpb.Role{99}}, Op: set},
		"a role that is not given":  {Actor: &boardpb.Actor{Principal: "w1", Roles: []boardpb.Role{0}}, Op: set},
		"entropy":                   {Actor: worker, Op: set, Entropy: 1},
		"more bytes than any has":   {Actor: worker, Op: large},
		"an envelope of many bytes": {Actor: worker, Op: set, CallId: strings.Repeat("x", maxRequestBytes+maxActorBytes)},
		"a Lead":                    {Actor: worker, Op: &boardpb.Command_Lead{Lead: &boardpb.Lead{NodeId: "x"}}},
	} {
		if r := checkForwarded(c); r.GetCode() == boardpb.Code_CODE_UNSPECIFIED {
			t.Errorf("a forwarded command with %s passed", what)
		}
	}
}

func TestACommandThatWasNotDoneRestsAsLongAsTheLeaderAsks(t *testing.T) {
	for range 100 {
		if d := pauseAfter(notDone("no leader", "")); d < waitForLeader/2 || d > waitForLeader {
			t.Fatalf("without a leader the pause is %v", d)
		}
		busy := notDone("too many commands wait at the leader", "")
		busy.RetryAfterMs = 200
		if d := pauseAfter(busy); d < 200*time.Millisecond || d > 400*time.Millisecond {
			t.Fatalf("at a leader that asks for 200 ms the pause is %v", d)
		}
	}
}
