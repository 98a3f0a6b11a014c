//go:build !race

package node_test

// raceEnabled shortens what only needs to be long once.
const raceEnabled = false
