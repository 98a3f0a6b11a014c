package board

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// How many bytes of a content one answer has (SPEC BB-2).
const (
	contentDefault = 16 << 10
	contentMost    = 256 << 10
)

// ContentQuery asks for what a key says, as text. Lines or bytes narrow it, not both.
type ContentQuery struct {
	Ref              string // a key: what it holds now; a version of one: that version alone
	FromLine, ToLine uint64 // the first line is 1, the last one named belongs to it; 0: from the first, to the last
	FromByte, ToByte uint64 // the first byte is 0, ToByte is the first one left out; 0: to the end
	LimitBytes       uint32 // 0: 16 KiB; at most 256 KiB
}

// Content is a part of what a key says: the bytes From up to To of all Bytes there are. A part
// never begins or ends inside a character.
type Content struct {
	Text     string
	Entries  []*boardpb.Entry // what it is made of, oldest first; none: the key has no value
	Shown    []*boardpb.Entry // those of them that Text shows a part of
	From, To uint64
	Wanted   uint64 // where what was asked for ends; above To it was cut
	Bytes    uint64
	Lines    uint64
}

// ContentOf reads what a key says (SPEC BB-2): a JSON string as the text in it, any other value
// as its JSON, items of an append key with a line break between them. A key without a value is no
// error: its Content has no Entries. It answers bad_key, undeclared_namespace, bad_request for a
// range that is none, and for a named version not_found or compacted.
func ContentOf(b *state.Board, q ContentQuery) (*Content, *boardpb.Result) {
	ref, r := parseRef("key", q.Ref)
	switch {
	case r != nil:
		return nil, r
	case ref.Kind != state.RefKey:
		return nil, bad("key", "a grant has no content; name a key or a version of one")
	case (q.FromLine > 0 || q.ToLine > 0) && (q.FromByte > 0 || q.ToByte > 0):
		return nil, bad("from_byte", "a range is of lines or of bytes, not of both")
	case q.ToLine > 0 && q.ToLine < q.FromLine, q.ToByte > 0 && q.ToByte <= q.FromByte:
		return nil, bad("range", "the range ends before it begins")
	}
	c := &Content{}
	if c.Entries, r = contentEntries(b, ref); r != nil || len(c.Entries) == 0 {
		return c, r
	}
	from, to := c.measure(q)
	if q.FromLine > max(c.Lines, 1) || q.FromByte > c.Bytes {
		out := bad("range", "%s has %d lines and %d bytes: the range begins behind its end", q.Ref, c.Lines, c.Bytes)
		out.Got, out.Limit = max(q.FromLine, q.FromByte), c.Bytes
		if q.FromLine > 0 {
			out.Limit = c.Lines
		}
		return nil, out
	}
	limit := uint64(contentDefault)
	if q.LimitBytes > 0 {
		limit = min(uint64(q.LimitBytes), contentMost)
	}
	c.take(from, to, max(limit, utf8.UTFMax))
	return c, nil
}

// contentEntries are what a content is made of.
func contentEntries(b *state.Board, ref state.Ref) ([]*boardpb.Entry, *boardpb.Result) {
	if ref.Number > 0 {
		e, r := entryOf(b, ref)
		if r != nil {
			return nil, r
		}
		return []*boardpb.Entry{e}, nil
	}
	space, r := readSpace(b, ref.Key)
	if r != nil {
		return nil, r
	}
	if k := b.Key(ref.Key); k != nil {
		return k.Current(space), nil
	}
	return nil, nil
}

// each calls fn with every piece of the whole content, where it begins and whose it is: the
// texts, and the line breaks between them.
func (c *Content) each(fn func(at uint64, piece string, entry int)) {
	at := uint64(0)
	for i, e := range c.Entries {
		if i > 0 {
			fn(at, "\n", i-1)
			at++
		}
		piece := textOf(e.Value)
		fn(at, piece, i)
		at += uint64(len(piece))
	}
}

// measure counts bytes and lines, and says which bytes were asked for.
func (c *Content) measure(q ContentQuery) (from, to uint64) {
	from, to = q.FromByte, q.ToByte
	line, last := uint64(1), byte(0) // the line that the next byte is of; the last byte
	c.each(func(at uint64, piece string, _ int) {
		c.Bytes = at + uint64(len(piece))
		for i := strings.IndexByte(piece, '\n'); i >= 0; {
			if line == q.ToLine {
				to = at + uint64(i)
			}
			if line++; line == q.FromLine {
				from = at + uint64(i) + 1
			}
			next := strings.IndexByte(piece[i+1:], '\n')
			if next < 0 {
				break
			}
			i += 1 + next
		}
		if piece != "" {
			last = piece[len(piece)-1]
		}
	})
	if c.Lines = line; c.Bytes == 0 || last == '\n' {
		c.Lines--
	}
	if to == 0 && q.ToLine == 0 || to > c.Bytes || q.ToLine >= line {
		to = c.Bytes
	}
	return from, to
}

// take copies what was asked for, at most limit bytes of it.
func (c *Content) take(from, to, limit uint64) {
	c.Wanted = to
	end := min(to, from+limit)
	var out strings.Builder
	first, last := len(c.Entries), 0
	c.each(func(at uint64, piece string, entry int) {
		lo, hi := max(from, at), min(end, at+uint64(len(piece)))
		if lo < hi {
			out.WriteString(piece[lo-at : hi-at])
			first, last = min(first, entry), entry+1
		}
	})
	c.Shown = c.Entries[min(first, last):last]
	text := out.String()
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		text, from = text[1:], from+1
	}
	for i := len(text) - 1; i >= 0 && i > len(text)-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRuneInString(text[i:]) {
				text = text[:i]
			}
			break
		}
	}
	c.Text, c.From, c.To = text, from, from+uint64(len(text))
	if end == to { // the part of a character at the end was asked for and is not there to give
		c.Wanted = c.To
	}
}

// textOf is what a JSON document says to a reader of text: a string its text, anything else itself.
func textOf(value []byte) string {
	trimmed := bytes.Trim(value, " \t\r\n")
	if len(trimmed) < 2 || trimmed[0] != '"' {
		return string(value)
	}
	if bytes.IndexByte(trimmed, '\\') < 0 {
		return string(trimmed[1 : len(trimmed)-1])
	}
	var text string
	if json.Unmarshal(trimmed, &text) != nil { // was checked when it was written
		return string(value)
	}
	return text
}
