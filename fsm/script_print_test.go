package fsm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// clock writes a board time of a script: the script's zero is a minute after the first
// leadership, so that no grace is pending.
func clock(t int64) string { return "@" + span(t-scriptZero) }

func span(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

// message writes the set fields of a message as name=value, all but the ones that say
// the same in words.
func (s *script) message(m protoreflect.Message) string {
	var parts []string
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		d := fields.Get(i)
		if !m.Has(d) || quiet(m, d) {
			continue
		}
		name := strings.TrimSuffix(string(d.Name()), "_ms")
		if !d.IsList() {
			parts = append(parts, name+"="+s.value(d, m.Get(d)))
			continue
		}
		var items []string
		for j := range m.Get(d).List().Len() {
			items = append(items, s.value(d, m.Get(d).List().Get(j)))
		}
		parts = append(parts, name+"=["+strings.Join(items, ", ")+"]")
	}
	return strings.Join(parts, " ")
}

func quiet(m protoreflect.Message, d protoreflect.FieldDescriptor) bool {
	if strings.HasSuffix(string(d.Name()), "wall_ms") {
		return true // "? wall" shows it
	}
	switch d.Name() {
	case "t_ms", "outcome", "code", "message", "hint":
		return m.Descriptor().Name() == "Result"
	case "first":
		return true // the version or the rev says it
	}
	return false
}

func (s *script) value(d protoreflect.FieldDescriptor, v protoreflect.Value) string {
	name := string(d.Name())
	switch {
	case d.Kind() == protoreflect.MessageKind:
		if d.Message().Name() == "Result" {
			return "(" + s.result(v.Message().Interface().(*boardpb.Result)) + ")"
		}
		return "{" + s.message(v.Message()) + "}"
	case d.Kind() == protoreflect.EnumKind:
		enum := string(d.Enum().Values().ByNumber(v.Enum()).Name())
		prefix := map[string]string{"Code": "CODE_", "Outcome": "OUTCOME_", "EndedBy": "ENDED_BY_", "LeaseState": "LEASE_STATE_",
			"LoopState": "LOOP_STATE_", "Mode": "MODE_", "Kind": "KIND_"}[string(d.Enum().Name())]
		return strings.ToLower(strings.TrimPrefix(enum, prefix))
	case d.Kind() == protoreflect.BytesKind:
		return clipped(string(v.Bytes()))
	case strings.HasSuffix(name, "t_ms"), name == "grace_until_ms":
		return clock(v.Int())
	case strings.HasSuffix(name, "_ms"):
		return span(v.Int())
	case d.Kind() == protoreflect.StringKind:
		return s.names(v.String())
	}
	return fmt.Sprint(v.Interface())
}

func clipped(v string) string {
	if len(v) > 120 {
		return fmt.Sprintf("%.60s… (%d bytes)", v, len(v))
	}
	return v
}

// names replaces random ids by the script's names for them.
func (s *script) names(text string) string {
	for _, id := range slices.Sorted(maps.Keys(s.known)) {
		text = strings.ReplaceAll(text, id, s.known[id])
	}
	return text
}

func (s *script) result(r *boardpb.Result) string {
	head := strings.ToLower(strings.TrimPrefix(r.Outcome.String(), "OUTCOME_"))
	if r.Code != boardpb.Code_CODE_UNSPECIFIED {
		head = board.CodeName(r.Code)
	}
	return strings.TrimSpace(head + " " + s.message(r.ProtoReflect()))
}

// event writes one line of a feed.
func (s *script) event(ev *boardpb.Event) string {
	c := eventShell(ev)
	return fmt.Sprintf("%d.%d %s", ev.Rev, ev.Sub, s.message(c.ProtoReflect()))
}

// eventShell is an event without what the line says already.
func eventShell(ev *boardpb.Event) *boardpb.Event {
	return &boardpb.Event{Kind: ev.Kind, Author: ev.Author, ActingFor: ev.ActingFor, Loop: ev.Loop, Seq: ev.Seq,
		IdempotencyKey: ev.IdempotencyKey, Key: ev.Key, Version: ev.Version, PriorVersion: ev.PriorVersion, Generation: ev.Generation,
		Reason: ev.Reason, CallId: ev.CallId, Label: ev.Label, To: ev.To, Holder: ev.Holder, PriorGeneration: ev.PriorGeneration,
		Cause: ev.Cause, OldestRev: ev.OldestRev, Code: ev.Code}
}

// picture is everything of a View that a script shows, by a name for each: what differs
// between two pictures is what a line changed.
func (s *script) picture(v *state.View) map[string]string {
	p := map[string]string{}
	c := v.Cluster()
	p["cluster"] = s.message((&boardpb.ClusterRecord{GraceUntilMs: c.GraceUntilMs, GraceMs: c.GraceMs, Level: c.Level,
		LeaderTerm: c.LeaderTerm, LeaderId: c.LeaderId, Nodes: c.Nodes}).ProtoReflect())
	for _, name := range v.BoardNames() {
		s.pictureBoard(p, v.Board(name))
	}
	return p
}

func (s *script) pictureBoard(p map[string]string, b *state.Board) {
	at := func(kind string) string {
		if b.Name() == s.board {
			return kind
		}
		return "[" + b.Name() + "] " + kind
	}
	h := b.Head()
	p[at("board")] = fmt.Sprintf("incarnation=%s settings=%d oldest=%d keys=%d", s.names(h.Incarnation), h.SettingsVersion, b.OldestRev(), h.Keys)
	counters := h.Counters.ProtoReflect()
	for i := range counters.Descriptor().Fields().Len() {
		d := counters.Descriptor().Fields().Get(i)
		if n := counters.Get(d).Uint(); n > 0 {
			p[at("count "+string(d.Name()))] = fmt.Sprint(n)
		}
	}
	b.Keys("", func(key string, k *state.Key) bool {
		e := k.Newest()
		text := fmt.Sprintf("v%d %s by %s", e.Version, clipped(string(e.Value)), e.Author)
		if e.Deleted {
			text = fmt.Sprintf("v%d deleted by %s", e.Version, e.Author)
		}
		rest := &boardpb.Entry{ActingFor: e.ActingFor, Source: e.Source, Generation: e.Generation, Late: e.Late, ForClaim: e.ForClaim, Cites: e.Cites}
		if more := s.message(rest.ProtoReflect()); more != "" {
			text += " " + more
		}
		if oldest := k.Versions()[0].Version; oldest > 1 {
			text += fmt.Sprintf(" (oldest v%d)", oldest)
		}
		p[at(key)] = text
		return true
	})
	for _, p2 := range b.ReadPairs() {
		p[at("reads by "+p2.Reader)] += s.message(p2.ProtoReflect()) + "; "
	}
	b.Keys("", func(key string, _ *state.Key) bool {
		if known := b.Readers("kv:" + key); known != nil {
			p[at("readers of "+key)] = s.message(known.ProtoReflect())
		}
		if known := b.Readers("lease:" + key); known != nil {
			p[at("readers of lease "+key)] = s.message(known.ProtoReflect())
		}
		return true
	})
	for _, m := range marksOn(b) {
		p[at("mark "+m.Ref)] = s.message(m.ProtoReflect())
	}
	b.Leases("", func(key string, l *boardpb.Lease) bool {
		_, _, shown, _, _ := board.Get(b, key)
		if shown == nil { // its namespace is gone, and no read names the key
			shown = l
		}
		c := state.CloneLease(shown)
		c.Key, c.Rev, c.AcquiredTMs = "", 0, 0
		p[at("lease "+key)] = s.message(c.ProtoReflect())
		return true
	})
	b.Loops(func(id string, l *boardpb.Loop) bool {
		c := &boardpb.Loop{State: l.State, Floor: l.Floor, Holds: l.Holds, Untold: l.Untold, EndedWhy: l.EndedWhy, Label: l.Label, TtlMs: l.TtlMs}
		p[at("loop "+s.names(id))] = s.message(c.ProtoReflect())
		return true
	})
}

// marksOn are the marks of everything a board holds.
func marksOn(b *state.Board) (marks []*boardpb.Mark) {
	b.Keys("", func(_ string, k *state.Key) bool {
		marks = append(marks, board.Marks(b, k.Versions()...)...)
		return true
	})
	return marks
}

// changes lists what differs between two pictures, in order.
func changes(before, after map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] {
			out = append(out, "= "+name+": "+after[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, still := after[name]; !still {
			out = append(out, "= "+name+": gone")
		}
	}
	return out
}
