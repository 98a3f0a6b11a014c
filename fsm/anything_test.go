package fsm

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	boardpb "raftboard/fsm/pb"

	"github.com/hashicorp/raft"
)

// anything fills a message with values that are right surprisingly often, and wrong in
// every way a decoder lets through.
func anything(t *rapid.T, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		d := fields.Get(i)
		if d.ContainingOneof() != nil && !d.HasOptionalKeyword() || rapid.IntRange(0, 2).Draw(t, string(d.Name())+"?") == 0 {
			continue
		}
		if d.IsList() {
			list := m.Mutable(d).List()
			for range rapid.IntRange(0, 3).Draw(t, string(d.Name())+" length") {
				list.Append(anyValue(t, d, list.NewElement(), depth))
			}
			continue
		}
		m.Set(d, anyValue(t, d, m.NewField(d), depth))
	}
	oneofs := m.Descriptor().Oneofs()
	for i := range oneofs.Len() {
		if one := oneofs.Get(i); !one.IsSynthetic() && rapid.IntRange(0, 9).Draw(t, "set?") > 0 {
			d := one.Fields().Get(rapid.IntRange(0, one.Fields().Len()-1).Draw(t, string(one.Name())))
			m.Set(d, anyValue(t, d, m.NewField(d), depth))
		}
	}
}

func anyValue(t *rapid.T, d protoreflect.FieldDescriptor, v protoreflect.Value, depth int) protoreflect.Value {
	name := string(d.Name())
	switch d.Kind() {
	case protoreflect.MessageKind:
		if depth > 0 {
			anything(t, v.Message(), depth-1)
		}
		return v
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.SampledFrom([]int32{0, 1, 2, 3, 4, 5, 6, 99}).Draw(t, name)))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, name))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(rapid.SampledFrom([]string{"1", `"x"`, `{"a":1}`, "", "NaN", "0123456789abcdef"}).Draw(t, name)))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.SampledFrom([]int64{0, 1, 1000, 10_000, 100_000, -1, 1<<63 - 1, -1 << 63}).Draw(t, name))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(rapid.SampledFrom([]uint32{0, 1, 2, 1<<32 - 1}).Draw(t, name))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(rapid.SampledFrom([]uint64{0, 1, 2, 3, 1_000_000_000, 1<<64 - 1}).Draw(t, name))
	}
	return protoreflect.ValueOfString(rapid.SampledFrom(wordsFor(name)).Draw(t, name))
}

// wordsFor gives texts of the kind that a field is about, and others.
func wordsFor(field string) []string {
	switch field {
	case "board":
		return []string{"default", "default", "default", "", "other", "a/b"}
	case "principal", "acting_for":
		return []string{"w1", "w1", "w2", "system", ""}
	case "loop", "parent_loop":
		return []string{anyLoop, anyLoop, "", "l-none"}
	case "name":
		return []string{"default", "other", "n1", "", ".."}
	case "pattern":
		return []string{"claims/*", "facts/*", "**", "", "nosuch/*", "a/**/b"}
	case "writer":
		return []string{"", "w1", "role:orchestrator", "role:none"}
	case "id":
		return []string{"n1", "n2", ""}
	}
	return []string{"claims/a", "claims/b", "facts/a", "results/w1/x", "results/w2/x", "plan", "draft", "objective", "", "nosuch", "//", "\x00"}
}

const anyLoop = "l-000000000000002a"

// TestAnyCommandThatDecodesIsAnswered applies commands of any shape, also such as the
// check before the log refuses: nothing panics, no state differs between two machines or
// after a restore, and what Check refuses changes no record.
func TestAnyCommandThatDecodesIsAnswered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModelRun(t)
		m.index, m.log = 0, nil
		f, g := New(Options{}), New(Options{})
		now := int64(0)
		apply := func(c *boardpb.Command) {
			m.index++
			data, err := proto.Marshal(&boardpb.Batch{Format: Format, Stamp: &boardpb.Stamp{TMs: now, WallMs: now, Term: 1}, Commands: []*boardpb.Command{c}})
			if err != nil {
				t.Fatal(err)
			}
			l := &raft.Log{Index: m.index, Term: 1, Type: raft.LogCommand, Data: data}
			r := f.Apply(l).(*Applied).Results[0]
			g.Apply(l)
			if r.Code == boardpb.Code_CODE_INTERNAL {
				t.Fatalf("%v: %v", c, r.Message)
			}
			if r.Outcome == 0 && r.Code == 0 || r.Outcome != 0 && r.Code != 0 {
				t.Fatalf("%v: neither an outcome nor a code, or both: %v", c, r)
			}
			if r.Outcome != boardpb.Outcome_OUTCOME_OK && r.Message == "" {
				t.Fatalf("%v: %v without a word", c, r)
			}
			if f.View().Digest() != g.View().Digest() {
				t.Fatalf("%v: two machines differ", c)
			}
		}
		apply(&boardpb.Command{Actor: systemActor(), Op: &boardpb.Command_Lead{Lead: &boardpb.Lead{NodeId: "n1"}}})
		now = 60_000
		apply(&boardpb.Command{Board: "default", Actor: m.actor("w1"), Entropy: 42, Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{Nonce: "n"}}})
		apply(&boardpb.Command{Board: "default", Actor: m.actor("w1"), Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "claims/a", Value: []byte("1")}}})
		for range rapid.IntRange(1, 25).Draw(t, "commands") {
			now += rapid.SampledFrom([]int64{0, 1, 5_000, 100_000, 4_000_000}).Draw(t, "time")
			c := &boardpb.Command{}
			anything(t, c.ProtoReflect(), 4)
			if c.Op == nil {
				continue
			}
			if c.Actor == nil || c.Actor.Principal == "" {
				c.Actor = everyRole()
				c.Actor.Principal = "w1"
			}
			if isCluster(c) {
				c.Loop, c.Seq, c.Board = "", 0, ""
			} else if c.Board == "" {
				c.Board = "default"
			}
			apply(c)
		}
		var image bytes.Buffer
		if err := writeView(&image, f.View()); err != nil {
			t.Fatal(err)
		}
		s, err := readState(&image)
		if err != nil {
			t.Fatalf("not restored: %v", err)
		}
		if got, want := s.Digest().Bytes(), f.View().Digest(); got != want {
			t.Fatalf("restored digest %x, want %x", got, want)
		}
	})
}
