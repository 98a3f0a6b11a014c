// Package sim is a driver on virtual time: real servers, the real client, and a network and
// disks of memory, all inside one testing/synctest bubble (transport/clustertest). Minutes of
// a run take seconds.
//
// A Run is a cluster that implements workload.Cluster and nemesis.Target and records what every
// node applies, in every life of it. What goes wrong is answered as an error: the test that
// provides the bubble is only a shell. A node that ends itself fails nothing; Died tells it,
// and if nobody asked it stands in the history as a note.
//
// What the faults are here:
//
//	kill, stop    the network and the disk are gone at once, or after a drain; nothing of the
//	              process runs on. A write that hung never happens
//	pause         the node is caught in the middle of a write, if one comes soon, and with it
//	              raft's main goroutine. What it sends from then on waits, and what reaches it;
//	              what it had sent arrives and is answered. Afterwards all of that goes on, in a
//	              drawn order. Goroutines that need neither disk nor network run on meanwhile,
//	              and so do timers: a leader that has nothing to write steps down while it is
//	              paused, where a stopped process would do so afterwards
//	power         the disk forgets what was never synced. Everything is, unless the build has
//	              the planted bug M11; a loss of power is then seen and a kill is not
//	links         cut and held are one thing: what was sent waits, both ends keep their
//	              connection. Loss is the time of a retransmission. Times and rates are exact
//	disk          slow, hung, full, failing and short writes, of log, keys and snapshots
//	corruption    of the log, of the snapshots, and of real files of the data directory
//	clock         the seam of a node; raft's own timers keep true time
//	switch        another version string: one process is one build
//	starve        refused: nothing takes virtual time but waiting
//	failpoint     refused: what is planted is planted in all nodes of a process
//
// How far apart the nodes are is a matter of the seed: half a millisecond to 15.
//
// Time is virtual and schedules are not fixed: a seed fixes what clients and faults choose,
// not the order of goroutines. So a run is judged by its recorded history alone.
//
// TestRuns is the way in from outside: the command starts the test binary and asks it for runs
// (suite.Request).
package sim
