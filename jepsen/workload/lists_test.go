package workload

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

func TestAReadOfSeveralKeysIsSortedByKeyAndNamesThoseThatHoldNothing(t *testing.T) {
	entries := []*boardpb.Entry{
		{Key: "a", Version: 1, Rev: 3, Value: []byte("1")}, {Key: "a", Version: 2, Rev: 5, Value: []byte("2")},
		{Key: "m", Version: 7, Rev: 5, Value: []byte("9")}, {Key: "z", Version: 1, Rev: 6, Value: []byte("0")},
	}
	got := seenOf(entries, []string{"m", "a", "b"})
	want := []history.Seen{
		{Key: "m", Items: []string{"9"}, Versions: []uint64{7}, Revs: []uint64{5}},
		{Key: "a", Items: []string{"1", "2"}, Revs: []uint64{3, 5}},
		{Key: "b"},
		{Key: "z", Items: []string{"0"}, Revs: []uint64{6}}, // nobody asked for it, and it was there
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	got = seenOf(entries[1:2], []string{"a"})
	if want := []history.Seen{{Key: "a", Items: []string{"2"}, Versions: []uint64{2}}}; cmp.Diff(want, got) != "" {
		t.Errorf("an item without the one before it: %+v", got)
	}
}

func TestThingsAreRetiredAfterSoManyUses(t *testing.T) {
	s := newSerials(2, 3)
	if s.newest(0) != 0 {
		t.Errorf("an unused one has serial %d", s.newest(0))
	}
	var got []int
	for range 7 {
		got = append(got, s.next(0))
	}
	if want := []int{1, 1, 1, 2, 2, 2, 3}; !slices.Equal(got, want) || s.newest(0) != 3 || s.newest(1) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestATransactionIsSentInTheOrderInWhichItIsRecorded(t *testing.T) {
	guards, ops := messages([]history.Part{
		{Do: history.Get, Key: "a", Version: 4}, {Do: history.Append, Key: "b", Value: "1"}, {Do: history.Set, Key: "m", Value: "2", Version: 9},
	})
	if len(guards) != 1 || guards[0].GetVersion().GetVersion() != 4 || len(ops) != 2 ||
		ops[0].GetAppend().GetKey() != "b" || ops[1].GetSet().GetIfVersion() != 9 {
		t.Errorf("guards %v, operations %v", guards, ops)
	}
}
