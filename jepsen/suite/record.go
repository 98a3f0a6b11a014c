package suite

import (
	"slices"

	"raftboard/jepsen/report"
)

// Record is the history of findings: every fault that these tests found in raftboard or in
// what it stands on, the newest first, with the command that would find it again.
//
// jepsen/README.md shows the same list; a test compares them.
func Record() []report.Found { return slices.Concat(december26(), november26()) }

func december26() []report.Found {
	return []report.Found{
		{
			When: "2026-12-01", How: "register × kill, sim, a hundred times", Commit: "fd0dbc1",
			What:    "gRPC opened a refused stream again by itself and held its lock meanwhile: a send waited without a bound, and virtual time stood still",
			Fixed:   "the first request is sent before anybody receives, and nothing is kept for another try",
			Command: "go test ./jepsen/cmd/faults -run Recomputed -count 200",
		},
		{
			When: "2026-12-01", How: "retry × one-way,flap,slow,replay, sim", Seed: 9, Commit: "5f36dfa",
			What:    "the floor that came with the close of a loop was dropped, and a late request below it got a first answer",
			Fixed:   "a close raises the floor like any other command; nothing was done twice before",
			Command: "go test ./fsm -run TestScripts/loop_close_raises_the_floor",
		},
		{
			When: "2026-12-01", How: "go test ./... of a loaded machine", Commit: "4ea3347",
			What:    "a node whose hung disk was given up heard of a newer term, and hashicorp/raft ended it by a panic",
			Fixed:   "the goroutine that cannot save the term ends, and the process says what is wrong with the disk",
			Command: "go test ./node -run TestP17ATermThatCannotBeSaved",
		},
		{
			When: "2026-12-01", How: "register × members and append × corrupt, netns", Seed: 1, Commit: "5a5ab2f",
			What:    "a client whose every known node had been replaced was unavailable for ever",
			Fixed:   "a client in use asks for the members, and gives up those that are none",
			Command: "go test ./client -run TestAClientOutlivesEveryNodeOfItsConfig",
		},
		{
			When: "2026-12-01", How: "append × members,compaction with M22, sim", Seed: 1, Commit: "db50fbb",
			What:    "a second Stop of a server held a lock while it waited for the first, and virtual time stood still",
			Fixed:   "it waits for the end of the first without the lock",
			Command: "go test ./transport -run TestASecondStopWaitsForTheFirst",
		},
	}
}

func november26() []report.Found {
	return []report.Found{
		{
			When: "2026-11-30", How: "go test ./... of a loaded machine", Commit: "72ce5ac",
			What:    "a write that every node refuses for lack of space was answered \"unknown\" about once in 50",
			Fixed:   "a try that the end of the call would cut short is not begun",
			Command: "go test ./transport -run TestP16ANodeWithLittleSpace -count 100",
		},
		{
			When: "2026-11-30", How: "trials under netns", Commit: "115758c",
			What:    "a follower far behind called itself ready while its snapshot was still on its way",
			Fixed:   "ready asks the leader for a fence once after a start and after each loss of the leader",
			Command: "go test ./transport -run TestT83AFollower",
		},
		{
			When: "2026-11-30", How: "trials of storage", Commit: "115758c",
			What:    "a log without the snapshot it continues made hashicorp/raft panic at the start",
			Fixed:   "the node looks before it starts raft, and refuses the directory with the way back",
			Command: "go test ./node -run TestT82ALogThatLacks",
		},
		{
			When: "2026-11-30", How: "register × corrupt, sim", Seed: 0, Commit: "115758c",
			What:    "two snapshots with exchanged contents were accepted, and 50 entries went missing",
			Fixed:   "the content of a snapshot names its index and term, and is compared with what raft asks for",
			Command: "go test ./node -run TestT82ANodeWithABroken",
		},
		{
			When: "2026-11-30", How: "append × corrupt, netns", Seed: 1, Commit: "ef89a7e",
			What:    "bbolt read behind the end of a log file that was cut short: SIGBUS, and no word on what to do",
			Fixed:   "the file is measured against its own meta page and its pages are walked before it is opened",
			Command: "go test ./node -run TestARaftFileThatWasCutShort",
		},
		{
			When: "2026-11-30", How: "register × corrupt, sim and netns", Seed: 1, Commit: "e03ccf3",
			What:    "a node with a damaged log entry neither ran nor exited",
			Fixed:   "a store that fails while the node is opened is an error of the start",
			Command: "go test ./transport -run TestANodeWithADamagedLog",
		},
		{
			When: "2026-11-30", How: "append × corrupt, sim", Seed: 1, Commit: "161e882",
			What:    "a flipped bit in a stored command was applied as another command",
			Fixed:   "every log entry carries a checksum, and none is read without it",
			Command: "go test ./node -run TestADamagedLogEntryIsNamed",
		},
		{
			When: "2026-11-30", How: "retry × kill, sim", Seed: 0, Commit: "e59b239",
			What:    "the repeat of a loop.close was answered with another key, and no loop",
			Fixed:   "what is kept of an answer tells keys and loops apart",
			Command: "go test ./fsm -run Script/loop_close_repeated",
		},
	}
}

// NotTested says what no run here says anything about.
func NotTested() []string {
	return []string{
		"more than five nodes, and nodes on machines whose clocks, disks and networks fail together in other ways than here",
		"links with more than two seconds of delay, and routes that change while a connection is open",
		"disks that acknowledge a sync and lose it (power loss here loses only what was not synced)",
		"memory that flips a bit in a process that runs",
		"citations, reads at an earlier rev, phases and their conflicts, forks, exports, and who read what: no workload uses them;" +
			" golden scripts and cluster tests across a leader change do",
		"views in soak: no client of it reads one; author does",
		"credentials (I1 and I2 with tokens): not built yet",
		"two versions of the state machine side by side: the other build of a rolling restart is the same source",
	}
}
