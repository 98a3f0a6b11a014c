package node

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hashicorp/raft"
)

// Status is what a node says of itself.
type Status struct {
	ID, Name          string
	Role              string // leader, follower, candidate, shutdown
	Suffrage          string // voter, nonvoter, none
	LeaderID          string
	Term              uint64
	Applied           uint64 // the state machine's own (RAFT P6)
	Commit            uint64
	LastLog, FirstLog uint64
	SnapshotIndex     uint64
	LastContact       time.Duration // of the leader; -1: none since the start
	Voters, Nonvoters []string
	Contacts          map[string]Contact // of the other members; on the leader only
	Note              error              // why it is not ready; nil when it is
	Uptime            time.Duration
	// OldestLog is the age of the oldest entry of the log; -1: not known. It should be several
	// times what it takes to send a snapshot and to restore it, or a follower that needs one
	// starts over (RAFT P15). LastRestore is how long the newest restore took here; -1: none.
	OldestLog, LastRestore time.Duration
	SlowestStore           time.Duration // the longest call of a store since the start
	// SnapshotsSent is how often this node began to send a snapshot since its start. It goes on
	// rising when a follower does not catch up.
	SnapshotsSent uint64
}

// Contact is what a leader knows of another member.
type Contact struct {
	Ago     time.Duration // since its last answer; -1: none
	LastLog uint64
	Alive   bool
}

// Status never waits for another node.
func (n *Node) Status() Status {
	stats := n.raft.Stats()
	num := func(key string) uint64 {
		v, err := strconv.ParseUint(stats[key], 10, 64)
		if err != nil {
			return 0
		}
		return v
	}
	id, _ := n.Leader()
	s := Status{ID: n.cfg.ID, Name: n.cfg.Name, LeaderID: id, Term: n.raft.CurrentTerm(), Applied: n.fsm.Applied(),
		Commit: n.raft.CommitIndex(), LastLog: n.raft.LastIndex(), SnapshotIndex: num("last_snapshot_index"),
		LastContact: -1, OldestLog: -1, Suffrage: "none", Uptime: n.clock.source.Mono() - n.began, Note: n.Ready()}
	if s.Role = roleName(n.raft.State()); s.Role == "leader" {
		s.LastContact = 0
	}
	if at := n.raft.LastContact(); s.Role != "leader" && !at.IsZero() {
		s.LastContact = time.Since(at)
	}
	if n.Failure() == nil && !n.closing.Load() {
		s.FirstLog, s.OldestLog = n.oldestLog()
	}
	s.LastRestore, s.SlowestStore = n.restores.restoreTook(), time.Duration(n.sentinel.stall.worst.Load())
	s.SnapshotsSent = n.transport.sent.Load()
	n.statusMembers(&s)
	return s
}

// undatedEntries is how many entries at the beginning of a log may lack the time at which they
// were written: the first one of a cluster is not a leader's.
const undatedEntries = 4

// oldestLog is where the log begins and how old that is; -1: not known.
func (n *Node) oldestLog() (first uint64, age time.Duration) {
	first, err := n.stores.Log.FirstIndex()
	if err != nil || first == 0 {
		return first, -1
	}
	var entry raft.Log
	for i := first; i < first+undatedEntries; i++ {
		if n.stores.Log.GetLog(i, &entry) != nil {
			break // it ends here, or was cut meanwhile
		}
		if !entry.AppendedAt.IsZero() {
			return first, max(time.Since(entry.AppendedAt), 0)
		}
	}
	return first, -1
}

func (n *Node) statusMembers(s *Status) {
	for _, m := range n.servers() {
		id := string(m.ID)
		suffrage := "nonvoter"
		if m.Suffrage == raft.Voter {
			suffrage = "voter"
			s.Voters = append(s.Voters, id)
		} else {
			s.Nonvoters = append(s.Nonvoters, id)
		}
		if id == n.cfg.ID {
			s.Suffrage = suffrage
			continue
		}
		if s.Role != "leader" {
			continue
		}
		c := Contact{Ago: -1, Alive: n.alive(m.ID)}
		if seen, ok := n.transport.contact(m.ID); ok {
			c.Ago, c.LastLog = n.clock.source.Mono()-seen.at, seen.lastLog
		}
		if s.Contacts == nil {
			s.Contacts = map[string]Contact{}
		}
		s.Contacts[id] = c
	}
}

// catchUpSlack is how many entries a follower may be behind and still count as ready.
const catchUpSlack = 2048

// Ready says why this node should not be given work, or nil.
func (n *Node) Ready() error {
	if err := n.Failure(); err != nil {
		return err
	}
	if n.closing.Load() {
		return errors.New("stopping")
	}
	if err := n.doubt.Load(); err != nil {
		return *err
	}
	if low := n.space.low.Load(); low != nil {
		return *low
	}
	if n.raft.State() == raft.Leader {
		if _, ready := n.readyTerm(); !ready {
			return errors.New("elected, and its leadership is not open yet")
		}
		return nil
	}
	switch id, _ := n.Leader(); {
	case len(n.servers()) == 0:
		return errors.New("not a member of a cluster yet")
	case id == "":
		return errors.New("no leader is known")
	case n.raft.LastContact().IsZero() || n.raft.CommitIndex() == 0: // a heartbeat carries no commit index
		return errors.New("catching up: no word from the leader yet") // RAFT P30
	}
	if !n.caught.Load() {
		return fmt.Errorf("catching up: entry %d is applied, and the leader's are not", n.fsm.Applied())
	}
	if applied, commit := n.fsm.Applied(), n.raft.CommitIndex(); applied+catchUpSlack < commit {
		return fmt.Errorf("catching up: entry %d of %d", applied, commit)
	}
	return nil
}
