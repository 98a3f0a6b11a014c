// Package demo shows on real processes what a board promises, and counts whether it held.
//
// One parent starts nodes and workers as processes of their own, posts every file of a directory
// as an item, and breaks things while the work goes on: it kills the leader and brings it back,
// kills a worker in the middle of an item, and stops another one past its lease so that its late
// write has to be refused. Afterwards it judges. The judge believes two witnesses only: what each
// worker wrote into its own log when an answer reached it, and the feed of the board read from
// rev 1. It never looks at the final state, which would show one completion whether an item was
// done once or twice. Both ways to be wrong can be injected, and then the judge must say so.
//
// Children are ended by their own process and their lifeline: each one reads its standard input
// and ends when that closes, so none outlives a parent that was killed.
package demo
