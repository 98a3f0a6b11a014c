// Package view shows a worker what others wrote, within a budget.
//
// A view is a pure function of one state.Board and a Request. It is a text between fence
// tags: a fixed heading, one line an entry, and a footer that counts what did not fit. No
// text that an agent stored can end the fence, begin a line, steer a terminal, or say of
// itself that it was cut; stored bytes are not changed. The budget is counted in characters
// of the whole text, four to a token, and is never exceeded.
//
// Selection: what the viewer wrote itself is left out. Pins come first, in full up to half
// the budget, then as stubs. Of the rest the newest run is shown without a hole, so a reader
// knows that what is missing is older than what it sees; an entry that would take more than a
// quarter is cut instead of ending the run.
//
// The walk from the newest entry back follows an order by rev that Commit keeps beside the
// records (state.NewestFirst). It does not come from the event log: that forgets what is
// older than its retention and is full of events that store nothing, so an old fact would be
// missing from views, and from the count of what is missing. Nor is it sorted out of the
// keys: on a board of 100,000 entries that touches every one of them, which takes tens of
// milliseconds. The order holds beside each entry what a request sorts out by (namespace,
// author), so the walk over all of it, which the exact count needs, touches only
// the entries that match a pattern narrower than a namespace.
//
// Content and Listing show what one key says, and which keys there are, between the same tags:
// a line says whose it is and what is known to be wrong with it before anything that an agent
// wrote. They are what the tools of a model are answered with (SPEC §5).
//
// A view never goes into a system prompt, and nobody acts on an entry as if it were a call
// (SPEC VW-9): it is second-hand.
package view
