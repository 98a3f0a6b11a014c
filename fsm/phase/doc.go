// Package phase is the second system of a board: phases of a long piece of work, each with a
// lock, a version and the phases it depends on (SPEC §3).
//
// A phase is pending until it is locked or written first, then in progress, then completed;
// reopening it is the only way back. Who works on it holds its lock, which is a lease of
// package board and fences as every lease does; a write without one takes the lock and gives
// it back in its own commit. The data is one JSON object. A write names the version it read:
// if others wrote since, the top-level keys of both are laid together, and only where both
// changed one key is it a conflict.
//
// What a phase was built from are its inputs, versions of its dependencies. When one of those
// is reopened, the phase is stale until it has been built from the newer version.
package phase
