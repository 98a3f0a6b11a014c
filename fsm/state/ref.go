package state

import (
	"strconv"
	"strings"

	boardpb "raftboard/fsm/pb"
)

// RefKind is what a Ref points at (SPEC X-2).
type RefKind string

// The kinds of refs. A text without a kind is one of a key.
const (
	RefKey   RefKind = "kv"    // "kv:facts/a@3", also "facts/a@3": a version of a key
	RefLease RefKind = "lease" // "lease:claims/a#2": a generation of a lease
)

// Ref points at one record of a board: a version of a key, or a grant.
type Ref struct {
	Kind   RefKind
	Key    string
	Number uint64 // version or generation; 0: whatever is current
}

// ParseRef reads a ref. why says what is wrong with it, or is "".
func ParseRef(text string) (ref Ref, why string) {
	kind, rest, typed := strings.Cut(text, ":")
	if !typed {
		kind, rest = string(RefKey), text
	}
	mark := "@"
	switch ref.Kind = RefKind(kind); ref.Kind {
	case RefKey:
	case RefLease:
		mark = "#"
	default:
		return ref, "a ref begins with kv: or lease:, or is a key"
	}
	key, number, numbered := strings.Cut(rest, mark)
	if why := CheckKey(key); why != "" {
		return ref, why
	}
	ref.Key = key
	if numbered {
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || n == 0 || strconv.FormatUint(n, 10) != number {
			return ref, `behind "` + mark + `" stands a number from 1 on`
		}
		ref.Number = n
	}
	return ref, ""
}

// String is the one form a ref is stored in.
func (r Ref) String() string {
	text := string(r.Kind) + ":" + r.Key
	if r.Number == 0 {
		return text
	}
	if r.Kind == RefLease {
		return text + "#" + strconv.FormatUint(r.Number, 10)
	}
	return text + "@" + strconv.FormatUint(r.Number, 10)
}

// EntryRef is the ref of a version of a key.
func EntryRef(e *boardpb.Entry) string { return Ref{RefKey, e.Key, e.Version}.String() }
