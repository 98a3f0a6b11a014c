// Package client is the Go client of raftboard.
//
// Think of a telephone exchange. A Client holds one line (a multiplexed session) to the
// node that leads, and knows the other numbers: those of its Config, and those of the
// members, for which it asks again while it is in use. A call goes out on that line under an
// identity: the next number of a Loop, or a key made for it. What comes back is one of
// three things: a Result, and the call is over; "not done", and it goes to another node;
// or nothing, and then it goes out again under the same identity, so that it takes
// effect once and the first answer is the answer, whichever node gives it. The caller
// sees none of this unless time runs out, and then the error says whether the write may
// have happened (ErrUnknown) or cannot have (ErrNotDone).
//
// Three kinds of news are kept apart. An outcome (ok, conflict, held, done, timeout) is a
// value: the normal life of several writers. A refusal is an *Error with the server's
// Result, told apart by errors.Is (ErrForbidden, ErrStaleLease, …). Silence is
// ErrUnavailable.
//
// A Loop is this process's presence on one board. One goroutine of the client, the
// keeper, renews all loops and through them all leases, for as long as the work under
// them goes on: the context a claim was made with is the context of the work, and when it
// ends the lease is let go. A Lease has a clock of its own, which counts from before the
// last acknowledged renewal was sent. So a holder learns that it is no longer the holder
// at the latest when the servers may have given the item away, whether they can be
// reached or not: its context is cancelled. What it writes after that is refused at the
// board, which compares generations and no clocks.
//
// A Watch is a cursor that finds its way: it goes on at another node behind the last
// revision it delivered, and ends only if what it needs is compacted away or the board is
// another one.
//
// For a host that runs models there are Tools and UseTool: four functions with their JSON
// Schemas, whose answers are texts for the model. A conflict is such an answer; only what the
// host has to know, that the board cannot be reached, is an error.
//
// The package promises that no call outlives its context, that an endpoint which
// swallows packets costs a call one try and never all its time, that reads never go
// backwards, and that every queue has a bound. It knows nothing of Raft, of how state is
// kept, or of what the values mean; it imports the messages and gRPC, and nothing else of
// this module.
package client
