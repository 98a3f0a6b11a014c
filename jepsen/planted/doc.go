// Package planted is the bugs and failpoints of the fault tests, as the product sees them: a
// line of the product asks Bug("M5") whether it is to be wrong there, calls Point at a place
// where a process may be made to die or to sleep, and takes an error of Error as if the disk
// had answered it.
//
// It exists twice. Without the build tag "faults" every function is a constant that the
// compiler folds, so a release binary holds no trace of it; a test looks. With the tag the
// environment of the process decides, once, at the first question:
//
//	MUTANT=M5               the bugs that this process has, separated by commas
//	FAULT=POINT:WHEN:DO     what happens at points, separated by commas
//	FAULT_FILE=path         the same list in a file that is read again at most every 100 ms:
//	                        a changed text arms anew, with its hits counted from zero
//	FAULT_CLOCK=path        a file, read again as often, that says "wall=3s drift=0.02 strobe=1s"
//
// WHEN is the hit that counts: 3 is the third, 3+ the third and each one after it, %3 every
// third. DO is panic, sleep=200ms, eio, short or hit. A panic ends the process whoever might
// recover. eio, short and hit are for points that are asked with Error: an I/O error, a write
// that stops half way, and, where no disk is meant, a plain yes.
//
// A clock file moves the wall clock by wall, and by strobe in every second fifth of a second;
// drift is the rate of the monotonic clock less one, which never jumps.
//
// A test in one process says Set instead, and undoes it. All nodes in a process share what is
// planted. The package knows no room of the product, and of what is planted only the names:
// the list with words is in planted/table.
package planted
