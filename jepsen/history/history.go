package history

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// History is everything a run recorded.
type History struct {
	Run     Run
	Ops     []Op // in the order in which they began
	Faults  []Fault
	Applied []Applied // each life of a node in its own order
	Install []Installed
	Roles   []Role // each life of a node in its own order
	Notes   []Note
	Outside []Outside
	Beliefs []Belief
	Feed    []Told // each watcher in its own order
	Finals  []Final
}

// Run says what was run, so that it can be run again.
type Run struct {
	Workload string        `json:"workload"`
	Nemesis  string        `json:"nemesis"` // names joined by commas
	Driver   string        `json:"driver"`
	Board    string        `json:"board"` // what the workload worked on
	Nodes    []string      `json:"nodes,omitempty"`
	Seed     uint64        `json:"seed"`
	Time     time.Duration `json:"time,omitempty"`   // planned, from the first operation to the heal
	Rate     int           `json:"rate,omitempty"`   // planned operations per second
	Mutant   string        `json:"mutant,omitempty"` // the planted bug the nodes and clients ran with
	Version  string        `json:"version,omitempty"`
	Rerun    string        `json:"rerun,omitempty"` // the command line that runs it again
	Began    time.Time     `json:"began,omitzero"`  // wall clock of the harness, for people
	Healed   time.Duration `json:"healed"`          // when the last fault was over
	Ended    time.Duration `json:"ended"`
	Bound    time.Duration `json:"bound"` // how long after the heal everything may take
	// Failover is how long a connected majority may take until operations succeed again; 0
	// leaves it to the checker.
	Failover time.Duration `json:"failover,omitempty"`
}

// line is one line of the file: one of these.
type line struct {
	Run     *Run       `json:"run,omitempty"`
	Op      *Op        `json:"op,omitempty"`
	Fault   *Fault     `json:"fault,omitempty"`
	Applied *Applied   `json:"applied,omitempty"`
	Install *Installed `json:"install,omitempty"`
	Role    *Role      `json:"role,omitempty"`
	Note    *Note      `json:"note,omitempty"`
	Outside *Outside   `json:"outside,omitempty"`
	Belief  *Belief    `json:"belief,omitempty"`
	Told    *Told      `json:"told,omitempty"`
	Final   *Final     `json:"final,omitempty"`
	End     *end       `json:"end,omitempty"` // the last one
}

// end says how many lines come before it, and what their bytes sum up to. A file that was cut
// short between two lines would be read as a run in which less happened, and one with a damaged
// digit as another run.
type end struct {
	Lines int    `json:"lines"`
	Sum   string `json:"sha256"`
}

// Write writes the history as JSON lines.
func (h *History) Write(w io.Writer) error {
	buffered, sum := bufio.NewWriter(w), sha256.New()
	enc := json.NewEncoder(io.MultiWriter(buffered, sum))
	err := enc.Encode(line{Run: &h.Run})
	for i := range h.Ops {
		err = errors.Join(err, enc.Encode(line{Op: &h.Ops[i]}))
	}
	for i := range h.Faults {
		err = errors.Join(err, enc.Encode(line{Fault: &h.Faults[i]}))
	}
	for i := range h.Applied {
		err = errors.Join(err, enc.Encode(line{Applied: &h.Applied[i]}))
	}
	for i := range h.Install {
		err = errors.Join(err, enc.Encode(line{Install: &h.Install[i]}))
	}
	for i := range h.Roles {
		err = errors.Join(err, enc.Encode(line{Role: &h.Roles[i]}))
	}
	for i := range h.Notes {
		err = errors.Join(err, enc.Encode(line{Note: &h.Notes[i]}))
	}
	for i := range h.Outside {
		err = errors.Join(err, enc.Encode(line{Outside: &h.Outside[i]}))
	}
	for i := range h.Beliefs {
		err = errors.Join(err, enc.Encode(line{Belief: &h.Beliefs[i]}))
	}
	for i := range h.Feed {
		err = errors.Join(err, enc.Encode(line{Told: &h.Feed[i]}))
	}
	for i := range h.Finals {
		err = errors.Join(err, enc.Encode(line{Final: &h.Finals[i]}))
	}
	lines := 1 + len(h.Ops) + len(h.Faults) + len(h.Applied) + len(h.Install) + len(h.Roles) + len(h.Notes) + len(h.Outside) +
		len(h.Beliefs) + len(h.Feed) + len(h.Finals)
	err = errors.Join(err, enc.Encode(line{End: &end{Lines: lines, Sum: hex.EncodeToString(sum.Sum(nil))}}))
	return errors.Join(err, buffered.Flush())
}

// Read reads what Write wrote. A line it does not understand is an error, never skipped, and so
// is a byte that is not what was written: a verdict on half a history would be worth nothing.
func Read(r io.Reader) (*History, error) {
	h, runs, whole := &History{}, 0, false
	lines, sum := bufio.NewReader(r), sha256.New()
	for n := 1; ; n++ {
		text, err := lines.ReadBytes('\n')
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("history: line %d: %w", n, err)
		case len(text) > 0 || runs == 1 && !whole:
			return nil, fmt.Errorf("history: cut short behind line %d", n-1)
		case runs != 1:
			return nil, fmt.Errorf("history: %d lines say what was run, want one", runs)
		default:
			return h, nil
		}
		var l line
		if err := strict(text, &l); err != nil {
			return nil, fmt.Errorf("history: line %d: %w", n, err)
		}
		switch {
		case whole:
			return nil, fmt.Errorf("history: line %d stands behind the end", n)
		case l.End != nil:
			if l.End.Lines != n-1 {
				return nil, fmt.Errorf("history: %d lines, its end says %d", n-1, l.End.Lines)
			}
			if got := hex.EncodeToString(sum.Sum(nil)); l.End.Sum != got {
				return nil, fmt.Errorf("history: its lines sum up to %s, its end says %q: they are not what was written", got, l.End.Sum)
			}
			whole = true
		case l.Run != nil:
			h.Run = *l.Run
			runs++
		case l.Op != nil:
			h.Ops = append(h.Ops, *l.Op)
		case l.Fault != nil:
			h.Faults = append(h.Faults, *l.Fault)
		case l.Applied != nil:
			h.Applied = append(h.Applied, *l.Applied)
		case l.Install != nil:
			h.Install = append(h.Install, *l.Install)
		case l.Role != nil:
			h.Roles = append(h.Roles, *l.Role)
		case l.Note != nil:
			h.Notes = append(h.Notes, *l.Note)
		case l.Outside != nil:
			h.Outside = append(h.Outside, *l.Outside)
		case l.Belief != nil:
			h.Beliefs = append(h.Beliefs, *l.Belief)
		case l.Told != nil:
			h.Feed = append(h.Feed, *l.Told)
		case l.Final != nil:
			h.Finals = append(h.Finals, *l.Final)
		default:
			return nil, fmt.Errorf("history: line %d says nothing", n)
		}
		sum.Write(text)
	}
}
