package board

// lineBreak tells the characters that end a line for somebody who shows a text.
func lineBreak(r rune) bool {
	switch r {
	case '\n', '\r', '\v', '\f', 0x85, 0x2028, 0x2029:
		return true
	}
	return false
}

// breaksLine tells whether a JSON document holds a line break: between its tokens, or in one
// of its strings, as it is or escaped.
func breaksLine(value []byte) bool {
	escaped := false
	for i, r := range string(value) {
		switch {
		case !escaped:
			escaped = r == '\\'
			if lineBreak(r) {
				return true
			}
			continue
		case r == 'n', r == 'r', r == 'f':
			return true
		case r == 'u' && i+4 < len(value):
			if lineBreak(unhex(value[i+1 : i+5])) {
				return true
			}
		}
		escaped = false
	}
	return false
}

// unhex reads the digits of an escape; the document was checked, so they are some.
func unhex(digits []byte) (r rune) {
	for _, d := range digits {
		switch {
		case d <= '9':
			d -= '0'
		default:
			d = d | 0x20 - 'a' + 10
		}
		r = r<<4 | rune(d)
	}
	return r
}
