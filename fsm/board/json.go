package board

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// CheckJSON tells whether v is one JSON document (RFC 8259) that may be stored byte for
// byte (SPEC F-14): no member name twice in one object, also when two names are equal
// only after unescaping, at most state.MaxDepth deep, no lone surrogate, no byte order
// mark. It returns no code for a good document, else bad_encoding (not UTF-8, or a NUL)
// or bad_request with the byte offset of the fault and what is wrong there.
//
// It reads v once, from the front to the first fault. What it remembers is one frame per
// open bracket, at most state.MaxDepth, and the member names of the open objects.
func CheckJSON(v []byte) (code boardpb.Code, offset int, why string) {
	s := jsonScan{v: v}
	if s.document() {
		return boardpb.Code_CODE_UNSPECIFIED, 0, ""
	}
	return s.code, s.at, s.why
}

// jsonScan is a reader at one place of a document; after a fault that place is the fault's.
type jsonScan struct {
	v     []byte
	at    int
	depth int
	open  [state.MaxDepth]jsonFrame
	names [][]byte // unescaped names of the open objects, those of the innermost last

	code boardpb.Code
	why  string
}

// jsonFrame is one open bracket.
type jsonFrame struct {
	object bool
	first  int                 // where its names begin
	many   map[string]struct{} // its names too, once they are too many to compare one by one
}

const fewNames = 16

func (s *jsonScan) fault(code boardpb.Code, at int, why string) bool {
	s.code, s.at, s.why = code, at, why
	return false
}

func (s *jsonScan) bad(at int, why string) bool {
	return s.fault(boardpb.Code_CODE_BAD_REQUEST, at, why)
}

// document reads values until none is open.
func (s *jsonScan) document() bool {
	if bytes.HasPrefix(s.v, []byte("\ufeff")) {
		return s.bad(0, "a byte order mark; a document begins with its value")
	}
	for {
		opened, ok := s.value()
		if !ok {
			return false
		}
		if opened {
			continue // its first value, whose name was read if it is a member
		}
		more, ok := s.follow()
		if !ok {
			return false
		}
		if !more {
			break
		}
	}
	if s.space(); s.at < len(s.v) {
		return s.unexpected("the end of the document")
	}
	return true
}

// value reads one scalar or an empty container, or opens a container up to its first value.
func (s *jsonScan) value() (opened, ok bool) {
	s.space()
	if s.at == len(s.v) {
		return false, s.unexpected("a value")
	}
	switch c := s.v[s.at]; {
	case c == '{' || c == '[':
		return s.begin(c == '{')
	case c == '"':
		_, ok = s.text()
	case c == '-' || '0' <= c && c <= '9':
		ok = s.number()
	case c == 't':
		ok = s.word("true")
	case c == 'f':
		ok = s.word("false")
	case c == 'n':
		ok = s.word("null")
	default:
		ok = s.unexpected("a value")
	}
	return false, ok
}

func (s *jsonScan) begin(object bool) (opened, ok bool) {
	if s.depth == state.MaxDepth {
		return false, s.bad(s.at, fmt.Sprintf("nested deeper than %d", state.MaxDepth))
	}
	s.open[s.depth] = jsonFrame{object: object, first: len(s.names)}
	s.depth++
	s.at++
	s.space()
	switch {
	case object && s.is('}'), !object && s.is(']'):
		s.end()
		return false, true
	case object:
		return true, s.name()
	}
	return true, true
}

func (s *jsonScan) end() {
	s.at++
	s.depth--
	s.names = s.names[:s.open[s.depth].first]
	s.open[s.depth].many = nil
}

// follow reads what stands behind a value, and tells whether another one comes.
func (s *jsonScan) follow() (more, ok bool) {
	for s.depth > 0 {
		s.space()
		object := s.open[s.depth-1].object
		switch {
		case s.is(',') && object:
			s.at++
			s.space()
			return true, s.name()
		case s.is(','):
			s.at++
			return true, true
		case object && s.is('}'), !object && s.is(']'):
			s.end()
		case object:
			return false, s.unexpected("',' or '}'")
		default:
			return false, s.unexpected("',' or ']'")
		}
	}
	return false, true
}

// name reads a member's name and colon, and refuses a name the object has already.
func (s *jsonScan) name() bool {
	start := s.at
	if !s.is('"') {
		return s.unexpected("a member name in quotes")
	}
	escaped, ok := s.text()
	if !ok {
		return false
	}
	name := s.v[start+1 : s.at-1]
	if escaped {
		name = unescape(name)
	}
	if !s.remember(name) {
		return s.bad(start, "a member name that the object has already")
	}
	if s.space(); !s.is(':') {
		return s.unexpected("':'")
	}
	s.at++
	return true
}

func (s *jsonScan) remember(name []byte) (isNew bool) {
	f := &s.open[s.depth-1]
	own := s.names[f.first:]
	if f.many == nil {
		for _, n := range own {
			if bytes.Equal(n, name) {
				return false
			}
		}
		if len(own) < fewNames {
			if s.names == nil {
				s.names = make([][]byte, 0, fewNames/2)
			}
			s.names = append(s.names, name)
			return true
		}
		f.many = make(map[string]struct{}, 4*fewNames)
		for _, n := range own {
			f.many[string(n)] = struct{}{}
		}
	}
	if _, twice := f.many[string(name)]; twice {
		return false
	}
	f.many[string(name)] = struct{}{}
	return true
}

// text reads a string from its opening quote to behind its closing one.
func (s *jsonScan) text() (escaped, ok bool) {
	s.at++
	for {
		run, high := s.at, byte(0)
		for _, c := range s.v[run:] {
			if c < ' ' || c == '"' || c == '\\' {
				break
			}
			high |= c
			s.at++
		}
		if high >= utf8.RuneSelf && !utf8.Valid(s.v[run:s.at]) {
			return escaped, s.notUTF8(run)
		}
		if s.at == len(s.v) {
			return escaped, s.unexpected("the '\"' that ends a string")
		}
		switch c := s.v[s.at]; c {
		case '"':
			s.at++
			return escaped, true
		case '\\':
			escaped = true
			if !s.escape() {
				return escaped, false
			}
		case 0:
			return escaped, s.fault(boardpb.Code_CODE_BAD_ENCODING, s.at, "a NUL byte")
		default:
			return escaped, s.bad(s.at, fmt.Sprintf("control character 0x%02x in a string; write \\u%04x", c, c))
		}
	}
}

// escape reads one escape, a surrogate pair as one.
func (s *jsonScan) escape() bool {
	start := s.at
	if start+1 == len(s.v) {
		s.at++
		return s.unexpected("the rest of an escape")
	}
	switch s.v[start+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at += 2
		return true
	case 'u':
	default:
		return s.bad(start, "an escape that JSON does not know")
	}
	first, ok := hex4(s.v[start+2:])
	if !ok {
		return s.bad(start, `\u without four hexadecimal digits`)
	}
	s.at += 6
	if first < 0xd800 || first > 0xdfff {
		return true
	}
	rest := s.v[s.at:]
	if first < 0xdc00 && bytes.HasPrefix(rest, []byte(`\u`)) {
		if second, ok := hex4(rest[2:]); ok && 0xdc00 <= second && second <= 0xdfff {
			s.at += 6
			return true
		}
	}
	return s.bad(start, "half of a surrogate pair")
}

func hex4(b []byte) (n int, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			n = n<<4 | int(c-'0')
		case 'a' <= c && c <= 'f':
			n = n<<4 | int(c-'a'+10)
		case 'A' <= c && c <= 'F':
			n = n<<4 | int(c-'A'+10)
		default:
			return 0, false
		}
	}
	return n, true
}

// unescape returns what a name means whose escapes have been checked.
func unescape(name []byte) []byte {
	out := make([]byte, 0, len(name))
	for i := 0; i < len(name); {
		if name[i] != '\\' {
			out = append(out, name[i])
			i++
			continue
		}
		if name[i+1] != 'u' {
			if at := bytes.IndexByte([]byte("bfnrt"), name[i+1]); at >= 0 {
				out = append(out, "\b\f\n\r\t"[at])
			} else {
				out = append(out, name[i+1])
			}
			i += 2
			continue
		}
		r, _ := hex4(name[i+2:])
		i += 6
		if 0xd800 <= r && r < 0xdc00 {
			low, _ := hex4(name[i+2:])
			r = 0x10000 + (r-0xd800)<<10 + low - 0xdc00
			i += 6
		}
		out = utf8.AppendRune(out, rune(r))
	}
	return out
}

// number reads a number of any magnitude, which is kept as it is written.
func (s *jsonScan) number() bool {
	if s.is('-') {
		s.at++
	}
	switch {
	case s.is('0'):
		s.at++
		if s.digit() {
			return s.bad(s.at, "a number with a leading zero")
		}
	case !s.digits():
		return s.unexpected("a digit")
	}
	if s.is('.') {
		s.at++
		if !s.digits() {
			return s.unexpected("a digit behind the decimal point")
		}
	}
	if s.is('e') || s.is('E') {
		s.at++
		if s.is('+') || s.is('-') {
			s.at++
		}
		if !s.digits() {
			return s.unexpected("a digit of the exponent")
		}
	}
	return true
}

func (s *jsonScan) digits() (some bool) {
	for s.digit() {
		s.at++
		some = true
	}
	return some
}

func (s *jsonScan) digit() bool {
	return s.at < len(s.v) && '0' <= s.v[s.at] && s.v[s.at] <= '9'
}

func (s *jsonScan) word(word string) bool {
	for i := range len(word) {
		if !s.is(word[i]) {
			return s.unexpected("the rest of " + word)
		}
		s.at++
	}
	return true
}

func (s *jsonScan) is(c byte) bool { return s.at < len(s.v) && s.v[s.at] == c }

func (s *jsonScan) space() {
	for s.at < len(s.v) {
		switch s.v[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// unexpected says what was wanted here and what was found.
func (s *jsonScan) unexpected(want string) bool {
	if s.at == len(s.v) {
		return s.bad(s.at, "it ends where "+want+" is expected")
	}
	if s.v[s.at] == 0 {
		return s.fault(boardpb.Code_CODE_BAD_ENCODING, s.at, "a NUL byte")
	}
	r, size := utf8.DecodeRune(s.v[s.at:])
	if r == utf8.RuneError && size == 1 {
		return s.notUTF8(s.at)
	}
	return s.bad(s.at, fmt.Sprintf("expected %s, found %+q", want, r))
}

// notUTF8 finds the byte that is not UTF-8 at or behind a place.
func (s *jsonScan) notUTF8(from int) bool {
	for from < len(s.v) {
		r, size := utf8.DecodeRune(s.v[from:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		from += size
	}
	return s.fault(boardpb.Code_CODE_BAD_ENCODING, from, "not UTF-8")
}
