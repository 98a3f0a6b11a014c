package fsm

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	boardpb "raftboard/fsm/pb"
)

// A full board gives up old versions; what it gave up must leave memory too.
func TestWhatAFullBoardGaveUpIsFreed(t *testing.T) {
	r := newRig(t)
	operator := &boardpb.Actor{Principal: "op", Roles: []boardpb.Role{boardpb.Role_ROLE_OPERATOR, boardpb.Role_ROLE_WORKER}}
	const limit = 8 << 20
	before := heap()
	r.do(&boardpb.Command{Actor: operator, Op: &boardpb.Command_BoardCreate{BoardCreate: &boardpb.BoardCreate{
		Name: "full", Settings: &boardpb.BoardSettings{MaxBoardBytes: limit}}}})
	for round := range 50 {
		for key := range 40 {
			value := append(append([]byte(`"`), bytes.Repeat([]byte{byte('a' + round%26)}, 60_000)...), '"')
			got := r.do(&boardpb.Command{Board: "full", Actor: operator, Op: &boardpb.Command_Set{Set: &boardpb.Set{
				Key: fmt.Sprintf("results/op/k%d", key), Value: value, Overwrite: true}}})
			if got.Outcome != boardpb.Outcome_OUTCOME_OK {
				t.Fatal(got)
			}
		}
	}
	// Views that nobody reads go with the first collection; the next entries free what
	// only they could show.
	for range 3 {
		runtime.GC()
		for range 4 {
			r.do(&boardpb.Command{Board: "full", Actor: operator, Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/a", Value: []byte("1")}}})
		}
	}
	grown := heap() - before
	if live := r.fsm.View().StateBytes(); live > limit || grown > 4*limit {
		t.Fatalf("live state %d bytes, heap grew by %d bytes, limit %d: 120 MB were written", live, grown, limit)
	}
}

// heap is what is reachable now.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
