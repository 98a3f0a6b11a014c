package fsm

import (
	"testing"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// fataler is a test of either kind.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// everyBoardReplays folds the export of each board and compares digests (SPEC F-19); and an
// export that lacks a record comes to another digest.
func everyBoardReplays(t fataler, v *state.View) {
	t.Helper()
	for _, name := range v.BoardNames() {
		b := v.Board(name)
		var all []*boardpb.SnapshotRecord
		if err := b.Export(func(r *boardpb.SnapshotRecord) error { all = append(all, r); return nil }); err != nil {
			t.Fatalf("export of %s: %v", name, err)
		}
		again := replayed(t, name, all)
		if again.Digest() != b.Digest() || again.Rev() != b.Rev() {
			t.Fatalf("board %s at rev %d has digest %x; its export comes to %x at rev %d", name, b.Rev(), b.Digest(), again.Digest(), again.Rev())
		}
		if last := len(all) - 1; last > 0 && replayed(t, name, all[:last]).Digest() == b.Digest() {
			t.Fatalf("board %s: an export without its last record, %v, comes to the same digest", name, all[last])
		}
	}
}

func replayed(t fataler, name string, records []*boardpb.SnapshotRecord) *state.Board {
	t.Helper()
	fold := state.NewReplay()
	for _, r := range records {
		if err := fold.Take(r); err != nil {
			t.Fatalf("replay of %s: %v", name, err)
		}
	}
	b, err := fold.Board(name)
	if err != nil || b == nil {
		t.Fatalf("replay of %s: %v, %v", name, b, err)
	}
	return b
}

func TestReplayRefusesRecordsWithoutTheirHead(t *testing.T) {
	fold := state.NewReplay()
	record := &boardpb.SnapshotRecord{Board: "b", Record: &boardpb.SnapshotRecord_Entry{Entry: &boardpb.Entry{Key: "facts/a", Version: 1}}}
	if err := fold.Take(record); err == nil {
		t.Error("an entry of a board that no head told of was taken")
	}
	if b, err := fold.Board("b"); b != nil || err != nil {
		t.Errorf("nothing was taken, and it gives %v, %v", b, err)
	}
}
