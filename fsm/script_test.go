package fsm

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

const (
	scriptZero = 60_000            // board time of a script's @0s: no grace is pending
	scriptWall = 1_767_225_600_000 // wall time less board time: 2026-01-01T00:00:00Z
	longScript = 300               // entries; a longer log is not restored after each of them
)

// script is one run of a golden script: it feeds a machine line by line, one log entry
// each, and writes what every line did beside it.
type script struct {
	seed    uint64 // of the random bits that the leader puts in
	main    *FSM
	log     []*raft.Log
	answers []*boardpb.Result // of each entry, in order
	digests [][16]byte

	actors map[string]*boardpb.Actor
	board  string
	now    int64 // board time that the leader stamps
	wall   int64 // offset of its wall clock
	term   uint64

	known map[string]string // random id → its name in the script
	loops map[string]string // "w1/a" → id of the newest loop of that name
	seqs  map[string]uint64 // by loop id
	out   strings.Builder
}

func newScript(seed uint64) *script {
	s := &script{seed: seed, main: New(Options{}), board: state.DefaultBoard, term: 1, actors: map[string]*boardpb.Actor{},
		known: map[string]string{}, loops: map[string]string{}, seqs: map[string]uint64{}}
	s.apply(&boardpb.Command{Actor: systemActor(), Op: &boardpb.Command_Lead{Lead: &boardpb.Lead{NodeId: "n1"}}})
	s.now = scriptZero
	s.actors["system"] = systemActor()
	return s
}

func TestScriptsGiveTheirGoldenAnswers(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			golden, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s := run(t, string(golden), 1)
			if got := s.out.String(); *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(strings.Split(string(golden), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("%s (- golden, + now; if the new answers are right by SPEC, run with -update and read the diff):\n%s", path, diff)
			}
			if len(s.log) < longScript {
				other := run(t, string(golden), 2)
				if diff := cmp.Diff(strings.Split(s.out.String(), "\n"), strings.Split(other.out.String(), "\n")); diff != "" {
					t.Errorf("%s: other random bits change more than ids:\n%s", path, diff)
				}
			}
			s.sameOnASecondMachine(t)
			s.sameAfterARestoreAtEveryStep(t)
			everyBoardReplays(t, s.main.View())
		})
	}
}

var update = flag.Bool("update", false, "rewrite the golden answers of scripts")

func run(t *testing.T, text string, seed uint64) *script {
	t.Helper()
	s := newScript(seed)
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if strings.HasPrefix(line, " ") {
			continue // an answer, to be written anew
		}
		fmt.Fprintln(&s.out, line)
		if err := s.line(line); err != nil {
			t.Fatalf("line %d: %s: %v", n+1, line, err)
		}
	}
	return s
}

func (s *script) line(line string) error {
	toks, err := tokens(line)
	if err != nil || len(toks) == 0 {
		return err
	}
	switch toks[0] {
	case "actor":
		a, err := actorOf(toks[1:])
		s.actors[toks[1]] = a
		return err
	case "board":
		s.board = toks[1]
		return nil
	case "wall":
		d, err := time.ParseDuration(toks[1])
		s.wall = d.Milliseconds()
		return err
	case "for":
		return s.repeat(toks, line)
	case "?":
		lines, err := s.read(newCall(toks[1:]))
		s.print(lines...)
		return err
	}
	before := s.picture(s.main.View())
	revs := s.revs()
	r, logged, err := s.command(toks)
	if err != nil {
		return err
	}
	text := "→ " + s.result(r)
	if !logged {
		text += " (refused before the log)"
	}
	s.print(text)
	if r.Message != "" {
		s.print("  " + s.names(r.Message))
	}
	s.print(s.happened(revs)...)
	s.print(changes(before, s.picture(s.main.View()))...)
	return s.oneStateOneAnswer()
}

func (s *script) print(lines ...string) {
	for _, l := range lines {
		fmt.Fprintln(&s.out, "    "+l)
	}
}

// repeat runs "for i A B: LINE" with ${i}, ${i-1} and ${i+1} replaced, and sums the answers up.
func (s *script) repeat(toks []string, line string) error {
	_, body, ok := strings.Cut(line, ": ")
	from, err1 := strconv.Atoi(toks[2])
	to, err2 := strconv.Atoi(strings.TrimSuffix(toks[3], ":"))
	if !ok || err1 != nil || err2 != nil {
		return fmt.Errorf(`want "for i A B: LINE"`)
	}
	counts := map[string]int{}
	for i := from; i <= to; i++ {
		one := strings.NewReplacer("${i}", strconv.Itoa(i), "${i-1}", strconv.Itoa(i-1), "${i+1}", strconv.Itoa(i+1)).Replace(body)
		toks, err := tokens(one)
		if err != nil {
			return err
		}
		r, _, err := s.command(toks)
		if err != nil {
			return fmt.Errorf("%s: %w", one, err)
		}
		head, _, _ := strings.Cut(s.result(r), " ")
		counts[head]++
	}
	var parts []string
	for _, head := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d × %s", counts[head], head))
	}
	s.print("→ " + strings.Join(parts, ", "))
	return s.oneStateOneAnswer()
}

// command runs one "@TIME ACTOR VERB …" line. logged tells that it reached the log.
func (s *script) command(toks []string) (r *boardpb.Result, logged bool, err error) {
	if toks[0][0] != '@' || len(toks) < 3 {
		return nil, false, fmt.Errorf("want @TIME ACTOR VERB …")
	}
	text, relative := strings.CutPrefix(toks[0][1:], "+")
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil, false, err
	}
	if relative {
		s.now += d.Milliseconds()
	} else {
		s.now = scriptZero + d.Milliseconds()
	}
	name, _, inLoop := strings.Cut(toks[1], "/")
	actor := s.actors[name]
	if actor == nil {
		return nil, false, fmt.Errorf("no actor %q", name)
	}
	c := newCall(toks[2:])
	cmd := &boardpb.Command{Board: s.board, Actor: actor, CallId: c.opt("call"), IdempotencyKey: c.opt("key"), Floor: c.number("floor")}
	if b, given := c.opts["board"]; given {
		cmd.Board = b
		delete(c.opts, "board")
	}
	if inc := c.opt("inc"); inc != "" {
		cmd.Incarnation = s.idOf(inc)
	}
	if inLoop {
		cmd.Loop = s.loopID(toks[1])
		s.identify(cmd, c)
	}
	s.operation(cmd, c)
	if isCluster(cmd) && cmd.Board == s.board {
		cmd.Board = state.ClusterBoard
	}
	if err := c.done(); err != nil {
		return nil, false, err
	}
	if cmd.GetLead() != nil {
		s.term++
	}
	if refused := Check(cmd); refused != nil {
		return refused, false, s.refusedInApplyToo(cmd, refused)
	}
	r = s.apply(cmd)
	s.learn(toks[1], cmd, r)
	return r, true, s.sameWhenRepeated(cmd, r)
}

// remembered is what a kept answer must still say: the outcome, the numbers, references and
// what can be read again. Counts, texts and what depends on the present time are told anew.
func remembered(r *boardpb.Result) *boardpb.Result {
	c := &boardpb.Result{Outcome: r.Outcome, Code: r.Code, Rev: r.Rev, Version: r.Version, Generation: r.Generation, Value: r.Value,
		Author: r.Author, Holder: r.Holder, HolderLoop: r.HolderLoop, RetryAfterMs: r.RetryAfterMs, Attempts: r.Attempts, OldestRev: r.OldestRev, ExpiresTMs: r.ExpiresTMs, Renewed: r.Renewed, Late: r.Late, DurationMs: r.DurationMs,
		Loop: r.Loop, FailedGuard: r.FailedGuard, FailedOp: r.FailedOp,
		Field: r.Field, Incarnation: r.Incarnation, Next: r.Next, Limit: r.Limit}
	if r.Outcome != boardpb.Outcome_OUTCOME_UNSPECIFIED {
		c.Key = r.Key
	}
	if r.Outcome == boardpb.Outcome_OUTCOME_OK {
		c.ResultRef, c.YourVersion, c.YourGeneration = r.ResultRef, r.YourVersion, r.YourGeneration
	}
	if r.FailedOp != nil {
		c.Value = nil // it may have been staged by the txn itself, and is nowhere
	}
	for _, one := range r.Results {
		c.Results = append(c.Results, &boardpb.Result{Outcome: one.Outcome, Key: one.Key, Version: one.Version, Generation: one.Generation})
	}
	return c
}

// neverRan: the loop is not known (any more), so nothing is remembered under it.
func neverRan(r *boardpb.Result) bool {
	return r.Code == boardpb.Code_CODE_NOT_FOUND && r.Loop != "" || r.Code == boardpb.Code_CODE_FORBIDDEN && r.Field == "loop"
}

// sameWhenRepeated sends a command with an identity once more, to a copy of the machine:
// the answer is the first one, and only the loop's last sign of life may move (SPEC F-7).
func (s *script) sameWhenRepeated(cmd *boardpb.Command, first *boardpb.Result) error {
	if cmd.Seq == 0 && cmd.IdempotencyKey == "" || first.Replayed || !board.Keeps(cmd, first) || neverRan(first) || len(s.log) > 80 {
		return nil
	}
	if c := cmd.GetLoopClose(); c != nil {
		return nil // a loop that ended answers from its window, but tells no endings
	}
	copied := restored(s.main)
	before := s.picture(copied.View())
	again := copied.Apply(s.entry(cmd)).(*Applied).Results[0]
	if !again.Replayed {
		return fmt.Errorf("repeated, it answers %v %v", again.Outcome, again.Code)
	}
	want, got := remembered(first), remembered(again)
	if diff := cmp.Diff(want.String(), got.String()); !proto.Equal(want, got) {
		return fmt.Errorf("repeated, it answers otherwise: %s", diff)
	}
	if moved := changes(before, s.picture(copied.View())); len(moved) > 0 {
		return fmt.Errorf("repeated, it changes %q", moved)
	}
	return nil
}

func (s *script) identify(cmd *boardpb.Command, c *call) {
	switch text := c.opt("seq"); {
	case text != "" && text != "none":
		cmd.Seq = c.uint(text)
	case text == "none" || cmd.IdempotencyKey != "":
	default:
		s.seqs[cmd.Loop]++
		cmd.Seq = s.seqs[cmd.Loop]
	}
}

func isCluster(c *boardpb.Command) bool {
	n := c.ProtoReflect().WhichOneof(c.ProtoReflect().Descriptor().Oneofs().ByName("op")).Number()
	return n < 40
}

// loopID is the id of a loop the script named, or the text itself for one that never was.
func (s *script) loopID(name string) string {
	if id := s.loops[name]; id != "" {
		return id
	}
	return name
}

func (s *script) idOf(name string) string {
	for id, known := range s.known {
		if known == name {
			return id
		}
	}
	return name
}

// learn names the random ids that an answer brought.
func (s *script) learn(who string, cmd *boardpb.Command, r *boardpb.Result) {
	if o := cmd.GetLoopOpen(); o != nil && r.Outcome == boardpb.Outcome_OUTCOME_OK && s.known[r.Loop] == "" {
		name, _, _ := strings.Cut(who, "/")
		name += "/" + o.Nonce
		s.loops[name] = r.Loop
		for n, base := 2, name; slices.Contains(slices.Collect(maps.Values(s.known)), name); n++ {
			name = fmt.Sprintf("%s(%d)", base, n)
		}
		s.known[r.Loop] = name
	}
	v := s.main.View()
	for _, name := range v.BoardNames() {
		if inc := v.Board(name).Incarnation(); s.known[inc] == "" {
			n := 1
			for slices.Contains(slices.Collect(maps.Values(s.known)), fmt.Sprintf("<%s#%d>", name, n)) {
				n++
			}
			s.known[inc] = fmt.Sprintf("<%s#%d>", name, n)
		}
	}
}

func (s *script) entry(cmd *boardpb.Command) *raft.Log {
	index := uint64(len(s.log) + 1)
	cmd = proto.CloneOf(cmd)
	cmd.Entropy = (index + s.seed<<32) * 0x9e3779b97f4a7c15
	stamp := &boardpb.Stamp{TMs: s.now, WallMs: scriptWall + s.now + s.wall, Term: s.term}
	if cmd.GetLead() != nil {
		stamp = &boardpb.Stamp{Term: s.term}
	}
	data, err := proto.Marshal(&boardpb.Batch{Format: Format, Stamp: stamp, Commands: []*boardpb.Command{cmd}})
	if err != nil {
		panic(err)
	}
	return &raft.Log{Index: index, Term: s.term, Type: raft.LogCommand, Data: data}
}

func (s *script) apply(cmd *boardpb.Command) *boardpb.Result {
	l := s.entry(cmd)
	r := s.main.Apply(l).(*Applied).Results[0]
	s.log, s.answers = append(s.log, l), append(s.answers, r)
	s.digests = append(s.digests, s.main.View().Digest())
	return r
}

// refusedInApplyToo runs a command that was refused before the log on a copy of the
// machine: it must be refused there as well, and no record may move.
func (s *script) refusedInApplyToo(cmd *boardpb.Command, refused *boardpb.Result) error {
	if _, err := proto.Marshal(cmd); err != nil {
		return nil // text that is no UTF-8 can't even be written into a log
	}
	c := restored(s.main)
	before := s.picture(c.View())
	r := c.Apply(s.entry(cmd)).(*Applied).Results[0]
	if r.Code != refused.Code || r.Field != refused.Field {
		return fmt.Errorf("refused with %v %q before the log, answered %v %v %q by apply", refused.Code, refused.Field, r.Outcome, r.Code, r.Field)
	}
	for _, line := range changes(before, s.picture(c.View())) {
		if !strings.HasPrefix(line, "= loop ") && !strings.HasPrefix(line, "= board: incarnation=") {
			return fmt.Errorf("refused by apply, but %s", line)
		}
	}
	return nil
}

// restored is a machine that was made from a snapshot of another.
func restored(f *FSM) *FSM {
	var buf bytes.Buffer
	if err := writeView(&buf, f.View()); err != nil {
		panic(err)
	}
	s, err := readState(&buf)
	if err != nil {
		panic(err)
	}
	c := New(Options{})
	c.machine = newMachine(s)
	c.publish(nil)
	return c
}

func (s *script) revs() map[string]uint64 {
	revs := map[string]uint64{}
	for _, name := range s.main.View().BoardNames() {
		revs[name] = s.main.View().Board(name).Rev()
	}
	return revs
}

// happened lists the events that came since.
func (s *script) happened(revs map[string]uint64) []string {
	var out []string
	for _, name := range s.main.View().BoardNames() {
		b := s.main.View().Board(name)
		prefix := "· "
		if name != s.board {
			prefix = "[" + name + "] · "
		}
		b.Events(max(revs[name]+1, b.OldestRev()), 0, true, func(ev *boardpb.Event) bool {
			out = append(out, prefix+s.event(ev))
			return true
		})
	}
	return out
}

// oneStateOneAnswer is trial T-24 after every line: get, leases, reclaimable, dump and
// loop agree on every lease.
func (s *script) oneStateOneAnswer() error {
	v := s.main.View()
	for _, name := range v.BoardNames() {
		b := v.Board(name)
		every := []boardpb.LeaseState{boardpb.LeaseState_LEASE_STATE_FREE, boardpb.LeaseState_LEASE_STATE_HELD,
			boardpb.LeaseState_LEASE_STATE_PARKED, boardpb.LeaseState_LEASE_STATE_DONE}
		rows, _, _ := board.Leases(b, board.LeaseFilter{States: every, Limit: 1000})
		expired, _, _ := board.Leases(b, board.LeaseFilter{Reclaimable: true, Limit: 1000})
		_, dumped, next, _ := board.Dump(b, "", 1000, "")
		if next == "" && len(dumped) != len(rows) {
			return fmt.Errorf("dump has %d leases, the list %d", len(dumped), len(rows))
		}
		reclaimable := 0
		for _, row := range rows {
			key := row.Lease.Key
			_, _, lease, _, _ := board.Get(b, key)
			if lease == nil { // its namespace is gone
				lease = row.Lease
			}
			if !proto.Equal(lease, row.Lease) {
				return fmt.Errorf("get and leases differ: %v, %v", lease, row.Lease)
			}
			if i := slices.IndexFunc(dumped, func(l *boardpb.Lease) bool { return l.Key == key }); next == "" && !proto.Equal(dumped[i], lease) {
				return fmt.Errorf("get and dump differ on %s", key)
			}
			isExpired := lease.State == boardpb.LeaseState_LEASE_STATE_FREE && lease.EndedBy == boardpb.EndedBy_ENDED_BY_EXPIRED
			if isExpired {
				reclaimable++
			}
			if isExpired != slices.ContainsFunc(expired, func(r board.LeaseRow) bool { return r.Lease.Key == key }) {
				return fmt.Errorf("%s is expired: %v, and reclaimable does not agree", key, isExpired)
			}
		}
		if reclaimable != len(expired) {
			return fmt.Errorf("%d reclaimable, want %d", len(expired), reclaimable)
		}
	}
	return nil
}

// sameOnASecondMachine applies the log again, several entries at a time.
func (s *script) sameOnASecondMachine(t *testing.T) {
	t.Helper()
	f := New(Options{})
	for i := 0; i < len(s.log); i += 3 {
		end := min(i+3, len(s.log))
		for j, a := range f.ApplyBatch(s.log[i:end]) {
			s.compare(t, "a second machine", f, i+j, a)
		}
	}
	if got, want := f.View().Digest(), s.main.View().Digest(); got != want {
		t.Errorf("a second machine has digest %x, want %x", got, want)
	}
}

func (s *script) compare(t *testing.T, what string, f *FSM, i int, answer any) {
	t.Helper()
	if diff := cmp.Diff(s.answers[i].String(), answer.(*Applied).Results[0].String()); diff != "" && !proto.Equal(s.answers[i], answer.(*Applied).Results[0]) {
		t.Fatalf("%s answers entry %d otherwise: %s", what, i+1, diff)
	}
	if got, known := f.View().DigestAt(uint64(i + 1)); !known || got != s.digests[i] {
		t.Fatalf("%s has digest %x after entry %d, want %x", what, got, i+1, s.digests[i])
	}
}

// sameAfterARestoreAtEveryStep goes on from a snapshot taken after every entry: with a
// machine that is restored between all entries, and, for short logs, from each snapshot
// to the end.
func (s *script) sameAfterARestoreAtEveryStep(t *testing.T) {
	t.Helper()
	chained := New(Options{})
	for i, l := range s.log {
		if len(s.log) < longScript || i%(len(s.log)/16) == 0 {
			chained = restored(chained)
		}
		s.compare(t, "a machine restored at every step", chained, i, chained.Apply(l))
		if len(s.log) > 70 {
			continue
		}
		f := restored(chained)
		for j := i + 1; j < len(s.log); j++ {
			s.compare(t, fmt.Sprintf("a machine restored after entry %d", i+1), f, j, f.Apply(s.log[j]))
		}
	}
}
