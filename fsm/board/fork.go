package board

import (
	"fmt"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// BoardFork makes a board of what another held at a rev (SPEC F-34). The fork is one commit
// of the new board, the one above that rev: in it the leases that were held are free.
func BoardFork(s *state.State, c *boardpb.Command, o *boardpb.BoardFork) *boardpb.Result {
	switch n := len(s.BoardNames()); {
	case !s.BoardExists(o.From):
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Field: "board " + o.From}
	case s.BoardExists(o.Name):
		return &boardpb.Result{Code: boardpb.Code_CODE_EXISTS, Field: "board " + o.Name}
	case n >= state.MaxBoards:
		return &boardpb.Result{Code: boardpb.Code_CODE_LIMIT_BOARDS, Got: uint64(n), Limit: state.MaxBoards}
	}
	rev, head := o.AtRev, s.BeginTxn(o.From, c).Head()
	if rev > head {
		return &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Field: "at_rev", Got: rev, Limit: head,
			Message: fmt.Sprintf("at_rev: %d is above the head of board %s, %d", rev, o.From, head),
			Hint:    "name a rev up to the head, or leave at_rev out to fork what is there now"}
	}
	if rev == 0 {
		rev = head
	}
	if lack := s.Fork(o.From, o.Name, incarnationOf(c.Entropy), rev); lack > 0 {
		return compactedAt(rev, lack)
	}
	x := s.BeginTxn(o.Name, c)
	for _, key := range x.Held() {
		endLease(x, x.Lease(key), free, boardpb.EndedBy_ENDED_BY_FORKED, "")
	}
	x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_BOARD_FORK, Surface: boardpb.Surface_SURFACE_BOARD,
		Reason: fmt.Sprintf("%s at rev %d", o.From, rev)})
	incarnation := x.Incarnation()
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Incarnation: incarnation, Rev: x.Commit()}
}
