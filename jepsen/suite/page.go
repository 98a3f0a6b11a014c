package suite

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/report"
	"raftboard/jepsen/workload"
)

// The files of a suite in its directory, one outcome as a line each. Several commands may
// share a directory: the page shows all of it.
const (
	OutcomesFile = "outcomes.jsonl"
	MutantsFile  = "mutants.jsonl"
)

// Keep adds what was run to the files of a suite and writes its page anew.
func Keep(dir, command string, outcomes []Outcome, mutants []Caught) error {
	err := errors.Join(add(filepath.Join(dir, OutcomesFile), outcomes), add(filepath.Join(dir, MutantsFile), mutants))
	if err != nil {
		return err
	}
	all, err := lines[Outcome](filepath.Join(dir, OutcomesFile))
	if err != nil {
		return err
	}
	caught, err := lines[Caught](filepath.Join(dir, MutantsFile))
	if err != nil {
		return err
	}
	all = latest(all)
	data := report.SuiteData{Command: command, Workloads: workload.Names(), Nemeses: Columns(), Legend: columnLegend(), Cells: cells(dir, all),
		Mutants: mutantRows(dir, caught), Found: Record(), NotTested: NotTested(), Version: versions(all)}
	for _, o := range all {
		data.Took += o.Took
	}
	return create(filepath.Join(dir, PageFile), func(w io.Writer) error { return report.Suite(w, data) })
}

// latest leaves out what was run again with another version of the source: it says nothing
// about this one. Runs of one plan and one version all stay.
func latest(all []Outcome) (left []Outcome) {
	newest := map[string]string{}
	for _, o := range all {
		newest[o.Plan.Rerun()] = o.Plan.Version
	}
	for _, o := range all {
		if newest[o.Plan.Rerun()] == o.Plan.Version {
			left = append(left, o)
		}
	}
	return left
}

// versions names the sources that were tested.
func versions(all []Outcome) string {
	var names []string
	for _, o := range all {
		if o.Plan.Version != "" && !slices.Contains(names, o.Plan.Version) {
			names = append(names, o.Plan.Version)
		}
	}
	return strings.Join(names, ", ")
}

func add[T any](path string, items []T) error {
	if len(items) == 0 {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(file)
	for _, item := range items {
		err = errors.Join(err, enc.Encode(item))
	}
	return errors.Join(err, file.Close())
}

func lines[T any](path string) (items []T, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	dec := json.NewDecoder(bufio.NewReader(file))
	for {
		var item T
		switch err := dec.Decode(&item); {
		case errors.Is(err, io.EOF):
			return items, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		items = append(items, item)
	}
}

// columnLegend says which nemeses a column stands for.
func columnLegend() (legend []string) {
	for _, c := range columns() {
		legend = append(legend, c.Column+" "+strings.Join(c.Nemeses, ", "))
	}
	return legend
}

// Columns lists the columns of the grid.
func Columns() (names []string) {
	for _, c := range columns() {
		names = append(names, c.Column)
	}
	return names
}

// columnOf is the column of the grid in which all these nemeses are; their own names if there
// is none.
func columnOf(workload string, nemeses []string) string {
	for _, c := range Grid() {
		if c.Workload == workload && !slices.ContainsFunc(nemeses, func(n string) bool { return !slices.Contains(c.Nemeses, n) }) {
			return c.Column
		}
	}
	return strings.Join(nemeses, ",")
}

// cells puts the runs of a cell together, and those of the grid that nobody ran beside them.
func cells(dir string, outcomes []Outcome) (out []report.Cell) {
	type name struct{ workload, column, driver string }
	at := map[name]int{}
	for _, o := range outcomes {
		n := name{o.Plan.Workload, columnOf(o.Plan.Workload, o.Plan.Nemeses), o.Plan.Driver}
		i, known := at[n]
		if !known {
			i, at[n] = len(out), len(out)
			out = append(out, report.Cell{Workload: n.workload, Nemesis: n.column, Driver: n.driver, Verdict: o.Verdict})
		}
		c := &out[i]
		c.Runs++
		c.OK, c.Fail, c.Unknown = c.OK+o.Ops[history.OK], c.Fail+o.Ops[history.Failed], c.Unknown+o.Ops[history.Info]
		for _, k := range o.Faults {
			c.Faults += k
		}
		was := c.Verdict
		if c.Verdict = Worst(was, o.Verdict); o.Verdict == c.Verdict && o.Verdict != check.VALID && (was != c.Verdict || c.Witness == "") {
			c.Witness, c.Page, c.Again = first(o), pageOf(dir, o.Dir), o.Plan.Rerun()
		}
	}
	return append(out, unrun(out)...)
}

// unrun are the cells of a full run that nobody ran with a driver that others were run with.
func unrun(ran []report.Cell) (out []report.Cell) {
	for _, driver := range []string{Sim, Netns} {
		if !slices.ContainsFunc(ran, func(c report.Cell) bool { return c.Driver == driver }) {
			continue
		}
		for _, cell := range Grid() {
			if !cell.Full || slices.ContainsFunc(ran, func(c report.Cell) bool {
				return c.Driver == driver && c.Workload == cell.Workload && c.Nemesis == cell.Column
			}) {
				continue
			}
			why := "not asked for, or the budget was spent"
			if missing := CannotDo(driver, cell.Nemeses); len(missing) == len(cell.Nemeses) {
				why = driver + " cannot do it"
			}
			out = append(out, report.Cell{Workload: cell.Workload, Nemesis: cell.Column, Driver: driver, Why: why})
		}
	}
	return out
}

// first is what there is to say of a run that is not VALID, in a line: its page has the rest.
func first(o Outcome) string {
	if o.Error != "" || len(o.Findings) == 0 {
		return o.Error
	}
	return firstLine(o.Findings[0])
}

func firstLine(s string) string {
	line, _, more := strings.Cut(s, "\n")
	if more {
		line += " …"
	}
	return line
}

// pageOf is the link to a run's page from the page of its suite.
func pageOf(dir, run string) string {
	if run == "" {
		return ""
	}
	rel, err := filepath.Rel(dir, filepath.Join(run, PageFile))
	if err != nil {
		return ""
	}
	return filepath.ToSlash(rel)
}

// mutantRows has one row for each bug: the newest.
func mutantRows(dir string, caught []Caught) (rows []report.Mutant) {
	at := map[string]int{}
	for _, c := range caught {
		m := c.Mutant
		row := report.Mutant{Name: m.Name, Bug: m.What, Expected: m.Fires, Fired: c.By, Caught: c.Caught, Runs: c.Runs,
			Took: c.Took.Round(time.Millisecond), Seed: c.Seed, NotUnder: strings.Join(m.NotUnder, ", "), NotThere: c.NotHere,
			Said: firstLine(c.Said), Open: m.Open, Page: pageOf(dir, c.Dir),
			Where: fmt.Sprintf("%s × %s, %s", strings.Join(m.Workloads, " or "), strings.Join(m.Nemeses, ","), m.Driver)}
		if m.Test != "" {
			row.Where = "go test -tags faults " + m.Test
		}
		if c.Clean {
			row.Clean = check.VALID
		}
		if i, known := at[m.Name]; known {
			rows[i] = row
			continue
		}
		at[m.Name] = len(rows)
		rows = append(rows, row)
	}
	return rows
}
