package board

import (
	"fmt"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// AsOf is the board as it was right after the commit rev, or as it is if rev is 0. Get,
// History, List and Dump read it like any other; Reached must be asked afterwards. What a
// caller may read is decided by today's rules, and namespaces are today's. It answers
// bad_request for a rev above the head.
func AsOf(b *state.Board, rev uint64) (*state.Board, *boardpb.Result) {
	switch {
	case rev == 0:
		return b, nil
	case rev > b.Rev():
		return nil, &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Field: "at_rev", Got: rev, Limit: b.Rev(), Rev: b.Rev(),
			Message: fmt.Sprintf("at_rev: %d is above the head, %d", rev, b.Rev()),
			Hint:    "ask for a rev up to the head, or leave at_rev out to read what is there now"}
	}
	return b.At(rev), nil
}

// Reached is nil if everything that was read from the board was retained. If not, what was
// read must be thrown away: the answer is compacted, with the oldest rev that works.
func Reached(b *state.Board) *boardpb.Result {
	lack := b.Lack()
	if lack == 0 {
		return nil
	}
	return Explain(compactedAt(b.Rev(), lack))
}

func compactedAt(rev, lack uint64) *boardpb.Result {
	return &boardpb.Result{Code: boardpb.Code_CODE_COMPACTED, Field: "at_rev", OldestRev: lack, Got: rev}
}

func explainCompacted(r *boardpb.Result) (message, hint string) {
	return fmt.Sprintf("what was there at rev %d is no longer kept; the oldest rev at which all of this is known is %d", r.Got, r.OldestRev),
		fmt.Sprintf("read at rev %d or later; the board setting history_versions says how many versions are kept", r.OldestRev)
}
