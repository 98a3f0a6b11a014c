package view

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"raftboard/jepsen/planted"
)

// rendered is text that may be shown to another: what was stored, made harmless, and its
// length in characters.
type rendered struct {
	text  string
	chars int
}

func plain(s string) rendered { return rendered{s, utf8.RuneCountInString(s)} }

// fenceTags are the names of the tags between which a server shows what others wrote, on
// whatever surface.
func fenceTags() []string {
	return []string{"board_view", "peer_file", "peer_listing", "peer_message"}
}

// harmlessJSON renders a JSON document on one line: no white space between tokens, and in
// its strings no character that steers a terminal, hides or reorders text (each becomes the
// escape that JSON has for it, so the value is the same), and no text that looks like a
// fence (its "<" becomes "&lt;", SPEC F-17). Stored bytes are not changed.
func harmlessJSON(value []byte) rendered { return harmless(value, document) }

// harmlessText does the same to text that is no JSON document.
func harmlessText(s string) rendered { return harmless([]byte(s), oneLine) }

// harmlessLines does the same to text whose line breaks are kept.
func harmlessLines(s string) rendered { return harmless([]byte(s), manyLines) }

// form is what kind of text is made harmless.
type form int

const (
	document form = iota // JSON
	oneLine
	manyLines
)

func harmless(value []byte, as form) rendered {
	if planted.Bug("M29") { // the bug: text of others is shown as it is stored
		return plain(string(value))
	}
	out := renderer{tags: fenceTags()}
	out.b.Grow(len(value) + len(value)/8)
	inString, escaped := false, false
	for i := 0; i < len(value); {
		r, size := utf8.DecodeRune(value[i:])
		switch {
		case as == document && !inString && (r == ' ' || r == '\t' || r == '\n' || r == '\r'):
		case isLess(r) && out.opensFence(value[i+size:]):
			out.put("&lt;", 4)
		case invisible(r) && (as != manyLines || r != '\n'):
			out.escape(r)
		default:
			out.b.Write(value[i : i+size])
			out.chars++
		}
		switch {
		case escaped:
			escaped = false
		case inString && r == '\\':
			escaped = true
		case r == '"':
			inString = !inString
		}
		i += size
	}
	return rendered{out.b.String(), out.chars}
}

type renderer struct {
	b     strings.Builder
	chars int
	tags  []string
}

func (o *renderer) put(s string, chars int) {
	o.b.WriteString(s)
	o.chars += chars
}

// escape writes a character as JSON's escape of it.
func (o *renderer) escape(r rune) {
	if r > 0xffff {
		r -= 0x10000
		o.put(fmt.Sprintf(`\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff)), 12)
		return
	}
	o.put(fmt.Sprintf(`\u%04x`, r), 6)
}

// isLess tells the "<" and what a reader may take for one.
func isLess(r rune) bool {
	switch r {
	case '<', 0xff1c, 0xfe64, 0x2039, 0x2329, 0x3008, 0x27e8, 0x276e, 0x276c, 0x2c2, 0x1438, 0x227a:
		return true
	}
	return false
}

// opensFence tells whether what follows a "<" makes it a tag of a fence, opening or
// closing, whatever its case, with white space and unseen characters left out of account.
func (o *renderer) opensFence(rest []byte) bool {
	var name [16]byte
	n := 0
	for i := 0; i < len(rest) && n < len(name); {
		r, size := utf8.DecodeRune(rest[i:])
		i += size
		switch {
		case invisible(r) || unicode.IsSpace(r) || n == 0 && (r == '/' || r == '\\'):
			continue
		case r == '_' || 'a' <= r && r <= 'z':
			name[n] = byte(r)
		case 'A' <= r && r <= 'Z':
			name[n] = byte(r) + 'a' - 'A'
		default:
			return o.isFence(string(name[:n]))
		}
		n++
	}
	return o.isFence(string(name[:n]))
}

func (o *renderer) isFence(name string) bool {
	for _, tag := range o.tags {
		if strings.HasPrefix(name, tag) {
			return true
		}
	}
	return false
}

// invisible tells the characters that are not sent as they are: controls, line and
// paragraph separators, everything of the category "format" (directions, joiners, tags),
// private and unassigned ones, blanks that pass for letters, and variation selectors but
// those that emoji use.
func invisible(r rune) bool {
	switch {
	case r < 0x7f:
		return r < 0x20
	case r == 0x34f, r == 0x115f, r == 0x1160, r == 0x2800, r == 0x3164, r == 0xffa0,
		0x180b <= r && r <= 0x180f, r >= 0xe0000:
		return true
	}
	return !unicode.IsGraphic(r)
}

// cut shortens a text to about most characters, 60 % from its head and 40 % from its tail,
// and tells how many it took out. What stands between does not read as either.
func (r rendered) cut(most int) (out rendered, removed int) {
	const gap = " … "
	keep := max(0, most-utf8.RuneCountInString(gap))
	if r.chars <= most {
		return r, 0
	}
	tail := keep * 2 / 5
	head := keep - tail
	from, to := offset(r.text, head), backOffset(r.text, tail)
	text := r.text[:from] + gap + r.text[to:]
	return rendered{text, keep + utf8.RuneCountInString(gap)}, r.chars - keep
}

// offset is where the n-th character ends.
func offset(s string, n int) int {
	at := 0
	for ; n > 0; n-- {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at
}

// backOffset is where the last n characters begin.
func backOffset(s string, n int) int {
	at := len(s)
	for ; n > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:at])
		at -= size
	}
	return at
}
