// Package check says what must be true of a history, whoever made it.
//
// A checker takes logs and gives Findings, each under the name of the rule it breaks. There
// are three classes. A violation: the promise is broken. Invalid: the run proves nothing,
// because what it was made for never happened. Undecided: the search ran out of time. A run
// is VALID only without any of them; nothing is ever turned into a pass by being unsure.
//
// The ground under most checkers is A, the agreed order (Agree): the apply traces of all
// nodes and lives merged into one sequence, which exists only if they are the same where
// they overlap and where every life leaves out only what a snapshot covers (G1, G2). On it
// stand
//
//	Globals    one state at the end, no crash, progress with a majority (G4, G5, G6)
//	Replay     the log run again comes to the same answers and states (R2, G4)
//	Answers    what clients were told is what was applied (G3, R2, R3, R4, S1, S2)
//	Registers  every key is linearizable, value and version together (R1)
//	Appends    lists are whole and in order, wherever they are read (A1 to A6)
//	Transactions  all or nothing, and one order explains every read (T1, T2)
//	Leases     a second, naive account of who held what when (L1 to L5, L7, Q2)
//	Holders    leases in real time, and by what their holders believed (L2, L5 to L9)
//	Work       posted items are done once and nothing is lost (Q1, Q3 to Q6)
//	Outside    what guards itself by generations alone took no older one (Q2, L1)
//	Operations members came and went, and nothing was lost (B1 to B4)
//	Authors    who wrote what, and that claiming otherwise changes nothing (I1, I2)
//	Retry      one identity, one effect, one answer, and none below the floor (S1 to S3, S5, S6)
//	Feed       every stream was told exactly A, from its start to where it got (F1 to F12)
//	Stale      reads show the present, or say what they show (H1, H2, H3)
//	Sometimes  what the run really met (G7)
//	Harness    the harness recorded everything, by the clock of the nodes (G7)
//
// T2 needs no A: it makes the order of each list from the longest read, ties transactions by
// what they saw and missed and by real time, and looks for circles.
//
// What each code demands is said by Rules, in a line each.
//
// Leases does not call the state machine: it says in its own words when a lease ends, and
// compares. Two accounts that were written apart seldom err alike.
package check
