package transport

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestProbesOfANodeThatHangsShareOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l looks
		var begun atomic.Int32
		hang := make(chan struct{})
		look := func() {
			begun.Add(1)
			<-hang
		}
		failed := make(chan error, 20)
		for range 10 { // ten probes at once, and ten later
			go func() { failed <- l.within(applyStuck, look) }()
		}
		time.Sleep(time.Minute)
		for range 10 {
			go func() { failed <- l.within(applyStuck, look) }()
		}
		for range 20 {
			if err := <-failed; err == nil {
				t.Error("a node that hangs counts as alive")
			}
		}
		if n := begun.Load(); n != 1 {
			t.Errorf("%d looks wait for a node that hangs", n)
		}
		close(hang)
		synctest.Wait()
		if err := l.within(applyStuck, func() { begun.Add(1) }); err != nil || begun.Load() != 2 {
			t.Errorf("when the node answers again: %v after %d looks", err, begun.Load())
		}
	})
}
