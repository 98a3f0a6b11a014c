package state_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// shownAs writes out what a reader of a board sees of its keys and leases.
func shownAs(t *rapid.T, b *state.Board) []string {
	var out []string
	entries, leases, next, r := board.Dump(b, "", 1000, "")
	if r != nil || next != "" {
		t.Fatal(r, next)
	}
	for _, e := range entries {
		out = append(out, fmt.Sprint(e))
	}
	for _, l := range leases {
		c := state.CloneLease(l)
		c.HeartbeatTMs, c.ExpiresTMs, c.LetGo = 0, 0, false // renewals and the ends of delays take no rev
		c.FreeTMs, c.QueuePos = 0, 0
		out = append(out, fmt.Sprint(c))
	}
	items, _, _ := board.List(b, "**", 1000, "")
	for _, it := range items {
		_, n, _, _, r := board.Get(b, it.Entry.Key)
		out = append(out, fmt.Sprint("list ", it.Entry.Key, it.Entry.Version, it.Count, n, r))
	}
	return out
}

// F-28: a read at a rev shows what was there right after that commit, or says that it is
// no longer kept; with enough room it is always kept.
func TestABoardAtARevIsTheBoardAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := state.New()
		s.SetTime(1000, 1000)
		settings := state.DefaultSettings()
		settings.MaxBoardBytes = rapid.SampledFrom([]uint64{0, 0, 3000, 6000}).Draw(t, "max_board_bytes")
		settings.HistoryVersions = rapid.SampledFrom([]uint32{0, 1, 2, 3}).Draw(t, "history")
		roomy := settings.MaxBoardBytes == 0 && settings.HistoryVersions == 0
		schema, _ := state.CompileSchema(settings.Namespaces)
		s.Begin(1, 1, 0)
		s.CreateBoard("default", "inc", settings, schema)
		loops := []string{apply(s, &boardpb.Command{Board: "default", Entropy: 1, Actor: &boardpb.Actor{Principal: "w1"},
			Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{TtlMs: state.MaxLoopTTLMs}}})}
		s.End()
		now, was := int64(1000), map[uint64][]string{}
		for i := range rapid.IntRange(1, 40).Draw(t, "commands") {
			now += rapid.SampledFrom([]int64{0, 100, 3000, 70_000}).Draw(t, "time")
			s.Begin(uint64(i+2), 1, uint64(i+1))
			s.SetTime(now, now)
			apply(s, drawCommand(t, loops))
			s.End()
			b := s.Publish(nil).Board("default")
			was[b.Rev()] = shownAs(t, b)
		}
		if rapid.Bool().Draw(t, "restored") {
			s = restore(t, s.Publish(nil))
		}
		b := s.Publish(nil).Board("default")
		for rev, want := range was {
			then := b.At(rev)
			got := shownAs(t, then)
			switch lack := then.Lack(); {
			case lack == 0:
				sameDifference(t, then, b)
				forkShows(t, s.Publish(nil), rev, want)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("at rev %d of %d (- as it was, + as it is read):\n%s", rev, b.Rev(), diff)
				}
			case roomy && anyDeleted(b) == 0:
				t.Fatalf("at rev %d of %d: compacted to %d, though nothing was given up", rev, b.Rev(), lack)
			case lack <= rev || lack > b.Rev():
				t.Fatalf("at rev %d of %d: the oldest that works is said to be %d", rev, b.Rev(), lack)
			default:
				again := b.At(lack)
				if shownAs(t, again); again.Lack() != 0 {
					t.Fatalf("rev %d was promised to work, and it takes %d", lack, again.Lack())
				}
			}
		}
	})
}

// forkShows forks the board at a rev, and again from that fork: both show what was there,
// survive a snapshot, and have no number to give that the source gave.
func forkShows(t *rapid.T, v *state.View, rev uint64, want []string) {
	s := restore(t, v)
	s.Begin(s.Applied()+1, 1, 0)
	for _, from := range []string{"default", "fork"} {
		if lack := s.Fork(from, map[string]string{"default": "fork", "fork": "again"}[from], "inc-of-"+from, rev); lack > 0 {
			t.Fatalf("%s shows rev %d, and a fork says that rev %d is the oldest", from, rev, lack)
		}
	}
	s.End()
	s = restore(t, s.Publish(nil))
	source := v.Board("default")
	for _, name := range []string{"fork", "again"} {
		b := s.Publish(nil).Board(name)
		if got := shownAs(t, b); !cmp.Equal(want, got) || b.Rev() != rev {
			t.Fatalf("%s at rev %d (- as it was, + in the fork at rev %d):\n%s", name, rev, b.Rev(), cmp.Diff(want, got))
		}
		if rev == source.Rev() && b.Head().LiveBytes != source.Head().LiveBytes {
			t.Fatalf("%s at the head counts %d bytes, the source %d", name, b.Head().LiveBytes, source.Head().LiveBytes)
		}
		x := s.BeginTxn(name, nil)
		source.Keys("", func(key string, k *state.Key) bool {
			if next := x.NextVersion(key); next <= k.Newest().Version {
				t.Fatalf("%s: the next version of %s is %d, the source is at %d", name, key, next, k.Newest().Version)
			}
			return true
		})
		source.Leases("", func(key string, l *boardpb.Lease) bool {
			if next := x.NextGeneration(key, max(x.FirstGeneration(key), x.Lease(key).GetGeneration())); next <= l.Generation {
				t.Fatalf("%s: the next generation of %s is %d, the source is at %d", name, key, next, l.Generation)
			}
			return true
		})
	}
}

// sameDifference holds a diff against the two boards it is about.
func sameDifference(t *rapid.T, was, now *state.Board) {
	want := map[string]bool{}
	version := func(b *state.Board, key string) uint64 {
		if k := b.Key(key); k != nil && !k.Newest().Deleted {
			return k.Newest().Version
		}
		return 0
	}
	now.Keys("", func(key string, _ *state.Key) bool {
		if version(was, key) != version(now, key) {
			want[key] = true
		}
		return true
	})
	got, after := map[string]bool{}, ""
	for {
		page, to, next, r := board.Diff(now, board.DiffFilter{From: was.Rev(), Limit: 1, After: after})
		if r != nil || to != now.Rev() || len(page) > 1 {
			t.Fatalf("diff of rev %d and %d: %v up to rev %d, %v", was.Rev(), now.Rev(), page, to, r)
		}
		for _, d := range page {
			if d.Before.GetVersion() != version(was, d.Key) || !d.After.Deleted && d.After.Version != version(now, d.Key) {
				t.Fatalf("%s: from version %d to %v", d.Key, d.Before.GetVersion(), d.After)
			}
			got[d.Key] = true
		}
		if after = next; next == "" {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("keys that differ between rev %d and %d (- by reading both, + by diff):\n%s", was.Rev(), now.Rev(), diff)
	}
}

// anyDeleted counts append keys that were deleted: their items have no other end.
func anyDeleted(b *state.Board) (n int) {
	b.Keys("facts/", func(_ string, k *state.Key) bool {
		for _, e := range k.Versions() {
			if e.Deleted {
				n++
			}
		}
		return true
	})
	return n
}
