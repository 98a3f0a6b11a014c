package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
)

func TestP9P10EveryErrorOfTheLibraryIsDefiniteOrUnknown(t *testing.T) {
	cases := map[error]boardpb.Proposed{
		raft.ErrNotLeader:                              boardpb.Proposed_PROPOSED_NO,
		raft.ErrEnqueueTimeout:                         boardpb.Proposed_PROPOSED_NO,
		raft.ErrLeadershipTransferInProgress:           boardpb.Proposed_PROPOSED_NO, // P5
		fmt.Errorf("wrapped: %w", raft.ErrNotLeader):   boardpb.Proposed_PROPOSED_NO,
		raft.ErrLeadershipLost:                         boardpb.Proposed_PROPOSED_UNKNOWN,
		raft.ErrRaftShutdown:                           boardpb.Proposed_PROPOSED_UNKNOWN,
		raft.ErrAbortedByRestore:                       boardpb.Proposed_PROPOSED_UNKNOWN,
		errors.New("write raft/log.db: no space left"): boardpb.Proposed_PROPOSED_UNKNOWN,
	}
	for err, want := range cases {
		out, ok := classify(err).(interface {
			error
			Result() *boardpb.Result
		})
		if !ok {
			t.Fatalf("%v has no outcome", err)
		}
		if r := out.Result(); r.Proposed != want || r.Code != boardpb.Code_CODE_UNAVAILABLE {
			t.Errorf("%v: %v, expected %v", err, r.Proposed, want)
		}
		if !errors.Is(out, errors.Unwrap(out)) {
			t.Errorf("%v lost its cause", err)
		}
	}
}

func TestABatchTakesUpToItsSizeInOrderAndALargeCommandAlone(t *testing.T) {
	q := newQueue()
	sizes := []int{200 << 10, 200 << 10, 200 << 10, 900 << 10, 10}
	for _, s := range sizes {
		if err := q.push(newProposal(context.Background(), make([]byte, s)), false); err != nil {
			t.Fatal(err)
		}
	}
	var got []int
	for range 4 {
		batch, _ := q.take(time.Now())
		got = append(got, len(batch))
	}
	if fmt.Sprint(got) != "[2 1 1 1]" {
		t.Errorf("batches of %v commands, expected [2 1 1 1]", got)
	}
}

func TestACommandThatWasGivenUpOrIsLateIsNeverProposed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		given, good := newProposal(context.Background(), []byte("a")), newProposal(context.Background(), []byte("c"))
		late := newProposal(ctx, []byte("b"))
		for _, p := range []*proposal{given, late, good} {
			if err := q.push(p, false); err != nil {
				t.Fatal(err)
			}
		}
		if !q.withdraw(given) {
			t.Error("a waiting command could not be taken back")
		}
		time.Sleep(2 * time.Second)
		batch, tooLate := q.take(time.Now())
		if len(batch) != 1 || batch[0] != good || len(tooLate) != 1 || tooLate[0] != late {
			t.Errorf("took %d, late %d", len(batch), len(tooLate))
		}
		if q.withdraw(good) {
			t.Error("a proposed command was taken back")
		}
		if q.bytes != 0 || q.live != 0 {
			t.Errorf("%d commands of %d bytes are still counted", q.live, q.bytes)
		}
	})
}

func TestTheQueueIsBoundedInNumberAndBytes(t *testing.T) {
	for name, size := range map[string]int{"number": 1, "bytes": 1 << 20} {
		q, n := newQueue(), 0
		var err error
		for ; err == nil && n <= maxQueued; n++ {
			err = q.push(newProposal(context.Background(), make([]byte, size)), false)
		}
		var not *NotDone
		if !errors.As(err, &not) || not.RetryAfter == 0 {
			t.Errorf("%s: after %d commands it answers %v, expected not done with a time to wait", name, n, err)
		}
	}
}

func TestTheLeadersRandomBitsOverruleTheCallersAndTheCommandIsUntouched(t *testing.T) {
	cmd := &boardpb.Command{Board: "b", Entropy: 7, Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{Nonce: "n"}}}
	before := proto.CloneOf(cmd)
	seen := map[uint64]bool{}
	for range 3 {
		data, err := encodeCommand(cmd)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := encodeBatch(&boardpb.Stamp{TMs: 5, WallMs: 6, Term: 7}, data, data)
		if err != nil {
			t.Fatal(err)
		}
		var batch boardpb.Batch
		if err := proto.Unmarshal(raw, &batch); err != nil {
			t.Fatal(err)
		}
		if batch.Format != fsm.Format || batch.Stamp.Term != 7 || len(batch.Commands) != 2 {
			t.Fatalf("the batch reads %v", &batch)
		}
		got := batch.Commands[1]
		if got.Entropy == 7 || seen[got.Entropy] {
			t.Errorf("entropy %d is not fresh", got.Entropy)
		}
		seen[got.Entropy] = true
		if got.Entropy = 7; !proto.Equal(got, before) {
			t.Errorf("the command reads %v", got)
		}
	}
	if !proto.Equal(cmd, before) {
		t.Errorf("the caller's command was changed: %v", cmd)
	}
}
