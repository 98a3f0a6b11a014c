// Package suite is one run from beginning to end, and the lists of runs: cells, the matrix,
// the planted bugs.
//
// A Plan says what is to be run; it is all that a run depends on but chance. Run takes a
// cluster that a driver has started, makes the board, lets the workload work, plays the faults
// of the plan, mends everything, waits for what was begun, kills all nodes at once and lets
// them come back, and reads everything once more through every node. What happened is in the
// log; check.Whole judges it. Nothing here knows which driver it is: on virtual time and on
// real processes the same function runs, and the same checkers judge.
//
//	plan → driver starts a cluster → Run → history → check.Whole → verdict → report
package suite
