package state

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// CheckKey says what is wrong with a key (SPEC NS-1), or "".
func CheckKey(key string) string {
	if key == "" {
		return "a key has at least one segment"
	}
	if len(key) > MaxKeyBytes {
		return fmt.Sprintf("%d bytes, at most %d", len(key), MaxKeyBytes)
	}
	segments := strings.Split(key, "/")
	if len(segments) > MaxKeySegments {
		return fmt.Sprintf("%d segments, at most %d", len(segments), MaxKeySegments)
	}
	for i, s := range segments {
		if why := checkSegment(s, false); why != "" {
			return fmt.Sprintf("segment %d %s", i+1, why)
		}
	}
	return ""
}

func checkSegment(s string, wild bool) string {
	switch {
	case s == "":
		return "is empty (no leading, trailing or double slash)"
	case len(s) > MaxSegmentBytes:
		return fmt.Sprintf("has %d bytes, at most %d", len(s), MaxSegmentBytes)
	case s == "." || s == "..":
		return fmt.Sprintf("is %q, which names no key", s)
	}
	for i := 0; i < len(s); i++ {
		if !segmentByte(s[i]) && (s[i] != '*' || !wild) {
			r, _ := utf8.DecodeRuneInString(s[i:])
			return fmt.Sprintf("holds %+q at byte %d; allowed are A-Z a-z 0-9 . _ -", r, i)
		}
	}
	return ""
}

func segmentByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '.' || c == '_' || c == '-'
}

// Pattern matches keys segment by segment (SPEC NS-2): "*" is any run inside one
// segment, "**" as the last segment is one or more segments. It is case-sensitive.
type Pattern struct {
	text     string
	segments []string
}

// ParsePattern returns a pattern, or what is wrong with it.
func ParsePattern(text string) (Pattern, string) {
	if text == "" {
		return Pattern{}, `a pattern has at least one segment; "**" is everything`
	}
	if len(text) > MaxKeyBytes {
		return Pattern{}, fmt.Sprintf("%d bytes, at most %d", len(text), MaxKeyBytes)
	}
	segments := strings.Split(text, "/")
	if len(segments) > MaxKeySegments {
		return Pattern{}, fmt.Sprintf("%d segments, at most %d", len(segments), MaxKeySegments)
	}
	for i, s := range segments {
		if s == "**" {
			if i != len(segments)-1 {
				return Pattern{}, fmt.Sprintf(`segment %d is "**", which may only be the last`, i+1)
			}
			continue
		}
		if why := checkSegment(s, true); why != "" {
			return Pattern{}, fmt.Sprintf("segment %d %s", i+1, why)
		}
	}
	return Pattern{text: text, segments: segments}, ""
}

func (p Pattern) String() string { return p.text }

// Match tells whether the pattern matches the key.
func (p Pattern) Match(key string) bool {
	for i, glob := range p.segments {
		if glob == "**" {
			return key != ""
		}
		segment, rest, more := strings.Cut(key, "/")
		if !matchSegment(glob, segment) {
			return false
		}
		if last := i == len(p.segments)-1; last == more {
			return false // one of the two has segments left
		}
		key = rest
	}
	return true
}

// Prefix is the literal text that every matching key starts with.
func (p Pattern) Prefix() string {
	if i := strings.IndexByte(p.text, '*'); i >= 0 {
		return p.text[:i]
	}
	return p.text
}

// Literal tells whether the pattern names exactly one key.
func (p Pattern) Literal() bool { return !strings.Contains(p.text, "*") }

func matchSegment(glob, s string) bool {
	head, tail, star := strings.Cut(glob, "*")
	if !star {
		return glob == s
	}
	if !strings.HasPrefix(s, head) {
		return false
	}
	s = s[len(head):]
	for {
		part, rest, more := strings.Cut(tail, "*")
		if !more {
			return strings.HasSuffix(s, part)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, tail = s[i+len(part):], rest
	}
}

// Overlaps tells whether some key matches both patterns.
func (p Pattern) Overlaps(q Pattern) bool {
	for i := 0; ; i++ {
		pEnds, qEnds := i == len(p.segments), i == len(q.segments)
		if pEnds || qEnds {
			return pEnds && qEnds
		}
		if p.segments[i] == "**" || q.segments[i] == "**" {
			return true
		}
		if !segmentsMeet(p.segments[i], q.segments[i]) {
			return false
		}
	}
}

// segmentsMeet tells whether some text matches both globs.
func segmentsMeet(x, y string) bool {
	// meets[j]: can x[i:] and y[j:] match one text? Filled from the back.
	next := make([]bool, len(y)+1)
	for i := len(x); i >= 0; i-- {
		row := make([]bool, len(y)+1)
		for j := len(y); j >= 0; j-- {
			switch {
			case i == len(x) && j == len(y):
				row[j] = true
			case i < len(x) && x[i] == '*':
				row[j] = next[j] || j < len(y) && row[j+1]
			case j < len(y) && y[j] == '*':
				row[j] = row[j+1] || i < len(x) && next[j]
			case i < len(x) && j < len(y):
				row[j] = x[i] == y[j] && next[j+1]
			}
		}
		next = row
	}
	return next[0]
}

// CheckName says what is wrong with a principal's name (SPEC F-11), or "".
func CheckName(name string) string {
	if name == "" || len(name) > MaxPrincipal || name[0] < 'a' || name[0] > 'z' {
		return "a name is 1 to 48 of a-z 0-9 _ -, and starts with a letter"
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return fmt.Sprintf("holds %+q at byte %d; a name is 1 to 48 of a-z 0-9 _ -", rune(c), i)
		}
	}
	switch name {
	case "all", "swarm", "system", "anonymous", "operator":
		return "is reserved"
	}
	return ""
}

// CheckBoardName says what is wrong with a board's name (SPEC F-33), or "".
func CheckBoardName(name string) string { return checkSegment(name, false) }

// CheckPhaseID says what is wrong with the id of a phase (SPEC PH-2), or "".
func CheckPhaseID(id string) string { return checkSegment(id, false) }
