package check_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// txns writes histories of transactions by hand: "a 1-4 ok: x<1 y? y<2" is client a from count
// 1 to 4, which appends 1 to x and 2 to y under the guard that y is at version 0; "b 5-6 ok:
// x=12 y=" is a read of x and y; "conflict x@2=2" ends a refused one. Lists hold one digit an item.
func txns(t *testing.T, lines ...string) *history.History {
	t.Helper()
	h := &history.History{Run: history.Run{Board: theBoard}}
	for i, line := range lines {
		head, body, _ := strings.Cut(line, ":")
		op := history.Op{ID: uint64(i + 1), Kind: history.Dump, Result: history.Result{Rev: uint64(i + 1)}}
		var outcome string
		if n, err := fmt.Sscanf(head, "%s %d-%d %s", &op.Client, &op.Began, &op.Ended, &outcome); n != 4 {
			t.Fatalf("%q: %v", head, err)
		}
		op.Outcome = history.Outcome(outcome)
		op.Invoke, op.Return = time.Duration(op.Began)*time.Second, time.Duration(op.Ended)*time.Second
		for _, word := range strings.Fields(body) {
			part(t, &op, word)
		}
		h.Ops = append(h.Ops, op)
	}
	return h
}

func part(t *testing.T, op *history.Op, word string) {
	t.Helper()
	key, rest := word[:1], word[1:]
	switch sign, value := rest[:1], rest[1:]; sign {
	case "<": // append
		op.Kind = history.Txn
		op.Args.Parts = append(op.Args.Parts, history.Part{Do: history.Append, Key: key, Value: value})
	case "!": // set at a version
		op.Kind = history.Txn
		op.Args.Parts = append(op.Args.Parts, history.Part{Do: history.Set, Key: key, Value: value[1:], Version: uint64(value[0] - '0')})
	case "?": // guard
		op.Kind = history.Txn
		op.Args.Parts = append(op.Args.Parts, history.Part{Do: history.Get, Key: key, Version: uint64(len(value))})
	case "@": // refused, and told a version
		op.Result.Answer, op.Result.Key = "conflict", key
		op.Result.Version, op.Result.Value = uint64(value[0]-'0'), value[2:]
	case "=": // read
		s := history.Seen{Key: key}
		if value != "" {
			s.Items = strings.Split(value, "")
		}
		op.Result.Seen = append(op.Result.Seen, s)
	default:
		t.Fatalf("%q says nothing", word)
	}
}

// serialHistories are judged by T2 alone. want is "" for a good one, else how the finding begins.
var serialHistories = []struct {
	name, want string
	ops        []string
}{
	{"good: one after the other", "", []string{"a 1-2 ok: x<1 y<2", "b 3-4 ok: x=1 y=2", "b 5-6 ok: x?1 y<3", "a 7-8 ok: x=1 y=23"}},
	{"good: a read beside a transaction sees either", "", []string{"a 1-6 ok: x<1 y<2", "b 2-3 ok: x= y=", "c 4-5 ok: x=1 y=2"}},
	{"good: the unknown one was done, later", "", []string{"a 1-2 info: x<1 y<2", "b 3-4 ok: x= y=", "b 5-6 ok: x=1 y=2"}},
	{"good: the unknown one was never done", "", []string{"a 1-2 info: x<1 y<2", "b 3-4 ok: x<3", "b 5-6 ok: x=3 y="}},
	{"good: refused, and told what is there", "", []string{"a 1-2 ok: x<1", "b 3-4 fail: x? x<2 x@1=1", "b 5-6 ok: x=1"}},
	{"good: nobody read what was appended", "", []string{"a 1-2 ok: x<1", "b 3-4 ok: y<2", "a 5-6 ok: x<3"}},
	{"good: an append in the middle, read behind its end", "", []string{"a 1-2 ok: x<1 x<2", "b 3-4 ok: x=12"}},

	{"dirty write", "G0,", []string{"a 1-9 ok: x<1 y<3", "b 2-8 ok: x<2 y<4", "c 10-11 ok: x=12 y=43"}},
	{"aborted read", "G1a,", []string{"a 1-2 fail: x<1", "b 3-4 ok: x=1"}},
	{"aborted read, told by a refusal", "G1a,", []string{"a 1-2 fail: x<1 x@0=", "b 3-4 ok: x=1"}},
	{"intermediate read", "G1b,", []string{"a 1-6 ok: x<1 x<2", "b 2-3 ok: x=1", "c 7-8 ok: x=12"}},
	{"intermediate read by a guard", "G1b,", []string{"a 1-6 ok: x<1 x<2", "b 2-3 ok: x?1 y<3", "c 7-8 ok: x=12 y=3"}},
	{"circular information flow", "G1c,", []string{"a 1-8 ok: x<1 y?2", "b 2-7 ok: y<2 x?1", "c 9-10 ok: x=1 y=2"}},
	{"read skew: half a transaction", "G-single,", []string{"a 1-8 ok: x<1 y<2", "b 2-7 ok: x=1 y=", "c 9-10 ok: x=1 y=2"}},
	{"lost update", "G-single,", []string{"a 1-8 ok: x? x<1", "b 2-7 ok: x? x<2", "c 9-10 ok: x=12"}},
	{"write skew", "G2,", []string{"a 1-8 ok: x? y<2", "b 2-7 ok: y? x<1", "c 9-10 ok: x=1 y=2"}},
	{"long fork", "G2,", []string{"a 1-8 ok: x<1", "b 2-7 ok: y<2", "c 3-6 ok: x=1 y=", "d 4-5 ok: x= y=2", "e 9-10 ok: x=1 y=2"}},
	{"stale read", "G-single-realtime,", []string{"a 1-2 ok: x<1", "b 3-4 ok: x=", "c 5-6 ok: x=1"}},
	{"what was acknowledged is gone", "G-single-realtime,", []string{"a 1-2 ok: x<1 y<2", "b 3-4 ok: x= y="}},
	{"written in the past", "G0-realtime,", []string{"a 1-2 ok: x<1", "b 3-4 ok: x<2", "c 5-6 ok: x=21"}},
	{"seen before it was sent", "G1c-realtime,", []string{"b 1-2 ok: x=1", "a 3-4 ok: x<1"}},
	{"two that were missed, and the clock", "G2-realtime,", []string{"a 1-8 ok: y? x<1", "b 2-3 ok: y<2", "c 4-5 ok: x=", "d 9-10 ok: x=1 y=2"}},

	{"incompatible orders", "incompatible order:", []string{"a 1-8 ok: x<1", "b 2-7 ok: x<2", "c 3-4 ok: x=12", "d 5-6 ok: x=21"}},
	{"there twice", "operation 2 read 1 twice", []string{"a 1-2 ok: x<1", "b 3-4 ok: x=11"}},
	{"sent by nobody", "operation 2 read 9 in x, which nobody appended", []string{"a 1-2 ok: x<1", "b 3-4 ok: x=19"}},
	{"a guard held on what nobody read", "operation 2 knows x at version 3", []string{"a 1-2 ok: x<1", "b 3-4 ok: x?123 y<2", "c 5-6 ok: x=1 y=2"}},
	{"a refusal shows another item than is there", "the refusal of 2 was told that item 1 of x is 7", []string{
		"a 1-2 ok: x<1", "b 3-4 fail: x? x<2 x@1=7", "c 5-6 ok: x=1"}},
}

func TestTheTransactionCheckerJudgesHandWrittenHistories(t *testing.T) {
	for _, c := range serialHistories {
		t.Run(c.name, func(t *testing.T) {
			found := check.Serializable(txns(t, c.ops...))
			switch {
			case c.want == "" && len(found) > 0:
				t.Errorf("a good history was condemned: %v", found)
			case c.want != "" && len(found) == 0:
				t.Error("nothing was found")
			case c.want != "":
				for _, f := range found {
					if f.Checker == "T2" && f.Class == check.Violation && strings.HasPrefix(f.What, c.want) {
						return
					}
				}
				t.Errorf("none of these is %q: %v", c.want, found)
			}
		})
	}
}

func TestACircleIsToldInWords(t *testing.T) {
	found := check.Serializable(txns(t, "a 1-8 ok: x<1 y<2", "b 2-7 ok: x=1 y=", "c 9-10 ok: x=1 y=2"))
	if len(found) != 1 {
		t.Fatalf("got %v", found)
	}
	for _, line := range []string{
		"operation 1: a at 1s, ok, rev 1: appended 1 to x, appended 2 to y",
		"operation 2: b at 2s, ok, rev 2: read x = [1], read y = []",
		"operation 1 is before operation 2: that read x up to 1, which this one wrote",
		"operation 2 is before operation 1: it read y without 2, which that one wrote",
	} {
		if !strings.Contains(found[0].What, line+"\n") {
			t.Errorf("no line %q in\n%s", line, found[0].What)
		}
	}
	if got := fmt.Sprint(found[0].Ops); got != "[1 2]" && got != "[2 1]" {
		t.Errorf("operations %v", got)
	}
}

func TestTheCircleFoundIsAShortestOne(t *testing.T) {
	// Five writers in a ring of reads, and two of them also directly.
	found := check.Serializable(txns(t,
		"a 1-20 ok: v<1 w?2", "b 2-19 ok: w<2 x?3", "c 3-18 ok: x<3 y?4", "d 4-17 ok: y<4 z?5", "e 5-16 ok: z<5 v?1 y?4",
		"f 21-22 ok: v=1 w=2 x=3 y=4 z=5"))
	if len(found) != 1 || len(found[0].Ops) != 2 {
		t.Fatalf("got %v", found)
	}
}

// atomicStory is one transaction in A and in reads: a appends 1 to x and 2 to y and marks m,
// at rev 3; b reads.
func atomicStory() (*traceOf, *history.History) {
	h := &history.History{Run: history.Run{Board: theBoard}}
	h.Ops = []history.Op{
		{ID: 1, Client: "a", Kind: history.Txn, Outcome: history.OK, Result: history.Result{Rev: 3}, Args: history.Args{Parts: []history.Part{
			{Do: history.Append, Key: "x", Value: "1"}, {Do: history.Append, Key: "y", Value: "2"}, {Do: history.Set, Key: "m", Value: "7"}}}},
		{ID: 2, Client: "b", Kind: history.Dump, Outcome: history.OK, Result: history.Result{Seen: []history.Seen{
			{Key: "x", Items: []string{"1"}, Revs: []uint64{3}}, {Key: "y", Items: []string{"2"}, Revs: []uint64{3}},
			{Key: "m", Items: []string{"7"}, Revs: []uint64{3}}}}},
	}
	b := newTrace()
	each := func(key string) *boardpb.Result { r := ok(0, 1); r.Key = key; return r }
	r := ok(3, 0)
	r.Results = []*boardpb.Result{each("x"), each("y"), each("m")}
	b.do("a", 1, &boardpb.Command{CallId: history.CallID(1), Op: &boardpb.Command_Txn{Txn: &boardpb.Txn{Ops: []*boardpb.TxnOp{
		{Op: &boardpb.TxnOp_Append{Append: &boardpb.Append{Key: "x", Value: []byte("1")}}},
		{Op: &boardpb.TxnOp_Append{Append: &boardpb.Append{Key: "y", Value: []byte("2")}}},
		{Op: &boardpb.TxnOp_Set{Set: &boardpb.Set{Key: "m", Value: []byte("7")}}}}}}}, r)
	return b, h
}

func appended(b *traceOf, key string, version uint64) {
	b.do("", 0, &boardpb.Command{Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: key, Value: []byte("9")}}}, ok(9, version))
}

func TestATransactionIsDoneAsAWholeOrNotAtAll(t *testing.T) {
	seen := func(h *history.History) []history.Seen { return h.Ops[1].Result.Seen }
	for _, c := range []struct {
		name, want string
		spoil      func(b *traceOf, h *history.History)
	}{
		{"good: all of it", "", func(*traceOf, *history.History) {}},
		{"good: nothing of it", "", func(b *traceOf, h *history.History) {
			h.Ops[1].Result.Seen = []history.Seen{{Key: "x"}, {Key: "y"}, {Key: "m"}}
		}},
		{"good: its mark was replaced since", "", func(b *traceOf, h *history.History) {
			seen(h)[2] = history.Seen{Key: "m", Items: []string{"8"}, Versions: []uint64{2}, Revs: []uint64{5}}
		}},
		{"good: the next version follows", "", func(b *traceOf, _ *history.History) { appended(b, "x", 2) }},
		{"half of it is there", "T1", func(_ *traceOf, h *history.History) { seen(h)[1].Items = nil }},
		{"its mark is not there", "T1", func(_ *traceOf, h *history.History) { seen(h)[2].Items = nil }},
		{"its mark is there alone", "T1", func(_ *traceOf, h *history.History) { seen(h)[0].Items, seen(h)[1].Items = nil, nil }},
		{"it is there at two revs", "T1", func(_ *traceOf, h *history.History) { seen(h)[1].Revs[0] = 4 }},
		{"it is there at another rev than it was told", "T1", func(_ *traceOf, h *history.History) { h.Ops[0].Result.Rev = 2 }},
		{"it was refused, and a part is there", "T1", func(b *traceOf, h *history.History) {
			b.records = nil
			h.Ops[0].Outcome, h.Ops[0].Result.Answer = history.Failed, "conflict"
			seen(h)[1].Items, seen(h)[2].Items = nil, nil
		}},
		{"half of it is there at the end", "T1", func(_ *traceOf, h *history.History) {
			h.Finals = []history.Final{{Reader: "n1", Entry: &boardpb.Entry{Key: "x", Version: 1, Rev: 3, Value: []byte("1")}}}
		}},
		{"half of its operations have an answer", "T1", func(b *traceOf, _ *history.History) {
			b.records[0].Result.Results = b.records[0].Result.Results[:2]
		}},
		{"a refused one used up a version", "T1", func(b *traceOf, _ *history.History) { appended(b, "x", 3) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, h := atomicStory()
			c.spoil(b, h)
			var ofT1 []check.Finding
			for _, f := range check.Transactions(h, b.agreed(t)) {
				if f.Checker == "T1" {
					ofT1 = append(ofT1, f)
				}
			}
			fires(t, c.want, ofT1)
		})
	}
}

func TestTransactionsAreExportedAsElleReadsThem(t *testing.T) {
	h := txns(t, "a 1-2 ok: x<1 y<2", "b 3-6 info: x?1 y<3", "c 4-5 ok: x=1 y=2", "c 7-8 fail: x? x<4 x@1=1", "b 9-10 ok: x=1 y=23")
	var out bytes.Buffer
	if err := check.ExportListAppend(&out, h); err != nil {
		t.Fatal(err)
	}
	want := `[{"index":0,"process":0,"type":"invoke","f":"txn","value":[["append",1,1],["append",2,2]],"time":1000000000},
{"index":1,"process":0,"type":"ok","f":"txn","value":[["append",1,1],["append",2,2]],"time":2000000000},
{"index":2,"process":1,"type":"invoke","f":"txn","value":[["r",1,null],["append",2,3]],"time":3000000000},
{"index":3,"process":2,"type":"invoke","f":"txn","value":[["r",1,null],["r",2,null]],"time":4000000000},
{"index":4,"process":2,"type":"ok","f":"txn","value":[["r",1,[1]],["r",2,[2]]],"time":5000000000},
{"index":5,"process":1,"type":"info","f":"txn","value":[["r",1,null],["append",2,3]],"time":6000000000},
{"index":6,"process":2,"type":"invoke","f":"txn","value":[["append",1,4]],"time":7000000000},
{"index":7,"process":2,"type":"fail","f":"txn","value":[["append",1,4]],"time":8000000000},
{"index":8,"process":3,"type":"invoke","f":"txn","value":[["r",1,null],["r",2,null]],"time":9000000000},
{"index":9,"process":3,"type":"ok","f":"txn","value":[["r",1,[1]],["r",2,[2,3]]],"time":10000000000}]
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s", got)
	}
	var lines []map[string]any
	if err := json.Unmarshal(out.Bytes(), &lines); err != nil || len(lines) != 10 {
		t.Errorf("%d lines: %v", len(lines), err)
	}
}

// TestAMinuteOfTransactionsIsJudgedInSeconds: real time ties each transaction to those it
// overlaps with and not to all that came before, and nothing is searched where there is no circle.
func TestAMinuteOfTransactionsIsJudgedInSeconds(t *testing.T) {
	h := &history.History{Run: history.Run{Board: theBoard}}
	lists := map[string][]string{}
	for i := range 20_000 {
		key := fmt.Sprintf("k%d", i/40)
		op := history.Op{ID: uint64(i + 1), Client: fmt.Sprint(i % 8), Began: uint64(2*i + 1), Ended: uint64(2*i + 18), Outcome: history.OK}
		if i%2 == 0 {
			lists[key] = append(lists[key], fmt.Sprint(i))
			op.Kind, op.Args.Parts = history.Txn, []history.Part{{Do: history.Append, Key: key, Value: fmt.Sprint(i)}}
		} else {
			op.Kind, op.Result.Seen = history.Dump, []history.Seen{{Key: key, Items: lists[key]}}
		}
		h.Ops = append(h.Ops, op)
	}
	began := time.Now()
	fires(t, "", check.Serializable(h))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	} else {
		t.Logf("took %v", took)
	}
}
