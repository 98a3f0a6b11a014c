package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

func phaseWrite(patch string, read uint64) *boardpb.PhaseWrite {
	return &boardpb.PhaseWrite{Phase: "research", Patch: []byte(patch), VersionRead: &read}
}

// SPEC 3.7-4 at every node, and a lock that a change of leader leaves where it was.
func TestAPhaseIsReadOnceItIsCompletedAndItsLockOutlivesALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		w1, w2 := dial(t, cluster, "w1", cluster.Addrs()...), dial(t, cluster, "w2", cluster.Addrs()...)
		l1, l2 := openLoop(t, w1, client.LoopOptions{TTL: time.Hour}), openLoop(t, w2, client.LoopOptions{TTL: time.Hour})
		res, err := l1.DefinePhases(ctx, &boardpb.PhaseSpec{Id: "research"}, &boardpb.PhaseSpec{Id: "analysis", Dependencies: []string{"research"}})
		ok(t, "define", res, err)
		res, err = l1.LockPhase(ctx, "research", 10*time.Minute)
		ok(t, "lock", res, err)
		res, err = l1.WritePhase(ctx, phaseWrite(`{"a":1}`, 0))
		ok(t, "write", res, err)
		cluster.Kill(cluster.Leader())
		res, err = l2.WritePhase(ctx, phaseWrite(`{"b":1}`, 0))
		if err != nil || res.Outcome != boardpb.Outcome_OUTCOME_HELD || res.Holder != "w1" || res.ExpiresTMs == 0 {
			t.Errorf("write of another: %v, %v; want held by w1", res, err)
		}
		began := time.Now()
		go func() {
			time.Sleep(5 * time.Second)
			if res, err := l1.CompletePhase(ctx, "research", 1); err != nil || res.Outcome != boardpb.Outcome_OUTCOME_OK {
				t.Errorf("complete: %v, %v", res, err)
			}
		}()
		got, _, err := w2.Board("default").Phase(ctx, "research", 0, client.ReadOptions{})
		if err != nil || got.Phase.Status != boardpb.PhaseStatus_PHASE_STATUS_IN_PROGRESS || got.LockedBy != "w1" || got.LockGeneration != 1 {
			t.Errorf("read: %v, %v; want in progress, locked by w1", got, err)
		}
		got, _, err = w2.Board("default").Phase(ctx, "research", 30*time.Second, client.ReadOptions{})
		if took := time.Since(began); err != nil || string(got.GetData().GetData()) != `{"a":1}` || took < 5*time.Second || took > 6*time.Second {
			t.Errorf("read with a wait: %v, %v after %v; want the data after 5 s", got, err, took)
		}
		list, _, err := w2.Board("default").Phases(ctx, "", 0, client.ReadOptions{})
		if err != nil || len(list.Phases) != 2 || list.Phases[1].Phase.Status != boardpb.PhaseStatus_PHASE_STATUS_COMPLETED {
			t.Errorf("list: %v, %v", list, err)
		}
	})
}

// SPEC 3.7-8, at a fortieth of its size: eight writers of one phase, 25 writes each.
func TestEightWritersOfDistinctKeysLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const writers, each = 8, 25
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		res, err := dial(t, cluster, "orc", cluster.Addrs()...).Board("default").DefinePhases(ctx, &boardpb.PhaseSpec{Id: "research"})
		ok(t, "define", res, err)
		done := make(chan struct{})
		for w := range writers {
			l := openLoop(t, dial(t, cluster, fmt.Sprintf("w%d", w), cluster.Addrs()...), client.LoopOptions{TTL: time.Hour})
			go func() {
				defer func() { done <- struct{}{} }()
				var read uint64
				for i := range each {
					res, err := l.WritePhase(ctx, phaseWrite(fmt.Sprintf(`{"w%d-%d":%d}`, w, i, i), read))
					if err != nil || res.Outcome != boardpb.Outcome_OUTCOME_OK {
						t.Errorf("writer %d, write %d: %v, %v", w, i, res, err)
						return
					}
					read = res.Version
				}
			}()
		}
		for range writers {
			<-done
		}
		got, _, err := dial(t, cluster, "w0", cluster.Addrs()...).Board("default").Phase(ctx, "research", 0, client.ReadOptions{})
		if err != nil || got.Phase.Version != writers*each {
			t.Fatalf("%v, %v; want version %d", got.GetPhase(), err, writers*each)
		}
		for w := range writers {
			for i := range each {
				if key := fmt.Sprintf(`"w%d-%d":%d`, w, i, i); !bytes.Contains(got.GetData().GetData(), []byte(key)) {
					t.Fatalf("%s is lost", key)
				}
			}
		}
	})
}

// SPEC PH-15, PH-16: a conflict that is left to a supervisor is one, although the answer was lost
// with the leader; until it is decided nobody else writes the keys, and others go on.
func TestAnEscalatedConflictSurvivesTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		board := func(name string) *client.Board { return dial(t, cluster, name, cluster.Addrs()...).Board("default") }
		a, b := board("a"), board("b")
		res, err := a.DefinePhases(ctx, &boardpb.PhaseSpec{Id: "p"})
		ok(t, "define", res, err)
		zero, one := uint64(0), uint64(1)
		res, err = a.WritePhase(ctx, &boardpb.PhaseWrite{Phase: "p", Patch: []byte(`{"verdict":"buy"}`), VersionRead: &zero})
		ok(t, "write", res, err)
		once := client.WithIdempotencyKey(ctx, "escalate-1")
		mine := &boardpb.PhaseResolve{Phase: "p", Local: []byte(`{"verdict":"tune"}`), VersionRead: &zero, VersionSeen: 1,
			Strategy: boardpb.PhaseStrategy_PHASE_STRATEGY_ESCALATE}
		raised, err := b.ResolvePhase(once, mine)
		if err != nil || raised.Outcome != boardpb.Outcome_OUTCOME_ESCALATED {
			t.Fatalf("escalate: %v, %v", raised, err)
		}
		cluster.Kill(cluster.Leader())
		again, err := b.ResolvePhase(once, mine)
		if err != nil || !again.Replayed || again.Field != raised.Field || again.Outcome != raised.Outcome {
			t.Errorf("raised %v, again %v, %v", raised, again, err)
		}
		open, _, err := a.PhaseConflicts(ctx, &wirepb.ConflictsQuery{Phase: "p"}, client.ReadOptions{})
		if err != nil || len(open.Conflicts) != 1 || string(open.Conflicts[0].Local) != `{"verdict":"tune"}` {
			t.Fatalf("open: %v, %v", open, err)
		}
		seen, _, err := a.DetectConflict(ctx, "p", 0, []string{"verdict"}, client.ReadOptions{})
		if err != nil || !seen.Conflict || seen.Suggested != "escalate" || seen.ModifiedBy != "a" {
			t.Errorf("detect: %v, %v", seen, err)
		}
		res, err = a.WritePhase(ctx, &boardpb.PhaseWrite{Phase: "p", Patch: []byte(`{"other":1}`), VersionRead: &one})
		ok(t, "another key", res, err)
		res, err = board("sup").SettleConflict(ctx, raised.Field, []byte(`{"verdict":"both"}`))
		ok(t, "settle", res, err)
		if _, err := board("sup").SettleConflict(ctx, raised.Field, nil); !errors.Is(err, client.ErrWrongState) {
			t.Errorf("settled twice: %v", err)
		}
		got, _, err := a.Phase(ctx, "p", 0, client.ReadOptions{})
		if err != nil || string(got.Data.Data) != `{"verdict":"both","other":1}` || got.Phase.Escalated {
			t.Errorf("in the end: %v, %v", got, err)
		}
	})
}
