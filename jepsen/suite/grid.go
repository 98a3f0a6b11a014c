package suite

import (
	"strings"
	"time"
)

// Cell is one field of the matrix: a workload under a group of nemeses.
type Cell struct {
	Workload string   `json:"workload"`
	Column   string   `json:"column"` // "N1-2"
	Nemeses  []string `json:"nemeses"`
	Full     bool     `json:"full"` // in each full run; the others are for the night and the soak
	Nodes    int      `json:"nodes"`
}

// columns are the groups of the grid. A bridge needs five nodes to be more than a cut.
func columns() []Cell {
	return []Cell{
		{Column: "N0", Nemeses: []string{"none"}},
		{Column: "N1-2", Nemeses: []string{"partition", "bridge"}},
		{Column: "N3-6", Nemeses: []string{"one-way", "flap", "slow", "replay"}},
		{Column: "N7", Nemeses: []string{"kill"}},
		{Column: "N8", Nemeses: []string{"pause"}},
		{Column: "N9", Nemeses: []string{"power"}},
		{Column: "N10", Nemeses: []string{"disk"}},
		{Column: "N11", Nemeses: []string{"corrupt"}},
		{Column: "N12", Nemeses: []string{"clock"}},
		{Column: "N13", Nemeses: []string{"members"}},
		{Column: "N14", Nemeses: []string{"compaction"}},
		{Column: "N16", Nemeses: []string{"failpoint"}},
	}
}

// rows say which cells there are: "#" in each full run, "o" at night, "." none; in the order
// of columns.
func rows() []string {
	return []string{
		"register     o # # # # o o o o # o o",
		"append       # # # # # # o # o o # #",
		"txn          o o o # o o . . . o . .",
		"lease        o # o # # o o . # # # o",
		"work         # # # # # o o . # o o o",
		"retry        o # # # o # . . o # # #",
		"feed         o # o # o o o o . o # #",
		"stale-reads  o # # o # o o . # # . .",
		"operations   o o o # o o o o . # # o",
		"soak         o o o o o o o o o o o o",
		"author       o o . o . . . . . o . .",
	}
}

// Grid lists all cells, the workloads in order.
func Grid() (cells []Cell) {
	for _, row := range rows() {
		fields := strings.Fields(row)
		for i, column := range columns() {
			if fields[1+i] == "." {
				continue
			}
			cell := column
			cell.Workload, cell.Full, cell.Nodes = fields[0], fields[1+i] == "#", 3
			if cell.Workload == "operations" && cell.Column == "N13" {
				cell.Nemeses = []string{"members", "transfer", "wipe", "upgrade"}
			}
			if cell.Column == "N1-2" && (cell.Workload == "register" || cell.Workload == "append") {
				cell.Nodes = 5 // a bridge between three is a cut between two
			}
			cells = append(cells, cell)
		}
	}
	return cells
}

// Plan is a run of the cell.
func (c Cell) Plan(driver string, lasts time.Duration, seed uint64) Plan {
	return Plan{Driver: driver, Workload: c.Workload, Nemeses: c.Nemeses, Nodes: c.Nodes, Time: lasts, Seed: seed}
}
