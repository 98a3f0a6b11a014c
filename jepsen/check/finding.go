package check

import (
	"fmt"
	"strings"
)

// Class is what a finding means for the run.
type Class int

// The classes, gravest first.
const (
	Violation Class = iota + 1
	Invalid
	Undecided
)

// Finding is one thing a checker has to say against a run.
type Finding struct {
	Checker string // the rule: "R1", "G1" …
	Class   Class
	What    string
	Ops     []uint64 // the operations concerned
	Index   uint64   // the log entry concerned
}

// String is one line.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", f.Checker, f.What)
	if f.Index > 0 {
		fmt.Fprintf(&b, " (entry %d)", f.Index)
	}
	if len(f.Ops) > 0 {
		fmt.Fprintf(&b, " (operations %v)", f.Ops)
	}
	return b.String()
}

func violation(checker, format string, args ...any) Finding {
	return Finding{Checker: checker, Class: Violation, What: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) Finding {
	return Finding{Checker: "G7", Class: Invalid, What: fmt.Sprintf(format, args...)}
}

func (f Finding) at(index uint64) Finding {
	f.Index = index
	return f
}

func (f Finding) of(ops ...uint64) Finding {
	f.Ops = append(f.Ops, ops...)
	return f
}

// Verdict is the outcome of a run.
type Verdict string

// The verdicts. "No anomaly found" is all that VALID says.
const (
	VALID   Verdict = "VALID"
	FAILED  Verdict = "FAILED"
	INVALID Verdict = "INVALID"
	UNKNOWN Verdict = "UNKNOWN"
)

// Judge turns findings into a verdict: the gravest class decides.
func Judge(findings []Finding) Verdict {
	verdict := VALID
	for _, f := range findings {
		switch {
		case f.Class == Violation:
			return FAILED
		case f.Class == Invalid:
			verdict = INVALID
		case verdict == VALID:
			verdict = UNKNOWN
		}
	}
	return verdict
}
