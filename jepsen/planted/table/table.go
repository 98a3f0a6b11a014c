package table

import "slices"

// The drivers that show a bug. A bug for Test has a directed test of its own, and one for
// Harness is in the harness: its self-tests show it.
const (
	Sim     = "sim"
	Netns   = "netns"
	Test    = "test"
	Harness = "harness"
)

// Mutant is one planted bug, as MUTANT and planted.Bug name it.
type Mutant struct {
	Name  string `json:"name"`
	What  string `json:"what"`
	Where string `json:"where"` // file of the line
	// Clients: it is a bug of the client, so it is planted in the process of the clients too.
	Clients   bool     `json:"clients,omitempty"`
	Workloads []string `json:"workloads,omitempty"`
	Nemeses   []string `json:"nemeses,omitempty"`
	Fault     string   `json:"fault,omitempty"`     // FAULT of every node, without which it hardly shows
	Seconds   int      `json:"seconds,omitempty"`   // how long a run must be; 0: as any other
	Fires     []string `json:"fires,omitempty"`     // one of these checkers must
	NotUnder  []string `json:"not_under,omitempty"` // with these nemeses alone it must not be caught
	Driver    string   `json:"driver"`
	Also      string   `json:"also,omitempty"` // another driver on which the same must be seen
	Test      string   `json:"test,omitempty"` // of a directed test: what to give to go test -tags faults
	Open      string   `json:"open,omitempty"` // why it is not planted yet
	Note      string   `json:"note,omitempty"` // what a run has to look like for it to show
}

// Mutants lists all of them, M1 first.
func Mutants() []Mutant { return slices.Concat(writes(), stores(), feed(), later()) }

// ByName finds one.
func ByName(name string) (Mutant, bool) {
	all := Mutants()
	i := slices.IndexFunc(all, func(m Mutant) bool { return m.Name == name })
	if i < 0 {
		return Mutant{}, false
	}
	return all[i], true
}

func list(names ...string) []string { return names }

// writes are M1 to M15.
func writes() []Mutant {
	return []Mutant{
		{Name: "M1", What: "the generation of a guarded write is not checked while the key is held", Where: "fsm/board/fence.go",
			Workloads: list("lease", "work"), Nemeses: list("pause"), Fires: list("L2", "Q2"), Driver: Sim},
		{Name: "M2", What: "default reads without a fence", Where: "node/read.go",
			Workloads: list("stale-reads"), Nemeses: list("partition", "pause"), Fires: list("H1", "R1", "H3"), Driver: Sim},
		{Name: "M3", What: "VerifyLeader as the read fence", Where: "node/fence.go",
			Workloads: list("stale-reads"), Nemeses: list("pause", "slow"), Fires: list("H1"), Driver: Test, Test: "./node -run TestM3A",
			Note: "an answer to an old append must wait at the paused leader while a newer one acknowledges, and be read before the " +
				"leader looks at its lease: played on purpose in 5 of 30 tries, met by chance in none of 11 runs of stale-reads"},
		{Name: "M4", What: "a leader answers reads before its own Lead is applied", Where: "node/fence.go",
			Workloads: list("stale-reads"), Nemeses: list("kill"), Fault: "apply-before:1+:sleep=3ms", Fires: list("H1"), Driver: Sim,
			Note: "all nodes are killed, and the new leader applies its log again"},
		{Name: "M5", What: "a repeated command is not recognised", Where: "fsm/board/kept.go",
			Workloads: list("retry", "append"), Nemeses: list("one-way"), Fires: list("S1", "A2", "S3"), Driver: Sim},
		{Name: "M6", What: "the dedupe window is in no snapshot, and so in no digest", Where: "fsm/state/load.go, commit.go",
			Workloads: list("retry"), Nemeses: list("compaction"), Fires: list("S1", "S2", "G1"), Driver: Sim,
			Note: "a command applied before the snapshot is repeated after it was installed"},
		{Name: "M7", What: "a repeated command is answered ok, and not what it was answered first", Where: "fsm/board/kept.go",
			Workloads: list("retry"), Nemeses: list("one-way"), Fires: list("S2"), Driver: Sim},
		{Name: "M8", What: "applying looks at the machine's wall clock to see what has expired", Where: "fsm/state/state.go",
			Workloads: list("lease"), Nemeses: list("clock"), Fires: list("G1", "L3"), Driver: Netns,
			Note: "in one process the nodes share the wall clock that is read, and only a leader's stamps differ: " +
				"there leases end at once or never (L3, L6), and a replay after a kill differs (G1)"},
		{Name: "M9", What: "the leader stamps its wall clock as board time, and no node keeps time from falling",
			Where: "node/clock.go, fsm/state/state.go", Workloads: list("lease"), Nemeses: list("clock", "partition"),
			Fires: list("L4", "L5"), Driver: Sim, Note: "the clocks of two leaders differ, or one jumps"},
		{Name: "M10", What: "applying goes in the order of a map: expiries of one step, and who fights over a key",
			Where: "fsm/step.go, fsm/board/note.go", Workloads: list("work", "register"), Nemeses: list("kill"),
			Fires: list("G1"), Driver: Sim, Note: "several leases run out at once, or three callers conflict on one key"},
		{Name: "M11", What: "no fsync of log and stable store", Where: "node/storage.go",
			Workloads: list("append"), Nemeses: list("power"), Fires: list("A1", "A6"), NotUnder: list("kill"), Driver: Sim, Also: Netns,
			Note: "the power of all nodes, or of a majority, goes at once; the place of what was lost is taken by " +
				"something else, so G1 speaks as well"},
		{Name: "M12", What: "an append is acknowledged when it is proposed, before it is committed", Where: "node/propose.go",
			Workloads: list("append"), Nemeses: list("partition", "kill"), Fires: list("A1"), Driver: Sim},
		{Name: "M13", What: "a call whose outcome nobody knows is reported as not done", Where: "client/do.go", Clients: true,
			Workloads: list("register", "append"), Nemeses: list("partition"), Fires: list("R3", "A3"), Driver: Sim,
			Note: "in the client and not in the harness: what the client says is what is judged"},
		{Name: "M14", What: "the client repeats a call without its identity", Where: "client/do.go", Clients: true,
			Workloads: list("append", "register"), Nemeses: list("one-way", "kill"), Fires: list("A2", "R1"), Driver: Sim,
			Note: "an answer must be lost and its call repeated: a leader that is killed seldom dies between commit and " +
				"answer, where answers are lost on purpose it is met at once"},
		{Name: "M15", What: "after the fourth conflict the client writes over whatever is there, without end", Where: "client/mutate.go",
			Clients: true, Workloads: list("register"), Nemeses: list("slow"), Fires: list("R4"), Driver: Sim,
			Note: "all callers change one key at the same instant now and then, so that four conflicts in a row happen"},
	}
}

// stores are M20 to M24, and M27 to M37 without the feed and what is open.
func stores() []Mutant {
	return []Mutant{
		{Name: "M20", What: "the heartbeat fast path of the library (hashicorp/raft#695)", Where: "node/transport.go",
			Workloads: list("append"), Nemeses: list("pause"), Fault: "propose-before:1+:sleep=4ms", Fires: list("G1"), Driver: Test,
			Test: "./node -run TestM20", Note: "a leader whose lease is long must hear a heartbeat of its successor and nothing else before it " +
				"takes the next command; with a lease of half a second it looks at that first when it goes on: " +
				"12 of 12 tries on purpose, none of 8 runs of append under pause"},
		{Name: "M21", What: "a node that led goes on timing leases by itself, and has them expired when its timer says so",
			Where: "transport/server.go, fsm/board/note.go", Workloads: list("lease"), Nemeses: list("pause"),
			Fires: list("L3", "L5"), Driver: Sim},
		{Name: "M22", What: "a snapshot is written from the state as it has become, not as it was taken", Where: "fsm/snapshot.go",
			Workloads: list("append"), Nemeses: list("members", "compaction"), Fault: "snapshot-write:1+:sleep=100ms",
			Fires: list("G1"), Driver: Sim},
		{Name: "M23", What: "an installed snapshot leaves the old state in place", Where: "fsm/fsm.go",
			Workloads: list("append", "feed"), Nemeses: list("compaction"), Fires: list("G1"), Driver: Sim},
		{Name: "M24", What: "a vote is written as two records (hashicorp/raft#661)", Where: "node/node.go",
			Fault: "vote-between:2:panic", Fires: list("G2"), Driver: Test, Test: "./node -run M24"},
		{Name: "M27", What: "a new leadership gives no grace", Where: "fsm/cluster.go",
			Workloads: list("lease"), Nemeses: list("kill"), Fires: list("L9"), Driver: Sim,
			Note: "holders that go on sending heartbeats of their own, with leases of about a second: board time stands " +
				"still without a leader, and client.Lease gives a lease up by its own clock before that"},
		{Name: "M31", What: "the generation begins anew when the item was deleted", Where: "fsm/board/fence.go, entry.go",
			Workloads: list("lease"), Nemeses: list("compaction"), Fires: list("L1"), Driver: Sim},
		{Name: "M32", What: "the version of a set is not checked", Where: "fsm/board/entry.go",
			Workloads: list("register"), Nemeses: list("none"), Fires: list("R1", "R2"), Driver: Sim},
		{Name: "M33", What: "with an expired lease goes what its worker had stored", Where: "fsm/board/expire.go",
			Workloads: list("work"), Nemeses: list("pause"), Fires: list("Q3"), Driver: Sim},
		{Name: "M34a", What: "a command that this binary does not know is skipped", Where: "fsm/step.go",
			Fires: list("G1"), Driver: Test, Test: "./jepsen/planted/... -run M34a"},
		{Name: "M34b", What: "digests are not compared", Where: "fsm/fsm.go",
			Fault: "state-alter:40:hit", Fires: list("D1"), Driver: Test, Test: "./jepsen/planted/... -run M34b"},
		{Name: "M35", What: "a call waits for a majority without a bound", Where: "transport/service.go, read.go, node/read.go",
			Workloads: list("stale-reads"), Nemeses: list("partition"), Seconds: 60, Fires: list("H3"), Driver: Sim,
			Note: "nobody has a majority for longer than the bound, and callers have longer deadlines than it"},
		{Name: "M36", What: "a txn that is refused keeps what came before the refused operation", Where: "fsm/step.go",
			Workloads: list("txn"), Nemeses: list("none"), Fires: list("T1"), Driver: Sim},
		{Name: "M37", What: "a node that was wiped comes back under its old id", Where: "node/identity.go",
			Workloads: list("operations"), Nemeses: list("kill"), Fires: list("B4"), Driver: Test,
			Test: "./jepsen/planted/... -run M37"},
	}
}

// feed are M16 to M19.
func feed() []Mutant {
	return []Mutant{
		{Name: "M16a", What: "a feed resumes one rev late", Where: "transport/watch.go",
			Workloads: list("feed"), Nemeses: list("kill"), Fires: list("F3", "F4"), Driver: Sim},
		{Name: "M16b", What: "a feed resumes one rev early, and the client shows it", Where: "transport/watch.go, client/watch.go",
			Clients: true, Workloads: list("feed"), Nemeses: list("kill"), Fires: list("F2", "F4"), Driver: Sim,
			Note: "the client drops what it was told before, so it has the bug too: plant it in both"},
		{Name: "M17", What: "a feed tells of an entry when it is proposed", Where: "node/propose.go, transport/watch.go",
			Workloads: list("feed"), Nemeses: list("partition"), Fires: list("F7"), Driver: Sim},
		{Name: "M18", What: "a feed skips in silence what was compacted, and what a snapshot brought",
			Where: "transport/watch.go, fsm/state/view.go", Workloads: list("feed"), Nemeses: list("compaction"),
			Fires: list("F9", "F3"), Driver: Sim},
		{Name: "M19", What: "between reading the history and subscribing a feed misses what happens", Where: "transport/watch.go",
			Workloads: list("feed"), Nemeses: list("kill"), Fault: "feed-subscribe:1+:sleep=200ms", Fires: list("F3"), Driver: Sim},
	}
}

// later are those that are not planted: the harness's own, and what needs a feature to come.
func later() []Mutant {
	return []Mutant{
		{Name: "M25", What: "the harness ignores info, drops the last operation, has the wrong clock", Where: "jepsen",
			Fires: list("G7"), Driver: Harness},
		{Name: "M26", What: "the fence counts answers by receipt, or takes its number late, or compares times", Where: "node/fence.go",
			Workloads: list("stale-reads"), Nemeses: list("pause"), Fires: list("H1"), Driver: Sim,
			Open: "it needs the fence by send numbers; reads stand behind a barrier so far"},
		{Name: "M28", What: "the author comes from the request", Where: "transport", Workloads: list("author"), Nemeses: list("partition"),
			Fires: list("I1"), Driver: Netns, Open: "it needs credentials; callers state their names so far"},
		{Name: "M29", What: "foreign text is not fenced, or may hold fence marks", Where: "fsm/view/text.go", Workloads: list("author"), Nemeses: list("partition"),
			Fires: list("V1", "V2"), Driver: Sim},
		{Name: "M30", What: "a view is cut without saying so", Where: "fsm/view/view.go", Workloads: list("author"), Nemeses: list("partition"),
			Fires: list("V4"), Driver: Sim},
	}
}
