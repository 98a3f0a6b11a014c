package sim_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

func replay(t *testing.T, h *history.History) []check.Finding {
	t.Helper()
	order, found := check.Agree(h)
	if len(found) > 0 {
		t.Fatal(found)
	}
	return check.Replay(order)
}

// What is the same on every node may still be wrong: other commands than ran, or a rule that
// depends on more than the log. Only running the log again shows it.
func TestALogThatIsRunAgainComesToTheSameAnswersAndStates(t *testing.T) {
	var h *history.History
	synctest.Test(t, func(t *testing.T) { h = runLoad(t, load(t, "register"), 1, 10*time.Second) })
	if h = reread(t, h); len(replay(t, h)) > 0 {
		t.Fatal(replay(t, h))
	}
	set := func(a *history.Applied) bool { return a.OK() && a.Command.GetSet() != nil && a.Digest != "" }
	for _, m := range []struct {
		name, want string
		change     func(a *history.Applied)
	}{
		{"another value", "G4", func(a *history.Applied) { a.Command.GetSet().Value = []byte(`"other"`) }},
		{"another author", "G4", func(a *history.Applied) { a.Command.Actor.Principal = "mallory" }},
		{"another answer", "R2", func(a *history.Applied) { a.Result.Version++ }},
		{"another time", "R2", func(a *history.Applied) { a.T++ }},
		{"another state", "G4", func(a *history.Applied) { a.Digest = a.Digest[1:] + "0" }},
		{"a command that cannot be", "R2", func(a *history.Applied) { a.Command.Op = nil }},
	} {
		t.Run(m.name, func(t *testing.T) {
			c := copied(h)
			at := c.Applied[slices.IndexFunc(c.Applied, func(a history.Applied) bool { return set(&a) })].Index
			everywhere(c, func(a *history.Applied) bool { return a.Index == at && a.Digest != "" }, func(a *history.Applied) {
				a.Command, a.Result, a.ResultHash = proto.CloneOf(a.Command), proto.CloneOf(a.Result), "changed"
				m.change(a)
			})
			if found := replay(t, c); len(found) != 1 || found[0].Checker != m.want || found[0].Index != at {
				t.Errorf("want one finding of %s at entry %d: %v", m.want, at, found)
			}
		})
	}
	none := &boardpb.Result{}
	if found := check.Replay(&check.Order{Records: []history.Applied{{Index: 1, Term: 1, Command: &boardpb.Command{}, Result: none}}}); len(found) != 1 {
		t.Errorf("an entry that no build knows: %v", found)
	}
}
