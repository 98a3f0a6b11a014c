// Package raftboard holds no code: it is the root of the house, and its tests are the
// rules of the house (imports, lengths, package comments, what the state machine may not
// know). README.md says what raftboard is, CONTRIBUTING.md how it is built.
package raftboard
