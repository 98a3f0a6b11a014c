package state

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	boardpb "raftboard/fsm/pb"
)

// fill sets every field of a message, at any depth, to a value of its own.
func fill(m protoreflect.Message, n *int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		d := fields.Get(i)
		if !d.IsList() {
			m.Set(d, filled(m.NewField(d), d, n))
			continue
		}
		list := m.Mutable(d).List()
		for range 2 {
			list.Append(filled(list.NewElement(), d, n))
		}
	}
}

func filled(v protoreflect.Value, d protoreflect.FieldDescriptor, n *int) protoreflect.Value {
	*n++
	switch d.Kind() {
	case protoreflect.MessageKind:
		fill(v.Message(), n)
		return v
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(1 + *n%2))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprintf("text-%d", *n))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(fmt.Appendf(nil, "bytes-%d", *n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(1000 + *n))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(1000 + *n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(1000 + *n))
	}
	panic("no filling for " + d.Kind().String())
}

// change alters each field of a filled message in turn, at any depth, tells its path, and
// puts it back.
func change(m protoreflect.Message, path string, changed func(path string)) {
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		at := path + "/" + string(d.Name())
		switch {
		case d.IsList():
			list := v.List()
			last := list.Get(list.Len() - 1)
			list.Truncate(list.Len() - 1)
			changed(at + " shortened")
			list.Append(last)
			if d.Kind() == protoreflect.MessageKind {
				change(list.Get(0).Message(), at+"/0", changed)
				return true
			}
			first := list.Get(0)
			list.Set(0, other(d, first))
			changed(at + "/0")
			list.Set(0, first)
		case d.Kind() == protoreflect.MessageKind:
			change(v.Message(), at, changed)
			m.Clear(d)
			changed(at + " cleared")
			m.Set(d, v)
		default:
			m.Set(d, other(d, v))
			changed(at)
			m.Set(d, v)
		}
		return true
	})
}

func other(d protoreflect.FieldDescriptor, v protoreflect.Value) protoreflect.Value {
	switch d.Kind() {
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(v.Enum() + 1)
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(!v.Bool())
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(v.String() + "!")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(append([]byte("!"), v.Bytes()...))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(v.Int() + 1)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(v.Uint() + 1))
	default:
		return protoreflect.ValueOfUint64(v.Uint() + 1)
	}
}

// records are the kinds of records a digest is made of, each filled, with its encoding.
func records() map[string]struct {
	m   proto.Message
	sum func(e *encoder, board string) Sum
} {
	type record = struct {
		m   proto.Message
		sum func(e *encoder, board string) Sum
	}
	entry, lease, loop, kept := &boardpb.Entry{}, &boardpb.Lease{}, &boardpb.Loop{}, &boardpb.Kept{}
	phase, data, dispute := &boardpb.Phase{}, &boardpb.PhaseData{}, &boardpb.PhaseConflict{}
	event, conflict, rate := &boardpb.Event{}, &boardpb.ConflictCount{}, &boardpb.NoteRate{}
	mark, readers, pair := &boardpb.Invalidation{}, &boardpb.Readers{}, &boardpb.ReadPair{}
	usage, floor := &boardpb.Usage{}, &boardpb.Floor{}
	all := map[string]record{
		"entry":    {entry, func(e *encoder, b string) Sum { return e.entry(b, entry) }},
		"lease":    {lease, func(e *encoder, b string) Sum { return e.lease(b, lease) }},
		"loop":     {loop, func(e *encoder, b string) Sum { return e.loop(b, loop) }},
		"kept":     {kept, func(e *encoder, b string) Sum { return e.kept(b, kept) }},
		"event":    {event, func(e *encoder, b string) Sum { return e.event(b, event) }},
		"phase":    {phase, func(e *encoder, b string) Sum { return e.phase(b, phase) }},
		"dispute":  {dispute, func(e *encoder, b string) Sum { return e.phaseConflict(b, dispute) }},
		"data":     {data, func(e *encoder, b string) Sum { return e.phaseData(b, data) }},
		"conflict": {conflict, func(e *encoder, b string) Sum { return e.conflict(b, conflict) }},
		"mark":     {mark, func(e *encoder, b string) Sum { return e.invalidation(b, mark) }},
		"usage":    {usage, func(e *encoder, b string) Sum { return e.usage(b, usage) }},
		"floor":    {floor, func(e *encoder, b string) Sum { return e.floor(b, floor) }},
		"readers":  {readers, func(e *encoder, b string) Sum { return e.readers(b, readers) }},
		"pair":     {pair, func(e *encoder, b string) Sum { return e.readPair(b, pair) }},
		"rate":     {rate, func(e *encoder, b string) Sum { return e.noteRate(b, rate) }},
	}
	for _, r := range all {
		n := 0
		fill(r.m.ProtoReflect(), &n)
	}
	return all
}

func TestEveryFieldOfEveryRecordIsInItsDigest(t *testing.T) {
	for name, r := range records() {
		var e encoder
		whole := r.sum(&e, "b1")
		seen := map[Sum]string{whole: "unchanged"}
		fields := 0
		change(r.m.ProtoReflect(), name, func(path string) {
			fields++
			sum := r.sum(&e, "b1")
			if same, twice := seen[sum]; twice {
				t.Errorf("%s: the digest is the same as with %s", path, same)
			}
			seen[sum] = path
		})
		if fields < r.m.ProtoReflect().Descriptor().Fields().Len() {
			t.Errorf("%s: only %d fields were changed", name, fields)
		}
		if again := r.sum(&e, "b1"); again != whole {
			t.Errorf("%s: the digest depends on what was encoded before", name)
		}
		if r.sum(&e, "b2") == whole {
			t.Errorf("%s: the digest is the same on two boards", name)
		}
	}
}

// What tells two kinds of records apart is the first byte of their encoding.
func TestNoTwoKindsOfRecordsBeginAlike(t *testing.T) {
	kinds := map[byte]string{}
	for name, r := range records() {
		var e encoder
		r.sum(&e, "b1")
		if other, twice := kinds[e.b[0]]; twice {
			t.Errorf("%s and %s both begin with %q", name, other, e.b[0])
		}
		kinds[e.b[0]] = name
	}
}

func TestAbsentAndEmptyReferencesDiffer(t *testing.T) {
	var e encoder
	without := e.entry("b", &boardpb.Entry{Key: "k"})
	if with := e.entry("b", &boardpb.Entry{Key: "k", ForClaim: &boardpb.LeaseRef{}}); with == without {
		t.Error("an entry with an empty for_claim has the digest of one without")
	}
}

func TestEveryNumberOfABoardIsInItsDigest(t *testing.T) {
	s := New()
	schema, _ := CompileSchema(DefaultSettings().Namespaces)
	s.CreateBoard("b", "inc", DefaultSettings(), schema)
	b := s.boards["b"]
	whole := b.headSum()
	numbers := 0
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		for i := range v.NumField() {
			f, at := v.Field(i), path+"."+v.Type().Field(i).Name
			f = reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem() // unexported fields too
			old := reflect.New(f.Type()).Elem()
			old.Set(f)
			switch f.Kind() {
			case reflect.Struct:
				walk(f, at)
				continue
			case reflect.String:
				f.SetString(f.String() + "!")
			case reflect.Int64:
				f.SetInt(f.Int() + 1)
			default:
				f.SetUint(f.Uint() + 1)
			}
			if b.headSum() == whole {
				t.Errorf("%s is not in the digest", at)
			}
			f.Set(old)
			numbers++
		}
	}
	walk(reflect.ValueOf(&b.head).Elem(), "head")
	if numbers < 20 || b.headSum() != whole {
		t.Errorf("%d numbers tried; digest back to what it was: %v", numbers, b.headSum() == whole)
	}
	other := DefaultSettings()
	other.Namespaces[0].Purpose += "!"
	b.setSettings(other, schema, b.head.settingsVersion)
	if b.headSum() == whole {
		t.Error("the settings are not in the digest")
	}
}

func TestEveryFieldOfTheClusterIsInTheDigest(t *testing.T) {
	s := New()
	c, n := &boardpb.ClusterRecord{}, 0
	fill(c.ProtoReflect(), &n)
	s.cluster = c
	digest := func() Sum {
		s.hashRecord()
		return s.Digest()
	}
	whole := digest()
	change(c.ProtoReflect(), "cluster", func(path string) {
		if digest() == whole {
			t.Errorf("%s is not in the digest", path)
		}
	})
	s.SetCluster(func(c *boardpb.ClusterRecord) { c.GraceMs++ })
	if s.Digest() == whole {
		t.Error("SetCluster does not move the digest")
	}
	s.SetCluster(func(c *boardpb.ClusterRecord) { c.GraceMs-- })
	if s.Digest() != whole {
		t.Error("a change and its reverse do not give the digest back")
	}
	s.SetTime(c.TMs+1, 0)
	if s.Digest() == whole {
		t.Error("SetTime does not move the digest")
	}
}

// The encodings are for ever: nodes of two builds compare their digests. Where a vector
// changes, the feature level must rise.
func TestEncodingsMatchTheirGoldenVectors(t *testing.T) {
	golden := map[string]string{
		"mark": "4902623106746578742d3106746578742d3206746578742d3306746578742d3406746578742d35dc0fde0ff007" +
			" 5546a43a15552f0f2b9972e3835c8427",
		"entry": "4502623106746578742d31ea070762797465732d330106746578742d3506746578742d3606746578742d37e00fe20ff207" +
			"07746578742d3131f407010107746578742d3135f8070207746578742d313707746578742d313807746578742d313901" +
			" e4966c6acff5c7e6f7067502970b6b4f",
		"lease": "4c02623106746578742d3101eb0706746578742d3406746578742d35dc0fde0fe00fe20fe40ff30701f507ec0f0207746578" +
			"742d313607746578742d313701fb070207746578742d323107746578742d3232ff070107746578742d32350207746578742d" +
			"323607746578742d323788108a1007746578742d333107746578742d333289080107746578742d33350207746578742d3336" +
			"07746578742d33379c109e100207746578742d343007746578742d3431a410a610940801" +
			" b3956b02a67d9d720eed1f9807b026c1",
		"loop": "4f02623106746578742d3106746578742d3206746578742d3306746578742d3406746578742d35dc0fde0fe00fe20fe40fe6" +
			"0ff407f50701ee0ff00f07746578742d3137fa070207746578742d3230fd0701fe0f8010810807746578742d32378408028c" +
			"108e108808" +
			" a91fc5ac997b3348f890d6462ad81bab",
		"kept": "4b02623106746578742d310762797465732d320201ed0706746578742d36ef07f00702f107f20707746578742d3131f4" +
			"07ea0ff607ee0f07746578742d3136f907fa07" +
			" ecf0bcee55d4636f1d24d578973f344b",
		"event": "56026231e907ea07d60fd80f0206746578742d3606746578742d3706746578742d38f10707746578742d3130020774657874" +
			"2d3132f507f607f70707746578742d313607746578742d313707746578742d313807746578742d313907746578742d3230fd" +
			"0701ff0701" +
			" 3dd439e1d56a72a9012211e912164d2c",
		"phase": "5002623106746578742d3106746578742d320206746578742d34ed070206746578742d3606746578742d370206746578742d" +
			"3907746578742d313007746578742d313207746578742d3133010207746578742d3136f90707746578742d3139fc0701077465" +
			"78742d323207746578742d323307746578742d3234821084108308881001" +
			" 8383df4a5b1970f35be30a4ce8406a83",
		"data": "4402623106746578742d31ea070762797465732d3306746578742d3406746578742d3506746578742d36de0fe00ff107" +
			" 368efe85f05c485407e0161b2c5187b2",
		"dispute": "5902623106746578742d3106746578742d32eb07ec070206746578742d3506746578742d360762797465732d370762797465" +
			"732d3806746578742d3907746578742d313007746578742d3131e80fea0ff60707746578742d313507746578742d3136f907f40ff60ffc07" +
			" 4f424de5a4eeb7eedc60c5473bc46ac6",
		"conflict": "4302623106746578742d310206746578742d33ec07ed0706746578742d37f007f107" +
			" e4d4dbcd4bac7be58b3d072a485517f1",
		"readers": "4102623106746578742d310206746578742d3306746578742d34ed07ee07ef07e00fe20ff20707746578742d313207746578742d3133" +
			"f607f707f807f20ff40ffb07fc07 e372a9a409ee98ffb19bae31f379bf9e",
		"pair": "5102623106746578742d3106746578742d32eb07 411556d216c7f09958ef4755dcd38319",
		"rate": "4e02623106746578742d31ea07" +
			" cc33394451e628a6d5a91dcdc406be99",
		"usage": "5502623106746578742d3105ea07eb07ec07ed07ee0702ef07f007" +
			" eae369c3f88f625853f02b6d0529feb0",
		"floor": "4602623106746578742d31ea07eb07 d5666182dc961fc78154dfe3d2c14028",
	}
	for name, r := range records() {
		var e encoder
		sum := r.sum(&e, "b1").Bytes()
		got := hex.EncodeToString(e.b) + " " + hex.EncodeToString(sum[:])
		if golden[name] != got {
			t.Errorf("%s:\n got %s\nwant %s", name, got, golden[name])
		}
	}
}

func TestTheBodyHashCoversTheOperationAndNotItsEnvelope(t *testing.T) {
	command := func() *boardpb.Command {
		return &boardpb.Command{Board: "b", Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "k", Value: []byte("1"), IfVersion: 3,
			Generation: 4, Source: "s", ForClaim: &boardpb.LeaseRef{Key: "c", Generation: 1}, Fence: &boardpb.LeaseRef{Key: "d", Generation: 2}}}}
	}
	want := New().BodyHash(command())
	envelope := command()
	envelope.Actor, envelope.Loop, envelope.Seq, envelope.Floor = &boardpb.Actor{Principal: "w"}, "l", 7, 3
	envelope.IdempotencyKey, envelope.CallId, envelope.Incarnation, envelope.Entropy = "i", "c", "n", 9
	if New().BodyHash(envelope) != want {
		t.Error("the envelope changes the hash: a retry from another node would be another request")
	}
	c := command()
	change(c.GetSet().ProtoReflect(), "set", func(path string) {
		if New().BodyHash(c) == want {
			t.Errorf("%s is not in the hash", path)
		}
	})
	c = command()
	c.Board = "b2"
	if New().BodyHash(c) == want {
		t.Error("the board is not in the hash")
	}
	set, absent := int64(0), &boardpb.Claim{Key: "k"}
	zero := &boardpb.Claim{Key: "k", DurationMs: &set}
	hash := func(o *boardpb.Claim) [16]byte {
		return New().BodyHash(&boardpb.Command{Op: &boardpb.Command_Claim{Claim: o}})
	}
	if hash(absent) == hash(zero) {
		t.Error("an absent duration and one of 0 have one hash")
	}
}

// encoder.fields walks the declarations, so these must stand in the order of the numbers.
func TestMessagesAreDeclaredInTheOrderOfTheirNumbers(t *testing.T) {
	messages := boardpb.File_fsm_pb_board_proto.Messages()
	for i := range messages.Len() {
		m := messages.Get(i)
		if m.Name() == "SnapshotRecord" {
			continue // it is not hashed itself, and its oneof is one block
		}
		for j := 1; j < m.Fields().Len(); j++ {
			if before, f := m.Fields().Get(j-1), m.Fields().Get(j); f.Number() <= before.Number() {
				t.Errorf("%s: field %s (%d) is declared behind %s (%d)", m.Name(), f.Name(), f.Number(), before.Name(), before.Number())
			}
		}
	}
}

func TestClonesCopyEveryField(t *testing.T) {
	n := 0
	loop, lease, phase := &boardpb.Loop{}, &boardpb.Lease{}, &boardpb.Phase{}
	fill(loop.ProtoReflect(), &n)
	fill(phase.ProtoReflect(), &n)
	if !proto.Equal(phase, ClonePhase(phase)) {
		t.Error("ClonePhase leaves a field out")
	}
	fill(lease.ProtoReflect(), &n)
	if c := CloneLoop(loop); !proto.Equal(c, loop) || c == loop {
		t.Errorf("CloneLoop: got %v, want %v", c, loop)
	}
	usage := &boardpb.Usage{}
	fill(usage.ProtoReflect(), &n)
	if c := CloneUsage(usage); !proto.Equal(c, usage) || c == usage {
		t.Errorf("CloneUsage: got %v, want %v", c, usage)
	}
	if c := CloneLease(lease); !proto.Equal(c, lease) || c == lease {
		t.Errorf("CloneLease: got %v, want %v", c, lease)
	}
}
