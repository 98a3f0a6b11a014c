package state

import (
	"fmt"
	"strconv"
	"strings"

	boardpb "raftboard/fsm/pb"
)

// MaxPhaseConflicts bounds the conflicts of a board that a supervisor was asked about, decided
// ones included: the oldest decided one makes room for a new one.
const MaxPhaseConflicts = 256

// PhaseConflict returns a conflict by its id, or nil.
func (x *Txn) PhaseConflict(id string) *boardpb.PhaseConflict {
	c, _ := lookup(&x.disputes, &x.b.disputes, conflictKey(id))
	return c
}

// OpenConflicts calls each for the open conflicts of a phase, as they were before this Txn, the
// oldest first.
func (x *Txn) OpenConflicts(phase string, each func(c *boardpb.PhaseConflict)) {
	x.b.disputes.index.Scan(func(_ string, r *Record[*boardpb.PhaseConflict]) bool {
		if c := r.newest(); c.Phase == phase && c.Resolution == "" {
			each(c)
		}
		return true
	})
}

// PutPhaseConflict keeps a new conflict, or a decided one. It tells whether there is room: not if
// as many as there may be are open.
func (x *Txn) PutPhaseConflict(c *boardpb.PhaseConflict) bool {
	if x.PhaseConflict(c.Id) == nil {
		if x.b.disputes.len() >= MaxPhaseConflicts && !x.dropDecided() {
			return false
		}
		x.head.liveBytes += ConflictBytes(c)
	}
	x.disputes.put(conflictKey(c.Id), c, false)
	return true
}

// dropDecided gives up the conflict that was decided first of all that are kept.
func (x *Txn) dropDecided() bool {
	var oldest *boardpb.PhaseConflict
	x.b.disputes.index.Scan(func(_ string, r *Record[*boardpb.PhaseConflict]) bool {
		if c := r.newest(); c.Resolution != "" && (oldest == nil || c.ResolvedRev < oldest.ResolvedRev) {
			oldest = c
		}
		return true
	})
	if oldest == nil {
		return false
	}
	x.head.liveBytes -= ConflictBytes(oldest)
	x.disputes.put(conflictKey(oldest.Id), nil, true)
	return true
}

// ConflictBytes is what a conflict counts for against the board's cap.
func ConflictBytes(c *boardpb.PhaseConflict) uint64 {
	return uint64(phaseOverhead + len(c.Local) + len(c.Current))
}

// ConflictID names the conflict that a commit raises; one commit raises one at most.
func ConflictID(rev uint64) string { return fmt.Sprintf("c-%d", rev) }

// conflictKey is where a conflict is kept: in the order of the revs. An id that is none has a
// place where there is nothing.
func conflictKey(id string) string {
	rev, err := strconv.ParseUint(strings.TrimPrefix(id, "c-"), 10, 64)
	if err != nil || ConflictID(rev) != id {
		return ""
	}
	return revKey(rev, "")
}

// PhaseConflict returns a conflict by its id, or nil; PhaseConflicts walks them, the oldest first.
func (b *Board) PhaseConflict(id string) *boardpb.PhaseConflict {
	c, _ := b.disputes.get(conflictKey(id), b.at)
	return c
}

func (b *Board) PhaseConflicts(each func(c *boardpb.PhaseConflict) bool) {
	b.disputes.ascend("", b.at, func(_ string, c *boardpb.PhaseConflict) bool { return each(c) })
}

func (e *encoder) phaseConflict(board string, v *boardpb.PhaseConflict) Sum {
	e.start('Y', board)
	e.str(v.Id)
	e.str(v.Phase)
	e.u64(v.BaseVersion)
	e.u64(v.CurrentVersion)
	e.strs(v.Overlap)
	e.bytes(v.Local)
	e.bytes(v.Current)
	e.str(v.RaisedBy)
	e.str(v.ActingFor)
	e.str(v.Loop)
	e.i64(v.TMs)
	e.i64(v.WallMs)
	e.u64(v.Rev)
	e.str(v.Resolution)
	e.str(v.ResolvedBy)
	e.u64(v.ResolvedVersion)
	e.i64(v.ResolvedTMs)
	e.i64(v.ResolvedWallMs)
	e.u64(v.ResolvedRev)
	return e.sum()
}
