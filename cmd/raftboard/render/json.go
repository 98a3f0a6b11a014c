package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Raw is JSON text that is embedded as it is.
type Raw []byte

// Field is one member of an Object.
type Field struct {
	Name  string
	Value any
}

// Object is a JSON object whose members keep their order. Values are string, bool, integers,
// float64, Raw, Object, []Object, []string, or nil.
type Object []Field

// Obj makes an object of names and values in turn.
func Obj(members ...any) Object {
	o := make(Object, 0, len(members)/2)
	for i := 0; i < len(members); i += 2 {
		o.Add(members[i].(string), members[i+1])
	}
	return o
}

// Add appends a member.
func (o *Object) Add(name string, value any) { *o = append(*o, Field{name, value}) }

// AddSet appends a member unless its value is the zero of its type.
func (o *Object) AddSet(name string, value any) {
	switch v := value.(type) {
	case string:
		if v == "" {
			return
		}
	case uint64:
		if v == 0 {
			return
		}
	case int64:
		if v == 0 {
			return
		}
	case uint32:
		if v == 0 {
			return
		}
	case bool:
		if !v {
			return
		}
	case Raw:
		if len(v) == 0 {
			return
		}
	case Object:
		if len(v) == 0 {
			return
		}
	case []Object:
		if len(v) == 0 {
			return
		}
	case []string:
		if len(v) == 0 {
			return
		}
	}
	o.Add(name, value)
}

// Get returns a member's value, or nil.
func (o Object) Get(name string) any {
	for _, f := range o {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}

// Time shows UTC milliseconds as RFC 3339 with Z and milliseconds; zero is "".
func Time(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// AppendJSON appends v. With oneLine, line breaks between the tokens of a Raw become spaces,
// because in JSON lines a line is a record.
func AppendJSON(dst []byte, v any, oneLine bool) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case string:
		return AppendString(dst, v)
	case bool:
		return strconv.AppendBool(dst, v)
	case int:
		return strconv.AppendInt(dst, int64(v), 10)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case uint32:
		return strconv.AppendUint(dst, uint64(v), 10)
	case uint64:
		return strconv.AppendUint(dst, v, 10)
	case float64:
		return strconv.AppendFloat(dst, v, 'f', -1, 64)
	case Raw:
		return appendRaw(dst, v, oneLine)
	case Object:
		dst = append(dst, '{')
		for i, f := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(AppendString(dst, f.Name), ':')
			dst = AppendJSON(dst, f.Value, oneLine)
		}
		return append(dst, '}')
	case []Object:
		return appendArray(dst, v, oneLine)
	case []string:
		return appendArray(dst, v, oneLine)
	}
	panic(fmt.Sprintf("render: no JSON for %T", v))
}

func appendArray[T any](dst []byte, items []T, oneLine bool) []byte {
	dst = append(dst, '[')
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendJSON(dst, item, oneLine)
	}
	return append(dst, ']')
}

func appendRaw(dst, raw []byte, oneLine bool) []byte {
	if len(raw) == 0 {
		return append(dst, "null"...)
	}
	if !oneLine {
		return append(dst, raw...)
	}
	for _, b := range raw { // inside strings JSON has no raw line breaks
		if b == '\n' || b == '\r' {
			b = ' '
		}
		dst = append(dst, b)
	}
	return dst
}

// AppendString appends s as a JSON string; <, > and & stay as they are.
func AppendString(dst []byte, s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // a string always encodes
	}
	return append(dst, bytes.TrimRight(buf.Bytes(), "\n")...)
}
