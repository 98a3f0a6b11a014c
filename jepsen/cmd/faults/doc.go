// Command faults runs raftboard under faults and judges what happened.
//
// A run is a workload under nemeses on a driver: "sim" has whole servers on virtual time in
// one process, "netns" real processes on real disks in network namespaces of its own. What a
// run recorded is judged by the same checkers whoever made it, and can be judged again from
// its files.
//
//	faults list                            what there is
//	faults run --driver sim --workload work --nemesis kill,pause
//	faults matrix --driver netns           every cell of the grid
//	faults mutants                         planted bugs: each must be caught by its checker
//	faults analyze DIR                     the verdict again, from the stored history
//	faults needs                           what this machine lacks for real processes
//
// Exit status: 0 VALID, 1 FAILED, 2 INVALID, 3 UNKNOWN, 64 for a command line that makes no
// sense, 130 interrupted. Several runs give the worst. INVALID is never a pass: a run whose faults did not
// bite, or that did too little, proves nothing.
package main
