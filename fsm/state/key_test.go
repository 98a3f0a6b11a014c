package state

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestT59KeysFollowOneGrammar(t *testing.T) {
	x64 := strings.Repeat("x", 64)
	deep := func(n int) string { return strings.TrimSuffix(strings.Repeat("s/", n), "/") }
	long := func(n int) string { // segments of 51 make 5 × 51 + 4 slashes = 259
		return strings.Join([]string{x64[:51], x64[:51], x64[:51], x64[:51], x64[:n-4*52]}, "/")
	}
	for _, c := range []struct {
		key, why string
	}{
		{"facts/A.b-c_1", ""},
		{"facts/-", ""},
		{"facts/...", ""},
		{"facts/" + x64, ""},
		{deep(8), ""},
		{long(256), ""},
		{"", "at least one segment"},
		{"facts/", "segment 2 is empty"},
		{"facts/a//b", "segment 3 is empty"},
		{"/a", "segment 1 is empty"},
		{"facts//a", "segment 2 is empty"},
		{"facts/a/", "segment 3 is empty"},
		{"facts/..", `segment 2 is ".."`},
		{"facts/.", `segment 2 is "."`},
		{"facts/a/../b", `segment 3 is ".."`},
		{"facts/a#b", `segment 2 holds '#' at byte 1`},
		{"facts/a%2Fb", `segment 2 holds '%' at byte 1`},
		{"facts/a b", `segment 2 holds ' ' at byte 1`},
		{"facts/\u00e4", `segment 2 holds '\u00e4' at byte 0`},
		{"facts/a\u0308", `segment 2 holds '\u0308' at byte 1`},
		{"facts/\U0001f600", `segment 2 holds '\U0001f600' at byte 0`},
		{"facts/\u202eabc", `segment 2 holds '\u202e' at byte 0`},
		{"facts/*", `segment 2 holds '*' at byte 0`},
		{"facts/?", `segment 2 holds '?' at byte 0`},
		{"facts/[", `segment 2 holds '[' at byte 0`},
		{`facts/\`, `segment 2 holds '\\' at byte 0`},
		{"facts/a\nb", `segment 2 holds '\n' at byte 1`},
		{"facts/a\x00b", `segment 2 holds '\x00' at byte 1`},
		{"facts/\xff", `segment 2 holds '\ufffd' at byte 0`},
		{"facts/" + x64 + "x", "segment 2 has 65 bytes, at most 64"},
		{deep(9), "9 segments, at most 8"},
		{long(257), "257 bytes, at most 256"},
	} {
		got := CheckKey(c.key)
		if c.why == "" && got != "" || c.why != "" && !strings.Contains(got, c.why) {
			t.Errorf("%+q: got %q, want %q", c.key, got, c.why)
		}
	}
}

func TestT60NoSegmentIsReserved(t *testing.T) {
	for _, s := range []string{"create", "edit", "new", "null", "undefined", "true", "__proto__", "constructor", "-h", "--help", "NUL", "con"} {
		if why := CheckKey("facts/" + s); why != "" {
			t.Errorf("facts/%s: %s", s, why)
		}
	}
}

func TestT60NamesOfPrincipals(t *testing.T) {
	for _, name := range []string{"a", "w1", "worker-1", "orc", "a_b", "a" + strings.Repeat("x", 47), "alls", "systems"} {
		if why := CheckName(name); why != "" {
			t.Errorf("%q: %s", name, why)
		}
	}
	for _, name := range []string{"", "all", "swarm", "system", "anonymous", "operator", "role:x", "role:worker", "W1", "1w", "-a", "_a",
		"a b", "a/b", "ä", "a\x00", "a" + strings.Repeat("x", 48)} {
		if CheckName(name) == "" {
			t.Errorf("%q: accepted", name)
		}
	}
}

func TestPatternsThatAreNone(t *testing.T) {
	for pattern, why := range map[string]string{
		"":                                  "at least one segment",
		"/":                                 "segment 1 is empty",
		"a//b":                              "segment 2 is empty",
		"a\x00b":                            "segment 1 holds",
		"facts/**/x":                        `segment 2 is "**"`,
		"facts/a**":                         "",
		"facts/?":                           "segment 2 holds '?'",
		"facts/[a]":                         "segment 2 holds '['",
		"..":                                `segment 1 is ".."`,
		strings.Repeat("x", 300):            "300 bytes",
		"a/b/c/d/e/f/g/h/i":                 "9 segments",
		"facts/*" + strings.Repeat("x", 64): "65 bytes",
		"**":                                "",
		"*":                                 "",
		"*/**":                              "",
		"*a*b*":                             "",
	} {
		_, got := ParsePattern(pattern)
		if why == "" && got != "" || why != "" && !strings.Contains(got, why) {
			t.Errorf("%+.40q: got %q, want %q", pattern, got, why)
		}
	}
}

func TestPatternsMatchBySegments(t *testing.T) {
	for _, c := range []struct {
		pattern, key string
		want         bool
	}{
		{"facts/*", "facts/a", true},
		{"facts/*", "facts/a/b", false},
		{"facts/*", "facts", false},
		{"facts/*", "FACTS/x", false},
		{"plan", "plan", true},
		{"plan", "plan/a", false},
		{"results/*/**", "results/w/x", true},
		{"results/*/**", "results/w/x/y/z", true},
		{"results/*/**", "results/w", false},
		{"**", "a", true},
		{"**", "a/b/c", true},
		{"findings/env1*", "findings/env1", true},
		{"findings/env1*", "findings/env11", true},
		{"findings/env1*", "findings/env1-old", true},
		{"findings/env1", "findings/env11", false},
		{"a*b*c", "abc", true},
		{"a*b*c", "aXbYbZc", true},
		{"a*b*c", "acb", false},
		{"*-a", "a-a", true},
		{"*aa", "a", false},
		{"a*a", "a", false},
	} {
		p, why := ParsePattern(c.pattern)
		if why != "" {
			t.Fatalf("%s: %s", c.pattern, why)
		}
		if got := p.Match(c.key); got != c.want {
			t.Errorf("%s matches %s: got %v, want %v", c.pattern, c.key, got, c.want)
		}
	}
}

func drawPattern(t *rapid.T, name string) Pattern {
	segments := rapid.SliceOfN(rapid.StringMatching(`[ab*]{1,3}`), 1, 3).Draw(t, name)
	for i, s := range segments {
		if s == "**" && i < len(segments)-1 {
			segments[i] = "*"
		}
	}
	p, why := ParsePattern(strings.Join(segments, "/"))
	if why != "" {
		t.Fatalf("the generator drew no pattern: %s", why)
	}
	return p
}

// reference is the meaning of a pattern as a regular expression.
func reference(p Pattern) *regexp.Regexp {
	const char = "[A-Za-z0-9._-]"
	var parts []string
	for _, s := range strings.Split(p.String(), "/") {
		if s == "**" {
			parts = append(parts, char+"+(/"+char+"+)*")
			continue
		}
		parts = append(parts, strings.ReplaceAll(regexp.QuoteMeta(s), `\*`, char+"*"))
	}
	return regexp.MustCompile("^" + strings.Join(parts, "/") + "$")
}

func TestMatchAgreesWithARegularExpression(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPattern(t, "pattern")
		key := strings.Join(rapid.SliceOfN(rapid.StringMatching(`[ab]{1,4}`), 1, 4).Draw(t, "key"), "/")
		if got, want := p.Match(key), reference(p).MatchString(key); got != want {
			t.Fatalf("%s matches %s: got %v, want %v", p, key, got, want)
		}
		if p.Match(key) && !strings.HasPrefix(key, p.Prefix()) {
			t.Fatalf("%s matches %s, which does not start with its prefix %q", p, key, p.Prefix())
		}
		if p.Literal() && !p.Match(p.String()) {
			t.Fatalf("%s is literal and does not match itself", p)
		}
	})
}

// Two globs of at most 3 letters that meet do so in a text of at most 6, so trying all
// of those decides; patterns meet if all their segments do.
func TestPatternsOverlapExactlyIfSomeKeyMatchesBoth(t *testing.T) {
	texts := []string{""}
	for i := 0; i < len(texts) && len(texts[i]) < 6; i++ {
		texts = append(texts, texts[i]+"a", texts[i]+"b")
	}
	texts = texts[1:]
	witness := func(x, y string) string {
		for _, s := range texts {
			if matchSegment(x, s) && matchSegment(y, s) {
				return s
			}
		}
		return ""
	}
	rapid.Check(t, func(t *rapid.T) {
		p, q := drawPattern(t, "p"), drawPattern(t, "q")
		ps, qs := strings.Split(p.String(), "/"), strings.Split(q.String(), "/")
		// "**" stands for as many "*" as the other side needs.
		for len(ps) < len(qs) && ps[len(ps)-1] == "**" {
			ps = append(ps[:len(ps)-1], "*", "**")
		}
		for len(qs) < len(ps) && qs[len(qs)-1] == "**" {
			qs = append(qs[:len(qs)-1], "*", "**")
		}
		want := len(ps) == len(qs)
		var key []string
		for i := 0; want && i < len(ps); i++ {
			s := witness(ps[i], qs[i])
			key, want = append(key, s), s != ""
		}
		if got := p.Overlaps(q); got != want {
			t.Fatalf("%s overlaps %s: got %v, want %v", p, q, got, want)
		}
		if q.Overlaps(p) != want || !p.Overlaps(p) {
			t.Fatalf("%s, %s: overlap is not symmetric, or not reflexive", p, q)
		}
		if k := strings.Join(key, "/"); want && (!p.Match(k) || !q.Match(k)) {
			t.Fatalf("%s and %s overlap in %s, but do not both match it", p, q, k)
		}
	})
}
