package fsm

import (
	"fmt"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/phase"
	"raftboard/fsm/state"
	"raftboard/jepsen/planted"
)

// machine is the deterministic function: (state, stamp, command) → result. It knows no
// clock, no dice, no disk, no logger. What a command may answer depends on the state and
// on the command alone, so every node comes to the same state at the same index.
type machine struct {
	state *state.State
}

func newMachine(s *state.State) *machine { return &machine{state: s} }

// step applies one command. An error is not a refusal: it says that this binary does not
// understand the entry, and must stop instead of skipping it.
func (m *machine) step(stamp *boardpb.Stamp, c *boardpb.Command) (*boardpb.Result, error) {
	if c.Op == nil {
		if planted.Bug("M34a") { // the bug: what is not known is skipped
			return ok(), nil
		}
		return nil, fmt.Errorf("a command this binary (feature level %d) does not know: upgrade it", MaxLevel)
	}
	m.state.SetTime(stamp.TMs, stamp.WallMs)
	var r *boardpb.Result
	if lead := c.GetLead(); lead != nil {
		r = m.lead(stamp.Term, c, lead) // nothing expires before the new leadership's grace is known
	} else {
		m.expire(c)
		if c.Board == state.ClusterBoard {
			r = m.onCluster(c)
		} else {
			r = m.onBoard(c)
		}
	}
	r.TMs, r.WallMs = m.state.T(), m.state.Wall()
	return board.Explain(r), nil
}

// expire ends what is due: what the command names, then a bounded number of others in
// the order of time. The expiries of one board are one commit, before the command's own.
func (m *machine) expire(c *boardpb.Command) {
	s := m.state
	due := s.Due(state.ExpiriesPerStep)
	if planted.Bug("M10") { // the bug: the order of a map
		due = planted.Jumbled(due)
	}
	if c.Board != state.ClusterBoard && s.BoardExists(c.Board) {
		x := s.BeginTxn(c.Board, nil)
		board.ExpireNamed(x, c)
		if next := c.GetClaimNext(); next != nil {
			board.ExpireCandidates(x, next.Pattern, s.DueLeases(c.Board, state.ClaimScan))
		}
		due = expireOn(x, c.Board, due)
	}
	for len(due) > 0 {
		name := due[0].Board
		due = expireOn(s.BeginTxn(name, nil), name, due)
	}
}

// expireOn ends what is due on one board, commits, and returns the rest.
func expireOn(x *state.Txn, name string, due []state.Deadline) (rest []state.Deadline) {
	for _, d := range due {
		if d.Board == name {
			board.Expire(x, d.Kind, d.ID)
		} else {
			rest = append(rest, d)
		}
	}
	x.Commit()
	return rest
}

// onBoard runs a command of a board through the checks of SPEC F-20.
func (m *machine) onBoard(c *boardpb.Command) *boardpb.Result {
	s := m.state
	if r := board.MayAct(c); r != nil {
		return r
	}
	if c.Seq > 0 && c.Loop == "" {
		return board.Check(c) // it refuses: without a loop there is no window to look into
	}
	if !s.BoardExists(c.Board) {
		if r := board.Check(c); r != nil {
			return r
		}
		board.FirstUse(s, c)
	}
	if !s.BoardExists(c.Board) {
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Field: "board " + c.Board}
	}
	x := s.BeginTxn(c.Board, c)
	if c.Incarnation != "" && c.Incarnation != x.Incarnation() {
		return &boardpb.Result{Code: boardpb.Code_CODE_RESET, Incarnation: x.Incarnation(), Rev: x.Head()}
	}
	hash := m.bodyHash(c)
	if r := board.Identity(x, hash); r != nil {
		if r.Replayed {
			board.Touch(x, r)
		} else {
			r.Rev = x.Head()
		}
		x.Commit()
		return r
	}
	r := m.try(x, c)
	r.Rev = x.PendingRev()
	if board.Keeps(c, r) {
		board.Remember(x, r, hash)
	}
	board.Touch(x, r)
	x.Commit()
	return r
}

// bodyHash is needed only where an identity will be remembered.
func (m *machine) bodyHash(c *boardpb.Command) (hash [16]byte) {
	if c.Seq > 0 || c.IdempotencyKey != "" {
		return m.state.BodyHash(c)
	}
	return hash
}

// try runs the operation. A refusal, and a panic in an operation, leave nothing of it
// behind; a refusal that the state decided is counted and noted.
func (m *machine) try(x *state.Txn, c *boardpb.Command) (r *boardpb.Result) {
	defer func() {
		if p := recover(); p != nil {
			x.Discard()
			r = &boardpb.Result{Code: boardpb.Code_CODE_INTERNAL, Message: fmt.Sprintf("the state machine failed on this command: %v", p),
				Hint: "nothing was changed; report it with the log of a node"}
		}
	}()
	if r := board.Check(c); r != nil {
		return r
	}
	r = board.Permit(c)
	if r == nil {
		r = board.Open(x)
	}
	if r == nil {
		r = dispatch(x, c)
	}
	if !board.Took(c, r) {
		if !planted.Bug("M36") || r.GetFailedOp() == 0 { // the bug: what came before the refused operation stays
			x.Discard()
		}
		board.Refused(x, r)
	}
	return r
}

// dispatch lists the language of a board: one line per operation.
func dispatch(x *state.Txn, c *boardpb.Command) *boardpb.Result {
	switch o := c.Op.(type) {
	case *boardpb.Command_LoopOpen:
		return board.LoopOpen(x, o.LoopOpen)
	case *boardpb.Command_LoopKeepalive:
		return board.LoopKeepalive(x, o.LoopKeepalive)
	case *boardpb.Command_LoopClose:
		return board.LoopClose(x, o.LoopClose)
	case *boardpb.Command_Set:
		return board.Set(x, o.Set)
	case *boardpb.Command_Append:
		return board.Append(x, o.Append)
	case *boardpb.Command_Delete:
		return board.Delete(x, o.Delete)
	case *boardpb.Command_Txn:
		return board.Txn(x, o.Txn)
	case *boardpb.Command_ReportConflict:
		return board.ReportConflict(x, o.ReportConflict)
	case *boardpb.Command_Invalidate:
		return board.Invalidate(x, o.Invalidate)
	case *boardpb.Command_Receipts:
		return board.Receipts(x, o.Receipts)
	case *boardpb.Command_Claim:
		return board.Claim(x, o.Claim)
	case *boardpb.Command_ClaimNext:
		return board.ClaimNext(x, o.ClaimNext)
	case *boardpb.Command_Heartbeat:
		return board.Heartbeat(x, o.Heartbeat)
	case *boardpb.Command_Release:
		return board.Release(x, o.Release)
	case *boardpb.Command_Complete:
		return board.Complete(x, o.Complete)
	case *boardpb.Command_Fail:
		return board.Fail(x, o.Fail)
	case *boardpb.Command_Reopen:
		return board.Reopen(x, o.Reopen)
	case *boardpb.Command_Unpark:
		return board.Unpark(x, o.Unpark)
	case *boardpb.Command_ForceRelease:
		return board.ForceRelease(x, o.ForceRelease)
	}
	if r := phase.Apply(x, c); r != nil {
		return r
	}
	panic(fmt.Sprintf("fsm: no case for %T", c.Op))
}

// Check refuses what needs no state to be refused, by the function that applying uses
// too; and a command with fields this binary does not know, which an older node would
// apply differently. It is nil for what may be proposed.
func Check(c *boardpb.Command) *boardpb.Result {
	if at := board.Unknown(c); at != "" {
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_ACTIVE, Field: at,
			Message: fmt.Sprintf("%s is unknown to this node (feature level %d)", at, MaxLevel),
			Hint:    "upgrade the nodes, or use an older client"}
	}
	if r := board.Check(c); r != nil {
		return board.Explain(r)
	}
	return nil
}

// RequiredLevel is the feature level that a command needs. Level 1 is all there is.
func RequiredLevel(*boardpb.Command) uint32 { return 1 }
