package fsm

import (
	"bytes"
	"fmt"
	"testing"

	boardpb "raftboard/fsm/pb"
)

// Trial T-92, in the state machine: a month of steady work, a key changed all the time and loops
// that nobody closes grow until the retention is reached, and then no more. A write each ten
// seconds instead of ten a second: the days bound it then, and not the number of events.
func TestT92AMonthOfWorkLevelsOff(t *testing.T) {
	r := newRig(t)
	const day, every = 86_400_000, 10_000
	sizes := map[int]int{}
	loops, writes, generation := 0, uint64(0), uint64(0)
	for d := 1; d <= 30; d++ {
		for range day / every / 80 {
			var batch []*boardpb.Command
			for range 80 {
				c := setOf(fmt.Sprintf("results/w1/k%02d", writes%97), fmt.Sprintf(`"value %010d"`, writes), 0)
				c.GetSet().Overwrite = true
				batch = append(batch, on("w1", "", 0, c))
				writes++
			}
			r.now += 80 * every
			r.fsm.Apply(r.entry(batch...))
			if loops < 5000 {
				loops += 5
				for i := range 5 {
					r.do(on("w1", "", 0, &boardpb.Command{Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{Nonce: fmt.Sprint(loops + i)}}}))
				}
			}
		}
		id := r.open("w2", fmt.Sprint("day", d))
		if got := r.do(on("w2", id, 1, claimOf("claims/daily", 10_000))); got.Generation <= generation {
			t.Fatalf("day %d: generation %d after %d: %v", d, got.Generation, generation, got)
		} else {
			generation = got.Generation
		}
		var snapshot bytes.Buffer
		if err := writeView(&snapshot, r.fsm.View()); err != nil {
			t.Fatal(err)
		}
		sizes[d] = snapshot.Len()
	}
	b := r.fsm.View().Board("default")
	if n := len(b.Key("results/w1/k00").Versions()); n != 100 {
		t.Errorf("%d versions are kept, want 100", n)
	}
	if oldest := b.Head().TrimmedChangeRev; oldest < writes*22/30 || oldest > writes*24/30 {
		t.Errorf("events are kept from rev %d of %d on, want the last seven days", oldest, b.Rev())
	}
	if n := b.Head().LiveBytes; n > 97*100*200 {
		t.Errorf("%d live bytes", n)
	}
	open := 0
	b.Loops(func(string, *boardpb.Loop) bool { open++; return true })
	if open > 30 {
		t.Errorf("%d of %d loops are still there", open, loops)
	}
	for d := 20; d <= 30; d++ { // of numbers that get longer and of the loops of the day, a little
		if diff := sizes[d] - sizes[15]; diff > sizes[15]/50 || -diff > sizes[15]/50 {
			t.Errorf("a snapshot of day %d has %d bytes, of day 15 %d", d, sizes[d], sizes[15])
		}
	}
}
