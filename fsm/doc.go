// Package fsm is the replicated state machine: the model on one page.
//
// A Command is one write. Commands that wait together travel as a Batch, one entry of the
// Raft log, stamped with time by the leader. Every node applies every entry through one
// deterministic function,
//
//	step(State, Stamp, Command) → Result, Events
//
// which knows no clock, dice, disk, network or logger: time is in the stamp, random bits
// are in the command, identity is in its Actor. A refusal is a Result, not a Go error. A
// command this binary does not know stops the node: skipping it would let nodes differ.
//
// Three number lines, none ever reused: rev counts the commits of a board, version those
// of a key, generation the grants of a lease.
//
// Everything that changes goes through one state.Txn, which stages and then commits, so
// a refusal leaves nothing behind. After a batch a state.View is published: immutable,
// read without locks, kept in memory while somebody holds it. Events are records of the
// state, so a reader can resume on any node, also after a snapshot was installed.
//
// The digest of the state is kept after every entry. Nodes compare them, because two
// nodes with one log and different states would be worse than a node that stops.
//
// The files: fsm.go fits step to raft, step.go is the order of checks and the language
// of a board, cluster.go the language of the cluster, snapshot.go the snapshot's form,
// feed.go wakes readers. The operations are in fsm/board, what is stored in fsm/state,
// the messages in fsm/pb. The stories in testdata are the specification: read them first.
package fsm
