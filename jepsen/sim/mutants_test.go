package sim_test

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/sim"
)

// reread is the history by way of its file: a verdict must not depend on where it came from.
func reread(t *testing.T, h *history.History) *history.History {
	t.Helper()
	var file bytes.Buffer
	if err := h.Write(&file); err != nil {
		t.Fatal(err)
	}
	again, err := history.Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// copied is a copy whose logs can be changed; the messages in them are shared, and replaced.
func copied(h *history.History) *history.History {
	c := *h
	c.Ops, c.Faults, c.Applied = slices.Clone(h.Ops), slices.Clone(h.Faults), slices.Clone(h.Applied)
	c.Feed, c.Finals = slices.Clone(h.Feed), slices.Clone(h.Finals)
	c.Outside, c.Beliefs = slices.Clone(h.Outside), slices.Clone(h.Beliefs)
	return &c
}

// everywhere changes one applied command alike in all traces: what all nodes did wrong
// together, G1 does not see.
func everywhere(h *history.History, is func(*history.Applied) bool, change func(*history.Applied)) {
	var index uint64
	position := 0
	for i := range h.Applied {
		a := &h.Applied[i]
		if index == 0 && is(a) {
			index, position = a.Index, a.Position
		}
		if index != 0 && a.Index == index && a.Position == position {
			change(a)
		}
	}
	for i := range h.Applied { // lives that come earlier in the file
		if a := &h.Applied[i]; a.Index == index && a.Position == position && a.ResultHash != "changed" {
			change(a)
		}
	}
}

func lateComplete(a *history.Applied) bool {
	return a.Command.GetComplete() != nil && a.Result.Code == boardpb.Code_CODE_STALE_LEASE
}

func completed(a *history.Applied) bool { return a.Command.GetComplete() != nil && a.OK() }

func firstOp(h *history.History, kind history.Kind, outcome history.Outcome) *history.Op {
	return &h.Ops[slices.IndexFunc(h.Ops, func(o history.Op) bool { return o.Kind == kind && o.Outcome == outcome })]
}

// eventAt is the place in the feed log of a watcher's nth event.
func eventAt(h *history.History, watcher string, n int) int {
	return slices.IndexFunc(h.Feed, func(w history.Told) bool {
		if w.Watcher == watcher && w.Event != nil {
			n--
		}
		return n == 0
	})
}

// workMutants are things that could have gone wrong in a run, each with the checker that
// claims to notice.
var workMutants = []struct {
	name, want string
	spoil      func(h *history.History)
}{
	{"generation not checked", "Q2", func(h *history.History) {
		everywhere(h, lateComplete, func(a *history.Applied) {
			a.Result, a.ResultHash = &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: a.Command.GetComplete().Key, Rev: a.Result.Rev}, "changed"
		})
	}},
	{"completed twice", "Q1", func(h *history.History) {
		everywhere(h, lateComplete, func(a *history.Applied) {
			a.Result, a.ResultHash = &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: a.Command.GetComplete().Key, Rev: a.Result.Rev}, "changed"
		})
	}},
	{"a completion was acknowledged and lost", "G3", func(h *history.History) {
		everywhere(h, completed, func(a *history.Applied) {
			a.Result, a.ResultHash = &boardpb.Result{Code: boardpb.Code_CODE_INTERNAL}, "changed"
		})
	}},
	{"one node's state differs", "G1", func(h *history.History) { h.Applied[len(h.Applied)/2].Digest = "other" }},
	{"one node left a command out", "G1", func(h *history.History) {
		h.Applied = slices.Delete(h.Applied, len(h.Applied)/2, len(h.Applied)/2+1)
	}},
	{"a node applied an entry twice", "G2", func(h *history.History) {
		h.Applied = append(h.Applied, h.Applied[len(h.Applied)-1])
	}},
	{"generation restarts", "L1", func(h *history.History) {
		reclaimed := func(a *history.Applied) bool {
			return a.Command.GetClaimNext() != nil && a.OK() && a.Result.Generation == 2
		}
		everywhere(h, reclaimed, func(a *history.Applied) {
			a.Result, a.ResultHash = proto.CloneOf(a.Result), "changed"
			a.Result.Generation = 1
		})
	}},
	{"time runs back", "L4", func(h *history.History) {
		everywhere(h, completed, func(a *history.Applied) { a.T, a.ResultHash = a.T-60_000, "changed" })
	}},
	{"unknown reported as not done", "R3", func(h *history.History) { firstOp(h, history.Complete, history.OK).Outcome = history.Failed }},
	{"the client is told another rev", "R2", func(h *history.History) { firstOp(h, history.Post, history.OK).Result.Rev++ }},
	{"expiry drops what the worker stored", "Q3", func(h *history.History) {
		key := firstOp(h, history.Partial, history.OK).Key
		h.Finals = slices.DeleteFunc(h.Finals, func(f history.Final) bool { return f.Entry.GetKey() == key })
	}},
	{"one reader sees another result", "Q4", func(h *history.History) {
		at := slices.IndexFunc(h.Finals, func(f history.Final) bool { return f.Lease.GetResultRef() != "" })
		h.Finals[at].Lease = proto.CloneOf(h.Finals[at].Lease)
		h.Finals[at].Lease.ResultRef = "results/worker-9/x@1"
	}},
	{"the late result is stored", "Q5", func(h *history.History) {
		late := h.Applied[slices.IndexFunc(h.Applied, func(a history.Applied) bool { return lateComplete(&a) })]
		h.Finals = append(h.Finals, history.Final{Reader: h.Finals[0].Reader, Board: h.Run.Board,
			Entry: &boardpb.Entry{Key: "results/worker-2/late", Version: 1, Value: late.Command.GetComplete().Result}})
	}},
	{"done too late", "Q6", func(h *history.History) { h.Run.Bound = -time.Hour }},
	{"the feed resumes one late", "F3", func(h *history.History) {
		at := eventAt(h, "watcher-1", 40)
		h.Feed = slices.Delete(h.Feed, at, at+1)
	}},
	{"the feed resumes one early", "F2", func(h *history.History) {
		at := eventAt(h, "watcher-2", 40)
		h.Feed = slices.Insert(h.Feed, at, h.Feed[at])
	}},
	{"a page of the feed is out of order", "F1", func(h *history.History) {
		a, b := eventAt(h, "pages", 30), eventAt(h, "pages", 35)
		h.Feed[a], h.Feed[b] = h.Feed[b], h.Feed[a]
	}},
	{"the feed tells at append", "F7", func(h *history.History) {
		at := eventAt(h, "watcher-3", 50)
		h.Feed[at].Event = proto.CloneOf(h.Feed[at].Event)
		h.Feed[at].Event.CallId = "op-999999"
	}},
	{"a watcher never reaches the end", "F10", func(h *history.History) {
		h.Feed = slices.DeleteFunc(h.Feed, func(w history.Told) bool { return w.Watcher == "watcher-1" && w.Event.GetRev() > 30 })
	}},
	{"a lease expires before its time", "L3", func(h *history.History) {
		at := slices.IndexFunc(h.Feed, func(w history.Told) bool { return w.Event.GetKind() == boardpb.Kind_KIND_LEASE_EXPIRED })
		h.Feed[at].Event = proto.CloneOf(h.Feed[at].Event)
		h.Feed[at].Event.TMs -= 2000
	}},
	{"a worker that was there all the time lost its item", "L9", func(h *history.History) {
		h.Faults = slices.DeleteFunc(h.Faults, func(f history.Fault) bool { return f.Name == "pause" })
	}},
	{"harness: the faults are not seen to happen", "G7", func(h *history.History) { h.Faults[0].Witness = "" }},
	{"harness: what is unknown is ignored", "G7", func(h *history.History) {
		firstOp(h, history.Partial, history.OK).Outcome = history.Info
		h.Ops = slices.DeleteFunc(h.Ops, func(o history.Op) bool { return o.Outcome == history.Info })
	}},
	{"harness: the last write is dropped", "G7", func(h *history.History) {
		for last := len(h.Ops) - 1; ; last-- {
			if op := &h.Ops[last]; !op.Kind.Reads() && op.Outcome == history.OK {
				h.Ops = h.Ops[:last]
				return
			}
		}
	}},
	{"harness: its clock is another", "G7", func(h *history.History) {
		for i := range h.Ops {
			h.Ops[i].Invoke, h.Ops[i].Return = h.Ops[i].Invoke+time.Hour, h.Ops[i].Return+time.Hour
		}
	}},
	{"harness: its clock runs back", "G7", func(h *history.History) { h.Ops[len(h.Ops)/2].Invoke -= time.Minute }},
	{"harness: the last half of the run is dropped", "G7", func(h *history.History) { h.Ops = h.Ops[:len(h.Ops)/20] }},
}

// TestEveryCheckerCondemnsARunThatWasSpoiled takes one real run that is VALID and spoils
// copies of it: what a bug would have written must be noticed by the checker named.
func TestEveryCheckerCondemnsARunThatWasSpoiled(t *testing.T) {
	var h *history.History
	synctest.Test(t, func(t *testing.T) {
		h = runWork(t, "work", 11, func(r *sim.Run) { r.KillLeader(5 * time.Second) })
	})
	h = reread(t, h)
	if found := judge(h, workDemand); len(found) > 0 {
		report(t, h, found)
		t.FailNow()
	}
	for _, m := range workMutants {
		t.Run(m.name, func(t *testing.T) {
			spoiled := copied(h)
			m.spoil(spoiled)
			found := judge(spoiled, workDemand)
			if !slices.ContainsFunc(found, func(f check.Finding) bool { return f.Checker == m.want }) {
				t.Errorf("%s did not fire: %v", m.want, found)
			}
		})
	}
}
