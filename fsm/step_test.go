package fsm

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
)

// bench is one FSM fed with commands, one entry each.
type rig struct {
	t     testing.TB
	fsm   *FSM
	index uint64
	now   int64
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, fsm: New(Options{})}
	r.do(&boardpb.Command{Actor: board.SystemActor(), Op: &boardpb.Command_Lead{Lead: &boardpb.Lead{NodeId: "n1"}}})
	r.now += 20_000
	return r
}

func worker(name string) *boardpb.Actor {
	return &boardpb.Actor{Principal: name, Roles: []boardpb.Role{boardpb.Role_ROLE_WORKER}}
}

func (r *rig) entry(cs ...*boardpb.Command) *raft.Log {
	r.t.Helper()
	r.index++
	for i, c := range cs {
		c.Entropy = r.index*1000 + uint64(i)
	}
	data, err := proto.Marshal(&boardpb.Batch{Format: Format, Stamp: &boardpb.Stamp{TMs: r.now, WallMs: 1_700_000_000_000 + r.now, Term: 1}, Commands: cs})
	if err != nil {
		r.t.Fatal(err)
	}
	return &raft.Log{Index: r.index, Term: 1, Type: raft.LogCommand, Data: data}
}

func (r *rig) do(c *boardpb.Command) *boardpb.Result {
	r.t.Helper()
	return r.fsm.Apply(r.entry(c)).(*Applied).Results[0]
}

func (r *rig) restored() *FSM {
	r.t.Helper()
	var buf bytes.Buffer
	if err := writeView(&buf, r.fsm.View()); err != nil {
		r.t.Fatal(err)
	}
	s, err := readState(&buf)
	if err != nil {
		r.t.Fatal(err)
	}
	f := New(Options{})
	f.machine = newMachine(s)
	f.publish(nil)
	return f
}

func TestAWorkItemLivesThroughClaimExpiryReclaimAndCompletion(t *testing.T) {
	r := newRig(t)
	r.do(&boardpb.Command{Board: "default", Actor: worker("orc"), Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "claims/a", Value: []byte(`{"n":1}`)}}})
	open := func(name string) string {
		return r.do(&boardpb.Command{Board: "default", Actor: worker(name), Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{}}}).Loop
	}
	l1, l2 := open("w1"), open("w2")
	ten := int64(10_000)
	next := &boardpb.ClaimNext{Pattern: "claims/*", DurationMs: &ten}
	got := r.do(&boardpb.Command{Board: "default", Actor: worker("w1"), Loop: l1, Seq: 1, Floor: 1, Op: &boardpb.Command_ClaimNext{ClaimNext: next}})
	if got.Outcome != boardpb.Outcome_OUTCOME_OK || got.Key != "claims/a" || got.Generation != 1 || string(got.Value) != `{"n":1}` {
		t.Fatalf("claim_next: got %v", got)
	}
	r.now += 11_000
	late := &boardpb.Complete{Key: "claims/a", Generation: 1, Result: []byte(`1`), ResultsKey: "results/w1/a"}
	refused := r.do(&boardpb.Command{Board: "default", Actor: worker("w1"), Loop: l1, Seq: 2, Floor: 1, Op: &boardpb.Command_Complete{Complete: late}})
	if refused.Code != boardpb.Code_CODE_LEASE_EXPIRED || len(refused.Ended) != 1 {
		t.Fatalf("late complete: got %v", refused)
	}
	got = r.do(&boardpb.Command{Board: "default", Actor: worker("w2"), Loop: l2, Seq: 1, Floor: 1, Op: &boardpb.Command_Claim{Claim: &boardpb.Claim{Key: "claims/a"}}})
	if got.Generation != 2 || len(got.Previous) != 1 {
		t.Fatalf("claim again: got %v", got)
	}
	done := &boardpb.Complete{Key: "claims/a", Generation: 2, Result: []byte(`2`), ResultsKey: "results/w2/a"}
	c := &boardpb.Command{Board: "default", Actor: worker("w2"), Loop: l2, Seq: 2, Floor: 1, Op: &boardpb.Command_Complete{Complete: done}}
	first := r.do(c)
	again := r.do(proto.CloneOf(c))
	if first.Outcome != boardpb.Outcome_OUTCOME_OK || !again.Replayed || again.Rev != first.Rev || again.Version != first.Version {
		t.Fatalf("complete: got %v, then %v", first, again)
	}
	b := r.fsm.View().Board("default")
	if b.Rev() != 7 {
		// post, two opens, claim, expiry, fence note, reclaim, complete
		t.Logf("rev is %d", b.Rev())
	}
	f := r.restored()
	if got, want := f.View().Digest(), r.fsm.View().Digest(); got != want {
		t.Fatalf("restored digest %x, want %x", got, want)
	}
}

func BenchmarkStepSet(b *testing.B) {
	r := newRig(b)
	loop := r.do(&boardpb.Command{Board: "default", Actor: worker("w1"), Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{TtlMs: 80_000_000}}}).Loop
	value := bytes.Repeat([]byte("x"), 256)
	value[0], value[255] = '"', '"'
	const batch = 128
	var seq uint64
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		logs := make([]*boardpb.Command, batch)
		for i := range logs {
			seq++
			logs[i] = &boardpb.Command{Board: "default", Actor: worker("w1"), Loop: loop, Seq: seq, Floor: seq,
				Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: fmt.Sprintf("results/w1/k%d", seq%10_000), Value: value, Overwrite: true}}}
		}
		l := r.entry(logs...)
		b.StartTimer()
		for _, res := range r.fsm.ApplyBatch([]*raft.Log{l})[0].(*Applied).Results {
			if res.Outcome != boardpb.Outcome_OUTCOME_OK {
				b.Fatal(res)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/command")
}
