package fsm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// on completes a command for the default board.
func on(who, loop string, seq uint64, c *boardpb.Command) *boardpb.Command {
	c.Board, c.Actor, c.Loop, c.Seq, c.Floor = "default", worker(who), loop, seq, 1
	return c
}

func claimOf(key string, ms int64) *boardpb.Command {
	return &boardpb.Command{Op: &boardpb.Command_Claim{Claim: &boardpb.Claim{Key: key, DurationMs: &ms}}}
}

func appendOf(key, value string) *boardpb.Command {
	return &boardpb.Command{Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: key, Value: []byte(value)}}}
}

func setOf(key, value string, ifVersion uint64) *boardpb.Command {
	return &boardpb.Command{Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: key, Value: []byte(value), IfVersion: ifVersion}}}
}

func (r *rig) open(who, nonce string) string {
	r.t.Helper()
	o := &boardpb.LoopOpen{Nonce: nonce, TtlMs: state.MaxLoopTTLMs}
	return r.do(on(who, "", 0, &boardpb.Command{Op: &boardpb.Command_LoopOpen{LoopOpen: o}})).Loop
}

// The precondition and the grant of a claim are one entry, whatever the order in which
// claims arrive; an answer that was lost is the same again.
func TestT01OfManyClaimsOfOneKeyOneWins(t *testing.T) {
	r, dice := newRig(t), rand.New(rand.NewPCG(1, 1))
	const loops, rounds = 64, 200
	ids := make([]string, loops)
	for i := range ids {
		ids[i] = r.open(fmt.Sprintf("w%d", i%8), fmt.Sprint("n", i))
	}
	for round := range rounds {
		key := fmt.Sprintf("claims/t%d", round+1)
		commands := make([]*boardpb.Command, loops)
		for i, id := range ids {
			commands[i] = on(fmt.Sprintf("w%d", i%8), id, uint64(round+1), claimOf(key, 30_000))
		}
		dice.Shuffle(loops, func(i, j int) { commands[i], commands[j] = commands[j], commands[i] })
		first := r.fsm.Apply(r.entry(commands...)).(*Applied).Results
		again := r.fsm.Apply(r.entry(commands...)).(*Applied).Results
		var winner *boardpb.Result
		for i, got := range first {
			switch {
			case got.Outcome == boardpb.Outcome_OUTCOME_OK && got.Generation == 1 && winner == nil:
				winner = got
			case got.Outcome == boardpb.Outcome_OUTCOME_HELD && winner != nil && got.Holder != "" && got.Generation == 1 && got.ExpiresInMs > 0:
			default:
				t.Fatalf("%s: claim %d answers %v after %v", key, i, got, winner)
			}
			if a := again[i]; !a.Replayed || a.Outcome != got.Outcome || a.Generation != got.Generation || a.Holder != got.Holder {
				t.Fatalf("%s: claim %d answers %v, then %v", key, i, got, a)
			}
		}
		if winner == nil {
			t.Fatalf("%s: nobody won", key)
		}
	}
}

func TestT33T34EveryAcknowledgedAppendIsThereOnceAndInOrder(t *testing.T) {
	r, dice := newRig(t), rand.New(rand.NewPCG(33, 34))
	const loops, each = 50, 100
	ids, next := make([]string, loops), make([]uint64, loops)
	for i := range ids {
		ids[i], next[i] = r.open(fmt.Sprintf("w%d", i), "n"), 1
	}
	versions := map[uint64]bool{}
	for left := loops * each; left > 0; {
		var batch []*boardpb.Command
		for range 1 + dice.IntN(20) {
			i := dice.IntN(loops)
			if next[i] > each {
				continue
			}
			c := on(fmt.Sprintf("w%d", i), ids[i], next[i], appendOf("facts/log", fmt.Sprintf(`{"w":%d,"n":%d}`, i, next[i])))
			batch = append(batch, c)
			next[i]++
			left--
			if dice.IntN(10) == 0 { // the reply was lost: the same again, at once or later
				batch = append(batch, proto.CloneOf(c))
			}
		}
		for i, got := range r.fsm.Apply(r.entry(batch...)).(*Applied).Results {
			if got.Outcome != boardpb.Outcome_OUTCOME_OK || !got.Replayed && versions[got.Version] || got.Replayed && !versions[got.Version] {
				t.Fatalf("%v: %v", batch[i], got)
			}
			versions[got.Version] = true
		}
		if dice.IntN(50) == 0 {
			r.fsm = r.restored()
		}
	}
	b := r.fsm.View().Board("default")
	newest, count, _, _, refused := board.Get(b, "facts/log")
	if refused != nil || newest.Version != loops*each || count != loops*each {
		t.Fatalf("version %d, %d items, want %d (%v)", newest.GetVersion(), count, loops*each, refused)
	}
	last := map[int]int{}
	for _, e := range b.Key("facts/log").Versions() {
		var w, n int
		if _, err := fmt.Sscanf(string(e.Value), `{"w":%d,"n":%d}`, &w, &n); err != nil || n != last[w]+1 {
			t.Fatalf("item %s of loop %d follows number %d (%v)", e.Value, w, last[w], err)
		}
		last[w] = n
	}
}

func TestT42AResultAndItsItemsEndAreInOneRev(t *testing.T) {
	r := newRig(t)
	loop := r.open("w1", "n")
	var views []*state.View
	keep := func() { views = append(views, r.fsm.View()) }
	r.do(on("w1", loop, 1, claimOf("claims/c", 60_000)))
	keep()
	done := &boardpb.Complete{Key: "claims/c", Generation: 1, Result: []byte(`{"ok":true}`), ResultsKey: "results/w1/c"}
	complete := on("w1", loop, 2, &boardpb.Command{Op: &boardpb.Command_Complete{Complete: done}})
	first := r.do(complete)
	keep()
	r.fsm = r.restored()
	keep()
	again := r.do(proto.CloneOf(complete))
	keep()
	if !again.Replayed || again.Rev != first.Rev || again.ResultRef != first.ResultRef || first.ResultRef != "results/w1/c@1" {
		t.Errorf("got %v, then %v", first, again)
	}
	for i, v := range views {
		b := v.Board("default")
		_, _, lease, _, _ := board.Get(b, "claims/c")
		result, _, _, _, _ := board.Get(b, "results/w1/c")
		events := 0
		b.Events(1, 0, false, func(ev *boardpb.Event) bool {
			if ev.Kind == boardpb.Kind_KIND_COMPLETE {
				events++
			}
			return true
		})
		isDone := lease.State == boardpb.LeaseState_LEASE_STATE_DONE
		if wantDone := i > 0; isDone != wantDone || (result != nil) != wantDone || (events == 1) != wantDone {
			t.Errorf("view %d at rev %d: done %v, result %v, %d events", i, b.Rev(), isDone, result, events)
		}
	}
}

// Readers take Views while entries are applied: what one transaction wrote is seen whole
// or not at all, and a View never changes while it is held.
func TestT44ReadersSeeOneRevAndHoldUpNobody(t *testing.T) {
	r := newRig(t)
	loop := r.open("w1", "n")
	pair := func(n int) *boardpb.Command {
		value := fmt.Appendf(nil, "%d", n)
		return on("w1", loop, uint64(n), &boardpb.Command{Op: &boardpb.Command_Txn{Txn: &boardpb.Txn{Ops: []*boardpb.TxnOp{
			{Op: &boardpb.TxnOp_Set{Set: &boardpb.Set{Key: "results/w1/left", Value: value, Overwrite: true}}},
			{Op: &boardpb.TxnOp_Append{Append: &boardpb.Append{Key: "facts/all", Value: value}}},
			{Op: &boardpb.TxnOp_Set{Set: &boardpb.Set{Key: "results/w1/right", Value: value, Overwrite: true}}},
		}}}})
	}
	r.do(pair(1))
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				v := r.fsm.View()
				b := v.Board("default")
				left, _, _, _, _ := board.Get(b, "results/w1/left")
				entries, _, next, _ := board.Dump(b, "results/**", 0, "")
				right, _, _, _, _ := board.Get(b, "results/w1/right")
				_, count, _, _, _ := board.Get(b, "facts/all")
				if !bytes.Equal(left.Value, right.Value) || next != "" || len(entries) != 2 || !bytes.Equal(entries[0].Value, left.Value) ||
					fmt.Sprint(count) != string(left.Value) || left.Rev != right.Rev || right.Rev != b.Rev() {
					t.Errorf("at rev %d: left %s, right %s, %d facts", b.Rev(), left.Value, right.Value, count)
					return
				}
			}
		})
	}
	for n := 2; n < 3000; n++ {
		c := pair(n)
		c.Floor = uint64(n)
		if got := r.do(c); got.Outcome != boardpb.Outcome_OUTCOME_OK {
			t.Errorf("write %d: %v", n, got)
			break
		}
	}
	close(stop)
	readers.Wait()
}

func TestT57OneLimitBothWaysAndLargeAnswersComeInPages(t *testing.T) {
	r := newRig(t)
	value := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	for _, n := range []int{65_535, 65_536} {
		key := fmt.Sprintf("results/w1/v%d", n)
		if got := r.do(on("w1", "", 0, setOf(key, value(n), 0))); got.Outcome != boardpb.Outcome_OUTCOME_OK {
			t.Errorf("%d bytes: %v", n, got)
		}
		if e, _, _, _, _ := board.Get(r.fsm.View().Board("default"), key); len(e.GetValue()) != n {
			t.Errorf("%d bytes stored, %d read", n, len(e.GetValue()))
		}
	}
	if got := r.do(on("w1", "", 0, setOf("results/w1/v", value(65_537), 0))); got.Code != boardpb.Code_CODE_TOO_LARGE || got.Got != 65_537 || got.Limit != 65_536 {
		t.Errorf("65,537 bytes: %v", got)
	}
	if got := Check(on("w1", "", 0, setOf("results/w1/v", value(1<<20+1), 0))); got == nil || got.Code != boardpb.Code_CODE_TOO_LARGE {
		t.Errorf("above every limit, before the log: %v", got)
	}
	const keys = 2000
	for i := range keys {
		r.do(on("w1", "", 0, appendOf(fmt.Sprintf("facts/k%04d", i), value(4096))))
	}
	for i := range 60 {
		r.do(on("w1", "", 0, setOf("results/w1/h", value(60_000), uint64(i))))
		r.do(on("w1", "", 0, appendOf("findings/many", value(50_000))))
	}
	pages(t, r.fsm.View().Board("default"), keys)
}

// pages reads everything that is large, and finds all of it, once, in bounded answers.
func pages(t *testing.T, b *state.Board, keys int) {
	t.Helper()
	var listed []string
	for after, more := "", true; more; more = after != "" {
		items, next, r := board.List(b, "facts/*", 0, after)
		if r != nil || len(items) > 200 {
			t.Fatalf("list behind %q: %d items, %v", after, len(items), r)
		}
		for _, it := range items {
			listed = append(listed, it.Entry.Key)
		}
		after = next
	}
	if len(listed) != keys || !slices.IsSorted(listed) || len(slices.Compact(listed)) != keys {
		t.Errorf("%d keys listed, want %d, sorted", len(listed), keys)
	}
	seen, answers := map[string]int{}, 0
	for after, more := "", true; more; more = after != "" {
		entries, _, next, r := board.Dump(b, "", 1000, after)
		size := 0
		for _, e := range entries {
			seen[fmt.Sprintf("%s@%d", e.Key, e.Version)]++
			size += proto.Size(e)
		}
		if answers++; r != nil || size > 1<<20 || len(entries) == 0 || answers > 500 {
			t.Fatalf("dump behind %q: %d entries of %d bytes, %v", after, len(entries), size, r)
		}
		after = next
	}
	if want := keys + 60 + 3; len(seen) != want { // facts, findings, and the newest of three results
		t.Errorf("%d entries dumped, want %d", len(seen), want)
	}
	for key, n := range seen {
		if n != 1 {
			t.Errorf("%s dumped %d times", key, n)
		}
	}
	var versions []uint64
	for before, more := uint64(0), true; more; before = versions[len(versions)-1] {
		entries, hasMore, oldest, r := board.History(b, "results/w1/h", 500, before)
		if r != nil || len(entries) == 0 || len(entries) > 18 || oldest != 1 {
			t.Fatalf("history before %d: %d versions, oldest %d, %v", before, len(entries), oldest, r)
		}
		for _, e := range entries {
			versions = append(versions, e.Version)
		}
		more = hasMore
	}
	if len(versions) != 60 || versions[0] != 60 || versions[59] != 1 {
		t.Errorf("history has %v", versions)
	}
}
