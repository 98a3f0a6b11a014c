package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"raftboard/jepsen/history"
	"raftboard/jepsen/nemesis"
	"raftboard/node"
)

// died is told of a server that stopped by itself.
func (r *Run) died(i int, why error) {
	if why == nil {
		why = errors.New("it stopped by itself and did not say why")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seats[i].dead = why
}

// noteDeath notes a death of a node that nobody asked about: no fault expected it.
func (r *Run) noteDeath(i int) {
	r.mu.Lock()
	why := r.seats[i].dead
	r.seats[i].dead = nil
	r.mu.Unlock()
	if why != nil {
		r.Log.Note(history.Note{Kind: history.NoteDied, Node: r.servers.Member(i).Name, Text: clip(why.Error())})
	}
}

// clip keeps a note short.
func clip(text string) string {
	const most = 2000
	if len(text) > most {
		text = text[:most] + " …"
	}
	return text
}

// Died implements nemesis.Target.
func (r *Run) Died(i int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i < 0 || i >= len(r.seats) {
		return nil
	}
	why := r.seats[i].dead
	r.seats[i].dead = nil
	return why
}

// Status implements nemesis.Target. It is asked past the network: whoever is cut off answers.
func (r *Run) Status(_ context.Context, i int) (nemesis.Status, error) {
	r.mu.Lock()
	if i < 0 || i >= len(r.seats) {
		r.mu.Unlock()
		return nemesis.Status{}, errNoNode
	}
	paused := r.seats[i].paused
	r.mu.Unlock()
	server := r.servers.Running(i)
	switch {
	case server == nil:
		return nemesis.Status{}, errors.New("it is down")
	case paused:
		return nemesis.Status{}, errors.New("it is paused")
	case server.Node() == nil:
		return nemesis.Status{NodeID: server.NodeID()}, nil
	}
	s, err := asked(server.Node())
	s.Ready = err == nil && server.Ready() == nil
	return s, err
}

// asked asks on a goroutine of its own: to answer, a node reads its log, and one that finds
// there that it must not go on ends the goroutine it is on, and that must not be a nemesis.
func asked(n *node.Node) (nemesis.Status, error) {
	answer := make(chan *node.Status, 1)
	go func() {
		var told *node.Status
		defer func() { answer <- told }()
		s := n.Status()
		told = &s
	}()
	s := <-answer
	if s == nil {
		return nemesis.Status{}, errors.New("it ended itself over the question")
	}
	return nemesis.Status{NodeID: s.ID, Leader: n.IsLeader(), Term: s.Term, Applied: s.Applied, First: s.FirstLog,
		Last: s.LastLog, Snapshot: s.SnapshotIndex}, nil
}

// Kill implements nemesis.Target. A paused process dies too.
func (r *Run) Kill(i int) error {
	s, give, err := r.take(i)
	if err != nil {
		return err
	}
	defer give()
	r.servers.Kill(i)
	r.release(i, s)
	return nil
}

// PowerOff implements nemesis.Target.
func (r *Run) PowerOff(nodes ...int) (err error) {
	seats := map[int]*seat{}
	for _, i := range sorted(nodes) { // in one order everywhere, so that nobody waits in a circle
		s, give, err := r.take(i)
		if err != nil {
			return err
		}
		defer give()
		seats[i] = s
	}
	r.servers.PowerOff(nodes...)
	for i, s := range seats {
		r.release(i, s)
	}
	return nil
}

// goesOn is how long it takes at most until a process that was stopped has everything back:
// what it hears, what it says, and its disk, which it was caught in the middle of. Which of
// them comes last is drawn: it may hear a new leader before anybody tells it that it is none,
// and old answers before it looks whether there were any.
const goesOn = 30 * time.Millisecond

// release ends a pause: links and disk go on where they were.
func (r *Run) release(i int, s *seat) {
	r.mu.Lock()
	was := s.paused
	s.paused = false
	r.mu.Unlock()
	if !was {
		return
	}
	m := r.servers.Member(i)
	within := [3]time.Duration{goesOn, goesOn, goesOn} // hears, speaks, stores
	if last := rand.IntN(4); last < 3 {
		within = [3]time.Duration{goesOn / 8, goesOn / 8, goesOn / 8}
		within[last] = goesOn
	}
	r.servers.Net.Release(m.Host, within[0], within[1])
	late := rand.N(within[2])
	time.Sleep(late)
	m.Disk.Hold(false)
	time.Sleep(goesOn - late)
}

// Start implements nemesis.Target. A node that refuses to start has ended by itself.
func (r *Run) Start(i int) error {
	s, give, err := r.take(i)
	if err != nil {
		return err
	}
	defer give()
	r.mu.Lock()
	retired := s.retired
	r.mu.Unlock()
	switch {
	case retired:
		return fmt.Errorf("node %d was retired", i)
	case r.servers.Running(i) != nil:
		return nil
	}
	r.noteDeath(i)
	if err := r.begin(i); err != nil {
		r.died(i, err)
	}
	return nil
}

// begin starts a server on a goroutine of its own: a node that finds out during its start that
// it must not go on ends the goroutine it is on, and that must not be a nemesis.
func (r *Run) begin(i int) error {
	result := make(chan error, 1)
	go func() {
		err := errors.New("its start ended without a word")
		defer func() { result <- err }()
		err = r.servers.TryRestart(i)
	}()
	return <-result
}

// Stop implements nemesis.Target. A node that is down stays so.
func (r *Run) Stop(i int) error {
	s, give, err := r.take(i)
	if err != nil {
		return err
	}
	defer give()
	r.mu.Lock()
	paused := s.paused
	r.mu.Unlock()
	if paused {
		return errors.New("it is paused, and would not hear it")
	}
	return r.servers.Stop(i)
}

// Pause implements nemesis.Target: nothing that the node sends arrives, nothing reaches it and
// it stores nothing, until Resume; then all of that goes on. Its timers run on.
func (r *Run) Pause(i int) error {
	s, give, err := r.take(i)
	if err != nil {
		return err
	}
	defer give()
	if r.servers.Running(i) == nil {
		return errors.New("it is down")
	}
	r.mu.Lock()
	was := s.paused
	s.paused = true
	r.mu.Unlock()
	if was {
		return nil
	}
	m := r.servers.Member(i)
	m.Disk.Hold(true)
	for began := time.Now(); m.Disk.Waiting() == 0 && time.Since(began) < catchMost; {
		time.Sleep(time.Millisecond)
	}
	r.servers.Net.Hold(m.Host)
	return nil
}

// catchMost is how long a pause may take to catch a node in the middle of a write. Then raft's
// main goroutine stands still with it, timers or not: a leader does not notice that it hears
// of nobody, and goes on as one.
const catchMost = 400 * time.Millisecond

// Resume implements nemesis.Target.
func (r *Run) Resume(i int) error {
	s, give, err := r.take(i)
	if err != nil {
		return err
	}
	defer give()
	r.release(i, s)
	return nil
}

// Add implements nemesis.Target.
func (r *Run) Add(name string) (int, error) {
	r.mu.Lock()
	m, err := r.servers.NewMember(name)
	if err == nil {
		r.seats = append(r.seats, newSeat())
	}
	r.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return m.Index, r.Start(m.Index)
}

// Retire implements nemesis.Target.
func (r *Run) Retire(i int) error {
	if err := r.Kill(i); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seats[i].retired, r.seats[i].dead = true, nil
	return nil
}

// Switch implements nemesis.Target: the other build is the same code under another version.
func (r *Run) Switch(i int) error {
	s, give, err := r.take(i)
	if err != nil {
		return err
	}
	defer give()
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.version == version {
		s.version = otherVersion
	} else {
		s.version = version
	}
	return nil
}

// Starve implements nemesis.Target; 0 is no fault.
func (r *Run) Starve(_ int, share float64) error {
	if share == 0 {
		return nil
	}
	return nemesis.ErrUnsupported
}

// Failpoint implements nemesis.Target; "" is no fault.
func (r *Run) Failpoint(_ int, spec string) error {
	if spec == "" {
		return nil
	}
	return nemesis.ErrUnsupported
}
