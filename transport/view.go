package transport

import (
	"fmt"
	"unicode/utf8"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/fsm/view"
	wirepb "raftboard/transport/pb"
)

// viewFor renders a view for the principal of the call: what it wrote itself is left out.
func viewFor(b *state.Board, actor *boardpb.Actor, q *wirepb.ViewQuery, answer *wirepb.ReadResponse) *boardpb.Result {
	v, refused := view.Render(b, view.Request{Viewer: state.Principal(actor),
		Everything: state.HasRole(actor, boardpb.Role_ROLE_OPERATOR),
		Subscribe:  q.Subscribe, Pinned: q.Pinned, LimitTokens: q.LimitTokens, Nonce: q.Nonce})
	if refused != nil {
		return board.Explain(refused)
	}
	out := &wirepb.ViewAnswer{Text: v.Text, NotShown: uint64(v.NotShown), MissingPins: uint64(v.MissingPins)}
	if v.Text != "" {
		out.Tokens = uint32(view.Tokens(utf8.RuneCountInString(v.Text)))
	}
	for _, e := range v.Shown {
		out.Shown = append(out.Shown, fmt.Sprintf("%s@%d", e.Key, e.Version))
	}
	answer.Answer = &wirepb.ReadResponse_View{View: out}
	return nil
}
