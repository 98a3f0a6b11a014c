package state

import (
	"sort"

	"github.com/tidwall/btree"
	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/planted"
)

// ClusterBoard names the cluster where a board is expected.
const ClusterBoard = ""

// State is everything that is replicated. The apply goroutine owns it; readers get Views.
type State struct {
	cluster *boardpb.ClusterRecord // replaced, never changed, so that Views may keep it
	boards  map[string]*board      // with "", which keeps the idempotency keys of cluster commands

	applied, term uint64
	deadlines     *btree.BTreeG[Deadline]
	digests       []digestAt // of the last entries, oldest first; Views share the array
	garbage       garbage
	touched       map[string]*board // since the last publication
	stale         []*board          // whose head changed since the last digest
	enc           encoder
	txn           Txn // reused: one command runs at a time
	recordSum     Sum // of the cluster record but its time
	sum           Sum // of all records and heads; the cluster record is added when the digest is taken
}

type digestAt struct {
	index uint64
	sum   Sum
}

// New is the state before the first entry.
func New() *State {
	s := &State{
		cluster:   &boardpb.ClusterRecord{GraceMs: DefaultGraceMs, Level: 1},
		boards:    map[string]*board{},
		deadlines: newDeadlines(),
		touched:   map[string]*board{},
	}
	settings := DefaultSettings()
	schema, bad := CompileSchema(settings.Namespaces)
	if bad != nil {
		panic("state: the default table does not compile: " + bad.Message)
	}
	s.CreateBoard(ClusterBoard, "", settings, schema)
	s.hashRecord()
	return s
}

// T is board time, Wall is wall time, both as of the newest stamp.
func (s *State) T() int64    { return s.cluster.TMs }
func (s *State) Wall() int64 { return s.cluster.WallMs }

// Applied is the index of the newest entry in the state.
func (s *State) Applied() uint64 { return s.applied }

// Cluster is the cluster's record. Callers must not change it.
func (s *State) Cluster() *boardpb.ClusterRecord { return s.cluster }

// SetCluster changes the cluster's record through a copy.
func (s *State) SetCluster(change func(c *boardpb.ClusterRecord)) {
	c := proto.CloneOf(s.cluster)
	change(c)
	s.cluster = c
	s.hashRecord()
}

// SetTime moves both times forward, never backwards (SPEC F-3).
func (s *State) SetTime(t, wall int64) {
	if t <= s.cluster.TMs && wall <= s.cluster.WallMs && !planted.Bug("M9") {
		return
	}
	c := cloneCluster(s.cluster)
	c.TMs, c.WallMs = max(t, c.TMs), max(wall, c.WallMs)
	if planted.Bug("M9") && t > 0 { // the bug: the leader's wall clock is taken as it is
		c.TMs = t
	}
	s.cluster = c
}

// Begin opens an entry; floor is the lowest index a reader's View may have.
func (s *State) Begin(index, term, floor uint64) {
	s.applied, s.term = index, term
	s.garbage.collect(floor)
}

// End closes an entry: its digest is remembered.
func (s *State) End() {
	s.digests = append(s.digests, digestAt{s.applied, s.Digest()})
	if len(s.digests) > 2*DigestsKept {
		s.digests = append([]digestAt(nil), s.digests[len(s.digests)-DigestsKept:]...)
	}
}

// Digest is the digest of the whole state now.
func (s *State) Digest() Sum {
	for _, b := range s.stale {
		fresh := b.headSum()
		s.sum = s.sum.minus(b.counted).plus(fresh)
		b.counted, b.isStale = fresh, false
	}
	s.stale = s.stale[:0]
	return s.sum.plus(s.clusterSum())
}

// clusterSum is the digest of the cluster's record. Time moves with every entry and is
// hashed each time, the rest when it changes.
func (s *State) clusterSum() Sum {
	e := &s.enc
	e.start('S', "")
	e.i64(s.cluster.TMs)
	e.i64(s.cluster.WallMs)
	return e.sum().plus(s.recordSum)
}

func (s *State) hashRecord() {
	e := &s.enc
	e.start('R', "")
	e.message(s.cluster, func(field string) bool { return field == "t_ms" || field == "wall_ms" })
	s.recordSum = e.sum()
}

// BoardExists tells whether a board is there; "default" is from its first write on.
func (s *State) BoardExists(name string) bool { return s.boards[name] != nil }

// BoardNames lists the boards in order.
func (s *State) BoardNames() []string {
	names := make([]string, 0, len(s.boards))
	for name := range s.boards {
		if name != ClusterBoard {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// CreateBoard makes an empty board. The schema must have been compiled from the settings.
func (s *State) CreateBoard(name, incarnation string, settings *boardpb.BoardSettings, schema *Schema) {
	b := newBoard(s, name)
	b.head.incarnation = incarnation
	b.head.createdWall = s.Wall()
	b.setSettings(settings, schema, 1)
	s.boards[name] = b
	s.touch(b)
}

// DropBoard removes a board completely. It costs what the board holds: an operator's act.
func (s *State) DropBoard(name string) {
	s.Digest() // counts every stale head, this board's too
	b := s.boards[name]
	s.sum = s.sum.minus(b.sum).minus(b.counted)
	var due []Deadline
	s.deadlines.Scan(func(d Deadline) bool {
		if d.Board == name {
			due = append(due, d)
		}
		return true
	})
	for _, d := range due {
		s.deadlines.Delete(d)
	}
	delete(s.boards, name)
	delete(s.touched, name)
}

func (s *State) touch(b *board) {
	s.touched[b.name] = b
	if !b.isStale {
		b.isStale = true
		s.stale = append(s.stale, b)
	}
}

// Deadline is something that may be due at a board time. Its time is a lower bound: what
// it names is looked at then, and may turn out to live longer.
type Deadline struct {
	T     int64
	Board string
	Kind  DeadlineKind
	ID    string
}

func newDeadlines() *btree.BTreeG[Deadline] {
	return btree.NewBTreeGOptions(Deadline.before, btree.Options{NoLocks: true})
}

// DeadlineKind says what a deadline is about.
type DeadlineKind uint8

// The kinds, in the order in which they expire at one time.
const (
	DeadlineLease DeadlineKind = iota + 1 // a lease's own expiry; ID is the key
	DeadlineDelay                         // a failed item may be claimed again; ID is the key
	DeadlineLoop                          // a loop's silence, or the end of its window
)

func (d Deadline) before(o Deadline) bool {
	switch {
	case d.T != o.T:
		return d.T < o.T
	case d.Board != o.Board:
		return d.Board < o.Board
	case d.Kind != o.Kind:
		return d.Kind < o.Kind
	}
	return d.ID < o.ID
}

// Passed is the one rule of expiry (SPEC F-4): a deadline has passed when board time has
// reached it and the grace of the newest leadership, which delays it by a minute at most.
func (s *State) Passed(e int64) bool {
	if planted.Bug("M8") { // the bug: this machine's clock says how late it is
		return s.T()+planted.WallMs()-s.Wall() >= s.When(e)
	}
	return s.T() >= s.When(e)
}

// When is the board time at which a deadline has passed, if no other leadership begins.
func (s *State) When(e int64) int64 { return max(e, min(s.cluster.GraceUntilMs, e+GraceCapMs)) }

// Due lists up to limit deadlines that have come, in their order.
func (s *State) Due(limit int) []Deadline { return s.dueOf(s.deadlines, limit) }

// DueLeases lists up to limit leases and delays of one board whose deadline has come.
func (s *State) DueLeases(board string, limit int) []Deadline {
	return s.dueOf(s.boards[board].due, limit)
}

func (s *State) dueOf(tree *btree.BTreeG[Deadline], limit int) (due []Deadline) {
	tree.Scan(func(d Deadline) bool {
		// Passed falls as T rises, so the first that has not passed ends the scan.
		if len(due) == limit || !s.Passed(d.T) {
			return false
		}
		due = append(due, d)
		return true
	})
	return due
}

// Term is the term of the newest entry.
func (s *State) Term() uint64 { return s.term }
