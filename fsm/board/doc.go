// Package board is system 1 and 4 of raftboard: namespaces with modes, entries with
// versions, leases with generations, loops.
//
// An operation is a function of a state.Txn and a command: it checks in the order of
// SPEC F-20, stages its changes and events on the Txn, and answers a Result. A refusal is
// a Result too, and whoever called discards what was staged. Nothing here knows the
// clock, the disk or the caller's connection: who and when are in the command and the Txn.
//
// A read is a function of a state.Board, one consistent state that never changes, and
// answers records as they are stored.
//
//	check.go    what can be refused without a state: shape, grammar, encoding, size
//	entry.go    set, append, delete          fence.go   the checks against a lease
//	lease.go    claim to complete            queue.go   claim_next
//	loop.go     open, keepalive, close       expire.go  what time ends
//	txn.go      several operations at once   kept.go    remembered results
//	cite.go     citations, invalidation      trace.go   what rests on what
//	receipt.go  who read what                stats.go   numbers and advice
//	manage.go   boards and their tables      text.go    what a Result says in words
//	read.go     gets and lists               feed.go    events, matchers
package board
