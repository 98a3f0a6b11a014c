// Package jepsen is the room of the fault tests: it asks whether the promises of raftboard
// hold while nodes die, and it has no code itself. Its parts, in the order of a run:
//
//	workload   what clients do: W1 to W11
//	nemesis    what goes wrong: N0 to N16, as plans over what a driver can do
//	suite      one run from beginning to end; the grid of runs; what it means to be caught
//	sim        a driver: whole servers in one process on virtual time
//	netns      a driver: real processes in network namespaces, on disks that lose power
//	history    what was recorded: operations, faults, apply traces, feeds, final reads
//	check      what must be true of a history, whoever made it
//	report     a history and its verdict as a page
//	planted    bugs and failpoints behind a build tag, and their table
//	cmd/faults the command
//
// One direction: cmd/faults → sim, netns → suite → workload, nemesis, report, check → history.
// A workload reaches the cluster only through workload.Env and a nemesis only through
// nemesis.Target, and a checker sees only a history, so none of them knows which driver made
// the run, and a history that was written to a file is judged again offline with the
// same verdict. A driver gives clients to workloads, does faults to nodes, and records both
// ends: what clients were told, and what every node applied.
//
// The evidence is double. Clients report what they were answered; nodes report every command
// they applied with its result and the digest of the state behind it. Where the two must
// agree, a checker says so by name (G1, R2, Q1 …, the names of the test plan).
//
// A checker that has never failed is not a checker: each has hand-written bad histories, and
// real runs are corrupted on purpose and must then be condemned by the checker that claims
// to notice. A run in which nothing happened proves nothing: it is INVALID and not passed.
package jepsen
