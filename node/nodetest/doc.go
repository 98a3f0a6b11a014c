// Package nodetest runs whole raft nodes in one process on virtual time.
//
// A Cluster is n real nodes (package node, the real state machine, raft's own network
// transport) inside a testing/synctest bubble. Only two things are not the real ones: the
// Network, which joins them by in-memory pipes with a delay per hop and directed cuts, and the
// Disk, an in-memory store that can stall, fail and outlive its node. Both are made of
// channels and timers of the bubble, so its clock moves whenever everybody waits, and hours
// pass in seconds. Sockets and mutexes held across a wait would stop it.
//
// Goroutine order in a bubble is not fixed: a test judges by invariants, never by order.
package nodetest
