package client_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/client"
	"raftboard/transport/clustertest"
)

// A fork is made once although the leader goes, is the same on every node, and a lease of the
// source neither holds nor fences anything in it.
func TestAForkGoesOnByItselfAcrossALeaderChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		op := dial(t, cluster, "op", cluster.Addrs()...)
		w := dial(t, cluster, "w1", cluster.Addrs()...)
		src := w.Board("default")
		l := openLoop(t, w, client.LoopOptions{})
		res, err := l.Post(ctx, "claims/a", []byte(`"work"`))
		ok(t, "post", res, err)
		at := res.Rev
		lease := claim(t, ctx, l, "claims/a", time.Minute)
		res, err = src.Append(ctx, "facts/x", []byte(`"later"`), client.AppendOptions{})
		ok(t, "append", res, err)

		once := client.WithIdempotencyKey(ctx, "fork-1")
		made, err := op.ForkBoard(once, "default", "now", 0)
		ok(t, "fork", made, err)
		cluster.Kill(cluster.Leader())
		again, err := op.ForkBoard(once, "default", "now", 0)
		if ok(t, "the same fork again", again, err); !again.Replayed || again.Incarnation != made.Incarnation || again.Rev != made.Rev {
			t.Errorf("made %v, again %v", made, again)
		}
		if _, err := op.ForkBoard(ctx, "default", "now", 0); !errors.Is(err, client.ErrExists) {
			t.Errorf("a second board of that name: %v", err)
		}
		then, err := op.ForkBoard(ctx, "default", "then", at)
		ok(t, "fork of an earlier rev", then, err)
		if then.Rev != at+1 || then.Incarnation == made.Incarnation {
			t.Errorf("forked at %d: %v", at, then)
		}
		for _, name := range []string{"now", "then"} {
			fork := w.Board(name)
			fl, err := fork.OpenLoop(ctx, client.LoopOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := fork.Get(ctx, "claims/a", client.ReadOptions{})
			if err != nil || string(got.Entry.Value) != `"work"` {
				t.Fatalf("%s: %v, %v", name, got, err)
			}
			_, _, err = fork.Get(ctx, "facts/x", client.ReadOptions{})
			if later := name == "now"; later != (err == nil) {
				t.Errorf("%s: facts/x: %v", name, err)
			}
			mine, _, err := fl.Claim(ctx, "claims/a", client.ClaimOptions{Duration: time.Minute})
			if err != nil || mine.Generation() <= lease.Generation() {
				t.Errorf("%s: claimed %v, %v; the source is at generation %d", name, mine, err, lease.Generation())
			}
		}
		// What the source's holder does is of the source.
		res, err = lease.Complete(ctx, []byte(`1`), "")
		ok(t, "complete in the source", res, err)
	})
}
