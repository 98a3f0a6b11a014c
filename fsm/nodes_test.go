package fsm_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/node"
	"raftboard/transport"
	"raftboard/transport/clustertest"
)

const (
	longestStory = 10 * time.Minute // of board time; a longer story is told by the machine alone
	mostCommands = 300
)

// stage is a cluster on which stories are told again, one after the other, each on boards of
// its own.
type stage struct {
	t       *testing.T
	cluster *clustertest.Cluster
	leader  *node.Node
	sampled time.Time // when the leader took one of its samples of board time

	story  *fsm.Story
	suffix string            // of its boards
	ids    map[string]string // an id of the recording → the id here
	names  map[string]string // an id here → its name
	lines  []string
}

// watchBoardTime finds out when the leader samples board time: an open loop makes it tick, and
// a tick shows it.
func (s *stage) watchBoardTime() {
	s.admin(&boardpb.Command{Op: &boardpb.Command_BoardCreate{BoardCreate: &boardpb.BoardCreate{Name: "tuning"}}})
	s.send(&boardpb.Command{Board: "tuning", Actor: actor(), IdempotencyKey: "o",
		Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{Nonce: "n", TtlMs: 600_000}}})
	time.Sleep(3500 * time.Millisecond)
	select {
	case <-s.leader.Changed(): // a tick
		s.sampled = time.Now()
	case <-time.After(10 * time.Second):
		s.t.Fatal("a loop is open, and the leader does not tick")
	}
	s.admin(&boardpb.Command{Op: &boardpb.Command_BoardDelete{BoardDelete: &boardpb.BoardDelete{Name: "tuning"}}})
}

// beginning waits until earlier ticks are long past, and then for the same place between two
// samples each time: so ticks fall at the same times of a story in every cluster.
func (s *stage) beginning() time.Time {
	const between = 50*time.Millisecond + 500*time.Microsecond
	passed := time.Since(s.sampled) + 20*time.Second
	time.Sleep(time.Until(s.sampled.Add(passed.Truncate(100*time.Millisecond) + between)))
	return time.Now()
}

func (s *stage) admin(cmd *boardpb.Command) *boardpb.Result {
	s.t.Helper()
	cmd.Actor = actor()
	r := s.send(cmd)
	if r.Outcome != boardpb.Outcome_OUTCOME_OK {
		s.t.Fatalf("%v: %v", cmd, r)
	}
	return r
}

func actor() *boardpb.Actor {
	a := &boardpb.Actor{Principal: "tuner"}
	for r := boardpb.Role_ROLE_WORKER; r <= boardpb.Role_ROLE_OBSERVER; r++ {
		a.Roles = append(a.Roles, r)
	}
	return a
}

func (s *stage) send(cmd *boardpb.Command) *boardpb.Result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	r, err := s.leader.Propose(ctx, cmd)
	if err != nil {
		s.t.Fatalf("%v: %v", cmd, err)
	}
	return r
}

// translated is a command of the recording with the ids and boards of this cluster.
func (s *stage) translated(cmd *boardpb.Command) *boardpb.Command {
	cmd = proto.CloneOf(cmd)
	s.translate(cmd.ProtoReflect())
	if cmd.Board != state.ClusterBoard {
		cmd.Board = s.board(cmd.Board)
	}
	if o := cmd.GetBoardCreate(); o != nil {
		o.Name = s.board(o.Name)
	} else if o := cmd.GetBoardSet(); o != nil {
		o.Name = s.board(o.Name)
	} else if o := cmd.GetBoardCompact(); o != nil {
		o.Name = s.board(o.Name)
	} else if o := cmd.GetBoardFork(); o != nil {
		o.From, o.Name = s.board(o.From), s.board(o.Name)
	} else if o := cmd.GetBoardClose(); o != nil {
		o.Name = s.board(o.Name)
	} else if o := cmd.GetBoardDelete(); o != nil {
		o.Name = s.board(o.Name)
	}
	if cmd.IdempotencyKey != "" && cmd.Board == state.ClusterBoard {
		cmd.IdempotencyKey = s.board(cmd.IdempotencyKey) // one key space for all stories
	}
	return cmd
}

// board is the name that a board of the story has here.
func (s *stage) board(name string) string { return name + s.suffix }

func (s *stage) translate(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() != nil && f.IsList():
			for i := range v.List().Len() {
				s.translate(v.List().Get(i).Message())
			}
		case f.Message() != nil:
			s.translate(v.Message())
		case f.Kind() == protoreflect.StringKind && !f.IsList():
			if id := s.ids[v.String()]; id != "" {
				m.Set(f, protoreflect.ValueOfString(id))
			}
		}
		return true
	})
}

// learn takes the ids that an answer and the boards brought. Incarnations are named in the
// order in which they came, as the recording does.
func (s *stage) learn(recorded, here *boardpb.Result) {
	if recorded.Loop != "" && here.Loop != "" && s.names[here.Loop] == "" && s.story.Names[recorded.Loop] != "" {
		s.ids[recorded.Loop], s.names[here.Loop] = here.Loop, s.story.Names[recorded.Loop]
	}
	v := s.leader.View()
	for _, b := range v.BoardNames() {
		inc := v.Board(b).Incarnation()
		b, ours := strings.CutSuffix(b, s.suffix)
		if !ours || inc == "" || s.names[inc] != "" {
			continue
		}
		n := 1
		for _, name := range s.names {
			if strings.HasPrefix(name, "<"+b+"#") {
				n++
			}
		}
		s.names[inc] = fmt.Sprintf("<%s#%d>", b, n)
		for id, name := range s.story.Names {
			if name == s.names[inc] {
				s.ids[id] = inc
			}
		}
	}
}

// text is a message without stamps and with names in place of random ids.
func (s *stage) text(m proto.Message) string {
	m = proto.Clone(m)
	unstamp(m.ProtoReflect())
	text := fmt.Sprint(m)
	for id, name := range s.names {
		text = strings.ReplaceAll(text, id, name)
	}
	return text
}

func unstamp(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(f.Name())
		switch {
		case strings.HasSuffix(name, "t_ms"), strings.HasSuffix(name, "wall_ms"):
			m.Clear(f)
		case f.Message() != nil && f.IsList():
			for i := range v.List().Len() {
				unstamp(v.List().Get(i).Message())
			}
		case f.Message() != nil:
			unstamp(v.Message())
		}
		return true
	})
}

// tell runs stories on a new cluster and answers, for each, its results, its events and, at
// the end, all its records, each as a line.
func tell(t *testing.T, stories []*fsm.Story, nodes int) (told map[string][]string) {
	told = map[string][]string{}
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, cluster: clustertest.Start(t, clustertest.Options{Nodes: nodes, Hop: time.Nanosecond,
			Configure: func(_ int, cfg *transport.Config) { // nothing breaks here: hours may pass with few heartbeats
				cfg.Timing = node.Timing{Heartbeat: 10 * time.Second, Election: 10 * time.Second, Lease: 10 * time.Second, Commit: 2 * time.Second}
			}})}
		s.leader = s.cluster.Members[s.cluster.Leader()].Server.Node()
		s.cluster.Eventually("the feature level is raised", func() bool { return s.leader.View().Cluster().GetLevel() == fsm.MaxLevel })
		s.watchBoardTime()
		for i, story := range stories {
			s.story, s.suffix = story, fmt.Sprintf("-%d", i)
			s.ids, s.names, s.lines = map[string]string{}, map[string]string{}, nil
			s.tell()
			told[story.Name] = s.lines
		}
	})
	return told
}

// tell runs one story.
func (s *stage) tell() {
	s.admin(&boardpb.Command{Op: &boardpb.Command_BoardCreate{BoardCreate: &boardpb.BoardCreate{Name: s.board(state.DefaultBoard)}}})
	began, first := s.beginning(), s.leader.View().Applied()
	for i, cmd := range s.story.Commands {
		time.Sleep(time.Until(began.Add(time.Duration(s.story.At[i]) * time.Millisecond)))
		r := s.send(s.translated(cmd))
		s.learn(s.story.Answers[i], r)
		s.lines = append(s.lines, fmt.Sprintf("%d %s", i, s.text(r)))
	}
	v := s.leader.View()
	for _, name := range v.BoardNames() {
		if b := v.Board(name); strings.HasSuffix(name, s.suffix) {
			s.records(b)
			s.admin(&boardpb.Command{Op: &boardpb.Command_BoardDelete{BoardDelete: &boardpb.BoardDelete{Name: name}}})
		}
	}
	s.digestsAgree(first)
}

// records writes down what a board holds.
func (s *stage) records(b *state.Board) {
	b.Events(b.OldestRev(), 0, true, func(ev *boardpb.Event) bool {
		s.lines = append(s.lines, b.Name()+" event "+s.text(ev))
		return true
	})
	b.Leases("", func(_ string, l *boardpb.Lease) bool {
		s.lines = append(s.lines, b.Name()+" lease "+s.text(l))
		return true
	})
	b.Keys("", func(_ string, k *state.Key) bool {
		s.lines = append(s.lines, b.Name()+" entry "+s.text(k.Newest()))
		return true
	})
}

// digestsAgree compares the digests of all nodes after each entry of the story.
func (s *stage) digestsAgree(first uint64) {
	s.t.Helper()
	last := s.leader.View().Applied()
	for _, m := range s.cluster.Members {
		n := m.Server.Node()
		s.cluster.Eventually("every node has applied the story", func() bool { return n.View().Applied() >= last })
		compared := 0
		for i := last; i > first; i-- {
			ours, known := s.leader.DigestAt(i)
			theirs, theyKnow := n.DigestAt(i)
			if !known || !theyKnow {
				break
			}
			if compared++; ours != theirs {
				s.t.Errorf("%s has digest %x after entry %d, the leader %x", m.Name, theirs, i, ours)
			}
		}
		if compared < len(s.story.Commands) {
			s.t.Errorf("%s: %d digests of %s were compared for %d commands", s.story.Name, compared, m.Name, len(s.story.Commands))
		}
	}
}

func TestT46OneNodeAndThreeGiveTheSameAnswersAndEvents(t *testing.T) {
	var stories []*fsm.Story
	for _, story := range fsm.Stories(t) {
		if len(story.At) > 0 && len(story.At) <= mostCommands && time.Duration(slices.Max(story.At))*time.Millisecond <= longestStory {
			stories = append(stories, story)
		} else {
			t.Logf("too long for a cluster: %s", story.Name)
		}
	}
	if len(stories) < 50 {
		t.Errorf("only %d stories are told", len(stories))
	}
	one, three := tell(t, stories, 1), tell(t, stories, 3)
	for _, story := range stories {
		if diff := cmp.Diff(one[story.Name], three[story.Name]); diff != "" || len(one[story.Name]) < len(story.Commands) {
			t.Errorf("%s, - one node, + three nodes:\n%s", story.Name, diff)
		}
	}
}
