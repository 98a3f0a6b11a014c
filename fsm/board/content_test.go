package board

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	boardpb "raftboard/fsm/pb"
)

// Parts of a content, asked for one after the other, are the content, whatever the limit; and
// lines are those of the joined text.
func TestThePartsOfAContentAreTheContent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var entries []*boardpb.Entry
		var texts []string
		for _, text := range rapid.SliceOfN(rapid.StringMatching(`[a-é漢𝄞\n ]{0,12}`), 1, 6).Draw(t, "items") {
			texts = append(texts, text)
			entries = append(entries, &boardpb.Entry{Value: []byte(`"` + strings.ReplaceAll(text, "\n", `\n`) + `"`)})
		}
		whole := strings.Join(texts, "\n")
		limit := rapid.Uint64Range(utf8.UTFMax, 20).Draw(t, "limit")
		var got strings.Builder
		for at := uint64(0); ; {
			c := &Content{Entries: entries}
			from, to := c.measure(ContentQuery{FromByte: at})
			c.take(from, to, limit)
			if c.From != at || c.To-c.From > limit || !utf8.ValidString(c.Text) || c.Bytes != uint64(len(whole)) {
				t.Fatalf("from %d: %+v of %q", at, c, whole)
			}
			got.WriteString(c.Text)
			if c.To == c.Wanted {
				break
			}
			if c.To == at {
				t.Fatalf("no way on from %d of %q", at, whole)
			}
			at = c.To
		}
		if got.String() != whole {
			t.Fatalf("the parts are %q, want %q", got.String(), whole)
		}
		lines := strings.Split(whole, "\n")
		first := rapid.IntRange(1, len(lines)).Draw(t, "first")
		last := rapid.IntRange(first, len(lines)).Draw(t, "last")
		c := &Content{Entries: entries}
		from, to := c.measure(ContentQuery{FromLine: uint64(first), ToLine: uint64(last)})
		c.take(from, to, 1<<20)
		if want := strings.Join(lines[first-1:last], "\n"); c.Text != want || c.To != c.Wanted {
			t.Fatalf("lines %d to %d of %q are %q", first, last, whole, c.Text)
		}
	})
}

// BenchmarkContentOfALongLog reads the last part of an append key with 100,000 items.
func BenchmarkContentOfALongLog(b *testing.B) {
	var entries []*boardpb.Entry
	for range 100_000 {
		entries = append(entries, &boardpb.Entry{Value: []byte(`"` + strings.Repeat("x", 100) + `"`)})
	}
	for b.Loop() {
		c := &Content{Entries: entries}
		_, to := c.measure(ContentQuery{})
		c.take(to-contentDefault, to, contentDefault)
		if len(c.Text) != contentDefault {
			b.Fatal(len(c.Text))
		}
	}
}
