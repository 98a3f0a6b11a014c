// Package node is one member of the cluster: hashicorp/raft around the state machine, made
// safe. It takes its transport and its stores as arguments and knows no wire.
//
// # The model
//
// A node is four loops around raft.
//
//	proposer   one goroutine turns waiting commands into log entries: it forms a batch, stamps
//	           it, hands it to raft and goes on while a few batches wait for their majority
//	leadLoop   samples board time, opens leaderships (Lead), proposes ticks, notices changes
//	housekeep  keeps membership, records and feature level in step, on the leader
//	settleLoop compares digests when two nodes were seen to differ
//
// Everything hangs on one number, readyTerm: the term of an applied Lead that names this
// node, while that term is current and the node leads. Propose and the fence ask for it
// before, and the fence again after. Nothing is stamped in a term before its Lead is applied.
//
// A caller gets one of three things: a Result, *NotDone (never proposed) or *Unknown
// (proposed, answer lost). One file, outcome.go, tells the last two apart.
//
// Between raft and its stores and transport stand guards, each against one behaviour of the
// library (the P numbers are those of the project's notes on hashicorp/raft):
//
//	outcome.go     P9, P10   what an error says about the entry
//	queue.go       P10       the bounded queue, deadlines when a batch forms
//	clock.go       P35       board time; stalls are cut, long ones reopen the leadership
//	lead.go        P7, P8, P23
//	fence.go       P2, P6    one barrier per round of reads
//	transport.go   P1, P24, P27, P28, P32; appends to a peer that is back
//	pipeline.go    hashicorp/raft#612: a refused append that blocks the pipeline
//	guards.go      P3, P17, P18, P21, P31, disk full
//	recovery.go    P4c, P21  what is checked before raft looks at its stores
//	restore.go     P4b       an install that repeats itself
//	transfer.go    P5        a transfer of leadership that does not end
//	stall.go       P16       a call of a store that lasts too long
//	space.go       P16       a volume with little space
//	snapsend.go    P22       a snapshot that cannot be sent
//	storage.go     P19, P20  the bolt files and their options
//	boltsize.go    a bolt file that was cut short or damaged: bbolt would end in SIGBUS or a panic
//	bootstrap.go   P26       intent and first entry
//	membership.go  P5, P25
//	status.go      P15       how far back the log reaches, and what a restore takes
//	digest.go      the second line behind all of them: nodes that differ are found and stopped
//	node.go        P15, P34, P37: every setting of the library in raftConfig
//
// # The data directory
//
//	VERSION            "raftboard 1": the format; another one is refused
//	LOCK               flock of the running process
//	identity.json      node id and name, cluster id and name, log store, timing
//	intent.json        the members of a new cluster, accepted once (only on its founders)
//	raft/log.db        the log, bbolt
//	raft/stable.db     current term and vote, bbolt
//	raft/snapshots/    the newest three snapshots, with checksums
//	addresses.json     the address book of the transport
//
// The node's id is a UUID and is also its raft address: a wiped disk gets a new one, so a
// voter that forgot its votes is another voter (P27). Raft state that was there once and is
// gone is refused. A directory of another node, cluster, format or log store is refused with
// the way back, and left as it is.
//
// # When a disk fails
//
// The first unexpected error of a store ends the process through Config.Die, with the
// directory and the way back; after it every call of the stores fails. Recovery is a restart
// and replay. A full volume is such an error: what cannot write must not pretend.
//
// # Watchdogs
//
// Some faults leave a node that answers heartbeats and does nothing else. Each of these ends the
// process through Config.Die, with a *DirError that names the library's issue and the way back,
// and the way back is always to start again:
//
//	an install that repeats itself (P4b)       three within a minute, none of a later entry, of a
//	                                           snapshot that the log reaches: the start clears it
//	a transfer that does not end (P5)          it refuses everything for three election timeouts
//	a store that hangs (P16)                   one call over StoreTimeout; time in which the process
//	                                           did not run does not count
//	a snapshot that cannot be sent (P22)       three attempts over three election timeouts; the
//	                                           leadership is handed over before
//
// They cost nothing while all is well: no goroutine looks at regular times, but each begins with
// the first sign, and a store call carries a timer. A node that stopped sends no more heartbeats,
// whatever still hangs in it. Little space (P16) ends nothing: no writes, not ready, and the
// leadership is offered once, or it would go round where all nodes are short of space.
//
// # Traces
//
// Config.Trace and Config.Roles tell a fault test what a node applied and became; package
// tracefile writes both to a file of a real process (raftboard serve --trace-file).
//
// # Guards without a test of their own here
//
// P11, P12, P13, P14: they are properties of the state machine and tested in fsm. P15: sizes are
// for the operator; the default is asserted with the settings, and what to judge it by with Status. P19: bbolt's file never shrinks; only the options can be asserted, and are. P29: is
// the race detector's. P32: one binary has one transport setting; skew is tested with two
// binaries. P33: that a command is forwarded once at most is the wire's part; the hint is tested here.
// P36: nodetest has no other transport than raft's own. P38: there is no lease read to test.
// go-metrics (P37) has one process-wide sink only, which this package never sets.
package node
