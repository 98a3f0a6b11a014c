// Package nodetest runs whole raft nodes in one process on virtual time.
//
// A Cluster is n real nodes (package node, the real state machine, raft's own network
// transport) inside a testing/synctest bubble. Only two things are not the real ones: the
// Network, which joins them by in-memory pipes with a delay per hop and directed cuts, and the
// Disk. Both are made of channels and timers of the bubble, so its clock moves whenever
// everybody waits, and hours pass in seconds. Sockets and mutexes held across a wait would
// stop it.
//
// The Disk keeps log, keys and snapshots in memory and outlives its node. It can be slow,
// hang, be full, fail, and be damaged. Every write counts as synced, unless Lazy says that
// nothing is: then a power loss takes the newest writes, and a kill takes none.
//
// Goroutine order in a bubble is not fixed: a test judges by invariants, never by order.
package nodetest
