package node

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// While a process is stopped the disk has no chance, so what passes meanwhile is no stall; the
// call then has what is left of its time.
func TestP16TheTimeInWhichTheProcessDidNotRunIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stopped, said atomic.Int64
		began := time.Now()
		mono := func() time.Duration { return time.Since(began) + time.Duration(stopped.Load()) }
		w := &stallWatch{bound: 20 * time.Second, mono: mono, stuck: func(string, time.Duration) { said.Add(1) }}
		end := w.begin("write", 0)
		time.Sleep(7 * time.Second)
		stopped.Store(int64(time.Hour))
		time.Sleep(14 * time.Second)
		if said.Load() != 0 {
			t.Error("the call was judged by the time that the process was stopped")
		}
		time.Sleep(8 * time.Second)
		if said.Load() != 1 {
			t.Errorf("the call went on and on, and it was said %d times", said.Load())
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
