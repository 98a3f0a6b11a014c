package check_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// ops numbers operations in the order in which they are written down.
func ops(list ...history.Op) []history.Op {
	for i := range list {
		list[i].ID, list[i].Key = uint64(i+1), "reg/k"
	}
	return list
}

func op(client string, began, ended uint64, kind history.Kind, args history.Args, outcome history.Outcome, res history.Result) history.Op {
	return history.Op{Client: client, Began: began, Ended: ended, Kind: kind, Args: args, Outcome: outcome, Result: res}
}

func set(client string, began, ended uint64, value string, ifVersion uint64) history.Op {
	return op(client, began, ended, history.Set, history.Args{Value: value, IfVersion: ifVersion}, history.OK,
		history.Result{Answer: "ok", Version: ifVersion + 1})
}

func unknown(client string, began, ended uint64, value string, ifVersion uint64) history.Op {
	o := set(client, began, ended, value, ifVersion)
	o.Outcome, o.Result = history.Info, history.Result{Answer: "unavailable"}
	return o
}

func conflict(client string, began, ended uint64, ifVersion, version uint64, value string) history.Op {
	o := set(client, began, ended, client+" lost", ifVersion)
	o.Outcome, o.Result = history.Failed, history.Result{Answer: "conflict", Version: version, Value: value}
	return o
}

func remove(client string, began, ended uint64, version uint64) history.Op {
	return op(client, began, ended, history.Delete, history.Args{IfVersion: version}, history.OK, history.Result{Answer: "ok", Version: version + 1})
}

func saw(client string, began, ended uint64, version uint64, value string) history.Op {
	return op(client, began, ended, history.Get, history.Args{}, history.OK, history.Result{Answer: "ok", Version: version, Value: value})
}

func sawNothing(client string, began, ended uint64, version uint64) history.Op {
	return op(client, began, ended, history.Get, history.Args{}, history.OK, history.Result{Answer: "not_found", Version: version})
}

// registerHistories are written by hand. want is "" for a good one, else what is wrong.
var registerHistories = []struct {
	name string
	want string // the operation that nothing explains
	ops  []history.Op
}{
	{"good: one after the other", "", ops(
		sawNothing("b", 1, 2, 0), set("a", 3, 4, "x", 0), saw("b", 5, 6, 1, "x"), conflict("b", 7, 8, 0, 1, "x"),
		set("b", 9, 10, "y", 1), saw("a", 11, 12, 2, "y"))},
	{"good: a read beside a write sees either", "", ops(
		set("a", 1, 2, "x", 0), set("a", 3, 8, "y", 1), saw("b", 4, 5, 1, "x"), saw("c", 6, 7, 2, "y"))},
	{"good: deleted and made anew, versions go on", "", ops(
		set("a", 1, 2, "x", 0), remove("a", 3, 4, 1), sawNothing("b", 5, 6, 2),
		op("b", 7, 8, history.Set, history.Args{Value: "y"}, history.OK, history.Result{Answer: "ok", Version: 3}), saw("a", 9, 10, 3, "y"))},
	{"good: an unknown write that took effect after its caller gave up", "", ops(
		set("a", 1, 2, "x", 0), unknown("a", 3, 4, "y", 1), saw("b", 5, 6, 1, "x"), saw("b", 7, 8, 2, "y"))},
	{"good: an unknown write that never took effect", "", ops(
		set("a", 1, 2, "x", 0), unknown("a", 3, 4, "y", 1), set("b", 5, 6, "z", 1), saw("b", 7, 8, 2, "z"))},
	{"good: of two writers at one version one conflicts", "", ops(
		set("a", 1, 2, "x", 0), set("a", 3, 6, "y", 1), conflict("b", 4, 5, 1, 2, "y"))},

	{"stale read", "3", ops(set("a", 1, 2, "x", 0), set("a", 3, 4, "y", 1), saw("b", 5, 6, 1, "x"))},
	{"a key that was written is not there", "2", ops(set("a", 1, 2, "x", 0), sawNothing("b", 3, 4, 0))},
	{"lost update: two writers at one version, both acknowledged", "3", ops(
		set("a", 1, 2, "x", 0), set("a", 3, 5, "y", 1), set("b", 4, 6, "z", 1))},
	{"resurrected value: deleted, and read again", "3", ops(set("a", 1, 2, "x", 0), remove("a", 3, 4, 1), saw("b", 5, 6, 1, "x"))},
	{"version begins anew after a delete", "3", ops(set("a", 1, 2, "x", 0), remove("a", 3, 4, 1), set("b", 5, 6, "y", 0))},
	{"conflict that names a version that never was", "2", ops(set("a", 1, 2, "x", 0), conflict("b", 3, 4, 0, 7, "q"))},
	{"conflict that names the version of one value and shows another", "3", ops(
		set("a", 1, 2, "x", 0), set("a", 3, 4, "y", 1), conflict("b", 5, 6, 1, 2, "x"))},
	{"conflict although the version matched", "2", ops(set("a", 1, 2, "x", 0), conflict("b", 3, 4, 1, 1, "x"))},
	{"conflict with a version that was overwritten before it was asked", "4", ops(
		set("a", 1, 2, "x", 0), set("a", 3, 4, "y", 1), set("a", 5, 6, "z", 2), conflict("b", 7, 8, 1, 2, "y"))},
	{"value of one version under the number of another", "3", ops(set("a", 1, 2, "x", 0), set("a", 3, 4, "y", 1), saw("b", 5, 6, 2, "x"))},
	{"an unknown write that was seen and is gone again", "4", ops(
		set("a", 1, 2, "x", 0), unknown("a", 3, 4, "y", 1), saw("b", 5, 6, 2, "y"), saw("c", 7, 8, 1, "x"))},
	{"a value nobody wrote", "1", ops(saw("a", 1, 2, 1, "ghost"))},
}

func TestTheRegisterCheckerJudgesHandWrittenHistories(t *testing.T) {
	for _, h := range registerHistories {
		t.Run(h.name, func(t *testing.T) {
			found := check.Registers(h.ops, time.Minute)
			if h.want == "" {
				if len(found) > 0 {
					t.Fatalf("a good history was condemned: %v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Checker != "R1" || found[0].Class != check.Violation {
				t.Fatalf("got %v, want one violation of R1", found)
			}
			if want := "answer to operation " + h.want + ":"; !strings.Contains(found[0].What, want) {
				t.Fatalf("got %v, want the %s", found[0], want)
			}
		})
	}
}

func TestWhatTheRegisterCheckerCannotJudgeIsInvalidAndNotPassed(t *testing.T) {
	var long []history.Op
	for i := range uint64(201) {
		long = append(long, sawNothing("a", 2*i+1, 2*i+2, 0))
	}
	if found := check.Registers(ops(long...), time.Minute); check.Judge(found) != check.INVALID {
		t.Errorf("201 operations on one key: %v", found)
	}
	twice := ops(set("a", 1, 2, "x", 0), set("a", 3, 4, "x", 1))
	if found := check.Registers(twice, time.Minute); check.Judge(found) != check.INVALID {
		t.Errorf("one value written twice: %v", found)
	}
}

func TestAnUndecidedKeyIsUnknownAndNotPassed(t *testing.T) {
	var wide []history.Op // everything overlaps, and the last answer is impossible
	for i := range uint64(90) {
		wide = append(wide, unknown("c"+string(rune('A'+i)), i+1, 0, "v"+string(rune('A'+i)), 0))
	}
	for i := range uint64(40) {
		wide = append(wide, unknown("d"+string(rune('A'+i)), i+100, 0, "w"+string(rune('A'+i)), i+1))
	}
	found := check.Registers(ops(append(wide, saw("z", 1000, 1001, 30, "ghost"))...), time.Millisecond)
	if check.Judge(found) != check.UNKNOWN {
		t.Fatalf("got %v", found)
	}
}

// TestCutDecidesOperationsOfAnyKind: what an operation saw is told by the revision that its
// answer shows, whatever it asked for.
func TestCutDecidesOperationsOfAnyKind(t *testing.T) {
	lost := func(id, began uint64, kind history.Kind) history.Op {
		return history.Op{ID: id, Client: "c", Board: theBoard, Kind: kind, Key: "claims/i", Outcome: history.Info, Began: began, Invoke: 1}
	}
	answered := func(id, began, ended, rev uint64) history.Op {
		return history.Op{ID: id, Client: "d", Board: theBoard, Kind: history.Dump, Outcome: history.OK, Began: began, Ended: ended, Result: history.Result{Rev: rev}}
	}
	list := []history.Op{lost(101, 1, history.Complete), answered(2, 2, 5, 3), answered(3, 3, 9, 7), answered(4, 10, 11, 6),
		lost(5, 4, history.Get), lost(6, 6, history.ClaimNext), lost(102, 12, history.Complete)}
	b := newTrace().lead(2).open("a", 1).open("b", 2)
	b.complete("a", 1, "claims/i", 1, "x", done(6, 1, "r@1")).complete("b", 2, "claims/j", 1, "y", done(7, 1, "r@1"))
	cut := check.Cut(list, b.agreed(t))
	var got []string
	for _, op := range cut {
		got = append(got, fmt.Sprint(op.ID, " ", op.Outcome, " ", op.Ended, " ", op.Result.Rev))
	}
	want := []string{"101 ok 9 6", "2 ok 5 3", "3 ok 9 7", "4 ok 11 6", fmt.Sprint("102 ok ", uint64(math.MaxInt64), " 7")}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestCutDropsWhatNeverHappenedAndEndsWhatDidWhereItWasSeen(t *testing.T) {
	list := ops(unknown("a", 1, 2, "x", 0), unknown("b", 3, 4, "y", 0), saw("c", 5, 6, 1, "x"), saw("c", 7, 8, 1, "x"))
	b := newTrace()
	b.do("", 0, writeOf(list[0]), ok(1, 1))
	order, found := check.Agree(&history.History{Applied: b.records})
	if len(found) > 0 {
		t.Fatal(found)
	}
	cut := check.Cut(list, order)
	if len(cut) != 3 || cut[0].ID != 1 || cut[0].Outcome != history.OK || cut[0].Result.Version != 1 || cut[0].Ended != 6 {
		t.Fatalf("got %+v", cut)
	}
}

// What another rule has to say against clients leaves the log as good as it was: R1 was judged on
// operations decided by it, and that is what is drawn.
func TestAKeyIsDrawnAsItWasJudged(t *testing.T) {
	list := ops(unknown("a", 1, 2, "x", 0), saw("c", 5, 6, 1, "x"), conflict("d", 7, 8, 0, 1, "x"))
	list[2].Kind = history.Mutate // its conflict was not reported: R4
	b := newTrace()
	b.do("", 0, writeOf(list[0]), ok(1, 1))
	h := &history.History{Ops: list, Applied: b.records}
	fires(t, "R4", check.Answers(list, b.agreed(t)))
	var page strings.Builder
	if err := check.Picture(&page, h, list[0].Key, time.Second); err != nil {
		t.Fatal(err)
	}
	if text := page.String(); !strings.Contains(text, "set x") || strings.Contains(text, "unknown") {
		t.Error("the page does not draw what was judged")
	}
}
