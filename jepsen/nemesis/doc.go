// Package nemesis is what goes wrong in a run: faults N0 to N16 as plans that know no driver.
//
// A Target is a cluster as somebody sees it who wants to hurt it: processes to kill and to
// pause, links to cut and to slow down, disks, clocks. A driver implements it; what it cannot
// do it says, and then the run is refused instead of being run without the fault.
//
// A Nemesis is one kind of fault. It draws its victims and its length from the dice of the
// run, does the fault, looks for the witness that it really happened, undoes it, and records
// both ends. Lengths are drawn around the timeouts of the cluster, because that is where
// things break. Play composes them: every while a random subset, sometimes none, and in the
// end everything is mended.
//
// Supervise does what systemd does: a node that ended by itself is started again. A fault that
// may make nodes end says so while it lasts (Hand.blame), and such an end is recorded as its
// consequence; an end that nobody is to blame for is noted and condemns the run. Whatever
// starts or ends a process goes through the Hand, so that nobody starts what is to be down.
//
// A fault that leaves no witness makes the run INVALID: silence under a fault that did not
// bite says nothing.
package nemesis
