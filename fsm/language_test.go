package fsm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
)

// arms lists the operations of the language, as they are in the protocol.
func arms() []protoreflect.FieldDescriptor {
	fields := (&boardpb.Command{}).ProtoReflect().Descriptor().Oneofs().ByName("op").Fields()
	var out []protoreflect.FieldDescriptor
	for i := range fields.Len() {
		out = append(out, fields.Get(i))
	}
	return out
}

func withArm(arm protoreflect.FieldDescriptor, a *boardpb.Actor) *boardpb.Command {
	c := &boardpb.Command{Actor: a}
	c.ProtoReflect().Set(arm, c.ProtoReflect().NewField(arm))
	if !isCluster(c) {
		c.Board = "default"
	}
	return c
}

// Adding an operation touches three places (DESIGN 12): the protocol, its case, a script.
// This test fails for an arm without a case, without a decision on who may use it, and
// without a line in a script.

func TestEveryOperationHasACaseInStep(t *testing.T) {
	for _, arm := range arms() {
		m := New(Options{}).machine
		c := withArm(arm, everyRole())
		if c.Board != "" {
			board.FirstUse(m.state, c)
		}
		func() {
			defer func() {
				if p := recover(); p != nil && strings.Contains(asText(p), "no case for") {
					t.Errorf("%s: %v", arm.Name(), p)
				}
			}()
			switch {
			case c.GetLead() != nil:
				m.lead(1, c, c.GetLead())
			case c.Board == "":
				m.manage(c)
			default:
				dispatch(m.state.BeginTxn(c.Board, c), c)
			}
		}()
	}
}

func asText(p any) string {
	if s, ok := p.(string); ok {
		return s
	}
	return ""
}

func everyRole() *boardpb.Actor {
	a, _ := actorOf([]string{"anybody", "all"})
	return a
}

// permissions is the decision for every operation: who may use it by role. What belongs
// to whom is checked where the record is known, and tested by the scripts.
func permissions() map[string]string {
	return map[string]string{
		"lead": "system", "tick": "system", "level": "system", "node_put": "system", "node_drop": "system", "receipts": "system",
		"cluster_set": "operator", "board_create": "operator", "board_set": "operator", "board_compact": "operator",
		"board_delete": "operator", "board_close": "operator", "board_fork": "operator", "force_release": "operator",
		"reopen":       "orchestrator operator",
		"unpark":       "orchestrator supervisor operator",
		"phase_define": "orchestrator", "phase_lock": "any", "phase_renew": "any", "phase_unlock": "any", "phase_write": "any",
		"phase_complete": "any", "phase_reopen": "any", "phase_resolve": "any", "phase_settle": "supervisor",
		"loop_open": "any", "loop_keepalive": "any", "loop_close": "any",
		"set": "any", "append": "any", "delete": "any", "txn": "any", "report_conflict": "any", "invalidate": "any",
		"claim": "any", "claim_next": "any", "heartbeat": "any", "release": "any", "complete": "any", "fail": "any",
	}
}

func TestEveryOperationIsPermittedToTheRightRolesOnly(t *testing.T) {
	decided := permissions()
	for _, arm := range arms() {
		want, ok := decided[string(arm.Name())]
		if !ok {
			t.Errorf("%s: nobody decided who may use it", arm.Name())
			continue
		}
		for role := boardpb.Role_ROLE_WORKER; role <= boardpb.Role_ROLE_OBSERVER; role++ {
			name := strings.ToLower(strings.TrimPrefix(role.String(), "ROLE_"))
			may := want == "any" && role != boardpb.Role_ROLE_OBSERVER || strings.Contains(want, name)
			c := withArm(arm, &boardpb.Actor{Principal: "w1", Roles: []boardpb.Role{role}})
			if r := board.Permit(c); (r == nil) != may {
				t.Errorf("%s by %s: permitted is %v, want %v", arm.Name(), name, r == nil, may)
			}
		}
		if r := board.Permit(withArm(arm, &boardpb.Actor{Principal: "w1"})); r == nil {
			t.Errorf("%s: permitted without any role", arm.Name())
		}
		if r := board.Permit(withArm(arm, systemActor())); want == "system" && r != nil {
			t.Errorf("%s: refused to the nodes themselves", arm.Name())
		}
	}
}

func TestEveryOperationHasALineInAScript(t *testing.T) {
	paths, _ := filepath.Glob("testdata/*.txt")
	var all []byte
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	used := map[string]bool{}
	s := newScript(1)
	for _, line := range strings.Split(string(all), "\n") {
		if !strings.HasPrefix(line, "@") {
			continue
		}
		toks, err := tokens(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		c := &boardpb.Command{}
		s.operation(c, newCall(toks[2:]))
		for _, op := range c.GetTxn().GetOps() {
			used["txn "+string(op.ProtoReflect().WhichOneof(op.ProtoReflect().Descriptor().Oneofs().ByName("op")).Name())] = true
		}
		if c.Op != nil {
			used[string(c.ProtoReflect().WhichOneof(c.ProtoReflect().Descriptor().Oneofs().ByName("op")).Name())] = true
		}
	}
	for _, arm := range arms() {
		if !used[string(arm.Name())] {
			t.Errorf("%s: no script uses it", arm.Name())
		}
	}
	inTxn := (&boardpb.TxnOp{}).ProtoReflect().Descriptor().Oneofs().ByName("op").Fields()
	for i := range inTxn.Len() {
		if name := inTxn.Get(i).Name(); !used["txn "+string(name)] {
			t.Errorf("%s: no script uses it in a txn", name)
		}
	}
}

// An older node that skipped a field would apply the command differently, so what this
// binary does not know is refused before the log, at any depth.
func TestFieldsOfALaterVersionAreRefusedAtAnyDepth(t *testing.T) {
	unknown := []byte{0xf8, 0x7f, 1} // field 2047, varint
	good := &boardpb.Command{Board: "default", Actor: worker("w1"), Op: &boardpb.Command_Txn{Txn: &boardpb.Txn{
		Guards: []*boardpb.Guard{{Test: &boardpb.Guard_Version{Version: &boardpb.VersionIs{Key: "facts/a"}}}},
		Ops:    []*boardpb.TxnOp{{Op: &boardpb.TxnOp_Append{Append: &boardpb.Append{Key: "facts/a", Value: []byte("1")}}}},
	}}}
	if r := Check(good); r != nil {
		t.Fatalf("refused without unknown fields: %v", r)
	}
	for name, at := range map[string]func(c *boardpb.Command) proto.Message{
		"the envelope":    func(c *boardpb.Command) proto.Message { return c },
		"the actor":       func(c *boardpb.Command) proto.Message { return c.Actor },
		"the operation":   func(c *boardpb.Command) proto.Message { return c.GetTxn() },
		"a guard's test":  func(c *boardpb.Command) proto.Message { return c.GetTxn().Guards[0].GetVersion() },
		"a nested append": func(c *boardpb.Command) proto.Message { return c.GetTxn().Ops[0].GetAppend() },
	} {
		c := proto.CloneOf(good)
		at(c).ProtoReflect().SetUnknown(unknown)
		if r := Check(c); r == nil || r.Code != boardpb.Code_CODE_NOT_ACTIVE {
			t.Errorf("an unknown field in %s: got %v, want not_active", name, r)
		}
	}
	if r := Check(&boardpb.Command{Board: "default", Actor: worker("w1")}); r == nil || r.Code != boardpb.Code_CODE_NOT_ACTIVE {
		t.Errorf("an operation of a later version: got %v, want not_active", r)
	}
}
