package node

import (
	"testing"
	"testing/synctest"
	"time"
)

// While a process is stopped the disk has no chance, so what passes meanwhile is no stall; the
// call then has what is left of its time.
func TestP16TheTimeInWhichTheProcessDidNotRunIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, stopped := time.Now(), time.Duration(0)
		mono := func() time.Duration { return time.Since(began) + stopped }
		var said string
		w := &stallWatch{bound: 20 * time.Second, mono: mono, stuck: func(what string, _ time.Duration) { said = what }}
		end := w.begin("write", 0)
		time.Sleep(7 * time.Second)
		stopped += time.Hour
		time.Sleep(14 * time.Second)
		if said != "" {
			t.Error("the call was judged by the time that the process was stopped")
		}
		time.Sleep(8 * time.Second)
		if said != "write" {
			t.Error("the call went on and on, and nobody said so")
		}
		end()
	})
}

func TestP16ACallThatEndsIsNotSaidToHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := &stallWatch{bound: 20 * time.Second, mono: func() time.Duration { return time.Since(began) },
			stuck: func(what string, lasts time.Duration) { t.Errorf("%s hangs for %v", what, lasts) }}
		for _, lasts := range []time.Duration{0, time.Second, 19 * time.Second} {
			end := w.begin("write", 0)
			time.Sleep(lasts)
			end()
		}
		end := w.begin("a long one", time.Minute)
		time.Sleep(75 * time.Second)
		end()
		time.Sleep(time.Hour)
		if worst := time.Duration(w.worst.Load()); worst != 75*time.Second {
			t.Errorf("the longest call was %v", worst)
		}
	})
}
