package render

import (
	"fmt"
	"io"
	"unicode/utf8"
)

// risky tells whether a terminal could do something else with r than show it: controls,
// bidirectional overrides, zero-width and tag characters, exotic line breaks.
func risky(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r <= 0x9f:
		return true
	case r == 0xad, r == 0x61c, r == 0x180e, r == 0xfeff:
		return true
	case r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f:
		return true
	case r >= 0xfff9 && r <= 0xfffb, r >= 0xe0000 && r <= 0xe007f:
		return true
	}
	return false
}

// Safe escapes what a terminal could act on, visibly and, inside JSON strings, without loss.
func Safe(s string) string { return string(appendSafe(nil, []byte(s), nil)) }

// appendSafe escapes src; runes of keep pass.
func appendSafe(dst, src []byte, keep []rune) []byte {
	for len(src) > 0 {
		r, size := utf8.DecodeRune(src)
		switch {
		case r == utf8.RuneError && size <= 1:
			dst = fmt.Appendf(dst, `\x%02x`, src[0])
			size = 1
		case kept(r, keep) || !risky(r):
			dst = append(dst, src[:size]...)
		case r > 0xffff:
			r -= 0x10000
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
		src = src[size:]
	}
	return dst
}

func kept(r rune, keep []rune) bool {
	for _, k := range keep {
		if r == k {
			return true
		}
	}
	return false
}

// safeWriter escapes whole documents on their way to a terminal; line breaks and tabs stay.
// A rune must not be split over two writes: every caller writes whole documents.
type safeWriter struct{ w io.Writer }

func (s safeWriter) Write(p []byte) (int, error) {
	if _, err := s.w.Write(appendSafe(nil, p, []rune{'\n', '\t'})); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Document returns a writer for text as it is: escaped if w is a terminal, else w.
func Document(w io.Writer, terminal bool) io.Writer {
	if terminal {
		return safeWriter{w}
	}
	return w
}
