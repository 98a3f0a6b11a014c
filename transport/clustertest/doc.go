// Package clustertest runs whole raftboard servers in one process on virtual time.
//
// Servers are n real servers (the real transport, node and state machine) inside a
// testing/synctest bubble, and a Cluster is Servers under a test, which fails where they
// answer an error. Only two things are not the real ones: the Network, whose connections are
// made of memory and channels, with a delay per hop and links that can be cut, torn, slowed
// down and held in one direction, and the disk under Raft, which is memory that outlives a
// killed server. The data directory with identity and address book is a real one. So failover,
// forwarding, joining, watching and draining run as they do in production, and hours pass in
// seconds.
//
// Whoever speaks to a server dials it through Cluster.Dial or Cluster.Conn and is an end of
// the network with a name of its own, so its link can be cut as well.
//
// Goroutine order in a bubble is not fixed: a test judges by invariants, never by order.
package clustertest
