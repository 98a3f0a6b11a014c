package state

import (
	"fmt"
	"sort"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// isEnvelope tells the fields of a Command that are not its body.
func isEnvelope(field string) bool {
	switch field {
	case "board", "actor", "loop", "seq", "floor", "idempotency_key", "call_id", "incarnation", "entropy":
		return true
	}
	return false
}

// message writes any message field by field in the order of the numbers, set fields
// only. It is slower than an encoding by hand and needs no care when an operation is
// added; records that are hashed on every command have their own.
func (e *encoder) message(m proto.Message, skip func(field string) bool) {
	e.fields(m.ProtoReflect(), skip)
}

func (e *encoder) fields(m protoreflect.Message, skip func(field string) bool) {
	type field struct {
		d protoreflect.FieldDescriptor
		v protoreflect.Value
	}
	var set []field
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if skip == nil || !skip(string(d.Name())) {
			set = append(set, field{d, v})
		}
		return true
	})
	sort.Slice(set, func(i, j int) bool { return set[i].d.Number() < set[j].d.Number() })
	e.u64(uint64(len(set)))
	for _, f := range set {
		e.u64(uint64(f.d.Number()))
		if !f.d.IsList() {
			e.value(f.d, f.v)
			continue
		}
		list := f.v.List()
		e.u64(uint64(list.Len()))
		for i := range list.Len() {
			e.value(f.d, list.Get(i))
		}
	}
}

func (e *encoder) value(d protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch d.Kind() {
	case protoreflect.BoolKind:
		e.flag(v.Bool())
	case protoreflect.EnumKind:
		e.i64(int64(v.Enum()))
	case protoreflect.Int64Kind, protoreflect.Int32Kind:
		e.i64(v.Int())
	case protoreflect.Uint64Kind, protoreflect.Uint32Kind:
		e.u64(v.Uint())
	case protoreflect.StringKind:
		e.str(v.String())
	case protoreflect.BytesKind:
		e.bytes(v.Bytes())
	case protoreflect.MessageKind:
		e.fields(v.Message(), nil)
	default:
		panic(fmt.Sprintf("state: no encoding for %s of kind %s", d.FullName(), d.Kind()))
	}
}
