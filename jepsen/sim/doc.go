// Package sim is a driver on virtual time: real servers, the real client, and a network and
// disks of memory, all inside one testing/synctest bubble (transport/clustertest). Minutes of
// a run take seconds.
//
// A Run is a cluster that implements workload.Cluster and does the faults. It records what
// every node applies, in every life of it. What it cannot do is lose power, starve the CPU or
// pause a process: a killed node keeps what it stored, and a paused client is one that is cut
// off. Those are for the driver of real processes.
//
// Time is virtual and schedules are not fixed: a seed fixes what the clients choose, not the
// order of goroutines. So a run is judged by its recorded history alone.
package sim
