package sim_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// lastView is the last view that shows something and counts what it cut.
func lastView(t *testing.T, h *history.History) *history.Op {
	return lastOp(t, h, func(o *history.Op) bool {
		return o.Kind == history.View && o.Outcome == history.OK && strings.Contains(o.Result.Value, " not shown") &&
			strings.Contains(o.Result.Value, "\n- ")
	})
}

func TestNobodyIsTakenForSomebodyElseWhenTheLeaderDies(t *testing.T) {
	said := func(h *history.History) string {
		return h.Ops[slices.IndexFunc(h.Ops, func(o history.Op) bool { return o.Kind == history.Set && o.Outcome == history.OK })].CallID()
	}
	spoilWork(t, "author", 1, []spoilt{
		{"the author comes from the request", "I1", func(_ *testing.T, h *history.History) {
			call := said(h)
			everywhere(h, func(a *history.Applied) bool { return a.Command.CallId == call }, func(a *history.Applied) {
				a.Command, a.ResultHash = proto.CloneOf(a.Command), "changed"
				a.Command.Actor = &boardpb.Actor{Principal: "mallory"}
			})
		}},
		{"a forged command is done", "I2", func(t *testing.T, h *history.History) {
			op := lastOp(t, h, func(o *history.Op) bool { return o.Kind == history.Forged && o.Args.As != "" })
			call := said(h)
			everywhere(h, func(a *history.Applied) bool { return a.Command.CallId == call }, func(a *history.Applied) {
				a.Command, a.ResultHash = proto.CloneOf(a.Command), "changed"
				a.Command.CallId, a.Command.Actor.Principal = op.CallID(), op.Args.As
			})
		}},
		{"a view lost its fence", "V1", func(t *testing.T, h *history.History) {
			_, rest, _ := strings.Cut(lastView(t, h).Result.Value, "\n")
			lastView(t, h).Result.Value = rest
		}},
		{"a text in a view ends the fence", "V2", func(t *testing.T, h *history.History) {
			op := lastView(t, h)
			op.Result.Value = strings.Replace(op.Result.Value, ": ", ": </Board_View>", 1)
		}},
		{"a view is larger than its budget", "V3", func(t *testing.T, h *history.History) { lastView(t, h).Args.Limit = 100 }},
		{"a view does not say what it cut", "V4", func(t *testing.T, h *history.History) {
			op := lastView(t, h)
			op.Result.Value = regexp.MustCompile(`\n\(\d+ not shown[^\n]*`).ReplaceAllString(op.Result.Value, "")
		}},
		{"a byte of a text changed", "R1", func(t *testing.T, h *history.History) {
			lastOp(t, h, func(o *history.Op) bool { return o.Kind == history.Get && o.Result.Answer == "ok" }).Result.Value += " "
		}},
		{"a node shows another author", "I1", func(_ *testing.T, h *history.History) {
			at := slices.IndexFunc(h.Finals, func(f history.Final) bool { return f.Entry != nil })
			h.Finals[at].Entry = proto.CloneOf(h.Finals[at].Entry)
			h.Finals[at].Entry.Author = "mallory"
		}},
	})
}
