package view

import (
	"testing"

	"pgregory.net/rapid"

	"raftboard/fsm/state"
)

// The short way to match a pattern is the pattern.
func TestAMatcherIsItsPattern(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"*", "a*", "a/*", "a/b*", "a/b", "a/**", "a/*/c*", "*/b*", "a*/b", "a*b"}).Draw(t, "pattern")
		key := rapid.StringMatching(`[abc]{1,3}(/[abc]{1,3}){0,3}`).Draw(t, "key")
		p, why := state.ParsePattern(text)
		if why != "" {
			t.Fatal(why)
		}
		m := matcher{pattern: p, prefix: p.Prefix(), run: short(p)}
		if m.key(key) != p.Match(key) {
			t.Fatalf("%s and %s: %v", text, key, m.key(key))
		}
	})
}
