// Package workload is what clients do in a run. It reaches the cluster through the real
// client and through one interface, Cluster, which a driver implements, so a workload is the
// same program in virtual time and against real processes.
//
// A workload invents load and records it; it judges nothing and asserts nothing. What it
// records is what a caller may conclude: ok, fail only where it is proved that nothing was
// done, and info for all else. Values are unique, so that whoever reads one tells whose write
// it was. Its crashes and pauses of its own clients are faults, and carry a witness.
//
// Every goroutine of a workload ends when its Run returns, and Run when its context does.
package workload
