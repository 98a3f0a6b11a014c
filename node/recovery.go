package node

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"raftboard/fsm"
)

// checkSnapshots makes sure, before raft starts, that the newest readable snapshot and the
// log behind it are a whole state. Raft itself takes an older snapshot in silence and then
// panics over the gap (RAFT P21). It answers the snapshot raft will start from, nil for none,
// and the ids of the newer ones, which cannot be read.
func checkSnapshots(s Stores, verify func(id string) error, nodeID string,
	warn func(string, ...any)) (newest *raft.SnapshotMeta, unreadable map[string]bool, err error) {
	metas, err := s.Snapshots.List()
	if err != nil {
		return nil, nil, storeError(s.Where, fmt.Errorf("list the snapshots: %w", err))
	}
	if len(metas) == 0 {
		return nil, nil, nil
	}
	var bad error
	unreadable = map[string]bool{}
	for _, m := range metas {
		if err := verify(m.ID); errors.Is(err, fsm.ErrNewer) {
			return nil, nil, &DirError{Dir: s.Where, What: fmt.Sprintf("snapshot %s: %v", m.ID, err), Cause: err,
				Hint: "start it with the binary that wrote it, or a newer one; nothing is lost"}
		} else if err != nil {
			warn("a snapshot is unreadable", "snapshot", m.ID, "error", err)
			bad = errors.Join(bad, fmt.Errorf("snapshot %s: %w", m.ID, err))
			unreadable[m.ID] = true
			continue
		}
		if bad == nil {
			return m, nil, nil
		}
		if err := contiguous(s.Log, m.Index+1, metas[0].Index); err != nil {
			bad = errors.Join(bad, fmt.Errorf("snapshot %s is readable, but %w", m.ID, err))
			break
		}
		warn("starting from an older snapshot and the log", "snapshot", m.ID)
		return m, unreadable, nil
	}
	return nil, nil, &DirError{Dir: s.Where, What: "no readable snapshot with a complete log behind it: " + bad.Error(),
		Hint: rejoinHint(nodeID), Cause: bad}
}

// contiguous tells whether the log holds every entry of a range.
func contiguous(log raft.LogStore, from, to uint64) error {
	var entry raft.Log
	for i := from; i <= to; i++ {
		if err := log.GetLog(i, &entry); err != nil {
			return fmt.Errorf("the log lacks entry %d: %w", i, err)
		}
	}
	return nil
}

// followsOn refuses a log that does not go on where the newest snapshot ends, or where no
// snapshot is left, at the first entry: raft would end in a panic over the gap at every start.
func followsOn(s Stores, snap *raft.SnapshotMeta, nodeID string) error {
	last, err := s.Log.LastIndex()
	if err != nil {
		return storeError(s.Where, err)
	}
	end := uint64(0)
	if snap != nil {
		end = snap.Index
	}
	if last <= end {
		return nil
	}
	switch err := s.Log.GetLog(end+1, new(raft.Log)); {
	case errors.Is(err, raft.ErrLogNotFound):
	case err != nil:
		return storeError(s.Where, err)
	default:
		return nil
	}
	return &DirError{Dir: s.Where, Hint: rejoinHint(nodeID),
		What: fmt.Sprintf("entry %d is in no snapshot and not in the log, which ends at %d: a snapshot or a part of the log is missing", end+1, last)}
}

// clearDivergentLog empties the log when that is proven harmless: its entry at the snapshot's
// index has another term, or compaction took that entry and the first one above it has a
// lower term. Then nothing from there on ever committed, and everything before is in the
// snapshot. Without it a follower with such a tail installs the same snapshot for ever
// (RAFT P4, hashicorp/raft#697). In any other case nothing is touched.
func clearDivergentLog(log raft.LogStore, snap *raft.SnapshotMeta) (cleared bool, err error) {
	if snap == nil {
		return false, nil
	}
	first, err := log.FirstIndex()
	if err != nil {
		return false, err
	}
	last, err := log.LastIndex()
	if err != nil {
		return false, err
	}
	at := max(snap.Index, first)
	if last < at || first == 0 {
		return false, nil // nothing at or above the snapshot
	}
	var entry raft.Log
	if err := log.GetLog(at, &entry); err != nil {
		if !errors.Is(err, raft.ErrLogNotFound) {
			return false, err
		}
		// An install left a gap at the snapshot's index: look at the first entry above it.
		if at, err = firstAbove(log, at, last); err != nil {
			return false, err
		}
		if err := log.GetLog(at, &entry); err != nil {
			return false, err
		}
	}
	if at == snap.Index && entry.Term != snap.Term || entry.Term < snap.Term {
		return true, log.DeleteRange(first, last)
	}
	return false, nil
}

// firstAbove finds the first entry above a hole.
func firstAbove(log raft.LogStore, hole, last uint64) (uint64, error) {
	var entry raft.Log
	for i := hole + 1; i <= last; i++ {
		switch err := log.GetLog(i, &entry); {
		case err == nil:
			return i, nil
		case !errors.Is(err, raft.ErrLogNotFound):
			return 0, err
		}
	}
	return 0, fmt.Errorf("the log ends at %d but holds nothing above %d", last, hole)
}
