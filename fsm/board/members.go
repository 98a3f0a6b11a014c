package board

// Member is one member of a JSON object, as it is written.
type Member struct {
	Name  string // unescaped
	Raw   []byte // the name with its quotes and escapes
	Value []byte // without the white space around it
}

// Members splits a document that CheckJSON took into its top-level members, in their order.
// It tells whether the document is an object.
func Members(v []byte) (out []Member, object bool) {
	s := jsonScan{v: v}
	if s.space(); !s.is('{') {
		return nil, false
	}
	for s.at++; ; s.at++ { // over the brace, then the commas
		if s.space(); s.is('}') {
			return out, true
		}
		from := s.at
		escaped, ok := s.text()
		if !ok {
			return nil, false
		}
		m := Member{Raw: v[from:s.at]}
		name := m.Raw[1 : len(m.Raw)-1]
		if escaped {
			name = unescape(name)
		}
		m.Name = string(name)
		s.space()
		s.at++ // the colon
		s.space()
		from = s.at
		if !s.skip() {
			return nil, false
		}
		m.Value = v[from:s.at]
		out = append(out, m)
		if s.space(); !s.is(',') {
			return out, s.is('}')
		}
	}
}

// skip reads over one value.
func (s *jsonScan) skip() bool {
	for depth := 0; s.at < len(s.v); {
		switch c := s.v[s.at]; {
		case c == '"':
			if _, ok := s.text(); !ok {
				return false
			}
		case c == '{' || c == '[':
			depth++
			s.at++
		case c == '}' || c == ']':
			depth--
			s.at++
		default:
			for s.at < len(s.v) && !structural(s.v[s.at]) {
				s.at++
			}
			if depth > 0 && s.at < len(s.v) && skipped(s.v[s.at]) {
				s.at++
				continue
			}
		}
		if depth == 0 {
			return true
		}
	}
	return false
}

func structural(c byte) bool {
	switch c {
	case '{', '}', '[', ']', '"':
		return true
	}
	return skipped(c)
}

func skipped(c byte) bool {
	switch c {
	case ',', ':', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

// TypeOf is what a JSON value is: array, string, number, integer, boolean, object or null.
func TypeOf(v []byte) string {
	switch v[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	for _, c := range v {
		if c == '.' || c == 'e' || c == 'E' {
			return "number"
		}
	}
	return "integer"
}
