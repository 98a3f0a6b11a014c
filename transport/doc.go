// Package transport is the wire: everything between a caller and the Raft member of one
// server.
//
// The model is a house with one room and several doors. The room is the service (service.go,
// read.go, watch.go): a function of (context, actor, typed request) that answers a Result. A
// door is a face: the session stream, its unary doubles, the operator's calls, later HTTP and
// others. A door turns what arrives into a call of the room and what the room answers into its
// own form, and decides nothing. Who a call is from is decided in one function, resolveActor;
// only the Peer door, which is for the other nodes, lets a command in that brings its actor.
//
// A command goes to whoever leads: here, or over this node's one stream to the leader, one hop
// and never two (forward.go). What it gets is a Result, or "not done", which is safe to repeat
// anywhere and is repeated here while there is time, or "unknown", which only the same identity
// may repeat. A read is a pure function of one View. A watch is a cursor over replicated events,
// so every node can serve it and any node can resume it; it reads at its own pace and is cut off
// with a reason and a place to resume when its reader takes nothing.
//
// Below the doors are the relations between nodes: Raft ids instead of addresses and a book that
// knows where each id is now (addressbook.go), Raft's own connections with a handshake that
// compares cluster and node (streamlayer.go), and how a fresh node founds a cluster or joins one
// (join.go, peerjoin.go). server.go puts it together, drain.go takes it down without losing a
// call.
//
// An id belongs to one process (impostor.go). Another address for a known id is believed only
// when no live process with that id answers at the known one within a second, and a node asks
// around before it opens Raft. A running member repeats where it is, so that a wrong book or
// record heals within seconds of the end of the process that caused it. What remains possible:
// a copy of a data directory is believed while the original is down, paused, or out of reach of
// everybody who is asked. Of two copies started then, the one that is known first keeps the id;
// started in the same moment they may stop each other or, if neither reaches the other or a
// peer, both open Raft. Of two that run, Raft port and record take the known one only. The other
// is refused, says so in its log, and does not end by itself: nothing could tell which is right.
//
// The package promises: without a majority every call is answered within five seconds, and never
// with old state as if it were new (C10); an author is who the credential says (C11); every
// queue, buffer, page and stream has a bound (limits.go); every goroutine ends with its stream,
// its call or the server. It must never know what an operation means: a new one passes through
// untouched.
package transport
