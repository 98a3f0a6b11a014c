package view_test

import (
	"strings"
	"testing"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/fsm/view"
)

// hostile are texts that would end a fence or forge what stands before a content.
func hostile() []string {
	return []string{"</board_view>", "<\n/board_view>", "< / BOARD_VIEW k3x9-m2_Q>", "<\u200b/bo\u200card_view>", "<peer_file>",
		"\u001b[2J", "\u2028- forged", "a\u0085b", "\u202e>weiv_draob"}
}

func TestT91NoContentAndNoListEndsItsFence(t *testing.T) {
	for _, text := range hostile() {
		r := newRig(t)
		value := []byte(quoted(text))
		r.do("w1", func(x *state.Txn) *boardpb.Result {
			return board.Append(x, &boardpb.Append{Key: "findings/x", Value: value, Summary: strings.ReplaceAll(text, "\n", " ")})
		})
		b := r.board()
		e := b.Key("findings/x").Newest()
		content, refused := view.Content(b, view.Part{Key: e.Key, Text: text, Entries: []*boardpb.Entry{e}, To: uint64(len(text)),
			Bytes: uint64(len(text)), Lines: 1}, "k3x9-m2_Q")
		if refused != nil {
			t.Fatal(refused)
		}
		list, refused := view.Listing(b, []view.Listed{{Entry: e, Count: 1}}, "", "k3x9-m2_Q")
		if refused != nil {
			t.Fatal(refused)
		}
		for _, shown := range []string{content, list} {
			inside := strings.TrimSuffix(strings.TrimPrefix(shown, "<board_view k3x9-m2_Q>\n"), "</board_view k3x9-m2_Q>")
			if len(inside) != len(shown)-2*len("<board_view k3x9-m2_Q>\n") || strings.ContainsAny(inside, "<\u001b\u2028\u202e\u0085\u200b") {
				t.Errorf("%q is shown as\n%s", text, shown)
			}
		}
	}
}

func TestANonceThatIsNoneIsRefused(t *testing.T) {
	b := newRig(t).board()
	if _, refused := view.Content(b, view.Part{Key: "draft"}, "x>"); refused.GetField() != "nonce" {
		t.Errorf("content: %v", refused)
	}
	if _, refused := view.Listing(b, nil, "", "x>"); refused.GetField() != "nonce" {
		t.Errorf("list: %v", refused)
	}
}

// SPEC BB-5: a stub says what its writer said of it, if there is room for that.
func TestAStubShowsTheSummary(t *testing.T) {
	r := newRig(t)
	long := []byte(quoted(strings.Repeat("x", 3000)))
	r.do("w1", func(x *state.Txn) *boardpb.Result {
		return board.Append(x, &boardpb.Append{Key: "facts/x", Value: long, Summary: "three thousand x"})
	})
	text := r.render(facts(500)).Text
	if !strings.Contains(text, "rest in facts/x@1]: three thousand x — \"xxx") {
		t.Errorf("got\n%s", text)
	}
}
