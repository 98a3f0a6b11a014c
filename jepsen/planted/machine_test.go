//go:build faults

package planted_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/planted"
)

// machine is one replica without a log: entries are applied as they come.
type machine struct {
	t     *testing.T
	f     *fsm.FSM
	log   []*raft.Log
	index uint64
	now   int64 // board time, ms
	wall  int64 // of stamps, ms
	seqs  map[string]uint64
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, f: fsm.New(fsm.Options{Fatal: func(err error) { t.Errorf("the machine stops: %v", err) }}),
		wall: time.Now().UnixMilli(), seqs: map[string]uint64{}}
	m.lead()
	return m
}

// apply puts one command into an entry of its own and applies that.
func (m *machine) apply(stamp *boardpb.Stamp, c *boardpb.Command) *boardpb.Result {
	m.t.Helper()
	data, err := proto.Marshal(&boardpb.Batch{Format: fsm.Format, Stamp: stamp, Commands: []*boardpb.Command{c}})
	if err != nil {
		m.t.Fatal(err)
	}
	m.index++
	l := &raft.Log{Index: m.index, Term: 1, Type: raft.LogCommand, Data: data}
	m.log = append(m.log, l)
	answer := m.f.ApplyBatch([]*raft.Log{l})[0].(*fsm.Applied)
	if len(answer.Results) != 1 {
		m.t.Fatalf("entry %d has %d results", m.index, len(answer.Results))
	}
	return answer.Results[0]
}

func (m *machine) lead() {
	m.apply(&boardpb.Stamp{Term: 1}, &boardpb.Command{Actor: &boardpb.Actor{Principal: "system"},
		Op: &boardpb.Command_Lead{Lead: &boardpb.Lead{NodeId: "n1"}}})
}

// later lets board time pass, and says so in a tick.
func (m *machine) later(d time.Duration) {
	m.now += d.Milliseconds()
	m.wall += d.Milliseconds()
	m.apply(m.stamp(), &boardpb.Command{Actor: &boardpb.Actor{Principal: "system"}, Op: &boardpb.Command_Tick{Tick: &boardpb.Tick{}}})
}

func (m *machine) stamp() *boardpb.Stamp { return &boardpb.Stamp{TMs: m.now, WallMs: m.wall, Term: 1} }

// do is a command of a caller: w1/loop is a loop that who has opened.
func (m *machine) do(who, loop string, c *boardpb.Command) *boardpb.Result {
	m.t.Helper()
	c.Board, c.Loop, c.Entropy = "default", loop, m.index<<8|1
	c.Actor = &boardpb.Actor{Principal: who, Roles: []boardpb.Role{boardpb.Role_ROLE_WORKER, boardpb.Role_ROLE_ORCHESTRATOR, boardpb.Role_ROLE_OPERATOR}}
	if loop != "" && c.Seq == 0 {
		m.seqs[loop]++
		c.Seq, c.Floor = m.seqs[loop], 1
	}
	m.now += 10
	m.wall += 10
	return m.apply(m.stamp(), c)
}

func (m *machine) open(who string) (loop string) {
	return m.do(who, "", &boardpb.Command{Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{TtlMs: 600_000}}}).Loop
}

func (m *machine) append(who, loop string) *boardpb.Result {
	return m.do(who, loop, &boardpb.Command{Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/x", Value: []byte("1")}}})
}

func (m *machine) set(who, key string, version uint64) *boardpb.Result {
	return m.do(who, "", &boardpb.Command{Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: key, Value: []byte("1"), IfVersion: version}}})
}

func (m *machine) claim(who, loop, key string, lasts time.Duration) *boardpb.Result {
	ms := lasts.Milliseconds()
	return m.do(who, loop, &boardpb.Command{Op: &boardpb.Command_Claim{Claim: &boardpb.Claim{Key: key, DurationMs: &ms}}})
}

func (m *machine) complete(who, loop, key string, generation uint64) *boardpb.Result {
	return m.do(who, loop, &boardpb.Command{Op: &boardpb.Command_Complete{Complete: &boardpb.Complete{Key: key, Generation: generation}}})
}

// copied is another machine that installs a snapshot of this one. begun has applied the first
// few entries before.
func (m *machine) copied(begun int) *machine {
	m.t.Helper()
	c := *m
	c.f = fsm.New(fsm.Options{Fatal: func(err error) { m.t.Errorf("the copy stops: %v", err) }})
	for _, l := range m.log[:begun] {
		c.f.ApplyBatch([]*raft.Log{l})
	}
	if err := c.f.Restore(m.snapshot()()); err != nil {
		m.t.Fatal(err)
	}
	return &c
}

// snapshot takes a snapshot now; what it answers writes it and opens it.
func (m *machine) snapshot() func() io.ReadCloser {
	m.t.Helper()
	s, err := m.f.Snapshot()
	if err != nil {
		m.t.Fatal(err)
	}
	return func() io.ReadCloser {
		var file sink
		if err := s.Persist(&file); err != nil {
			m.t.Fatal(err)
		}
		return io.NopCloser(&file.Buffer)
	}
}

type sink struct{ bytes.Buffer }

func (*sink) ID() string    { return "" }
func (*sink) Cancel() error { return nil }
func (*sink) Close() error  { return nil }

func isOK(r *boardpb.Result) bool { return r.Outcome == boardpb.Outcome_OUTCOME_OK }

// items counts what facts/x holds.
func (m *machine) items() int {
	if k := m.f.View().Board("default").Key("facts/x"); k != nil {
		return len(k.Versions())
	}
	return 0
}

// expired is how many leases have run out.
func (m *machine) expired() uint64 {
	return m.f.View().Board("default").Head().Counters.Expiries
}

// machineBugs are the bugs of the state machine, each with what can be seen of it alone.
var machineBugs = []struct {
	name  string
	shows func(m *machine) bool
}{
	{"M1", func(m *machine) bool {
		a, b := m.open("a"), m.open("b")
		m.set("a", "claims/x", 0)
		first := m.claim("a", a, "claims/x", time.Second)
		m.lead()
		m.later(time.Minute)
		m.claim("b", b, "claims/x", time.Minute)
		return isOK(m.complete("a", a, "claims/x", first.Generation))
	}},
	{"M5", func(m *machine) bool {
		c := &boardpb.Command{IdempotencyKey: "k", Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/x", Value: []byte("1")}}}
		m.do("a", "", proto.CloneOf(c))
		m.do("a", "", c)
		a := m.open("a")
		m.append("a", a)
		m.seqs[a] = 0
		m.append("a", a)
		return m.items() == 4
	}},
	{"M6", func(m *machine) bool {
		a := m.open("a")
		m.append("a", a)
		c := m.copied(0)
		if c.f.View().Digest() != m.f.View().Digest() {
			m.t.Error("the copy has another digest at once")
		}
		c.seqs[a] = 0
		c.append("a", a)
		return c.items() == 2
	}},
	{"M7", func(m *machine) bool {
		a := m.open("a")
		m.append("a", a)
		if m.set("a", "draft", 7); m.append("a", a).Version != 2 {
			m.t.Error("the second append is not the second")
		}
		m.seqs[a] = 0
		again := m.append("a", a)
		return again.Replayed && isOK(again) && again.Version != 1
	}},
	{"M8", func(m *machine) bool {
		m.wall = time.Now().Add(-5 * time.Minute).UnixMilli() // as in the replay of an old log
		a := m.open("a")
		m.set("a", "claims/x", 0)
		m.claim("a", a, "claims/x", time.Minute)
		m.later(20 * time.Second)
		return m.expired() == 1
	}},
	{"M9", func(m *machine) bool {
		m.later(time.Minute)
		was := m.f.View().T()
		m.now -= 30_000
		m.later(time.Second)
		return m.f.View().T() < was
	}},
	{"M10", func(m *machine) bool {
		loops := []string{m.open("a"), m.open("b"), m.open("c"), m.open("d")}
		for i, loop := range loops {
			m.claim(string(rune('a'+i)), loop, fmt.Sprintf("claims/%d", i), time.Second)
		}
		digests := map[[16]byte]bool{}
		for range 20 {
			c := m.copied(0)
			c.later(time.Minute)
			digests[c.f.View().Digest()] = true
		}
		return len(digests) > 1
	}},
	{"M22", func(m *machine) bool {
		m.append("a", "")
		open := m.snapshot()
		m.append("a", "")
		c := *m
		c.f = fsm.New(fsm.Options{})
		if err := c.f.Restore(open()); err != nil {
			m.t.Fatal(err)
		}
		c.f.ApplyBatch(m.log[len(m.log)-1:]) // as raft does: it is above the snapshot
		return c.items() == 3
	}},
	{"M23", func(m *machine) bool {
		m.append("a", "")
		behind := len(m.log)
		m.append("a", "")
		c := m.copied(behind)
		c.append("a", "")
		m.append("a", "")
		return c.f.View().Digest() != m.f.View().Digest()
	}},
	{"M27", func(m *machine) bool {
		a := m.open("a")
		m.claim("a", a, "claims/x", 5*time.Second)
		m.lead()
		m.later(6 * time.Second)
		return m.expired() == 1
	}},
	{"M31", func(m *machine) bool {
		a := m.open("a")
		m.set("a", "claims/x", 0)
		first := m.claim("a", a, "claims/x", time.Minute)
		m.do("a", a, &boardpb.Command{Op: &boardpb.Command_Release{Release: &boardpb.Release{Key: "claims/x", Generation: first.Generation}}})
		m.do("o", "", &boardpb.Command{Op: &boardpb.Command_Delete{Delete: &boardpb.Delete{Key: "claims/x"}}})
		m.set("a", "claims/x", 0)
		free := m.claim("a", a, "claims/x", time.Minute).Generation == first.Generation
		m.do("a", a, &boardpb.Command{Op: &boardpb.Command_Delete{Delete: &boardpb.Delete{Key: "claims/x", Generation: m.f.View().Board("default").Lease("claims/x").Generation}}})
		g := m.f.View().Board("default").Lease("claims/x").Generation
		m.do("a", a, &boardpb.Command{Op: &boardpb.Command_Release{Release: &boardpb.Release{Key: "claims/x", Generation: g}}})
		held := m.claim("a", a, "claims/x", time.Minute).Generation <= g
		return free && held
	}},
	{"M32", func(m *machine) bool {
		m.set("a", "draft", 0)
		return isOK(m.set("b", "draft", 0))
	}},
	{"M33", func(m *machine) bool {
		a, b := m.open("a"), m.open("b")
		m.set("a", "claims/x", 0)
		g := m.claim("a", a, "claims/x", time.Second).Generation
		m.do("a", a, &boardpb.Command{Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "results/a/half", Value: []byte("1"),
			ForClaim: &boardpb.LeaseRef{Key: "claims/x", Generation: g}}}})
		m.lead()
		m.later(time.Minute)
		next := m.claim("b", b, "claims/x", time.Minute)
		kept := m.f.View().Board("default").Key("results/a/half").Newest()
		return next.Generation == g+1 && len(next.Previous[0].PartialRefs) == 0 && kept.Deleted
	}},
	{"M36", func(m *machine) bool {
		op := func(key string, version uint64) *boardpb.TxnOp {
			return &boardpb.TxnOp{Op: &boardpb.TxnOp_Set{Set: &boardpb.Set{Key: key, Value: []byte("1"), IfVersion: version}}}
		}
		r := m.do("a", "", &boardpb.Command{Op: &boardpb.Command_Txn{Txn: &boardpb.Txn{Ops: []*boardpb.TxnOp{
			op("results/a/1", 0), op("results/a/2", 9)}}}})
		return !isOK(r) && m.f.View().Board("default").Key("results/a/1") != nil
	}},
}

func TestEachPlantedBugOfTheStateMachineShowsAndTheMachineGoesOn(t *testing.T) {
	for _, bug := range machineBugs {
		t.Run(bug.name, func(t *testing.T) {
			defer planted.Reset()
			planted.Reset()
			if bug.shows(newMachine(t)) {
				t.Error("it shows without the bug")
			}
			planted.Set(planted.Setting{Bugs: []string{bug.name}})
			m := newMachine(t)
			if !bug.shows(m) {
				t.Error("it does not show")
			}
			before := m.items()
			if r := m.append("z", ""); !isOK(r) || m.items() != before+1 {
				t.Errorf("afterwards an append is answered %v", r)
			}
		})
	}
}
