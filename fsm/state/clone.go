package state

import boardpb "raftboard/fsm/pb"

// CloneLoop and CloneLease copy a record before it is changed. They are written out
// because they run on every command and proto.Clone costs ten times as much; a test
// fills every field and compares. Lists are shared: nobody changes one in place.

func CloneLoop(l *boardpb.Loop) *boardpb.Loop {
	return &boardpb.Loop{
		Id: l.Id, Principal: l.Principal, Nonce: l.Nonce, Parent: l.Parent, Label: l.Label,
		TtlMs: l.TtlMs, OpenedTMs: l.OpenedTMs, OpenedWallMs: l.OpenedWallMs, LastTMs: l.LastTMs,
		CheckTMs: l.CheckTMs, RenewedTMs: l.RenewedTMs, RenewedFloor: l.RenewedFloor, Floor: l.Floor,
		State: l.State, EndedTMs: l.EndedTMs, EndedWallMs: l.EndedWallMs, EndedWhy: l.EndedWhy,
		Holds: l.Holds, Untold: l.Untold,
	}
}

// CloneLease copies a lease record.
func CloneLease(l *boardpb.Lease) *boardpb.Lease {
	return &boardpb.Lease{
		Key: l.Key, State: l.State, Generation: l.Generation, Owner: l.Owner, Loop: l.Loop,
		AcquiredTMs: l.AcquiredTMs, AcquiredWallMs: l.AcquiredWallMs, HeartbeatTMs: l.HeartbeatTMs,
		ExpiresTMs: l.ExpiresTMs, DurationMs: l.DurationMs, GrantSeq: l.GrantSeq, LetGo: l.LetGo,
		Attempts: l.Attempts, FreeTMs: l.FreeTMs, EndedBy: l.EndedBy, Reason: l.Reason,
		ResultRef: l.ResultRef, Posted: l.Posted, QueuePos: l.QueuePos, Previous: l.Previous,
		PartialRefs: l.PartialRefs, EndedTMs: l.EndedTMs, EndedWallMs: l.EndedWallMs, Rev: l.Rev,
		First: l.First,
	}
}

// cloneCluster copies the cluster record; its lists are shared.
func cloneCluster(c *boardpb.ClusterRecord) *boardpb.ClusterRecord {
	return &boardpb.ClusterRecord{
		TMs: c.TMs, WallMs: c.WallMs, GraceUntilMs: c.GraceUntilMs, GraceMs: c.GraceMs, Level: c.Level,
		LeaderTerm: c.LeaderTerm, LeaderId: c.LeaderId, Leaderships: c.Leaderships, Nodes: c.Nodes,
	}
}

func cloneCounts(c *boardpb.NamespaceCounts) *boardpb.NamespaceCounts {
	return &boardpb.NamespaceCounts{Pattern: c.Pattern, Entries: c.Entries, Held: c.Held, Delayed: c.Delayed,
		Parked: c.Parked, Done: c.Done, Ready: c.Ready}
}

// CloneUsage shares the list of counts: Worked replaces it.
func CloneUsage(u *boardpb.Usage) *boardpb.Usage {
	return &boardpb.Usage{Pattern: u.Pattern, Conflicts: u.Conflicts, Reclaims: u.Reclaims, Expiries: u.Expiries, Heard: u.Heard,
		FenceRejections: u.FenceRejections, Work: u.Work}
}

// CloneEnded and ClonePrevious copy what loops and leases remember.
func CloneEnded(e *boardpb.Ended) *boardpb.Ended {
	return &boardpb.Ended{Key: e.Key, Generation: e.Generation, Cause: e.Cause, TMs: e.TMs, WallMs: e.WallMs, ToldSeq: e.ToldSeq}
}

func ClonePrevious(p *boardpb.Previous) *boardpb.Previous {
	return &boardpb.Previous{Owner: p.Owner, Loop: p.Loop, Generation: p.Generation, EndedBy: p.EndedBy, Reason: p.Reason,
		PartialRefs: p.PartialRefs, EndedTMs: p.EndedTMs, EndedWallMs: p.EndedWallMs}
}
