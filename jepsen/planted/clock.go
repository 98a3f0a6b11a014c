//go:build faults

package planted

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// strobeEvery is how long the wall clock stays in one place while it strobes.
const strobeEvery = 200 * time.Millisecond

// watched is a small file that somebody else changes.
type watched struct {
	path string
	next time.Time
	text string
}

// read answers the text, and whether it is another one than last time. A file that is not
// there is empty.
func (w *watched) read() (text string, changed bool) {
	now := time.Now()
	if w.path == "" || now.Before(w.next) {
		return w.text, false
	}
	w.next = now.Add(rereadEvery)
	raw, err := os.ReadFile(w.path)
	if err != nil && !os.IsNotExist(err) {
		return w.text, false // being replaced: the next time will do
	}
	text = string(raw)
	changed, w.text = text != w.text, text
	return text, changed
}

// clockFault is what is wrong with the clocks of this process.
type clockFault struct {
	mu           sync.Mutex
	file         watched
	wall, strobe time.Duration
	drift        float64
}

// set begins anew, with what a file will say.
func (c *clockFault) set(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.file, c.wall, c.strobe, c.drift = watched{path: path}, 0, 0, 0
}

func (c *clockFault) now() (wall, strobe time.Duration, drift float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text, changed := c.file.read(); changed {
		wall, strobe, drift, err := parseClock(text)
		if err != nil {
			fmt.Fprintln(os.Stderr, "FAULT_CLOCK:", err)
		} else {
			c.wall, c.strobe, c.drift = wall, strobe, drift
		}
	}
	return c.wall, c.strobe, c.drift
}

// parseClock reads "wall=3s strobe=500ms drift=0.02", in any order; what is left out is none.
func parseClock(text string) (wall, strobe time.Duration, drift float64, err error) {
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "wall":
			wall, err = time.ParseDuration(value)
		case "strobe":
			strobe, err = time.ParseDuration(value)
		case "drift":
			if drift, err = strconv.ParseFloat(value, 64); err == nil && drift <= -1 {
				err = fmt.Errorf("a clock that runs backwards")
			}
		default:
			err = fmt.Errorf("neither wall, strobe nor drift")
		}
		if err != nil {
			return 0, 0, 0, fmt.Errorf("%q: %w", word, err)
		}
	}
	return wall, strobe, drift, nil
}

// Wall is a wall clock with the fault that is set at the moment.
func Wall(real func() time.Time) func() time.Time {
	process.fromEnvironment()
	return func() time.Time {
		now := real()
		wall, strobe, _ := process.clock.now()
		if strobe != 0 && now.UnixMilli()/strobeEvery.Milliseconds()%2 == 1 {
			wall += strobe
		}
		return now.Add(wall)
	}
}

// WallMs is this machine's wall clock for a bug that reads it where no clock may be read.
func WallMs() int64 { return Wall(time.Now)().UnixMilli() }

// Mono is a monotonic clock that drifts as set at the moment: its rate changes, and what it
// showed before stays.
func Mono(real func() time.Duration) func() time.Duration {
	process.fromEnvironment()
	d := &drifting{real: real, from: real()}
	d.shown = d.from
	return d.now
}

// drifting is a monotonic clock whose rate changes.
type drifting struct {
	real func() time.Duration

	mu          sync.Mutex
	from, shown time.Duration // the real clock and this one, at the last reading
	drift       float64       // since then: what is heard of now counts from now on
}

func (d *drifting) now() time.Duration {
	_, _, drift := process.clock.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.real()
	if passed := now - d.from; passed > 0 {
		d.shown += passed + time.Duration(float64(passed)*d.drift)
		d.from = now
	}
	d.drift = drift
	return d.shown
}
