package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

func system(op *boardpb.Command) *boardpb.Command {
	op.Actor = board.SystemActor()
	return op
}

// Raft reports success although a machine answered an error value (hashicorp/raft#307), so
// a refusal is a Result and a machine that cannot go on says so through Fatal.
func TestP11ARefusalIsAResultAndWhatStopsTheNodeIsToldToIt(t *testing.T) {
	r := newRig(t)
	refused := r.fsm.Apply(r.entry(&boardpb.Command{Board: "default", Actor: worker("w1"),
		Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "results/w2/x", Value: []byte("1")}}}))
	if got := refused.(*Applied).Results[0]; got.Code != boardpb.Code_CODE_FORBIDDEN {
		t.Fatalf("got %v, want forbidden as a Result", got)
	}
	var fatal error
	f := New(Options{Fatal: func(err error) { fatal = err }})
	before := f.View()
	for _, data := range [][]byte{[]byte("no batch"), mustMarshal(t, &boardpb.Batch{Format: Format + 1, Stamp: &boardpb.Stamp{Term: 1}}),
		mustMarshal(t, &boardpb.Batch{Format: Format, Stamp: &boardpb.Stamp{Term: 1}, Commands: []*boardpb.Command{{Board: "default"}}})} {
		fatal = nil
		f = New(Options{Fatal: func(err error) { fatal = err }})
		before = f.View()
		answer := f.Apply(&raft.Log{Index: 1, Term: 1, Type: raft.LogCommand, Data: data})
		if _, isError := answer.(error); isError || fatal == nil {
			t.Fatalf("entry %q: answered %v, fatal %v: an unknown entry stops the node and is never skipped", data, answer, fatal)
		}
		if f.View() != before {
			t.Fatalf("entry %q: a state was published after the machine stopped", data)
		}
	}
}

// A stamp of another term than the entry's voids the batch on every node alike: a second
// line behind the heartbeat path (P1).
func TestP1ABatchStampedInAnotherTermDoesNothing(t *testing.T) {
	r := newRig(t)
	before := r.fsm.View().Board("default").Rev()
	l := r.entry(&boardpb.Command{Board: "default", Actor: worker("w1"), Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/a", Value: []byte("1")}}})
	l.Term = 2
	if got := r.fsm.Apply(l).(*Applied); !got.Voided || len(got.Results) != 0 {
		t.Fatalf("got %+v, want a voided batch", got)
	}
	if v := r.fsm.View(); v.Board("default").Rev() != before || v.Applied() != l.Index {
		t.Fatalf("rev %d, applied %d: want rev %d and the entry counted", v.Board("default").Rev(), v.Applied(), before)
	}
}

// The adapter's index counts commands and configurations, and never runs ahead of what is
// published.
func TestP6TheIndexCountsCommandsAndConfigurationsOnceTheyArePublished(t *testing.T) {
	r := newRig(t)
	answers := r.fsm.ApplyBatch([]*raft.Log{
		r.entry(&boardpb.Command{Board: "default", Actor: worker("w1"), Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/a", Value: []byte("1")}}}),
		{Index: r.index + 1, Term: 1, Type: raft.LogConfiguration},
	})
	if len(answers) != 2 || r.fsm.Applied() != r.index+1 || r.fsm.View().Applied() != r.index+1 {
		t.Fatalf("%d answers, applied %d, want 2 and %d", len(answers), r.fsm.Applied(), r.index+1)
	}
	r.fsm.StoreConfiguration(r.index+5, raft.Configuration{})
	if r.fsm.Applied() != r.index+5 {
		t.Fatalf("applied %d after StoreConfiguration, want %d", r.fsm.Applied(), r.index+5)
	}
	if _, known := r.fsm.View().DigestAt(r.index + 1); !known {
		t.Fatal("no digest after a configuration entry")
	}
}

// bigState fills several boards with about megabytes of values.
func bigState(t testing.TB, megabytes int) *rig {
	r := newRig(t)
	operator := &boardpb.Actor{Principal: "op", Roles: []boardpb.Role{boardpb.Role_ROLE_OPERATOR, boardpb.Role_ROLE_WORKER}}
	value := append(append([]byte(`"`), bytes.Repeat([]byte("x"), 60_000)...), '"')
	for b := 0; megabytes > 0; b++ {
		name := fmt.Sprintf("b%d", b)
		r.do(&boardpb.Command{Actor: operator, Op: &boardpb.Command_BoardCreate{BoardCreate: &boardpb.BoardCreate{Name: name}}})
		for i := 0; i < 900 && megabytes > 0; i++ {
			got := r.do(&boardpb.Command{Board: name, Actor: operator, Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: fmt.Sprintf("results/op/k%d", i), Value: value}}})
			if got.Outcome != boardpb.Outcome_OUTCOME_OK {
				t.Fatal(got)
			}
			if i%17 == 16 {
				megabytes--
			}
		}
	}
	return r
}

// sink is raft's place for a snapshot, in memory.
type sink struct {
	bytes.Buffer
	cancelled, closed bool
}

func (s *sink) ID() string    { return "test" }
func (s *sink) Cancel() error { s.cancelled = true; return nil }
func (s *sink) Close() error  { s.closed = true; return nil }

// Snapshot must not hold up applying, Persist runs beside it, and what it writes is the
// state of the moment it was asked for: 100 MB of it.
func TestP13ASnapshotOf100MBShowsItsMomentWhileWritesGoOn(t *testing.T) {
	r := bigState(t, 100)
	taken, err := r.fsm.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	want, at := r.fsm.View().Digest(), r.fsm.View().Applied()
	for i := range 200 { // everything the snapshot shows is overwritten or deleted under it
		key := fmt.Sprintf("results/op/k%d", i)
		op := &boardpb.Actor{Principal: "op", Roles: []boardpb.Role{boardpb.Role_ROLE_WORKER}}
		r.do(&boardpb.Command{Board: "b0", Actor: op, Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: key, Value: []byte("2"), Overwrite: true}}})
		r.do(&boardpb.Command{Board: "b0", Actor: op, Op: &boardpb.Command_Delete{Delete: &boardpb.Delete{Key: key}}})
	}
	var out sink
	if err := taken.Persist(&out); err != nil || !out.closed {
		t.Fatalf("persist: %v, closed %v", err, out.closed)
	}
	taken.Release()
	if out.Len() < 100_000_000 {
		t.Fatalf("the snapshot has %d bytes: the test filled too little", out.Len())
	}
	f := New(Options{})
	if err := f.Restore(io.NopCloser(&out.Buffer)); err != nil {
		t.Fatal(err)
	}
	if got := f.View(); got.Digest() != want || got.Applied() != at {
		t.Fatalf("restored digest %x at %d, want %x at %d", got.Digest(), got.Applied(), want, at)
	}
}

// failing is a sink whose disk is full.
type failing struct{ sink }

func (*failing) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestP13ASnapshotThatCannotBeWrittenIsCancelled(t *testing.T) {
	r := newRig(t)
	taken, err := r.fsm.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var out failing
	if err := taken.Persist(&out); err == nil || !out.cancelled || out.closed {
		t.Fatalf("persist on a full disk: error %v, cancelled %v, closed %v", err, out.cancelled, out.closed)
	}
}

func TestRestoreRefusesWhatWasCutOrChangedAndKeepsTheOldState(t *testing.T) {
	r := newRig(t)
	r.do(&boardpb.Command{Board: "default", Actor: worker("w1"), Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/a", Value: []byte("1")}}})
	var buf bytes.Buffer
	if err := writeView(&buf, r.fsm.View()); err != nil {
		t.Fatal(err)
	}
	whole := buf.Bytes()
	f := New(Options{})
	before := f.View()
	for i := range whole {
		cut, flipped := whole[:i], bytes.Clone(whole)
		flipped[i] ^= 1
		for _, broken := range [][]byte{cut, flipped} {
			if err := f.Restore(io.NopCloser(bytes.NewReader(broken))); err == nil {
				t.Fatalf("a snapshot broken at byte %d of %d was taken", i, len(whole))
			}
		}
	}
	if f.View() != before {
		t.Fatal("a refused snapshot replaced the state")
	}
}

// A command has to stay short, because raft's main goroutine waits for the queue of the
// machine (P14). These are the commands that could cost most; each has a bound.
func TestP14OneStepExpiresABoundedNumberAndTheRestFollows(t *testing.T) {
	r := newRig(t)
	loop := r.do(&boardpb.Command{Board: "default", Actor: worker("w1"), Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{TtlMs: 80_000_000}}}).Loop
	second := int64(1000)
	const leases = 2*state.ExpiriesPerStep + 10
	for i := range leases {
		got := r.do(&boardpb.Command{Board: "default", Actor: worker("w1"), Loop: loop, Op: &boardpb.Command_Claim{Claim: &boardpb.Claim{
			Key: fmt.Sprintf("claims/c%d", i), DurationMs: &second}}})
		if got.Outcome != boardpb.Outcome_OUTCOME_OK {
			t.Fatal(got)
		}
	}
	r.now += 10_000
	tick := func() { r.do(system(&boardpb.Command{Op: &boardpb.Command_Tick{Tick: &boardpb.Tick{}}})) }
	for _, want := range []uint64{state.ExpiriesPerStep, 2 * state.ExpiriesPerStep, leases} {
		tick()
		b := r.fsm.View().Board("default")
		if got := b.Head().Counters.Expiries; got != want {
			t.Fatalf("%d leases expired, want %d", got, want)
		}
		if overdue := r.fsm.View().Overdue(); overdue != (want < leases) {
			t.Fatalf("overdue %v after %d of %d", overdue, want, leases)
		}
	}
}

func TestP12TwoMachinesOnOneLogHaveOneDigestAtEveryEntry(t *testing.T) {
	a, b := newRig(t), New(Options{})
	b.Apply(a.relog(1))
	loop := ""
	for i := range 300 {
		c := &boardpb.Command{Board: "default", Actor: worker("w1"), Loop: loop}
		switch i % 5 {
		case 0:
			c.Loop, c.Op = "", &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{TtlMs: 2000}}
		case 1:
			c.Op = &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/a", Value: []byte("1")}}
		case 2:
			c.Op = &boardpb.Command_Set{Set: &boardpb.Set{Key: fmt.Sprintf("claims/c%d", i%7), Value: []byte("1")}}
		default:
			second := int64(1000)
			c.Op = &boardpb.Command_ClaimNext{ClaimNext: &boardpb.ClaimNext{Pattern: "claims/*", DurationMs: &second}}
		}
		a.now += 300
		l := a.entry(c)
		got := a.fsm.Apply(l).(*Applied).Results[0]
		b.Apply(l)
		if got.Loop != "" && i%5 == 0 {
			loop = got.Loop
		}
		if x, y := a.fsm.View().Digest(), b.View().Digest(); x != y {
			t.Fatalf("entry %d (%v): digests %x and %x", l.Index, c, x, y)
		}
	}
}

// relog is the entry that opened the rig's leadership, again.
func (r *rig) relog(index uint64) *raft.Log {
	r.t.Helper()
	c := system(&boardpb.Command{Op: &boardpb.Command_Lead{Lead: &boardpb.Lead{NodeId: "n1"}}, Entropy: 1000 * index})
	return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: mustMarshal(r.t, &boardpb.Batch{Format: Format,
		Stamp: &boardpb.Stamp{WallMs: 1_700_000_000_000, Term: 1}, Commands: []*boardpb.Command{c}})}
}

func mustMarshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What claim_next may offer is expired if due (SPEC F-4), whatever else is due elsewhere.
func TestClaimNextExpiresItsCandidatesHoweverMuchElseIsDue(t *testing.T) {
	r := newRig(t)
	operator := &boardpb.Actor{Principal: "op", Roles: []boardpb.Role{boardpb.Role_ROLE_OPERATOR, boardpb.Role_ROLE_WORKER}}
	r.do(&boardpb.Command{Actor: operator, Op: &boardpb.Command_BoardCreate{BoardCreate: &boardpb.BoardCreate{Name: "aa"}}})
	for range state.ExpiriesPerStep + state.ClaimScan + 100 {
		r.do(&boardpb.Command{Board: "aa", Actor: operator, Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{TtlMs: 5000}}})
	}
	loop := r.do(&boardpb.Command{Board: "default", Actor: operator, Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{TtlMs: 3_600_000}}}).Loop
	in := func(c *boardpb.Command) *boardpb.Result {
		c.Board, c.Actor, c.Loop = "default", operator, loop
		return r.do(c)
	}
	in(&boardpb.Command{Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "claims/x", Value: []byte("1")}}})
	in(&boardpb.Command{Op: &boardpb.Command_Claim{Claim: &boardpb.Claim{Key: "claims/x"}}})
	in(&boardpb.Command{Op: &boardpb.Command_Fail{Fail: &boardpb.Fail{Key: "claims/x", Generation: 1, RetryAfterMs: 5000}}})
	r.now += 8000
	got := in(&boardpb.Command{Op: &boardpb.Command_ClaimNext{ClaimNext: &boardpb.ClaimNext{Pattern: "claims/*"}}})
	if got.Outcome != boardpb.Outcome_OUTCOME_OK || got.Generation != 2 {
		t.Fatalf("got %v, want generation 2 of an item that is due since 3 s", got)
	}
}

// A kept answer is at most 512 bytes (SPEC F-7): here the largest ones there can be.
func TestTheLargestKeptAnswerFits(t *testing.T) {
	long := strings.Repeat("x", state.MaxPrincipal)
	k := &boardpb.Kept{Id: "l-0123456789abcdef/0123456789abcdef", BodyHash: make([]byte, 16), Outcome: 1, Rev: 1 << 52,
		KeptTMs: 1 << 52, Flags: 15, Failed: 63}
	for range state.MaxTxn {
		k.Numbers = append(k.Numbers, 1<<40)
	}
	if n := proto.Size(k); n > state.MaxKept {
		t.Errorf("the answer to a txn keeps %d bytes, at most %d", n, state.MaxKept)
	}
	k.Who, k.Number, k.Got, k.ExpiresTMs, k.Version, k.Generation = long, 1<<52, 1<<52, 1<<52, 1<<52, 1<<52
	k.Numbers, k.Key = nil, strings.Repeat("k", state.MaxKeyBytes)
	if n := proto.Size(k); n > state.MaxKept {
		t.Errorf("a long key keeps %d bytes, at most %d", n, state.MaxKept)
	}
}
