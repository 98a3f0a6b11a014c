// Package tracefile writes down what a node process applied and became, for fault tests that
// judge it from outside.
//
// # The model
//
// A file belongs to one node and is appended to in each of its lives: a process that starts
// writes a life line, and everything up to the next one is of that process. What it applies is
// written after it was applied and before anybody is answered, so a file shows at least what
// was acknowledged through its node. Each line is one write(2) and nothing waits in the
// process: a line that was written survives the process's death by any signal. It does not
// survive the loss of power, so a test that cuts power keeps the file on another volume.
//
// A process that was killed while it wrote may leave the beginning of a line. The next life
// begins on a line of its own; readers may forgive such a beginning before a life line and at
// the end of the file, and nowhere else.
//
// # The format
//
// JSON lines, each an object with one field:
//
//	life       a process began: node, its name; pid; version, of the binary
//	applied    a command: index and term of its entry, position within it, t (board time, ms),
//	           command and result (protobuf, deterministic, base64); on the last command of
//	           an entry digest (hex), of the state behind it
//	installed  a snapshot became the state: index, term, t, digest
//	voided     an entry of which nothing ran: index, term, t, digest of the state behind it
//	role       what raft made of the node: role (leader, follower, candidate, shutdown), term;
//	           missed, how many changes before it were not written
//
// Each has at, the time it was written, in nanoseconds since 1970 by the machine's clock. That
// is the clock of the machine and not the node's, which a test may bend.
package tracefile
