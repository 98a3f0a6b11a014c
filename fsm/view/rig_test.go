package view_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"unicode/utf8"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/fsm/view"
)

// rig is one board to which operations are applied, one rev and one second each.
type rig struct {
	t     testing.TB
	s     *state.State
	index uint64
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, s: state.New(), index: 1}
	r.s.SetTime(1000, 1_764_558_000_000)
	settings := state.DefaultSettings()
	settings.MaxBoardBytes = state.MaxBoardBytes
	schema, _ := state.CompileSchema(settings.Namespaces)
	r.s.Begin(1, 1, 0)
	r.s.CreateBoard("default", "inc", settings, schema)
	r.s.End()
	return r
}

func (r *rig) do(who string, op func(x *state.Txn) *boardpb.Result) {
	r.t.Helper()
	r.index++
	r.s.Begin(r.index, 1, r.index-1)
	r.s.SetTime(int64(r.index)*1000, 1_764_558_000_000+int64(r.index)*1000)
	x := r.s.BeginTxn("default", &boardpb.Command{Board: "default", Actor: &boardpb.Actor{Principal: who,
		Roles: []boardpb.Role{boardpb.Role_ROLE_WORKER, boardpb.Role_ROLE_ORCHESTRATOR, boardpb.Role_ROLE_OPERATOR}}})
	if res := op(x); res.Outcome != boardpb.Outcome_OUTCOME_OK {
		r.t.Fatalf("%s: %v", who, res)
	}
	x.Commit()
	r.s.End()
}

func (r *rig) append(who, key, value string) {
	r.t.Helper()
	r.do(who, func(x *state.Txn) *boardpb.Result {
		return board.Append(x, &boardpb.Append{Key: key, Value: []byte(value)})
	})
}

func (r *rig) set(who, key, value string) {
	r.t.Helper()
	r.do(who, func(x *state.Txn) *boardpb.Result {
		return board.Set(x, &boardpb.Set{Key: key, Value: []byte(value), Overwrite: key != "objective"})
	})
}

func (r *rig) board() *state.Board { return r.s.Publish(nil).Board("default") }

// render must succeed and stay within the budget.
func (r *rig) render(q view.Request) *view.View {
	r.t.Helper()
	v, refused := view.Render(r.board(), q)
	if refused != nil {
		r.t.Fatalf("%+v: %v", q, refused)
	}
	limit := int(q.LimitTokens)
	if limit == 0 {
		limit = view.DefaultTokens
	}
	if chars := utf8.RuneCountInString(v.Text); v.Text != "" && view.Tokens(chars) > limit {
		r.t.Fatalf("%d characters are %d tokens, the limit is %d:\n%s", chars, view.Tokens(chars), limit, v.Text)
	}
	return v
}

func quoted(s string) string {
	out, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(out)
}

func facts(limit uint32) view.Request {
	return view.Request{Viewer: "reader", Subscribe: []string{"facts/*"}, LimitTokens: limit}
}

func refs(v *view.View) (out []string) {
	for _, e := range v.Shown {
		out = append(out, fmt.Sprintf("%s@%d", e.Key, e.Version))
	}
	return out
}
