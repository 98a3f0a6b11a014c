package fsm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// naive is the board as SPEC §2 describes it, as plainly as it can be said: maps, and
// every rule written out. It shares no code with the state machine. Time is the stamp of
// the last command; there are no elections and no loop ends.
type naive struct {
	t       int64
	step    int
	entries map[string][]naiveEntry
	leases  map[string]*naiveLease
	renewed map[string][2]int64 // loop → board time and floor of its last keepalive
	floors  map[string]uint64   // a floor never falls
}

type naiveEntry struct {
	value   string
	deleted bool
	author  string
}

type naiveLease struct {
	state        string // "free", "held", "parked", "done"
	gen          uint64
	owner, loop  string
	expires, dur int64
	seq          uint64
	freeAt       int64
	endedBy      string
	since        int // the step at which it became claimable
	letGo        bool
	attempts     int // grants since it was posted, or unparked
}

// answer is what naive predicts of a Result.
type answer struct {
	word       string // outcome or code
	version    uint64
	generation uint64
}

func (n *naive) live(key string) bool {
	e := n.entries[key]
	return len(e) > 0 && !e[len(e)-1].deleted
}

func (n *naive) version(key string) uint64 { return uint64(len(n.entries[key])) }

func (n *naive) expiry(l *naiveLease) int64 {
	at := l.expires
	if r, ok := n.renewed[l.loop]; ok && !l.letGo && int64(l.seq) < r[1] {
		at = max(at, r[0]+l.dur)
	}
	return at
}

// advance moves time and ends what is due.
func (n *naive) advance(t int64) {
	n.t, n.step = max(n.t, t), n.step+1
	for _, l := range n.leases {
		if l.state == "held" && n.t >= n.expiry(l) {
			n.end(l, "free", "expired")
		}
		if l.state == "free" && l.freeAt > 0 && n.t >= l.freeAt {
			l.freeAt, l.since = 0, n.step
		}
	}
}

func (n *naive) end(l *naiveLease, state, cause string) {
	l.state, l.endedBy, l.freeAt, l.since, l.letGo = state, cause, 0, n.step, false
	if state != "done" {
		l.owner, l.loop = "", ""
	}
	gaveBack := cause == "expired" || cause == "failed" || cause == "released"
	if key := n.keyOf(l); len(n.entries[key]) > 0 && !n.live(key) {
		l.attempts = 0
	} else if state == "free" && gaveBack && key == tried && l.attempts >= 2 {
		l.state = "parked"
	}
}

// tried is the item of a namespace that allows two attempts.
const tried = "claims/c"

func (n *naive) keyOf(l *naiveLease) string {
	for key, is := range n.leases {
		if is == l {
			return key
		}
	}
	return ""
}

// fenced answers "" if the caller holds the generation.
func (n *naive) fenced(who, loop, key string, gen uint64) string {
	l := n.leases[key]
	current := uint64(0)
	if l != nil {
		current = l.gen
	}
	switch {
	case gen == 0:
		return "no_lease"
	case gen > current:
		return "bad_request"
	case gen < current:
		return "stale_lease"
	case l.state == "held" && l.owner == who && l.loop == loop:
		return ""
	case l.state == "held":
		return "not_holder"
	case l.state == "free" && l.endedBy == "expired":
		return "lease_expired"
	}
	return "no_lease"
}

func (n *naive) lease(key string) *naiveLease {
	if n.leases[key] == nil {
		n.leases[key] = &naiveLease{state: "free", since: n.step}
	}
	return n.leases[key]
}

// write is set and append.
func (n *naive) write(who, loop, key, value string, add bool, ifVersion, gen uint64, overwrite bool) answer {
	holder := false
	switch space, _, _ := strings.Cut(key, "/"); space {
	case "facts":
		if !add {
			return answer{word: "wrong_mode"}
		}
	case "draft":
		if add {
			return answer{word: "wrong_mode"}
		}
		if overwrite {
			return answer{word: "bad_request"}
		}
	case "plan":
		if add {
			return answer{word: "wrong_mode"}
		}
		if who != "orc" {
			return answer{word: "forbidden"}
		}
	case "results":
		if strings.Split(key, "/")[1] != who {
			return answer{word: "forbidden"}
		}
	case "claims":
		heldNow := n.leases[key] != nil && n.leases[key].state == "held"
		if n.live(key) || heldNow || gen != 0 {
			if word := n.fenced(who, loop, key, gen); word != "" {
				return answer{word: word}
			}
			holder = true
		}
	}
	if !add && !overwrite {
		fits := ifVersion == 0 && !n.live(key) || ifVersion > 0 && n.version(key) == ifVersion
		if !fits {
			return answer{word: "conflict", version: n.version(key)}
		}
	}
	wasLive := n.live(key)
	n.entries[key] = append(n.entries[key], naiveEntry{value: value, author: who})
	if strings.HasPrefix(key, "claims/") {
		l := n.lease(key)
		if holder {
			l.expires = max(n.expiry(l), n.t+l.dur)
		} else if !wasLive {
			l.since = n.step
		}
	}
	return answer{word: "ok", version: n.version(key)}
}

func (n *naive) remove(who, loop, key string, ifVersion, gen uint64) answer {
	holder := false
	switch space, _, _ := strings.Cut(key, "/"); space {
	case "facts":
		if who != "op" {
			return answer{word: "forbidden"}
		}
	case "plan":
		if who != "orc" {
			return answer{word: "forbidden"}
		}
	case "results":
		if strings.Split(key, "/")[1] != who {
			return answer{word: "forbidden"}
		}
	case "draft":
		if ifVersion == 0 {
			return answer{word: "bad_request"}
		}
	case "claims":
		if gen > 0 || who != "orc" {
			if word := n.fenced(who, loop, key, gen); word != "" {
				return answer{word: word}
			}
			holder = true
		} else if l := n.leases[key]; l != nil && l.state == "held" {
			return answer{word: "held", generation: l.gen}
		}
	}
	if ifVersion > 0 && n.version(key) != ifVersion {
		return answer{word: "conflict", version: n.version(key)}
	}
	if !n.live(key) {
		return answer{word: "not_found", version: n.version(key)}
	}
	n.entries[key] = append(n.entries[key], naiveEntry{deleted: true, author: who})
	if l := n.leases[key]; l != nil {
		if holder {
			l.expires = max(n.expiry(l), n.t+l.dur)
		} else {
			l.state, l.freeAt, l.owner, l.loop, l.attempts = "free", 0, "", "", 0
		}
	}
	return answer{word: "ok", version: n.version(key)}
}

func (n *naive) claim(who, loop, key string, dur int64, seq uint64, takeover bool) answer {
	l := n.lease(key)
	switch {
	case l.state == "held" && l.owner == who && l.loop == loop:
		l.expires = max(n.expiry(l), n.t+dur)
		l.seq, l.letGo = seq, false // worked on again, and covered once this answer is acknowledged
		return answer{word: "ok", generation: l.gen}
	case l.state == "held" && takeover && l.owner == who:
		n.end(l, "free", "takeover")
	case l.state == "held":
		return answer{word: "held", generation: l.gen}
	case l.state == "done":
		return answer{word: "done", generation: l.gen}
	case l.state == "parked":
		return answer{word: "not_ready", generation: l.gen}
	case l.freeAt > n.t:
		return answer{word: "not_ready", generation: l.gen}
	}
	*l = naiveLease{state: "held", gen: l.gen + 1, owner: who, loop: loop, dur: dur, expires: n.t + dur, seq: seq, attempts: l.attempts + 1}
	return answer{word: "ok", generation: l.gen}
}

// ready lists the items that claim_next may give: of those that became claimable first.
func (n *naive) ready() []string {
	first, keys := 1<<62, []string(nil)
	for key, l := range n.leases {
		if l.state != "free" || l.freeAt > 0 || !n.live(key) || l.since > first {
			continue
		}
		if l.since < first {
			first, keys = l.since, nil
		}
		keys = append(keys, key)
	}
	return keys
}

// modelRun drives a machine and the model side by side.
type modelRun struct {
	*naive
	fsm   *FSM
	index uint64
	now   int64
	loops map[string]string // "w1/a" → id
	seqs  map[string]uint64
	log   []*raft.Log
}

func newModelRun(t *rapid.T) *modelRun {
	m := &modelRun{naive: &naive{entries: map[string][]naiveEntry{}, leases: map[string]*naiveLease{},
		renewed: map[string][2]int64{}, floors: map[string]uint64{}},
		fsm: New(Options{}), loops: map[string]string{}, seqs: map[string]uint64{}}
	m.send(t, "system", "", &boardpb.Command{Op: &boardpb.Command_Lead{Lead: &boardpb.Lead{NodeId: "n1"}}})
	m.now = 60_000
	settings := state.DefaultSettings()
	for _, ns := range settings.Namespaces {
		if ns.Pattern == "claims/*" {
			ns.Pattern = "claims/a"
		}
	}
	settings.Namespaces = append(settings.Namespaces, &boardpb.Namespace{Pattern: "claims/b", Mode: boardpb.Mode_MODE_LEASED},
		&boardpb.Namespace{Pattern: tried, Mode: boardpb.Mode_MODE_LEASED, MaxAttempts: 2})
	m.send(t, "op", "", &boardpb.Command{Op: &boardpb.Command_BoardSet{BoardSet: &boardpb.BoardSet{Name: "default", Settings: settings}}})
	for _, name := range []string{"w1/a", "w1/b", "w2/a"} {
		who, nonce, _ := strings.Cut(name, "/")
		r := m.send(t, who, "", &boardpb.Command{Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{Nonce: nonce, TtlMs: 86_400_000}}})
		m.loops[name] = r.Loop
	}
	return m
}

func (m *modelRun) actor(who string) *boardpb.Actor {
	role := map[string]boardpb.Role{"orc": boardpb.Role_ROLE_ORCHESTRATOR, "op": boardpb.Role_ROLE_OPERATOR}[who]
	if role == 0 {
		role = boardpb.Role_ROLE_WORKER
	}
	if who == "system" {
		return systemActor()
	}
	return &boardpb.Actor{Principal: who, Roles: []boardpb.Role{role}}
}

func (m *modelRun) send(t *rapid.T, who, loop string, c *boardpb.Command) *boardpb.Result {
	m.index++
	c.Actor, c.Entropy = m.actor(who), m.index*7919
	if !isCluster(c) {
		c.Board = "default"
	}
	if loop != "" {
		m.seqs[loop]++
		c.Loop, c.Seq, c.Floor = m.loops[loop], m.seqs[loop], m.seqs[loop]
		m.floors[loop] = max(m.floors[loop], c.Floor)
	}
	data, err := proto.Marshal(&boardpb.Batch{Format: Format, Commands: []*boardpb.Command{c},
		Stamp: &boardpb.Stamp{TMs: m.now, WallMs: scriptWall + m.now, Term: 1}})
	if err != nil {
		t.Fatal(err)
	}
	l := &raft.Log{Index: m.index, Term: 1, Type: raft.LogCommand, Data: data}
	m.log = append(m.log, l)
	return m.fsm.Apply(l).(*Applied).Results[0]
}

func (m *modelRun) check(t *rapid.T, what string, r *boardpb.Result, want answer) {
	word := strings.ToLower(strings.TrimPrefix(r.Outcome.String(), "OUTCOME_"))
	if r.Code != 0 {
		word = board.CodeName(r.Code)
	}
	if word != want.word || want.version != 0 && r.Version != want.version || want.generation != 0 && r.Generation != want.generation {
		t.Fatalf("%s: got %s version %d generation %d, want %+v", what, word, r.Version, r.Generation, want)
	}
}

func drawWho(t *rapid.T) (who, loop string) {
	who = rapid.SampledFrom([]string{"w1/a", "w1/a", "w1/b", "w2/a", "w2/a", "orc", "op"}).Draw(t, "who")
	if name, _, inLoop := strings.Cut(who, "/"); inLoop {
		return name, who
	}
	return who, ""
}

func drawHolder(t *rapid.T) (who, loop string) {
	loop = rapid.SampledFrom([]string{"w1/a", "w1/b", "w2/a"}).Draw(t, "loop")
	who, _, _ = strings.Cut(loop, "/")
	return who, loop
}

func drawKey(t *rapid.T) string {
	return rapid.SampledFrom([]string{"facts/a", "facts/b", "claims/a", "claims/b", "claims/c", "results/w1/x", "results/w2/x",
		"draft", "plan"}).Draw(t, "key")
}

func drawItem(t *rapid.T) string {
	return rapid.SampledFrom([]string{"claims/a", "claims/b", "claims/c"}).Draw(t, "item")
}

// near draws a number that is right often, and wrong in both directions else.
func near(t *rapid.T, name string, n uint64) uint64 {
	switch rapid.IntRange(0, 9).Draw(t, name) {
	case 0:
		return 0
	case 1:
		return n + 1
	case 2:
		return max(n, 1) - 1
	}
	return n
}

func (m *modelRun) gen(key string) uint64 {
	if l := m.leases[key]; l != nil {
		return l.gen
	}
	return 0
}

func (m *modelRun) duration(t *rapid.T) int64 {
	return rapid.SampledFrom([]int64{1, 1_000, 4_000, 10_000}).Draw(t, "duration")
}

func (m *modelRun) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"time": func(t *rapid.T) {
			m.now += rapid.SampledFrom([]int64{0, 1, 999, 1_000, 2_500, 6_000, 20_000}).Draw(t, "ms")
		},
		"tick": func(t *rapid.T) {
			m.advance(m.now)
			m.check(t, "tick", m.send(t, "system", "", &boardpb.Command{Op: &boardpb.Command_Tick{Tick: &boardpb.Tick{}}}), answer{word: "ok"})
		},
		"set":        m.set,
		"append":     m.append,
		"delete":     m.delete,
		"claim":      m.claimOne,
		"claim_next": m.claimNext,
		"holder":     m.holder,
		"keepalive":  m.keepalive,
		"manage":     m.manage,
		"txn":        m.txn,
		"":           m.compare,
	}
}

func (m *modelRun) set(t *rapid.T) {
	who, loop := drawWho(t)
	key := drawKey(t)
	o := &boardpb.Set{Key: key, Value: fmt.Appendf(nil, "%d", m.index), Generation: near(t, "generation", m.gen(key))}
	if !strings.HasPrefix(key, "claims/") {
		o.Generation = 0
	}
	if o.Overwrite = rapid.IntRange(0, 5).Draw(t, "overwrite") == 0; !o.Overwrite {
		o.IfVersion = near(t, "if_version", m.version(key))
	}
	m.advance(m.now)
	want := m.write(who, loop, key, string(o.Value), false, o.IfVersion, o.Generation, o.Overwrite)
	m.check(t, "set "+key, m.send(t, who, loop, &boardpb.Command{Op: &boardpb.Command_Set{Set: o}}), want)
}

func (m *modelRun) append(t *rapid.T) {
	who, loop := drawWho(t)
	key := drawKey(t)
	o := &boardpb.Append{Key: key, Value: fmt.Appendf(nil, "%d", m.index), Generation: near(t, "generation", m.gen(key))}
	if !strings.HasPrefix(key, "claims/") {
		o.Generation = 0
	}
	m.advance(m.now)
	want := m.write(who, loop, key, string(o.Value), true, 0, o.Generation, false)
	m.check(t, "append "+key, m.send(t, who, loop, &boardpb.Command{Op: &boardpb.Command_Append{Append: o}}), want)
}

func (m *modelRun) delete(t *rapid.T) {
	who, loop := drawWho(t)
	key := drawKey(t)
	o := &boardpb.Delete{Key: key, IfVersion: near(t, "if_version", m.version(key)), Generation: near(t, "generation", m.gen(key))}
	if !strings.HasPrefix(key, "claims/") {
		o.Generation = 0
	}
	m.advance(m.now)
	want := m.remove(who, loop, key, o.IfVersion, o.Generation)
	m.check(t, "delete "+key, m.send(t, who, loop, &boardpb.Command{Op: &boardpb.Command_Delete{Delete: o}}), want)
}

func (m *modelRun) claimOne(t *rapid.T) {
	who, loop := drawHolder(t)
	key, ms := drawItem(t), m.duration(t)
	o := &boardpb.Claim{Key: key, DurationMs: &ms, Takeover: rapid.IntRange(0, 4).Draw(t, "takeover") == 0}
	m.advance(m.now)
	want := m.claim(who, loop, key, ms, m.seqs[loop]+1, o.Takeover)
	m.check(t, "claim "+key, m.send(t, who, loop, &boardpb.Command{Op: &boardpb.Command_Claim{Claim: o}}), want)
}

func (m *modelRun) claimNext(t *rapid.T) {
	who, loop := drawHolder(t)
	ms := m.duration(t)
	m.advance(m.now)
	ready := m.ready()
	r := m.send(t, who, loop, &boardpb.Command{Op: &boardpb.Command_ClaimNext{ClaimNext: &boardpb.ClaimNext{Pattern: "claims/*", DurationMs: &ms}}})
	if len(ready) == 0 {
		m.check(t, "claim_next", r, answer{word: "timeout"})
		return
	}
	if !slices.Contains(ready, r.Key) {
		t.Fatalf("claim_next gave %q, want one of %v", r.Key, ready)
	}
	m.check(t, "claim_next", r, m.claim(who, loop, r.Key, ms, m.seqs[loop], false))
}

// holder is what a holder does to its lease.
func (m *modelRun) holder(t *rapid.T) {
	who, loop := drawHolder(t)
	key := drawItem(t)
	gen := near(t, "generation", m.gen(key))
	c, what := &boardpb.Command{}, rapid.SampledFrom([]string{"heartbeat", "release", "complete", "fail"}).Draw(t, "operation")
	m.advance(m.now)
	want := answer{word: m.fenced(who, loop, key, gen)}
	l := m.leases[key]
	if want.word == "" {
		want = answer{word: "ok", generation: gen}
	}
	switch what {
	case "heartbeat":
		c.Op = &boardpb.Command_Heartbeat{Heartbeat: &boardpb.Heartbeat{Key: key, Generation: gen}}
		if want.word == "ok" {
			l.expires = max(m.expiry(l), m.t+l.dur)
		}
	case "release":
		c.Op = &boardpb.Command_Release{Release: &boardpb.Release{Key: key, Generation: gen}}
		if want.word == "ok" {
			m.end(l, "free", "released")
		}
	case "complete":
		result := fmt.Appendf(nil, "%d", m.index)
		c.Op = &boardpb.Command_Complete{Complete: &boardpb.Complete{Key: key, Generation: gen, Result: result}}
		if want.word == "ok" {
			m.entries[key] = append(m.entries[key], naiveEntry{value: string(result), author: who})
			m.end(l, "done", "completed")
		}
	case "fail":
		retry := rapid.SampledFrom([]int64{0, 500, 5_000}).Draw(t, "retry_after")
		c.Op = &boardpb.Command_Fail{Fail: &boardpb.Fail{Key: key, Generation: gen, RetryAfterMs: retry}}
		if want.word == "ok" {
			m.end(l, "free", "failed")
			if retry > 0 && l.state == "free" {
				l.freeAt = m.t + retry
			}
		}
	}
	m.check(t, what+" "+key, m.send(t, who, loop, c), want)
}

func (m *modelRun) keepalive(t *rapid.T) {
	_, loop := drawHolder(t)
	who, _, _ := strings.Cut(loop, "/")
	floor := m.seqs[loop] + uint64(rapid.IntRange(0, 1).Draw(t, "acknowledged"))
	m.advance(m.now)
	o := &boardpb.LoopKeepalive{Loops: []*boardpb.LoopRenewal{{Loop: m.loops[loop], Floor: floor}}}
	if key := drawItem(t); rapid.IntRange(0, 3).Draw(t, "let go") == 0 {
		o.LetGo = []*boardpb.LeaseRef{{Key: key, Generation: m.gen(key)}}
		if l := m.leases[key]; l != nil && l.state == "held" && l.owner == who && !l.letGo {
			l.expires, l.letGo = m.expiry(l), true
		}
	}
	for _, l := range m.leases { // what an earlier keepalive gave stays, whatever this one covers
		if l.state == "held" && l.loop == loop {
			l.expires = m.expiry(l)
		}
	}
	m.floors[loop] = max(m.floors[loop], floor)
	m.renewed[loop] = [2]int64{m.t, int64(m.floors[loop])}
	m.check(t, "keepalive", m.send(t, who, "", &boardpb.Command{Op: &boardpb.Command_LoopKeepalive{LoopKeepalive: o}}), answer{word: "ok"})
}

func (m *modelRun) manage(t *rapid.T) {
	who, _ := drawWho(t)
	key := drawItem(t)
	l := m.leases[key]
	m.advance(m.now)
	if rapid.Bool().Draw(t, "force") {
		want := answer{word: "ok"}
		switch {
		case who != "op":
			want.word = "forbidden"
		case l == nil:
			want.word = "not_found"
		case l.state != "held":
			want.word = "wrong_state"
		default:
			m.end(l, "free", "forced")
			l.gen++
			want.generation = l.gen
		}
		m.check(t, "force_release "+key, m.send(t, who, "", &boardpb.Command{Op: &boardpb.Command_ForceRelease{ForceRelease: &boardpb.ForceRelease{Key: key}}}), want)
		return
	}
	want, from := answer{word: "ok"}, "done"
	c := &boardpb.Command{Op: &boardpb.Command_Reopen{Reopen: &boardpb.Reopen{Key: key}}}
	if rapid.Bool().Draw(t, "unpark") {
		c, from = &boardpb.Command{Op: &boardpb.Command_Unpark{Unpark: &boardpb.Unpark{Key: key}}}, "parked"
	}
	switch {
	case who != "op" && who != "orc":
		want.word = "forbidden"
	case l == nil:
		want.word = "not_found"
	case l.state != from:
		want.word = "wrong_state"
	default:
		m.end(l, "free", "reopened")
		if from == "parked" {
			l.attempts = 0
		}
	}
	m.check(t, "from "+from+" "+key, m.send(t, who, "", c), want)
}

// txn is a guard, a set and an append; the model runs them on a copy.
func (m *modelRun) txn(t *rapid.T) {
	who, loop := drawWho(t)
	guarded, key, item := drawKey(t), drawKey(t), drawKey(t)
	is := near(t, "guard", m.version(guarded))
	set := &boardpb.Set{Key: key, Value: fmt.Appendf(nil, "%d", m.index), IfVersion: near(t, "if_version", m.version(key))}
	add := &boardpb.Append{Key: item, Value: fmt.Appendf(nil, "%d", m.index)}
	m.advance(m.now)
	before := *m.naive
	m.entries = cloneEntries(m.entries)
	m.leases = cloneLeases(m.leases)
	want := answer{word: "conflict", version: m.version(guarded)}
	if m.version(guarded) == is {
		if want = m.write(who, loop, key, string(set.Value), false, set.IfVersion, 0, false); want.word == "ok" {
			want = m.write(who, loop, item, string(add.Value), true, 0, 0, false)
		}
	}
	if want.word != "ok" {
		*m.naive = before
	}
	want.version = 0
	c := &boardpb.Command{Op: &boardpb.Command_Txn{Txn: &boardpb.Txn{
		Guards: []*boardpb.Guard{{Test: &boardpb.Guard_Version{Version: &boardpb.VersionIs{Key: guarded, Version: is}}}},
		Ops:    []*boardpb.TxnOp{{Op: &boardpb.TxnOp_Set{Set: set}}, {Op: &boardpb.TxnOp_Append{Append: add}}},
	}}}
	m.check(t, fmt.Sprintf("txn %s, %s, %s", guarded, key, item), m.send(t, who, loop, c), want)
}

func cloneEntries(from map[string][]naiveEntry) map[string][]naiveEntry {
	to := map[string][]naiveEntry{}
	for k, v := range from {
		to[k] = slices.Clone(v)
	}
	return to
}

func cloneLeases(from map[string]*naiveLease) map[string]*naiveLease {
	to := map[string]*naiveLease{}
	for k, v := range from {
		c := *v
		to[k] = &c
	}
	return to
}

// compare holds the whole board against the model, and the feed against its rules.
func (m *modelRun) compare(t *rapid.T) {
	b := m.fsm.View().Board("default")
	for _, key := range []string{"facts/a", "facts/b", "claims/a", "claims/b", "claims/c", "results/w1/x", "results/w2/x", "draft", "plan"} {
		e, _, _, _, r := board.Get(b, key)
		if m.live(key) {
			want := m.entries[key][len(m.entries[key])-1]
			if r != nil || e.Version != m.version(key) || string(e.Value) != want.value || e.Author != want.author {
				t.Fatalf("%s: got %v %v, want version %d %+v", key, e, r, m.version(key), want)
			}
		} else if r == nil || r.Code != boardpb.Code_CODE_NOT_FOUND || r.Version != m.version(key) {
			t.Fatalf("%s: got %v %v, want not_found with version %d", key, e, r, m.version(key))
		}
	}
	for key, want := range m.leases {
		_, _, l, _, _ := board.Get(b, key)
		if l == nil {
			if want.gen > 0 {
				t.Fatalf("%s: no lease record, want %+v", key, want)
			}
			continue
		}
		if state := board.StateName(l.State); l.Generation != want.gen || state != want.state || l.Owner != want.owner ||
			int(l.Attempts) != want.attempts ||
			want.state == "held" && (l.ExpiresTMs != m.expiry(want) || l.Loop != m.loops[want.loop]) {
			t.Fatalf("%s: got %v, want %+v until %d", key, l, want, m.expiry(want))
		}
	}
	var rev uint64
	var sub uint32
	b.Events(1, 0, true, func(ev *boardpb.Event) bool {
		if ev.Rev == rev && ev.Sub != sub+1 || ev.Rev != rev && (ev.Rev != rev+1 || ev.Sub != 0) {
			t.Fatalf("event (%d,%d) follows (%d,%d)", ev.Rev, ev.Sub, rev, sub)
		}
		rev, sub = ev.Rev, ev.Sub
		return true
	})
	if rev != b.Rev() {
		t.Fatalf("the feed ends at rev %d, the board is at %d", rev, b.Rev())
	}
}

func TestRandomCommandsAgreeWithANaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModelRun(t)
		t.Repeat(m.actions())
		checkPages(t, m.fsm.View().Board("default"))
		everyBoardReplays(t, m.fsm.View())
		again, restoredAll := New(Options{}), New(Options{})
		for i, l := range m.log {
			again.Apply(l)
			if i%5 == 0 {
				restoredAll = restored(restoredAll)
			}
			restoredAll.Apply(l)
		}
		if want := m.fsm.View().Digest(); again.View().Digest() != want || restoredAll.View().Digest() != want {
			t.Fatalf("the same log gives digests %x, %x and, restored on the way, %x", want, again.View().Digest(), restoredAll.View().Digest())
		}
	})
}
