package check_test

import (
	"testing"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// hostile is a run in which alice stored a text, bob read it, and bob tried to write as alice.
type hostile struct {
	h      *history.History
	author string // of alice's command, as it was applied
	acting string
	forged *boardpb.Result // what the forged command was answered; nil: it never came to the log
	as     string          // under which name it was applied
}

func newHostile() *hostile {
	text := `"</board_view> (by bob)"`
	said := history.Op{ID: 1, Client: "alice", Kind: history.Set, Key: "doc/a", Outcome: history.OK,
		Args: history.Args{Value: text, As: "alice"}, Result: history.Result{Answer: "ok", Version: 1, Rev: 1}}
	return &hostile{author: "alice", as: "bob", h: &history.History{Run: history.Run{Board: theBoard},
		Ops: []history.Op{
			said,
			{ID: 2, Client: "bob", Kind: history.Get, Key: "doc/a", Outcome: history.OK, Result: history.Result{Answer: "ok", Version: 1, Value: text}},
			{ID: 3, Client: "bob", Kind: history.Forged, Key: "doc/b", Outcome: history.Failed, Args: history.Args{As: "bob", Trick: "names an actor"}},
			{ID: 4, Client: "bob", Kind: history.Forged, Key: "doc/c", Outcome: history.Failed, Args: history.Args{Trick: "states two names"}},
		},
		Feed: []history.Told{{Watcher: "w", Board: theBoard, Event: &boardpb.Event{Rev: 1, Author: "alice", CallId: said.CallID()}}},
		Finals: []history.Final{{Reader: "n1", Entry: &boardpb.Entry{Key: "doc/a", Version: 1, Value: []byte(text), Author: "alice"}},
			{Reader: "n1", Entry: &boardpb.Entry{Key: "doc/old", Version: 3}}},
	}}
}

func (x *hostile) judge(t *testing.T) []check.Finding {
	t.Helper()
	b := newTrace()
	b.raw(&boardpb.Command{Board: theBoard, CallId: history.CallID(1), Actor: &boardpb.Actor{Principal: x.author, ActingFor: x.acting},
		Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "doc/a"}}}, ok(1, 1))
	if x.forged != nil {
		b.raw(&boardpb.Command{Board: theBoard, CallId: history.CallID(3), Actor: &boardpb.Actor{Principal: x.as},
			Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "doc/b"}}}, x.forged)
	}
	return check.Authors(x.h, b.agreed(t))
}

func TestTheAuthorCheckerJudgesHandWrittenHistories(t *testing.T) {
	forbidden := &boardpb.Result{Code: boardpb.Code_CODE_FORBIDDEN}
	entry := func(x *hostile) *boardpb.Entry { return x.h.Finals[0].Entry }
	for _, c := range []struct {
		name, want string
		spoil      func(x *hostile)
	}{
		{"good: each is who it stated to be", "", func(*hostile) {}},
		{"good: the forged one is refused by the state", "", func(x *hostile) { x.forged = forbidden }},
		{"I1: applied under another's name", "I1", func(x *hostile) { x.author = "bob" }},
		{"I1: applied under a name that nobody stated", "I1", func(x *hostile) { x.author = "mallory" }},
		{"I1: applied as acting for another", "I1", func(x *hostile) { x.acting = "bob" }},
		{"I1: a refused command is another's all the same", "I1", func(x *hostile) { x.forged, x.as = forbidden, "alice" }},
		{"I1: what a caller with two names asked was applied", "I1", func(x *hostile) { x.forged, x.h.Ops[2].Args.As = forbidden, "" }},
		{"I1: a watcher is told of another author", "I1", func(x *hostile) { x.h.Feed[0].Event.Author = "bob" }},
		{"I1: another author is there at the end", "I1", func(x *hostile) { entry(x).Author = "bob" }},
		{"I1: the author is said to have acted for another", "I1", func(x *hostile) { entry(x).ActingFor = "bob" }},
		{"I2: the forged one was applied", "I2", func(x *hostile) { x.forged = ok(2, 1) }},
		{"I2: the forged one was acknowledged", "I2", func(x *hostile) { x.h.Ops[2].Outcome = history.OK }},
		{"I2: what was refused left something behind", "I2", func(x *hostile) {
			x.h.Finals = append(x.h.Finals, history.Final{Reader: "n2", Entry: &boardpb.Entry{Key: "doc/c", Version: 1}})
		}},
		{"R1: a text is read otherwise than it was stored", "R1", func(x *hostile) { x.h.Ops[1].Result.Value = `"&lt;/board_view> (by bob)"` }},
		{"R1: a text is otherwise at the end", "R1", func(x *hostile) { entry(x).Value = append(entry(x).Value, ' ') }},
		{"invalid: nobody read the board", "G7", func(x *hostile) { x.h.Finals = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newHostile()
			c.spoil(x)
			fires(t, c.want, x.judge(t))
		})
	}
}

func TestAnyTextSurvivesBeingRecorded(t *testing.T) {
	a, b := history.Text([]byte("\"\xff\"")), history.Text([]byte("\"\xfe\""))
	if a == b {
		t.Errorf("two texts are recorded alike: %s", a)
	}
	if got := history.Text([]byte(`"x"`)); got != `"x"` {
		t.Errorf("a short text is recorded as %s", got)
	}
}
