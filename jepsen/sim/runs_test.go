package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/sim"
	"raftboard/jepsen/suite"
)

// realPatience is how much real time a run may take: one that needs more stands still in a
// way that virtual time cannot see, and takes the process with it.
const realPatience = 10 * time.Minute

// gcPercent lets garbage grow: a run leaves some 50 MB of it and keeps little, and collecting
// it was a fifth of the time of a run.
const gcPercent = 300

// TestRuns is how runs on virtual time are asked for from outside (suite.RequestEnv): each is
// answered with a line. Without a request it makes a few runs of its own, which must be VALID.
func TestRuns(t *testing.T) {
	request, err := suite.Asked()
	if err != nil {
		t.Fatal(err)
	}
	if request != nil {
		debug.SetGCPercent(gcPercent)
		began := time.Now()
		answer(t, request, func(o suite.Outcome) {
			line, err := json.Marshal(o)
			if err != nil {
				t.Error(err)
			}
			fmt.Printf("%s%s\n", suite.AnswerMark, line)
		})
		fmt.Fprintf(os.Stderr, "%.0f runs per minute\n", float64(len(request.Plans))/time.Since(began).Minutes())
		return
	}
	request = &suite.Request{Parallel: runtime.GOMAXPROCS(0)}
	for seed := range seeds(2) {
		for _, nemeses := range [][]string{{"none"}, {"kill", "partition"}, {"pause", "slow"}} {
			request.Plans = append(request.Plans, suite.Plan{Nemeses: nemeses, Seed: seed})
		}
	}
	answer(t, request, func(o suite.Outcome) {
		t.Log(o.Line())
		if o.Verdict != check.VALID {
			t.Errorf("%s: %v", o.Plan.Rerun(), o.Findings)
		}
	})
}

// answer makes the runs of a request, so many at a time as it says, and tells each outcome.
func answer(t *testing.T, r *suite.Request, tell func(suite.Outcome)) {
	plans := make(chan suite.Plan)
	var mu sync.Mutex
	var group sync.WaitGroup
	for range max(r.Parallel, 1) {
		group.Go(func() {
			for p := range plans {
				o := one(t, r, p)
				mu.Lock()
				tell(o)
				mu.Unlock()
			}
		})
	}
	for _, p := range r.Plans {
		plans <- p
	}
	close(plans)
	group.Wait()
}

func one(t *testing.T, r *suite.Request, p suite.Plan) (o suite.Outcome) {
	began := time.Now()
	p.Driver = suite.Sim
	p, err := p.Complete()
	if err != nil {
		return suite.Failure(p, err)
	}
	hung := time.AfterFunc(realPatience, func() {
		panic(fmt.Sprintf("the run %s took more than %v of real time", p.Name(), realPatience))
	})
	defer hung.Stop()
	t.Run(p.Name(), func(t *testing.T) {
		o = r.Finished(p, record(t, p), began)
	})
	return o
}

// record makes one run in a bubble of its own.
func record(t *testing.T, p suite.Plan) (rec suite.Recording) {
	dir, err := os.MkdirTemp(scratch(), "raftboard-sim-")
	if err != nil {
		return suite.Recording{Err: err}
	}
	defer os.RemoveAll(dir)
	left := bubble(t, func() {
		log := history.NewLog(p.Describe())
		run, err := sim.Open(log, sim.Options{Nodes: p.Nodes, Hop: hop(p.Seed), Dir: dir, Compact: p.Needs().Compact})
		if run != nil {
			defer run.Close()
		}
		if err == nil {
			err = suite.Run(context.Background(), run, log, p)
			run.NoteDeaths()
		}
		rec = suite.Recording{History: log.History(), Err: err}
	})
	switch {
	case left == "":
	case rec.History == nil:
		rec.Err = errors.New("the run stood still: " + left)
	default:
		rec.History.Notes = append(rec.History.Notes, history.Note{Kind: history.NoteLeak, At: rec.History.Run.Ended, Text: left})
	}
	return rec
}

// hop is how far apart the nodes of a run are: a rack, a room, a town, a country. The farther,
// the more is on its way when something happens.
func hop(seed uint64) time.Duration {
	return []time.Duration{2 * time.Millisecond, 500 * time.Microsecond, 15 * time.Millisecond, 5 * time.Millisecond}[seed%4]
}

// scratch is where data directories go: into memory where the machine has a place for that,
// because a node syncs its few small files and a run on virtual time would wait for a disk.
func scratch() string {
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); err == nil && info.IsDir() {
		return memory
	}
	return ""
}

// bubble runs do on virtual time and says what of it was left when it ended, or stood still.
func bubble(t *testing.T, do func()) (left string) {
	name := ""
	defer func() {
		if p := recover(); p != nil {
			left = fmt.Sprintf("%v\n%s", p, stuck(name))
		}
	}()
	synctest.Test(t, func(*testing.T) {
		name = bubbleName()
		do()
	})
	return ""
}

// bubbleName is what the stacks of this bubble's goroutines carry: "synctest bubble 7]".
func bubbleName() string {
	buf := make([]byte, 256)
	head, _, _ := strings.Cut(string(buf[:runtime.Stack(buf, false)]), "\n")
	return head[max(0, strings.Index(head, "synctest bubble")):]
}

// stuck are the stacks of the goroutines of a bubble that still wait.
func stuck(bubble string) string {
	const most = 12
	buf := make([]byte, 16<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var kept []string
	for g := range strings.SplitSeq(string(buf), "\n\n") {
		if head, _, _ := strings.Cut(g, "\n"); strings.HasSuffix(head, bubble) && len(kept) < most {
			kept = append(kept, g)
		}
	}
	return strings.Join(kept, "\n\n")
}
