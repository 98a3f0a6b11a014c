// Package main is raftboard, the one binary: a node, the command line for people and scripts,
// and the demo.
//
// A command is a thin adapter: flags become one typed operation, the client sends it, the Result
// becomes one answer on stdout. What was refused goes to stderr with at most one hint, and the
// process ends with a status that says which kind of refusal it was (package exitcode). Nothing is
// remembered between two commands and nothing depends on the directory they run in: who calls,
// which board and which loop come from flags or RAFTBOARD_ variables.
//
// The files follow the groups of verbs: data (data.go, read.go, txn.go, watch.go), work (work.go,
// claims.go, loop.go), agents (run.go), boards (boards.go, stats.go), cluster (cluster.go, node.go,
// snapshot.go, serve.go, dev.go, demo.go) and tools (tools.go, completion.go). root.go and flags.go
// hold what all share, conn.go is the only one that knows the client.
package main
