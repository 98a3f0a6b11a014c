package state_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// restore builds a state from what a View exports.
func restore(t *rapid.T, v *state.View) *state.State {
	loader := state.NewLoader()
	err := v.Export(func(r *boardpb.SnapshotRecord) error {
		return loader.Load(proto.CloneOf(r))
	})
	if err != nil {
		t.Fatal(err)
	}
	digest := v.Digest()
	s, err := loader.Finish(&boardpb.SnapshotHeader{Format: state.Format, Applied: v.Applied(), Term: v.Term(), Digest: digest[:], Cluster: v.Cluster()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// drawCommand makes one operation, mostly one that does something.
func drawCommand(t *rapid.T, loops []string) *boardpb.Command {
	pick := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name) }
	key, item := pick("key", "facts/a", "results/w1/x", "draft", "claims/a"), pick("item", "claims/a", "claims/b", "claims/c")
	gen := uint64(rapid.IntRange(1, 3).Draw(t, "generation"))
	ms := rapid.SampledFrom([]int64{1000, 5000, 60_000}).Draw(t, "duration")
	var keyGen, ifVersion uint64
	if key == "claims/a" {
		keyGen = gen
	}
	if key == "draft" {
		ifVersion = gen
	}
	c := &boardpb.Command{Board: "default", Entropy: uint64(rapid.Uint32().Draw(t, "entropy")), Loop: pick("loop", loops...),
		Actor: &boardpb.Actor{Principal: "w1", Roles: []boardpb.Role{boardpb.Role_ROLE_WORKER, boardpb.Role_ROLE_ORCHESTRATOR, boardpb.Role_ROLE_OPERATOR}}}
	if rapid.IntRange(0, 3).Draw(t, "keyed") == 0 {
		c.IdempotencyKey = pick("idempotency key", "k1", "k2", "k3", "k4", "k5")
	}
	switch rapid.IntRange(0, 11).Draw(t, "operation") {
	case 0, 1:
		c.Op = &boardpb.Command_Set{Set: &boardpb.Set{Key: key, Value: []byte("1"), Generation: keyGen, IfVersion: ifVersion, Overwrite: key != "draft"}}
	case 2:
		c.Op = &boardpb.Command_Append{Append: &boardpb.Append{Key: key, Value: []byte("1"), Generation: keyGen}}
	case 3:
		c.Op = &boardpb.Command_Delete{Delete: &boardpb.Delete{Key: key, Generation: keyGen, IfVersion: ifVersion}}
	case 4, 5:
		c.Op = &boardpb.Command_Claim{Claim: &boardpb.Claim{Key: item, DurationMs: &ms, Takeover: ms == 1000}}
	case 6:
		c.Op = &boardpb.Command_ClaimNext{ClaimNext: &boardpb.ClaimNext{Pattern: "claims/*", DurationMs: &ms}}
	case 7:
		c.Op = &boardpb.Command_Release{Release: &boardpb.Release{Key: item, Generation: gen}}
	case 8:
		c.Op = &boardpb.Command_Complete{Complete: &boardpb.Complete{Key: item, Generation: gen, Result: []byte("1")}}
	case 9:
		c.Op = &boardpb.Command_Fail{Fail: &boardpb.Fail{Key: item, Generation: gen, RetryAfterMs: ms - 1000}}
	case 10:
		c.Op = &boardpb.Command_Reopen{Reopen: &boardpb.Reopen{Key: item}}
	default:
		c.Op = &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{Nonce: pick("nonce", "a", "b", ""), TtlMs: ms}}
	}
	return c
}

// apply runs a command the way a machine does, as far as the orders are concerned.
func apply(s *state.State, c *boardpb.Command) (loop string) {
	x := s.BeginTxn("default", nil)
	board.ExpireNamed(x, c)
	for _, d := range s.Due(state.ExpiriesPerStep) {
		board.Expire(x, d.Kind, d.ID)
	}
	x.Commit()
	x = s.BeginTxn("default", c)
	if r := board.Identity(x, [16]byte{1}); r != nil {
		x.Discard()
		return ""
	}
	var r *boardpb.Result
	switch o := c.Op.(type) {
	case *boardpb.Command_ClaimNext:
		r = board.ClaimNext(x, o.ClaimNext)
	case *boardpb.Command_Reopen:
		r = board.Reopen(x, o.Reopen)
	case *boardpb.Command_LoopOpen:
		r = board.LoopOpen(x, o.LoopOpen)
	case *boardpb.Command_Set:
		r = board.Set(x, o.Set)
	case *boardpb.Command_Append:
		r = board.Append(x, o.Append)
	case *boardpb.Command_Delete:
		r = board.Delete(x, o.Delete)
	case *boardpb.Command_Claim:
		r = board.Claim(x, o.Claim)
	case *boardpb.Command_Release:
		r = board.Release(x, o.Release)
	case *boardpb.Command_Complete:
		r = board.Complete(x, o.Complete)
	case *boardpb.Command_Fail:
		r = board.Fail(x, o.Fail)
	}
	if r.Outcome != boardpb.Outcome_OUTCOME_OK {
		x.Discard()
		board.Refused(x, r)
	}
	board.Remember(x, r, [16]byte{1})
	board.Touch(x, r)
	x.Commit()
	return r.Loop
}

func TestWhatIsDerivedFromTheRecordsIsTheSameAfterARestore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := state.New()
		s.SetTime(1000, 1000)
		settings := state.DefaultSettings()
		settings.MaxBoardBytes = rapid.SampledFrom([]uint64{0, 3000, 6000}).Draw(t, "max_board_bytes")
		settings.HistoryVersions = uint32(rapid.IntRange(1, 3).Draw(t, "history"))
		schema, _ := state.CompileSchema(settings.Namespaces)
		s.Begin(1, 1, 0)
		s.CreateBoard("default", "inc", settings, schema)
		loops := []string{apply(s, &boardpb.Command{Board: "default", Entropy: 1, Actor: &boardpb.Actor{Principal: "w1"},
			Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{TtlMs: state.MaxLoopTTLMs}}})}
		s.End()
		now := int64(1000)
		for i := range rapid.IntRange(1, 40).Draw(t, "commands") {
			now += rapid.SampledFrom([]int64{0, 100, 3000, 70_000, 3_700_000}).Draw(t, "time")
			s.Begin(uint64(i+2), 1, uint64(i+1))
			s.SetTime(now, now)
			if id := apply(s, drawCommand(t, loops)); id != "" {
				loops = append(loops, id)
			}
			s.End()
			r := restore(t, s.Publish(nil))
			if diff := cmp.Diff(s.Derived(), r.Derived()); diff != "" {
				t.Fatalf("after command %d (- as applied, + restored):\n%s", i, diff)
			}
			if r.Digest() != s.Digest() {
				t.Fatalf("after command %d: restored digest %x, want %x", i, r.Digest(), s.Digest())
			}
		}
	})
}

func TestADeletedBoardLeavesNothingBehind(t *testing.T) {
	s := state.New()
	s.SetTime(1000, 1000)
	before, derived := s.Digest(), s.Derived()
	settings := state.DefaultSettings()
	schema, _ := state.CompileSchema(settings.Namespaces)
	s.Begin(1, 1, 0)
	s.CreateBoard("default", "inc", settings, schema)
	loop := apply(s, &boardpb.Command{Board: "default", Entropy: 1, Actor: &boardpb.Actor{Principal: "w1"},
		Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{Nonce: "n"}}})
	for i := range 20 {
		c := &boardpb.Command{Board: "default", Loop: loop, IdempotencyKey: fmt.Sprint("k", i), Actor: &boardpb.Actor{Principal: "w1", Roles: []boardpb.Role{1}}}
		if i%2 == 0 {
			c.Op = &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/a", Value: []byte("1")}}
		} else {
			c.Op = &boardpb.Command_Claim{Claim: &boardpb.Claim{Key: fmt.Sprint("claims/", i)}}
		}
		apply(s, c)
	}
	if s.Digest() == before {
		t.Fatal("twenty commands left the digest as it was")
	}
	s.DropBoard("default")
	if got := s.Digest(); got != before {
		t.Errorf("digest %x after the board went, want %x", got, before)
	}
	if diff := cmp.Diff(derived, s.Derived()); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
}
