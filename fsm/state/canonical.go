package state

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// message writes any message field by field in the order of the numbers, set fields
// only. It is slower than an encoding by hand and needs no care when an operation is
// added; records that are hashed on every command have their own.
func (e *encoder) message(m proto.Message, skip func(field string) bool) {
	e.fields(m.ProtoReflect(), skip)
}

func (e *encoder) fields(m protoreflect.Message, skip func(field string) bool) {
	all := m.Descriptor().Fields()
	for i := range all.Len() { // a test holds the declarations to the order of the numbers
		d := all.Get(i)
		if !m.Has(d) || skip != nil && skip(string(d.Name())) {
			continue
		}
		e.u64(uint64(d.Number()))
		v := m.Get(d)
		if !d.IsList() {
			e.value(d, v)
			continue
		}
		list := v.List()
		e.u64(uint64(list.Len()))
		for i := range list.Len() {
			e.value(d, list.Get(i))
		}
	}
	e.u64(0)
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
