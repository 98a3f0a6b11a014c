package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// plain spells out everything in foreign text that does not print: it must neither move the
// cursor of a terminal nor turn the direction of a line. Line ends stay.
func plain(s string) string {
	clean := true
	for _, r := range s {
		clean = clean && (r == '\n' || r == ' ' || unicode.IsPrint(r)) && r != utf8.RuneError
	}
	if clean {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == '\n' || r == ' ' || unicode.IsPrint(r) && r != utf8.RuneError:
			b.WriteRune(r)
		default:
			quoted := strconv.Quote(s[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	return b.String()
}

// one is plain on one line.
func one(s string) string { return strings.ReplaceAll(plain(s), "\n", `\n`) }

// clip shortens text to so many characters and says so by its last one.
func clip(s string, most int) string {
	s = one(s)
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// seconds since the run began.
func seconds(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }

// boardTime is t, in milliseconds, as seconds.
func boardTime(t int64) string { return fmt.Sprintf("t=%.3f s", float64(t)/1000) }

// operation is what a command asks for: the name of its kind and its message.
func operation(c *boardpb.Command) (string, protoreflect.Message) {
	if c == nil {
		return "nothing", nil
	}
	m := c.ProtoReflect()
	f := m.WhichOneof(m.Descriptor().Oneofs().ByName("op"))
	if f == nil {
		return "nothing", nil
	}
	return string(f.Name()), m.Get(f).Message()
}

// keysOf lists the keys that an applied command is about.
func keysOf(a *history.Applied) (keys []string) {
	if txn := a.Command.GetTxn(); txn != nil {
		for _, o := range txn.Ops {
			m := o.ProtoReflect()
			if f := m.WhichOneof(m.Descriptor().Oneofs().ByName("op")); f != nil {
				keys = append(keys, field(m.Get(f).Message(), "key"))
			}
		}
		return keys
	}
	_, m := operation(a.Command)
	if key := field(m, "key"); key != "" {
		return []string{key}
	}
	if a.Result.GetKey() != "" {
		return []string{a.Result.Key}
	}
	return nil
}

func field(m protoreflect.Message, name protoreflect.Name) string {
	if m == nil {
		return ""
	}
	f := m.Descriptor().Fields().ByName(name)
	if f == nil || f.Kind() != protoreflect.StringKind || f.IsList() {
		return ""
	}
	return m.Get(f).String()
}

func uintField(m protoreflect.Message, name protoreflect.Name) uint64 {
	if m == nil {
		return 0
	}
	f := m.Descriptor().Fields().ByName(name)
	if f == nil || f.Kind() != protoreflect.Uint64Kind || f.IsList() {
		return 0
	}
	return m.Get(f).Uint()
}

func bytesField(m protoreflect.Message, name protoreflect.Name) string {
	if m == nil {
		return ""
	}
	f := m.Descriptor().Fields().ByName(name)
	if f == nil || f.Kind() != protoreflect.BytesKind || f.IsList() {
		return ""
	}
	return string(m.Get(f).Bytes())
}

// wish is what an operation asked for, in words.
func wish(o *history.Op) string {
	var b strings.Builder
	b.WriteString(string(o.Kind))
	key := o.Key
	if key == "" && o.Args.Pattern != "" {
		key = o.Args.Pattern
	}
	if key != "" {
		fmt.Fprintf(&b, " %s", clip(key, 60))
	}
	if o.Args.Value != "" {
		fmt.Fprintf(&b, " := %s", clip(o.Args.Value, 60))
	}
	if o.Args.IfVersion > 0 {
		fmt.Fprintf(&b, " if version %d", o.Args.IfVersion)
	}
	if o.Args.ForClaim != "" {
		fmt.Fprintf(&b, " for the claim on %s", clip(o.Args.ForClaim, 60))
	}
	if o.Args.Generation > 0 {
		fmt.Fprintf(&b, " under generation %d", o.Args.Generation)
	}
	if o.Args.AtLeast > 0 {
		fmt.Fprintf(&b, " at rev %d or later", o.Args.AtLeast)
	}
	b.WriteString(parts(o))
	return b.String()
}

const mostParts = 12 // of a transaction, or keys of a read

// parts is what a transaction asked for, part by part.
func parts(o *history.Op) string {
	var all []string
	for i, p := range o.Args.Parts {
		if i == mostParts {
			all = append(all, "…")
			break
		}
		text := string(p.Do) + " " + clip(p.Key, 30)
		switch {
		case p.Value != "":
			text += " " + clip(p.Value, 30)
		case p.Version > 0:
			text += fmt.Sprintf(" at version %d", p.Version)
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return ""
	}
	return " [" + strings.Join(all, "; ") + "]"
}

// seen is what a read of several keys saw: of a long list its end.
func seen(o *history.Op) string {
	var all []string
	for i, s := range o.Result.Seen {
		if i == mostParts {
			all = append(all, "…")
			break
		}
		items := s.Items
		begin := ""
		if n := len(items) - 4; n > 0 {
			items, begin = items[n:], fmt.Sprintf("… %d before, ", n)
		}
		all = append(all, clip(s.Key, 30)+" = ("+begin+clip(strings.Join(items, ", "), 80)+")")
	}
	return strings.Join(all, "; ")
}

// reply is what a client was told, in words.
func reply(o *history.Op) string {
	var parts []string
	r := o.Result
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if r.Answer != "" {
		add("%s", one(r.Answer))
	}
	if r.Key != "" && r.Key != o.Key {
		add("key %s", clip(r.Key, 60))
	}
	if r.Version > 0 {
		add("version %d", r.Version)
	}
	if r.Value != "" {
		add("value %s", clip(r.Value, 60))
	}
	if saw := seen(o); saw != "" {
		add("saw %s", saw)
	}
	if r.Generation > 0 {
		add("generation %d", r.Generation)
	}
	if r.Rev > 0 {
		add("rev %d", r.Rev)
	}
	if r.Replayed {
		add("given again")
	}
	if r.Proposed != "" {
		add("%s", strings.ToLower(one(r.Proposed)))
	}
	if r.Error != "" && r.Answer == "" {
		add("%s", clip(r.Error, 110))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// outcomeWord is the outcome as the page calls it.
func outcomeWord(o history.Outcome) string {
	switch o {
	case history.OK:
		return "ok"
	case history.Failed:
		return "fail"
	case history.Info:
		return "unknown"
	}
	return one(string(o))
}

// command is an applied command in words.
func command(a *history.Applied) string {
	kind, m := operation(a.Command)
	var b strings.Builder
	b.WriteString(kind)
	if keys := keysOf(a); len(keys) > 0 {
		fmt.Fprintf(&b, " %s", clip(strings.Join(keys, " "), 80))
	}
	if value := bytesField(m, "value") + bytesField(m, "result"); value != "" {
		fmt.Fprintf(&b, " := %s", clip(value, 50))
	}
	if v := uintField(m, "if_version"); v > 0 {
		fmt.Fprintf(&b, " if version %d", v)
	}
	if g := uintField(m, "generation"); g > 0 {
		fmt.Fprintf(&b, " under generation %d", g)
	}
	if who := a.Command.GetActor().GetPrincipal(); who != "" {
		fmt.Fprintf(&b, " by %s", clip(who, 30))
	}
	if a.Command.GetSeq() > 0 {
		fmt.Fprintf(&b, " (seq %d)", a.Command.Seq)
	}
	return b.String()
}

// verdictOf is an applied command's result in words.
func resultOf(a *history.Applied) string {
	r := a.Result
	out := history.Answer(r)
	if r.GetRev() > 0 {
		out += fmt.Sprintf(", rev %d", r.Rev)
	}
	if r.GetVersion() > 0 {
		out += fmt.Sprintf(", version %d", r.Version)
	}
	if r.GetGeneration() > 0 {
		out += fmt.Sprintf(", generation %d", r.Generation)
	}
	if r.GetReplayed() {
		out += ", given again"
	}
	return out
}

// count is "1 thing" or "2 things".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return thousands(n) + " " + thing + "s"
}

// thousands groups digits by three.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}
