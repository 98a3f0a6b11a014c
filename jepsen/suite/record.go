package suite

import "raftboard/jepsen/report"

// Record is the history of findings: every fault that these tests found in raftboard or in
// what it stands on, the newest first, with the command that would find it again.
func Record() []report.Found {
	return nil
}

// NotTested says what no run here says anything about.
func NotTested() []string {
	return []string{
		"more than five nodes, and nodes on machines whose clocks, disks and networks fail together in other ways than here",
		"links with more than two seconds of delay, and routes that change while a connection is open",
		"disks that acknowledge a sync and lose it (power loss here loses only what was not synced)",
		"memory that flips a bit in a process that runs",
		"views and what their fences promise (V1 to V4), credentials (I1 and I2 with tokens): not built yet",
		"parking of items in work, and views in soak: not built yet",
		"two versions of the state machine side by side: the other build of a rolling restart is the same source",
	}
}
