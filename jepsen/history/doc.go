// Package history is what a run leaves behind, and the only thing a checker sees.
//
// A History has five logs. Operations: what a client asked and was told. Faults: what was
// done to the cluster, each with a witness that it really happened. Applied: what every node
// applied, one record per command, in each of its lives. Feed: what watchers were told, and
// when. Finals: what the board held at the end, as seen through different nodes.
//
// Real time is a number line of its own. All clients run in one process, and the Log counts
// the moments at which calls begin and end, so "a ended before b began" is exact also where
// two clocks readings are equal, as they often are on virtual time. The clock readings are
// kept for people and for bounds.
//
// An operation and the commands it caused find each other by call_id: the Log gives each
// operation an id, the client carries it in every command, and the trace shows the command.
//
// Write and Read turn a History into JSON lines and back without loss, so that a verdict can
// be recomputed from files. The package judges nothing.
package history
