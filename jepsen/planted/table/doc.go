// Package table lists the planted bugs: what each one does, where it lies, which run must
// catch it and which checker must fire. It is plain data for the harness and is linked into
// no product binary.
package table

// Mutant is one planted bug.
type Mutant struct {
	Name      string   // as MUTANT takes it
	Bug       string   // in one line
	Where     string   // the file
	Driver    string   // "sim" or "netns"; "test": a directed test; "" with Open
	Workloads []string // any of these shows it
	Nemeses   []string // played together with the workload
	Fires     []string // checkers of which one must fire
	NotUnder  []string // nemeses under which it must not be caught: what another nemesis is there for
	Test      string   // of a directed test: its name
	Package   string   // of a directed test
	Open      string   // why it cannot be planted yet; the feature that brings it
}
