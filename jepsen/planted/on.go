//go:build faults

package planted

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// On tells that this build can have planted bugs.
const On = true

// rereadEvery is how old a file may be that the harness changes while a process runs.
const rereadEvery = 100 * time.Millisecond

// process is a constant: the one place of a process that knows what is planted in it. It exists
// only under the build tag, and guards itself.
var process = &plants{}

// plants is what is planted in a process.
type plants struct {
	once  sync.Once
	bugs  atomic.Pointer[map[string]bool]
	notes sync.Map

	mu     sync.Mutex
	points map[string]*point // of the environment, or of Set
	filed  map[string]*point // of FAULT_FILE
	file   watched
	clock  clockFault
}

// Setting is what a test plants. Points are called at every hit of a point, with the number of
// the hit from 1 on; what one returns is the answer of Error, and nothing at a Point.
type Setting struct {
	Bugs                 []string
	Points               map[string]func(hit int) error
	FaultFile, ClockFile string
}

// Set plants in this process in place of what the environment says, until Reset.
func Set(s Setting) {
	process.once.Do(func() {})
	bugs, points := map[string]bool{}, map[string]*point{}
	for _, name := range s.Bugs {
		bugs[name] = true
	}
	for name, do := range s.Points {
		points[name] = &point{rules: []rule{{at: 1, on: true, do: do}}}
	}
	process.mu.Lock()
	defer process.mu.Unlock()
	process.bugs.Store(&bugs)
	process.points, process.filed, process.file = points, nil, watched{path: s.FaultFile}
	process.clock.set(s.ClockFile)
}

// Reset plants nothing any more, in this process.
func Reset() { Set(Setting{}) }

// fromEnvironment reads what the process was started with. What it cannot read ends the
// process: a fault that does not happen would prove nothing.
func (p *plants) fromEnvironment() {
	p.once.Do(func() {
		bugs := map[string]bool{}
		for name := range strings.SplitSeq(os.Getenv("MUTANT"), ",") {
			bugs[strings.TrimSpace(name)] = true
		}
		delete(bugs, "")
		points, err := Parse(os.Getenv("FAULT"))
		p.mu.Lock()
		p.points, p.file.path = points, os.Getenv("FAULT_FILE")
		p.mu.Unlock()
		p.clock.set(os.Getenv("FAULT_CLOCK"))
		p.bugs.Store(&bugs)
		if err != nil {
			fmt.Fprintln(os.Stderr, "FAULT:", err)
			os.Exit(2)
		}
		for name := range bugs {
			fmt.Fprintf(os.Stderr, "this process has the planted bug %s\n", name)
		}
	})
}

// Bug tells whether the process has this planted bug.
func Bug(name string) bool {
	process.fromEnvironment()
	return (*process.bugs.Load())[name]
}

// Point is a place where a process may be made to die or to sleep.
func Point(name string) { _ = process.hit(name) }

// Error is the error that a disk is made to answer here: EIO, io.ErrShortWrite, or nil.
func Error(name string) error { return process.hit(name) }

func (p *plants) hit(name string) error {
	p.fromEnvironment()
	p.mu.Lock()
	p.rearm()
	var due []rule
	hits := 0
	for _, at := range []*point{p.points[name], p.filed[name]} {
		if at == nil {
			continue
		}
		at.hits++
		hits = at.hits
		for _, r := range at.rules {
			if r.matches(at.hits) {
				due = append(due, r)
			}
		}
	}
	p.mu.Unlock()
	var err error
	for _, r := range due { // without the lock: one may sleep, and be hit elsewhere
		err = errors.Join(err, r.do(hits))
	}
	return err
}

// rearm takes over a changed FAULT_FILE. Called with p.mu held.
func (p *plants) rearm() {
	text, changed := p.file.read()
	if !changed {
		return
	}
	points, err := Parse(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAULT_FILE:", err)
		points = nil
	}
	p.filed = points
}

// point is a place that is armed.
type point struct {
	hits  int
	rules []rule
}

// rule says at which hits of a point something is done.
type rule struct {
	at    int
	on    bool // at this hit and all after it
	every bool // at each at-th hit
	do    func(hit int) error
}

func (r rule) matches(hit int) bool {
	switch {
	case r.every:
		return hit%r.at == 0
	case r.on:
		return hit >= r.at
	}
	return hit == r.at
}

// ErrHit is the answer of a point that was armed to say yes.
var ErrHit = errors.New("planted: this point was hit")

// Parse reads a list as FAULT holds it. The error names the part that cannot be used.
func Parse(list string) (map[string]*point, error) {
	points := map[string]*point{}
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		fields := strings.SplitN(part, ":", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("%q is not point:when:do", part)
		}
		r, err := parseWhen(fields[1])
		if err == nil {
			r.do, err = parseDo(fields[0], fields[2])
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", part, err)
		}
		if points[fields[0]] == nil {
			points[fields[0]] = &point{}
		}
		points[fields[0]].rules = append(points[fields[0]].rules, r)
	}
	return points, nil
}

func parseWhen(text string) (r rule, err error) {
	number, every := strings.CutPrefix(text, "%")
	number, on := strings.CutSuffix(number, "+")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || every && on {
		return r, fmt.Errorf("%q is no hit: 3, 3+ or %%3", text)
	}
	return rule{at: n, on: on, every: every}, nil
}

func parseDo(name, text string) (func(int) error, error) {
	if length, sleeps := strings.CutPrefix(text, "sleep="); sleeps {
		d, err := time.ParseDuration(length)
		if err != nil || d <= 0 {
			return nil, fmt.Errorf("%q is no time to sleep", length)
		}
		return func(int) error { time.Sleep(d); return nil }, nil
	}
	switch text {
	case "panic":
		return func(hit int) error { die(name, hit); return nil }, nil
	case "eio":
		return func(int) error { return syscall.EIO }, nil
	case "short":
		return func(int) error { return io.ErrShortWrite }, nil
	case "hit":
		return func(int) error { return ErrHit }, nil
	}
	return nil, fmt.Errorf("%q is none of panic, sleep=200ms, eio, short, hit", text)
}

// die panics where nobody recovers, and never comes back: what follows the point is not done.
func die(name string, hit int) {
	go panic(fmt.Sprintf("planted: failpoint %s, hit %d", name, hit))
	select {}
}

// Jumbled is a list in the order in which a map would give it.
func Jumbled[T any](list []T) []T {
	byPlace := make(map[int]T, len(list))
	for i, v := range list {
		byPlace[i] = v
	}
	out := make([]T, 0, len(list))
	for _, v := range byPlace {
		out = append(out, v)
	}
	return out
}

// Note and Noted keep a value beside a thing of the product, for a bug that needs a memory.
func Note(thing, value any) { process.notes.Store(thing, value) }

func Noted(thing any) any {
	value, _ := process.notes.Load(thing)
	return value
}
