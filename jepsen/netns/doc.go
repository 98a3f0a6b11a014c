// Package netns is the driver of real processes: `raftboard serve`, each in a network
// namespace of its own, with real disks, real sockets and real signals.
//
// A Cluster is one hub namespace with a bridge, and one namespace per node on that bridge.
// No address of the machine is touched: 10.77.0.0/16 exists inside these namespaces only, so
// runs that go on at the same time do not meet. The clients of the harness dial from the hub
// namespace. Where a packet is dropped, nftables does it, in the namespace of its target, and
// counts it:
//
//	10.77.0.1 …    the nodes, in the order of their numbers
//	10.77.0.254    all clients of the harness
//	10.77.0.253    the eye of the harness, which no fault touches: it asks for the status
//	10.77.1.1 …    the faces of the nodes in the hub, if connections between nodes are relayed
//
// What nftables cannot do to a TCP connection (hold it, delay it, lose its answers only) is
// done to its bytes: a joint carries what one end sends to the other through a bounded queue
// past gates, and a gate is one direction of a link. Connections of clients always have a
// joint, those between nodes with Options.Relay.
//
// A process dies with the harness, by the kernel's doing. A life of a process ends with its
// trace read to the end. With Options.PowerDisks a data directory is an ext4 file system in a
// file. Its power can be cut: then only what was synced is left, and what the kernel wrote out
// of itself, which it is made to do as a whole and ever more rarely (settle).
//
// All that a run makes has a name that begins with "rbn-" and names the process that made it.
// Close removes it, and Sweep removes what the dead have left.
//
// Namespaces belong to threads, and Go moves goroutines between threads. So whatever must
// happen in a namespace happens on a locked thread that is in it: a thread that lives as long
// as the namespace forks the processes, because the kernel ends them with the thread that
// forked them; short visits dial, listen and run tools.
package netns
