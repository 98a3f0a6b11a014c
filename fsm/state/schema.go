package state

import (
	"fmt"
	"strings"

	boardpb "raftboard/fsm/pb"
)

// Schema is a board's namespace table, ready to match.
type Schema struct {
	spaces []*Space
	first  map[string][]*Space // by a literal first segment
	wild   []*Space            // first segment with a "*"
}

// Space is one namespace: its declaration and where its owner stands.
type Space struct {
	*boardpb.Namespace
	Number  int // its place in the table, and in the counts
	Pattern Pattern
	owner   int // the segment that names the owner (mode owned)
}

// DefaultSettings is the table of SPEC NS-6 with the default limits.
func DefaultSettings() *boardpb.BoardSettings {
	const orchestrator = "role:orchestrator"
	return &boardpb.BoardSettings{Namespaces: []*boardpb.Namespace{
		{Pattern: "facts/*", Mode: boardpb.Mode_MODE_APPEND, Purpose: "what was found out, one item each"},
		{Pattern: "findings/*", Mode: boardpb.Mode_MODE_APPEND, Unique: true, Purpose: "conclusions with their evidence"},
		{Pattern: "questions", Mode: boardpb.Mode_MODE_APPEND, Purpose: "open questions"},
		{Pattern: "decisions", Mode: boardpb.Mode_MODE_APPEND, OneLine: true, Purpose: "decisions, one line each"},
		{Pattern: "claims/*", Mode: boardpb.Mode_MODE_LEASED, Purpose: "work items; claim one before working on it"},
		{Pattern: "results/*/**", Mode: boardpb.Mode_MODE_OWNED, Purpose: "results; the second segment is the owner"},
		{Pattern: "plan", Mode: boardpb.Mode_MODE_SINGLE, Writer: orchestrator, Purpose: "the plan"},
		{Pattern: "plan/*", Mode: boardpb.Mode_MODE_SINGLE, Writer: orchestrator, Purpose: "parts of the plan"},
		{Pattern: "objective", Mode: boardpb.Mode_MODE_ONCE, Writer: orchestrator, Purpose: "the objective, written once"},
		{Pattern: "draft", Mode: boardpb.Mode_MODE_SHARED, Purpose: "a shared draft; every write names the version it read"},
	}}
}

// CompileSchema returns the table, or the refusal that says what is wrong with it.
func CompileSchema(list []*boardpb.Namespace) (*Schema, *boardpb.Result) {
	if len(list) == 0 {
		return nil, badTable(boardpb.Code_CODE_BAD_REQUEST, "namespaces", "a board has at least one namespace")
	}
	if len(list) > MaxNamespaces {
		r := badTable(boardpb.Code_CODE_LIMIT_NAMESPACES, "namespaces", fmt.Sprintf("%d namespaces, at most %d", len(list), MaxNamespaces))
		r.Got, r.Limit = uint64(len(list)), MaxNamespaces
		return nil, r
	}
	s := &Schema{first: map[string][]*Space{}}
	for i, ns := range list {
		space, bad := compileSpace(i, ns)
		if bad != nil {
			return nil, bad
		}
		for _, other := range s.spaces {
			if other.Pattern.Overlaps(space.Pattern) {
				return nil, badTable(boardpb.Code_CODE_NAMESPACE_OVERLAP, fmt.Sprintf("namespaces/%d/pattern", i),
					fmt.Sprintf("%s and %s can match the same key", other.Pattern, space.Pattern))
			}
		}
		s.spaces = append(s.spaces, space)
		if head := space.Pattern.segments[0]; strings.Contains(head, "*") {
			s.wild = append(s.wild, space)
		} else {
			s.first[head] = append(s.first[head], space)
		}
	}
	return s, nil
}

func compileSpace(i int, ns *boardpb.Namespace) (*Space, *boardpb.Result) {
	at := func(field string) string { return fmt.Sprintf("namespaces/%d/%s", i, field) }
	bad := func(field, why string) (*Space, *boardpb.Result) {
		return nil, badTable(boardpb.Code_CODE_BAD_REQUEST, at(field), why)
	}
	p, why := ParsePattern(ns.GetPattern())
	if why != "" {
		return bad("pattern", fmt.Sprintf("pattern %+q: %s", ns.GetPattern(), why))
	}
	space := &Space{Namespace: ns, Number: i, Pattern: p, owner: -1}
	for j, glob := range p.segments {
		if glob == "*" {
			space.owner = j
			break
		}
	}
	switch ns.Mode {
	case boardpb.Mode_MODE_APPEND, boardpb.Mode_MODE_LEASED, boardpb.Mode_MODE_SHARED:
	case boardpb.Mode_MODE_OWNED:
		if space.owner < 0 {
			return bad("pattern", fmt.Sprintf(`%s: an owned namespace needs a segment "*" that names the owner`, p))
		}
	case boardpb.Mode_MODE_SINGLE, boardpb.Mode_MODE_ONCE:
		if ns.Writer == "" {
			return bad("writer", fmt.Sprintf("%s: a namespace with one writer names it", p))
		}
	default:
		return bad("mode", fmt.Sprintf("%s: no such mode", p))
	}
	if role, ok := strings.CutPrefix(ns.Writer, "role:"); ok {
		if RoleByName(role) == boardpb.Role_ROLE_UNSPECIFIED {
			return bad("writer", fmt.Sprintf("%+q is no role", ns.Writer))
		}
	} else if ns.Writer != "" && CheckName(ns.Writer) != "" {
		return bad("writer", fmt.Sprintf("%+q is neither a name nor role:…", ns.Writer))
	}
	switch {
	case len(ns.Purpose) > MaxText:
		return bad("purpose", fmt.Sprintf("%d bytes, at most %d", len(ns.Purpose), MaxText))
	case ns.LeaseMs < 0 || ns.LeaseMs > MaxLeaseMs:
		return bad("lease_ms", fmt.Sprintf("%d ms; 0 is the default, at most %d", ns.LeaseMs, MaxLeaseMs))
	case ns.MaxAttempts > 0 && ns.Mode != boardpb.Mode_MODE_LEASED:
		return bad("max_attempts", fmt.Sprintf("%s: only a leased namespace has attempts", p))
	case (ns.Unique || ns.OneLine) && ns.Mode != boardpb.Mode_MODE_APPEND:
		return bad("mode", fmt.Sprintf("%s: only an append namespace can be unique or one_line", p))
	case ns.MaxValueBytes > MaxValueBytes:
		return bad("max_value_bytes", fmt.Sprintf("%d, at most %d", ns.MaxValueBytes, MaxValueBytes))
	}
	return space, nil
}

func badTable(code boardpb.Code, field, why string) *boardpb.Result {
	return &boardpb.Result{Code: code, Field: field, Message: why}
}

// Find returns the namespace of a key, or nil.
func (s *Schema) Find(key string) *Space {
	if _, lock := PhaseOf(key); lock {
		return nil // a phase is in no namespace, whatever a pattern matches
	}
	head, _, _ := strings.Cut(key, "/")
	for _, space := range s.first[head] {
		if space.Pattern.Match(key) {
			return space
		}
	}
	for _, space := range s.wild {
		if space.Pattern.Match(key) {
			return space
		}
	}
	return nil
}

// Meets returns the namespaces that share a key with the pattern.
func (s *Schema) Meets(p Pattern) []*Space {
	var out []*Space
	for _, space := range s.spaces {
		if space.Pattern.Overlaps(p) {
			out = append(out, space)
		}
	}
	return out
}

// Spaces lists the table in its order.
func (s *Schema) Spaces() []*Space { return s.spaces }

// Owner is the principal that an owned namespace says a key belongs to.
func (s *Space) Owner(key string) string {
	if s.owner < 0 {
		return ""
	}
	for range s.owner {
		_, key, _ = strings.Cut(key, "/")
	}
	owner, _, _ := strings.Cut(key, "/")
	return owner
}

// RoleByName turns "orchestrator" into its role.
func RoleByName(name string) boardpb.Role {
	return boardpb.Role(boardpb.Role_value["ROLE_"+strings.ToUpper(name)])
}

// HasRole tells whether the actor's credential carries a role.
func HasRole(a *boardpb.Actor, role boardpb.Role) bool {
	for _, r := range a.GetRoles() {
		if r == role {
			return true
		}
	}
	return false
}

// Principal is the name an actor's command counts for.
func Principal(a *boardpb.Actor) string {
	if a.GetActingFor() != "" {
		return a.ActingFor
	}
	return a.GetPrincipal()
}

// MayWrite tells whether an actor is the declared writer.
func MayWrite(writer string, a *boardpb.Actor) bool {
	if role, ok := strings.CutPrefix(writer, "role:"); ok {
		return HasRole(a, RoleByName(role))
	}
	return writer == Principal(a)
}
