package view_test

import (
	"strings"
	"testing"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/fsm/view"
)

// F-18, F-31, VW-2: what was invalidated is not shown, what rests on it is, and says so.
func TestAViewHidesWhatWasInvalidatedAndMarksWhatRestsOnIt(t *testing.T) {
	r := newRig(t)
	r.append("scout", "findings/a", `"poison"`)
	r.do("analyst", func(x *state.Txn) *boardpb.Result {
		return board.Append(x, &boardpb.Append{Key: "findings/b", Value: []byte(`"built on it"`), Cites: []string{"findings/a"}})
	})
	r.append("scout", "findings/c", `"sound"`)
	before := r.board().Rev()
	r.do("scout", func(x *state.Txn) *boardpb.Result {
		return board.Invalidate(x, &boardpb.Invalidate{Ref: "findings/a@1", Reason: "because of a secret"})
	})
	show := func(b *state.Board) string {
		v, refused := view.Render(b, view.Request{Viewer: "writer", Subscribe: []string{"findings/*"}})
		if refused != nil {
			t.Fatal(refused)
		}
		return v.Text
	}
	text := show(r.board())
	if strings.Contains(text, "poison") || strings.Contains(text, "secret") || strings.Contains(text, "not shown") {
		t.Errorf("the invalidated finding, its reason or its absence is shown:\n%s", text)
	}
	if !strings.Contains(text, "findings/b@1 by analyst [rests on invalidated kv:findings/a@1]: ") || !strings.Contains(text, "findings/c@1 by scout: ") {
		t.Errorf("what rests on it is not marked, or what does not is:\n%s", text)
	}
	if then := show(r.board().At(before)); !strings.Contains(then, "poison") || strings.Contains(then, "rests on") {
		t.Errorf("before it was invalidated nothing was wrong:\n%s", then)
	}
}
