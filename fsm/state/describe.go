package state

import boardpb "raftboard/fsm/pb"

// Head returns the numbers of a board as a message of the caller's own; the settings in
// it are shared and must not be changed.
func (b *Board) Head() *boardpb.BoardHead {
	h := &b.head
	return &boardpb.BoardHead{
		Name: b.name, Incarnation: h.incarnation, Rev: h.rev,
		SettingsVersion: h.settingsVersion, Settings: b.settings,
		LiveBytes: h.liveBytes, VersionFloor: h.versionFloor, GenerationFloor: h.generationFloor,
		NextQueuePos: h.nextQueuePos, Counters: h.counters.message(), CompactedRev: h.compactedRev,
		CreatedWallMs: h.createdWall, OldestChange: b.changes.first, NextChange: b.changes.next,
		OldestNote: b.notes.first, NextNote: b.notes.next,
		TrimmedChangeRev: h.trimmedChange, TrimmedNoteRev: h.trimmedNote, NoteSecond: h.noteSecond, Keys: h.keys,
	}
}

func (c *Counters) message() *boardpb.Counters {
	return &boardpb.Counters{
		Sets: c.Sets, Appends: c.Appends, Deletes: c.Deletes, Conflicts: c.Conflicts,
		PersistentConflicts: c.PersistentConflicts, Claims: c.Claims, Reclaims: c.Reclaims, Expiries: c.Expiries,
		FenceRejections: c.FenceRejections, Refusals: c.Refusals, NotesSuppressed: c.NotesSuppressed,
		Completes: c.Completes, LateRenewals: c.LateRenewals,
	}
}
