package fsm

import (
	"fmt"
	"testing"

	"github.com/hashicorp/raft"

	boardpb "raftboard/fsm/pb"
)

// BenchmarkStep measures what one command costs a machine that holds 100,000 keys and as
// many items, decoding included: 128 commands an entry. Nothing may cost in proportion to
// the board (DESIGN 10).
func BenchmarkStep(b *testing.B) {
	next := &boardpb.ClaimNext{Pattern: "claims/*"}
	for _, bench := range []struct {
		name string
		make func(n uint64) *boardpb.Command
	}{
		{"set", func(n uint64) *boardpb.Command {
			c := setOf(fmt.Sprintf("results/w1/k%d", n%100_000), `{"found":"nothing in particular","lines":120}`, 0)
			c.GetSet().Overwrite = true
			return c
		}},
		{"append", func(n uint64) *boardpb.Command { return appendOf(fmt.Sprintf("facts/f%d", n%1000), `"a fact"`) }},
		{"conflict", func(uint64) *boardpb.Command { return setOf("results/w1/k1", "1", 1<<40) }},
		{"claim next and release", func(n uint64) *boardpb.Command {
			if n%2 == 0 {
				return &boardpb.Command{Op: &boardpb.Command_ClaimNext{ClaimNext: next}}
			}
			key := fmt.Sprintf("claims/i%d", n/2%100_000)
			return &boardpb.Command{Op: &boardpb.Command_Release{Release: &boardpb.Release{Key: key, Generation: 1 + n/2/100_000}}}
		}},
		{"heartbeat", func(uint64) *boardpb.Command {
			return &boardpb.Command{Op: &boardpb.Command_Heartbeat{Heartbeat: &boardpb.Heartbeat{Key: "claims/held", Generation: 1}}}
		}},
		{"phase write", func(n uint64) *boardpb.Command {
			w := &boardpb.PhaseWrite{Phase: "research", Patch: fmt.Appendf(nil, `{"found":"nothing in particular","lines":%d}`, n), VersionRead: &n}
			return &boardpb.Command{Op: &boardpb.Command_PhaseWrite{PhaseWrite: w}}
		}},
	} {
		b.Run(bench.name, func(b *testing.B) { benchmarkStep(b, bench.make) })
	}
}

func benchmarkStep(b *testing.B, make func(n uint64) *boardpb.Command) {
	r := newRig(b)
	loop := r.open("w1", "n")
	var fill []*boardpb.Command
	for i := range 100_000 {
		fill = append(fill, on("w1", "", 0, setOf(fmt.Sprintf("results/w1/k%d", i), `"first"`, 0)),
			on("w1", "", 0, setOf(fmt.Sprintf("claims/i%d", i), `"item"`, 0)))
		if len(fill) >= 1000 {
			r.fsm.Apply(r.entry(fill...))
			fill = fill[:0]
		}
	}
	r.do(on("w1", loop, 1, claimOf("claims/held", 86_400_000)))
	r.do(on("w1", "", 0, &boardpb.Command{Op: &boardpb.Command_PhaseDefine{PhaseDefine: &boardpb.PhaseDefine{
		Phases: []*boardpb.PhaseSpec{{Id: "research"}}}}}))
	const batch = 128
	var n, wrong uint64
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		var commands []*boardpb.Command
		for range batch {
			c := on("w1", loop, n+2, make(n))
			c.Floor = c.Seq
			commands = append(commands, c)
			n++
		}
		l := r.entry(commands...)
		b.StartTimer()
		for _, res := range r.fsm.ApplyBatch([]*raft.Log{l})[0].(*Applied).Results {
			if res.Code != boardpb.Code_CODE_UNSPECIFIED {
				wrong++
			}
		}
	}
	if wrong > 0 {
		b.Errorf("%d of %d commands were refused", wrong, n)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/command")
}
