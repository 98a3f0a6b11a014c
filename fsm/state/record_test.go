package state

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// TestAHeldViewNeverChanges puts and drops at random while views are taken, held and let
// go, and compares every held view with a copy made when it was taken.
func TestAHeldViewNeverChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type held struct {
			at    uint64
			index Index[int]
			want  map[string]int
		}
		g := &garbage{}
		table := newTable[int](g)
		now := map[string]int{}
		var views []held
		at := uint64(0)
		take := func() {
			views = append(views, held{at, table.publish(), maps.Clone(now)})
		}
		take()
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			at++
			floor := at
			for _, v := range views {
				floor = min(floor, v.at)
			}
			g.collect(floor)
			for range rapid.IntRange(0, 4).Draw(t, "changes") {
				key := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key")
				if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
					table.drop(at, key)
					delete(now, key)
				} else {
					v := rapid.Int().Draw(t, "value")
					table.put(at, key, v)
					now[key] = v
				}
			}
			if rapid.Bool().Draw(t, "take") {
				take()
			}
			if len(views) > 1 && rapid.Bool().Draw(t, "let go") {
				i := rapid.IntRange(0, len(views)-2).Draw(t, "which") // the newest stays, as in an FSM
				views = slices.Delete(views, i, i+1)
			}
			for _, v := range views {
				compareView(t, v.index, v.at, v.want)
			}
		}
		for key, want := range now {
			if got, ok := table.get(key); !ok || got != want {
				t.Fatalf("newest %s: got %d %v, want %d", key, got, ok, want)
			}
		}
		if table.len() != len(now) {
			t.Fatalf("%d records, want %d", table.len(), len(now))
		}
	})
}

func compareView(t *rapid.T, index Index[int], at uint64, want map[string]int) {
	got := map[string]int{}
	last := ""
	index.ascend("", at, func(key string, v int) bool {
		if key <= last {
			t.Fatalf("%s comes after %s", key, last)
		}
		last = key
		got[key] = v
		return true
	})
	if !maps.Equal(got, want) {
		t.Fatalf("the view at %d shows %v, want %v", at, got, want)
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		v, ok := index.get(key, at)
		if w, exists := want[key]; ok != exists || v != w {
			t.Fatalf("the view at %d has %s = %d %v, want %d %v", at, key, v, ok, w, exists)
		}
	}
	from := "b"
	index.ascend(from, at, func(key string, _ int) bool {
		if key < from {
			t.Fatalf("a walk from %s begins at %s", from, key)
		}
		return false
	})
}

func TestWhatNoViewShowsIsFreed(t *testing.T) {
	var freed atomic.Int32
	g := &garbage{}
	table := newTable[*[1024]byte](g)
	put := func(at uint64, key string) {
		v := new([1024]byte)
		runtime.AddCleanup(v, func(int) { freed.Add(1) }, 0)
		table.put(at, key, v)
	}
	const keys = 20
	for i := range keys { // hot once: two old versions and a newest each
		for at := range uint64(3) {
			put(at+1, fmt.Sprint("k", i))
		}
	}
	g.collect(2)
	runtime.GC()
	runtime.GC()
	if n := freed.Load(); n > keys {
		t.Fatalf("%d values were freed, but a view at 2 may show %d of them", n, 2*keys)
	}
	g.collect(3)
	for range 20 {
		runtime.GC()
		runtime.Gosched()
		if freed.Load() == 2*keys {
			break
		}
	}
	if n := freed.Load(); n != 2*keys {
		t.Errorf("%d values were freed, want the %d old ones", n, 2*keys)
	}
	runtime.KeepAlive(&table)
}
