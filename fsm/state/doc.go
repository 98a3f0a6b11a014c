// Package state holds what is replicated, and the two ways to touch it.
//
// A State is owned by the goroutine that applies the log. Its records (entries, leases,
// loops, remembered results) live in Tables: a map for applying and an ordered index for
// reading. A record is a list of values stamped with the log index at which each was put,
// so that whoever reads at an index sees what held then. The only mutator is the Txn: it
// stages, and its Commit writes, keeps the digest, and moves the derived orders
// (deadlines, queues, holdings) along with the records they come from.
//
// A View is the state after one entry, for readers: it never changes, takes no lock, and
// keeps alive what it shows. What is derived is never stored: a snapshot holds records
// only, and a Loader derives the rest again, and proves the digest.
//
//	record.go  versioned records and tables     txn.go     staging
//	state.go   time, deadlines, digests         commit.go  applying, derived orders
//	board.go   one board                        room.go    the board's cap, compaction
//	view.go    reading                          load.go    snapshots
//	key.go     keys, patterns, names            schema.go  the namespace table
//	past.go    a board as it was at a rev       marks.go   citations, what was invalidated
//	ref.go     refs to records                  readers.go who read what
//	digest.go  our own encoding                 limits.go  numbers that change a result
//	recent.go  what keys hold now, by rev
package state
