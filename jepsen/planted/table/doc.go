// Package table is the list of planted bugs and failpoints in words: what each is, where it
// stands, and which workload, nemesis and checker must show it. It is data for the harness and
// for readers; no product code imports it, so nothing of it reaches a release binary.
//
// One row of the test plan may be several entries here, one for each of its halves (M16a,
// M16b). An entry that is Open names why nothing is planted yet.
package table
