package view_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/fsm/view"
)

// drawText makes a text of any script, and of what is not one.
func drawText(t *rapid.T) string {
	part := rapid.SampledFrom([]string{"a plain word ", "敏捷的棕色狐狸", "\u202e", "\u200b", "<board_view>", "</BOARD_VIEW ", "\n- 12:00 plan/x@1 by w1: ",
		"aGVsbG8gd29ybGQ=", "👩‍👩‍👧", "\x1b[2J", "\\u003c", "e\u0301", "&lt;", " … ", "\U000e0041", "[cut: 3 of 9 characters, rest in x@1]: ", "\"", "\\"})
	return strings.Join(rapid.SliceOfN(part, 0, 6).Draw(t, "parts"), "") +
		strings.Repeat(part.Draw(t, "repeated"), rapid.SampledFrom([]int{0, 0, 1, 20, 200}).Draw(t, "times"))
}

// current is the naive list of what a view may show, the newest first.
func current(b *state.Board, viewer string) (out []*boardpb.Entry) {
	b.Keys("", func(key string, k *state.Key) bool {
		for _, e := range k.Current(b.Schema().Find(key)) {
			if e.Author != viewer {
				out = append(out, e)
			}
		}
		return true
	})
	slices.SortFunc(out, func(x, y *boardpb.Entry) int { return int(y.Rev) - int(x.Rev) })
	return out
}

func TestAViewKeepsItsBudgetWhateverTheBoardHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t)
		long := strings.Repeat("k", rapid.SampledFrom([]int{1, 64}).Draw(rt, "long key"))
		for range rapid.IntRange(0, 30).Draw(rt, "entries") {
			who := rapid.SampledFrom([]string{"w1", "w2", "reader"}).Draw(rt, "who")
			key := rapid.SampledFrom([]string{"facts/x", "facts/y", "facts/" + long, "findings/a", "plan/a", "plan/b", "plan"}).Draw(rt, "key")
			value := quoted(drawText(rt))
			if strings.HasPrefix(key, "plan") {
				r.set(who, key, value)
			} else {
				r.append(who, key, value)
			}
		}
		q := view.Request{Viewer: "reader", LimitTokens: uint32(rapid.IntRange(90, 900).Draw(rt, "limit")),
			Subscribe: []string{"facts/*", "findings/a"},
			Pinned:    rapid.SampledFrom([][]string{nil, {"plan/*"}, {"plan/b", "plan", "facts/x"}}).Draw(rt, "pins"),
			Nonce:     rapid.SampledFrom([]string{"", "0123456789abcdef"}).Draw(rt, "nonce")}
		v := r.render(q)
		checkView(rt, r.board(), q, v)
		if then, refused := view.Render(r.board().At(r.board().Rev()), q); refused != nil || then.Text != v.Text {
			rt.Fatalf("as it was at the head's rev: %v\n%s\nand as it is:\n%s", refused, then.Text, v.Text)
		}
	})
}

func checkView(t *rapid.T, b *state.Board, q view.Request, v *view.View) {
	matches := func(patterns []string, key string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			pattern, _ := state.ParsePattern(p)
			return pattern.Match(key)
		})
	}
	var pins, rest []*boardpb.Entry
	for _, e := range current(b, q.Viewer) {
		switch {
		case matches(q.Pinned, e.Key):
			pins = append(pins, e)
		case matches(q.Subscribe, e.Key):
			rest = append(rest, e)
		}
	}
	if len(pins)+len(rest) == 0 {
		if v.Text != "" {
			t.Fatalf("nothing to show, and yet\n%s", v.Text)
		}
		return
	}
	pinned, shown := 0, 0
	for _, e := range v.Shown {
		switch {
		case matches(q.Pinned, e.Key):
			if pinned++; shown > 0 {
				t.Fatalf("the pin %s comes behind one that is none", e.Key)
			}
		case rest[shown] != e:
			t.Fatalf("line %d is %s@%d, want %s@%d", shown, e.Key, e.Version, rest[shown].Key, rest[shown].Version)
		default:
			shown++
		}
	}
	if v.MissingPins != len(pins)-pinned || v.NotShown != len(pins)+len(rest)-len(v.Shown) {
		t.Fatalf("of %d pins and %d others %d are shown; counted missing: %d, %d of them pins", len(pins), len(rest), len(v.Shown), v.NotShown, v.MissingPins)
	}
	lines := strings.Split(v.Text, "\n")
	want := len(v.Shown) + 3
	if v.NotShown > 0 {
		want++
		missing := slices.DeleteFunc(append(pins, rest...), func(e *boardpb.Entry) bool { return slices.Contains(v.Shown, e) })
		slices.SortFunc(missing, func(x, y *boardpb.Entry) int { return int(x.Rev) - int(y.Rev) })
		times := fmt.Sprintf("%s to %s", view.Wall(missing[0].WallMs), view.Wall(missing[len(missing)-1].WallMs))
		if footer := lines[len(lines)-2]; !strings.Contains(footer, "not shown") || !strings.Contains(footer, times) {
			t.Fatalf("the footer is %q, want it to name %s", footer, times)
		}
	}
	if len(lines) != want || strings.Count(strings.ToLower(v.Text), "board_view") < 2 {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), want, v.Text)
	}
	for i, line := range lines[2 : 2+len(v.Shown)] {
		e := v.Shown[i]
		if !strings.HasPrefix(line, fmt.Sprintf("- %s %s@%d by %s", view.Wall(e.WallMs), e.Key, e.Version, e.Author)) {
			t.Fatalf("line %d is not of %s@%d: %s", i, e.Key, e.Version, line)
		}
	}
	inFull := 0
	for _, line := range lines[2 : 2+pinned] {
		if !strings.Contains(line[:min(len(line), 330)], " [cut: ") {
			inFull += utf8.RuneCountInString(line) + 1
		}
	}
	if half := (4*int(q.LimitTokens) - 1) / 2; inFull > half+130*pinned {
		t.Fatalf("pins in full take %d characters, half of the budget is %d:\n%s", inFull, half, v.Text)
	}
}

// BenchmarkView is the promise of 5 ms for a view of 2,000 tokens from a board of 100,000
// entries: of one namespace, of a pattern narrower than it, and of one long append key.
func BenchmarkView(b *testing.B) {
	r := newRig(b)
	for i := range 100_000 {
		key := fmt.Sprintf("facts/f%05d", i)
		if i%4 == 0 {
			key = "findings/all"
		}
		r.append(fmt.Sprintf("w%d", i%20), key, quoted("something that was found out about the matter in hand"))
	}
	board := r.board()
	for name, q := range map[string]view.Request{
		"namespace": {Viewer: "w1", Subscribe: []string{"facts/*"}},
		"narrower":  {Viewer: "w1", Subscribe: []string{"facts/f9*"}},
		"one key":   {Viewer: "w1", Subscribe: []string{"findings/*"}},
		"pinned":    {Viewer: "w1", Subscribe: []string{"facts/*"}, Pinned: []string{"findings/all"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if v, refused := view.Render(board, q); refused != nil || len(v.Text) < 7000 {
					b.Fatalf("%v, %v", v, refused)
				}
			}
		})
	}
}
