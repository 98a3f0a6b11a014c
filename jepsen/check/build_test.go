package check_test

import (
	"slices"
	"strings"
	"testing"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// traceOf writes apply traces by hand: one command an entry, on one node.
type traceOf struct {
	node    string
	life    int
	term    uint64
	index   uint64
	t       int64
	records []history.Applied
}

func newTrace() *traceOf { return &traceOf{node: "n1", life: 1, term: 2} }

const theBoard = "default"

// do applies a command of worker w (loop "l-" + w) at the running board time.
func (b *traceOf) do(w string, seq uint64, c *boardpb.Command, r *boardpb.Result) *history.Applied {
	c.Board, c.Actor, c.Seq = theBoard, &boardpb.Actor{Principal: w}, seq
	if w != "" {
		c.Loop = "l-" + w
	}
	return b.raw(c, r)
}

func (b *traceOf) raw(c *boardpb.Command, r *boardpb.Result) *history.Applied {
	b.index++
	b.records = append(b.records, history.Trace(b.node, b.life, fsm.TraceRecord{
		Index: b.index, Term: b.term, Command: c, Result: r, T: b.t, Digest: [16]byte{1, byte(b.index)},
	}))
	return &b.records[len(b.records)-1]
}

func (b *traceOf) at(t int64) *traceOf { b.t = t; return b }

func (b *traceOf) lead(term uint64) *traceOf {
	b.term = term
	b.raw(&boardpb.Command{Op: &boardpb.Command_Lead{Lead: &boardpb.Lead{NodeId: b.node}}}, ok(0, 0))
	return b
}

func (b *traceOf) open(w string, rev uint64) *traceOf {
	b.do(w, 0, &boardpb.Command{Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{}}},
		&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Loop: "l-" + w, Rev: rev})
	return b
}

func (b *traceOf) post(id uint64, key string, rev uint64) *traceOf {
	c := &boardpb.Command{CallId: history.CallID(id), Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: key, Value: []byte("1")}}}
	r := ok(rev, 1)
	r.Key = key
	b.do("", 0, c, r)
	return b
}

// claim grants a lease of ms, to operation 200 + generation.
func (b *traceOf) claim(w string, seq uint64, key string, generation uint64, ms int64, rev uint64, previous ...*boardpb.Previous) *traceOf {
	b.do(w, seq, &boardpb.Command{CallId: history.CallID(200 + generation), Op: &boardpb.Command_Claim{Claim: &boardpb.Claim{Key: key, DurationMs: &ms}}},
		&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: key, Generation: generation, Rev: rev, DurationMs: ms,
			ExpiresTMs: b.t + ms, Previous: previous})
	return b
}

func (b *traceOf) keepalive(w string, floor uint64) *traceOf {
	b.do(w, 0, &boardpb.Command{Op: &boardpb.Command_LoopKeepalive{LoopKeepalive: &boardpb.LoopKeepalive{
		Loops: []*boardpb.LoopRenewal{{Loop: "l-" + w, Floor: floor}}}}},
		&boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Loops: []*boardpb.LoopStatus{{Loop: "l-" + w}}})
	return b
}

func (b *traceOf) complete(w string, seq uint64, key string, generation uint64, value string, r *boardpb.Result) *traceOf {
	r.Key = key
	b.do(w, seq, &boardpb.Command{CallId: history.CallID(100 + seq), Op: &boardpb.Command_Complete{Complete: &boardpb.Complete{
		Key: key, Generation: generation, Result: []byte(value), ResultsKey: "results/" + w + "/r"}}}, r)
	return b
}

func (b *traceOf) partial(w string, seq uint64, key string, generation uint64, rev uint64) *traceOf {
	r := ok(rev, 1)
	r.Key = "results/" + w + "/part"
	b.do(w, seq, &boardpb.Command{Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: r.Key, Value: []byte("2"), Overwrite: true,
		ForClaim: &boardpb.LeaseRef{Key: key, Generation: generation}}}}, r)
	return b
}

func ok(rev, version uint64) *boardpb.Result {
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Rev: rev, Version: version}
}

func done(rev, generation uint64, ref string) *boardpb.Result {
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Rev: rev, Version: 1, Generation: generation, ResultRef: ref}
}

func refused(code boardpb.Code, yours, current uint64) *boardpb.Result {
	return &boardpb.Result{Code: code, YourGeneration: yours, Generation: current}
}

func expired(owner string, generation uint64, refs ...string) *boardpb.Previous {
	return &boardpb.Previous{Owner: owner, Generation: generation, EndedBy: boardpb.EndedBy_ENDED_BY_EXPIRED, PartialRefs: refs}
}

func writeOf(o history.Op) *boardpb.Command {
	return &boardpb.Command{CallId: o.CallID(), Op: &boardpb.Command_Set{Set: &boardpb.Set{
		Key: o.Key, Value: []byte(o.Args.Value), IfVersion: o.Args.IfVersion}}}
}

// agreed is A of a trace, which must be sound.
func (b *traceOf) agreed(t *testing.T) *check.Order {
	t.Helper()
	order, found := check.Agree(&history.History{Applied: b.records})
	if len(found) > 0 {
		t.Fatalf("the trace itself: %v", found)
	}
	return order
}

// fires asserts that exactly one checker has something to say, and that it is this one; for
// "" that none has.
func fires(t *testing.T, want string, found []check.Finding) {
	t.Helper()
	var names []string
	for _, f := range found {
		names = append(names, f.Checker)
	}
	names = slices.Compact(names)
	if got := strings.Join(names, " "); got != want {
		t.Errorf("got %q, want %q: %v", got, want, found)
	}
}
