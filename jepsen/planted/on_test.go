//go:build faults

package planted_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/jepsen/planted"
)

// asked is the part of this test's binary that runs as a process of its own, with what is
// planted in its environment.
const asked = "PLANTED_TEST_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(asked) == "" {
		os.Exit(m.Run())
	}
	defer func() { _ = recover() }()
	for range 3 {
		planted.Point("here")
		println("passed")
	}
	if planted.Bug("M5") && !planted.Bug("M6") {
		println("has M5")
	}
}

// process runs the lines above and answers what it said and how it ended.
func process(t *testing.T, env ...string) (said string, err error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, asked+"=1")...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestTheEnvironmentSaysWhichBugsAProcessHas(t *testing.T) {
	said, err := process(t, "MUTANT=M5,M7")
	if err != nil || !strings.Contains(said, "has M5") || !strings.Contains(said, "planted bug M7") {
		t.Errorf("%v: %s", err, said)
	}
	if said, err := process(t, "MUTANT="); err != nil || strings.Contains(said, "has M5") {
		t.Errorf("without one: %v: %s", err, said)
	}
}

func TestAPanicAtAPointEndsTheProcessWhoeverRecovers(t *testing.T) {
	said, err := process(t, "FAULT=here:2:panic")
	if err == nil || strings.Count(said, "passed") != 1 || !strings.Contains(said, "failpoint here, hit 2") {
		t.Errorf("%v: %s", err, said)
	}
}

func TestAListThatCannotBeReadEndsTheProcess(t *testing.T) {
	for _, list := range []string{"here", "here:x:panic", "here:0:eio", "here:1:explode", "here:1:sleep=soon", "here:%2+:eio"} {
		if said, err := process(t, "FAULT="+list); err == nil || !strings.Contains(said, "FAULT") {
			t.Errorf("%s: %v: %s", list, err, said)
		}
	}
}

// hits asks a point n times and answers at which of them there was an error.
func hits(name string, n int) (at []int) {
	for i := range n {
		if planted.Error(name) != nil {
			at = append(at, i+1)
		}
	}
	return at
}

func TestAFileArmsPointsWhileAProcessRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faults")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		planted.Set(planted.Setting{FaultFile: path})
		defer planted.Reset()
		if at := hits("disk", 3); at != nil {
			t.Errorf("without a file: %v", at)
		}
		for _, c := range []struct {
			list string
			want []int
		}{
			{"disk:2:eio", []int{2}}, {"disk:4+:short, other:1:eio", []int{4, 5, 6}}, {"disk:%3:hit", []int{3, 6}},
			{"", nil}, {"disk:1:eio,disk:3:eio", []int{1, 3}}, {"nonsense", nil},
		} {
			write(c.list)
			time.Sleep(100 * time.Millisecond)
			if at := hits("disk", 6); !slices.Equal(at, c.want) {
				t.Errorf("%q: errors at %v, want %v", c.list, at, c.want)
			}
		}
		write("disk:1:eio,disk:2:short,disk:3:hit,disk:4:sleep=3s")
		time.Sleep(100 * time.Millisecond)
		for i, want := range []error{syscall.EIO, io.ErrShortWrite, planted.ErrHit, nil} {
			before := time.Now()
			if err := planted.Error("disk"); !errors.Is(err, want) {
				t.Errorf("hit %d: %v, want %v", i+1, err, want)
			}
			if slept := time.Since(before); (i == 3) != (slept == 3*time.Second) {
				t.Errorf("hit %d took %v", i+1, slept)
			}
		}
	})
}

func TestTheClocksOfAProcessMoveWithAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clock")
	synctest.Test(t, func(t *testing.T) {
		planted.Set(planted.Setting{ClockFile: path})
		defer planted.Reset()
		began := time.Now()
		wall, mono := planted.Wall(time.Now), planted.Mono(func() time.Duration { return time.Since(began) })
		set := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			wall() // hears of it
			mono()
		}
		passes := func() (w, m time.Duration) { // in ten seconds
			w0, m0 := wall(), mono()
			time.Sleep(10 * time.Second)
			return wall().Sub(w0), mono() - m0
		}
		if w, m := passes(); w != 10*time.Second || m != 10*time.Second || !wall().Equal(time.Now()) {
			t.Errorf("without a fault %v and %v pass, and it is %v", w, m, wall())
		}
		before := mono()
		set("wall=-3s drift=0.02")
		if jump := mono() - before; jump != time.Second {
			t.Errorf("the monotonic clock jumped by %v", jump-time.Second)
		}
		if off := wall().Sub(time.Now()); off != -3*time.Second {
			t.Errorf("the wall clock is off by %v", off)
		}
		if w, m := passes(); w != 10*time.Second || m != 10200*time.Millisecond {
			t.Errorf("with a drift of 0.02 %v and %v pass", w, m)
		}
		set("strobe=1s drift=-0.5")
		seen := map[time.Duration]bool{}
		for range 20 {
			time.Sleep(50 * time.Millisecond)
			seen[wall().Sub(time.Now())] = true
		}
		if len(seen) != 2 || !seen[0] || !seen[time.Second] {
			t.Errorf("the strobing clock is off by %v", seen)
		}
		if _, m := passes(); m != 5*time.Second {
			t.Errorf("at half its rate %v pass", m)
		}
		set("wall=no")
		if _, m := passes(); m != 5*time.Second {
			t.Errorf("what cannot be read changed the clock: %v", m)
		}
		set("")
		if _, m := passes(); m != 10*time.Second || !wall().Equal(time.Now()) {
			t.Errorf("after it was mended %v pass and it is %v", m, wall())
		}
	})
}

func TestWhatATestPlantsIsThereUntilItIsReset(t *testing.T) {
	calls := 0
	planted.Set(planted.Setting{Bugs: []string{"M5"}, Points: map[string]func(int) error{
		"here": func(hit int) error { calls = hit; return planted.ErrHit },
	}})
	if !planted.Bug("M5") || planted.Bug("M6") || !errors.Is(planted.Error("here"), planted.ErrHit) {
		t.Error("it is not there")
	}
	planted.Point("here")
	planted.Reset()
	planted.Point("here")
	if planted.Bug("M5") || planted.Error("here") != nil || calls != 2 {
		t.Errorf("after Reset: %v, %d calls", planted.Bug("M5"), calls)
	}
}

func TestAListInTheOrderOfAMapHoldsTheSame(t *testing.T) {
	list, other := make([]int, 20), false
	for i := range list {
		list[i] = i
	}
	for range 20 {
		jumbled := planted.Jumbled(list)
		other = other || !slices.Equal(jumbled, list)
		slices.Sort(jumbled)
		if !slices.Equal(jumbled, list) {
			t.Fatalf("it became %v", jumbled)
		}
	}
	if !other {
		t.Error("it never had another order")
	}
}
