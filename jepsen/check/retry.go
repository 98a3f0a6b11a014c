package check

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// The states that only repeats lead to.
const (
	Abandoned    State = "seq below the floor refused"
	BodyReused   State = "identity with another body refused"
	AfterEnd     State = "command of an ended loop refused"
	ResentAcross State = "dedupe hit across a snapshot install" // by a node that knows the first answer only from it
)

// repeats counts them.
func repeats(h *history.History, a *Order, n map[State]int) {
	first := map[identity]uint64{}
	for i := range a.Records {
		r := &a.Records[i]
		switch r.Result.Code {
		case boardpb.Code_CODE_EXPIRED_REQUEST:
			n[Abandoned]++
		case boardpb.Code_CODE_REQUEST_ID_REUSED:
			n[BodyReused]++
		case boardpb.Code_CODE_LOOP_ENDED:
			n[AfterEnd]++
		}
		if id := identityOf(r); !id.none() && !neverRan(r.Result) && first[id] == 0 {
			first[id] = r.Index
		}
	}
	installed := map[life]uint64{} // the newest snapshot a life went on from
	for _, s := range h.Install {
		l := life{s.Node, s.Life}
		installed[l] = max(installed[l], s.Index)
	}
	for i := range h.Applied {
		r := &h.Applied[i]
		at := installed[life{r.Node, r.Life}]
		if r.Result.Replayed && r.Index > at && first[identityOf(r)] <= at {
			n[ResentAcross]++
		}
	}
}

// windowed is how many seqs of a loop may be in flight above its floor (SPEC F-7).
const windowed = 256

// Retry checks W6. On A: S1, an identity takes effect with one body only; S2, a repeat with
// another body is refused, and one with the same body never is; S5, a command of a loop that
// ended or never was is refused and not run, but what was applied on it keeps its first answer;
// S6, a seq below the floor is expired_request, and only such a one, and one too far above is not
// run. On what clients were told: S2, all answers to one identity are the same, whoever asked
// whom when, and one at most says that it was done just now. S3, a counter holds what took
// effect: no less than was acknowledged, no more than acknowledged and unknown together.
//
// S4 needs no rule of its own: what a snapshot does not hold of a window shows as another
// digest (G1), or as an identity that takes effect again (S1).
func Retry(h *history.History, a *Order) []Finding {
	found := windows(h, a)
	found = append(found, sameAnswers(h, a)...)
	return append(found, counters(h, a)...)
}

// window is what A says of one loop.
type window struct {
	owner     string
	floor     uint64
	ttl, last int64
	closed    bool
}

// silent: the loop may have ended by its silence, which no command shows.
func (w *window) silent(t int64) bool { return t >= w.last+w.ttl }

// remembrance walks through A and keeps what a dedupe window must keep.
type remembrance struct {
	loops map[string]*window
	first map[identity]*history.Applied
	body  map[identity]string
	found []Finding
}

func windows(h *history.History, a *Order) []Finding {
	m := &remembrance{loops: map[string]*window{}, first: map[identity]*history.Applied{}, body: map[identity]string{}}
	for i := range a.Records {
		if r := &a.Records[i]; r.Command.Board == h.Run.Board {
			m.apply(r)
		}
	}
	return m.found
}

func (m *remembrance) say(r *history.Applied, checker, format string, args ...any) {
	f := violation(checker, format, args...).at(r.Index)
	if id := history.OpOf(r.Command.GetCallId()); id != 0 {
		f = f.of(id)
	}
	m.found = append(m.found, f)
}

func (m *remembrance) apply(r *history.Applied) {
	c := r.Command
	w := m.loops[c.Loop]
	if id := identityOf(r); !id.none() && r.Result.Code != boardpb.Code_CODE_RESET {
		m.judge(r, id, w)
		if !neverRan(r.Result) && (m.first[id] == nil || id.lapsed(m.first[id].T, r.T)) {
			m.first[id], m.body[id] = r, bodyOf(c)
		}
	}
	if w != nil && w.owner == c.Actor.GetPrincipal() && (r.Result.Replayed || !neverRan(r.Result)) {
		w.floor = max(w.floor, c.Floor)
		if r.Result.Code == boardpb.Code_CODE_UNSPECIFIED {
			w.last = r.T
		}
	}
	if r.OK() {
		m.loopsAfter(r)
	}
}

// loopsAfter follows what commands do to loops.
func (m *remembrance) loopsAfter(r *history.Applied) {
	c := r.Command
	switch o := c.Op.(type) {
	case *boardpb.Command_LoopOpen:
		if !r.Result.Renewed {
			m.loops[r.Result.Loop] = &window{owner: c.Actor.GetPrincipal(), floor: 1, ttl: r.Result.TtlMs, last: r.T}
		} else if w := m.loops[r.Result.Loop]; w != nil {
			w.last = r.T
		}
	case *boardpb.Command_LoopKeepalive:
		for i, s := range r.Result.Loops {
			if w := m.loops[s.Loop]; w != nil && s.Code == boardpb.Code_CODE_UNSPECIFIED && i < len(o.LoopKeepalive.Loops) {
				w.floor, w.last = max(w.floor, o.LoopKeepalive.Loops[i].Floor), r.T
			}
		}
	case *boardpb.Command_LoopClose:
		id := o.LoopClose.Loop
		if id == "" {
			id = c.Loop
		}
		if w := m.loops[id]; w != nil {
			w.closed = true
		}
	}
}

// judge says whether a command with an identity got the kind of answer that it must get.
func (m *remembrance) judge(r *history.Applied, id identity, w *window) {
	c, code := r.Command, r.Result.Code
	if c.Loop != "" && w == nil {
		if !neverRan(r.Result) {
			m.say(r, "S5", "a command of loop %s, which nobody opened, was answered %s", c.Loop, name(r.Result))
		}
		return
	}
	if c.Loop != "" && (w.owner != c.Actor.GetPrincipal() || w.silent(r.T)) {
		return // another's loop, or one of which it is not known whether it lives
	}
	if id.seq > 0 {
		floor := max(w.floor, c.Floor)
		expired := code == boardpb.Code_CODE_EXPIRED_REQUEST
		switch {
		case id.seq < floor && !expired:
			m.say(r, "S6", "seq %d of %s is below the floor %d, and was answered %s", id.seq, c.Loop, floor, name(r.Result))
		case id.seq >= floor && expired:
			m.say(r, "S6", "seq %d of %s is not below the floor %d, and was refused as expired", id.seq, c.Loop, floor)
		}
		if id.seq < floor || expired {
			return
		}
	}
	if was := m.first[id]; was != nil && !id.lapsed(was.T, r.T) {
		m.repeat(r, was, bodyOf(c) == m.body[id])
		return
	}
	m.newcomer(r, id, w)
}

// repeat judges a command whose identity was applied before. That a repeat is not applied
// again and gets the first answer is checked of every run (identities).
func (m *remembrance) repeat(r, was *history.Applied, same bool) {
	code := r.Result.Code
	reused := code == boardpb.Code_CODE_REQUEST_ID_REUSED
	switch {
	case same && reused:
		m.say(r, "S2", "a repeat of entry %d was refused as if its body were another", was.Index)
	case same && (code == boardpb.Code_CODE_LOOP_ENDED || code == boardpb.Code_CODE_NOT_FOUND && neverRan(r.Result)):
		m.say(r, "S5", "a repeat of entry %d was answered %s, and not with the first answer", was.Index, name(r.Result))
	case same && code == boardpb.Code_CODE_LIMIT_IN_FLIGHT:
		m.say(r, "S6", "a repeat of entry %d was answered %s, and not with the first answer", was.Index, name(r.Result))
	case !same && !reused && !r.Result.Replayed:
		m.say(r, "S1", "another body under the identity of entry %d was answered %s", was.Index, name(r.Result))
	case !same && !reused:
		m.say(r, "S2", "another body under the identity of entry %d was given its answer", was.Index)
	}
}

// newcomer judges a command whose identity was never applied.
func (m *remembrance) newcomer(r *history.Applied, id identity, w *window) {
	c, code := r.Command, r.Result.Code
	if code == boardpb.Code_CODE_REQUEST_ID_REUSED {
		m.say(r, "S2", "a command was refused as another one's repeat, and there is no first one")
		return
	}
	if id.seq == 0 {
		return
	}
	ended := code == boardpb.Code_CODE_LOOP_ENDED
	tooFar := id.seq >= max(w.floor, c.Floor)+windowed
	switch {
	case w.closed && !ended:
		m.say(r, "S5", "the new seq %d of the closed loop %s was answered %s", id.seq, c.Loop, name(r.Result))
	case !w.closed && ended:
		m.say(r, "S5", "seq %d of loop %s was refused because the loop had ended, and nobody ended it", id.seq, c.Loop)
	case !w.closed && tooFar && !neverRan(r.Result):
		m.say(r, "S6", "seq %d of %s is %d or more above the floor, and was answered %s", id.seq, c.Loop, windowed, name(r.Result))
	case !w.closed && !tooFar && code == boardpb.Code_CODE_LIMIT_IN_FLIGHT:
		m.say(r, "S6", "seq %d of %s is within the window, and was refused as too far above the floor", id.seq, c.Loop)
	}
}

// bodyOf is what of a command must be equal in a repeat: what it does, and where.
func bodyOf(c *boardpb.Command) string {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(&boardpb.Command{Board: c.Board, Op: c.Op})
	if err != nil {
		return "unmarshalable: " + err.Error()
	}
	return string(raw)
}

// stated is the identity that an operation stated by itself; none if its client gave it one.
func stated(op *history.Op) identity {
	switch {
	case op.Args.Identity != "":
		return identity{board: op.Board, key: op.Args.Identity}
	case op.Args.Floor > 0:
		return identity{board: op.Board, loop: op.Loop, seq: op.Seq}
	}
	return identity{}
}

// decidedIt says that an answer tells what became of the command, and not only of the attempt.
func decidedIt(op *history.Op) bool {
	switch op.Result.Answer {
	case "", "unavailable", "expired_request", "request_id_reused", "loop_ended", "not_found", "forbidden", "reset",
		"limit_in_flight", "limit_idempotency_keys", "limit_requests":
		return false
	}
	return op.Outcome != history.Info
}

func toldOf(op *history.Op) compactAnswer {
	return compactAnswer{op.Result.Answer, op.Result.Rev, op.Result.Version, op.Result.Generation}
}

// sameAnswers is S2 on what clients were told.
func sameAnswers(h *history.History, a *Order) (found []Finding) {
	applied := map[identity]*history.Applied{}
	for i := range a.Records {
		r := &a.Records[i]
		id := identityOf(r)
		id.who = "" // of operations only the key is known, and keys are given once in a run
		if !id.none() && !neverRan(r.Result) && applied[id] == nil {
			applied[id] = r
		}
	}
	first, justNow := map[identity]*history.Op{}, map[identity]*history.Op{}
	for i := range h.Ops {
		op := &h.Ops[i]
		id := stated(op)
		if id.none() || !decidedIt(op) {
			continue
		}
		if was := first[id]; was == nil {
			first[id] = op
		} else if toldOf(was) != toldOf(op) {
			found = append(found, violation("S2", "one command was answered %v and %v", toldOf(was), toldOf(op)).of(was.ID, op.ID))
		}
		if r := applied[id]; r != nil && compact(r.Result) != toldOf(op) {
			found = append(found, violation("S2", "a command was answered %v, applied was %v", toldOf(op), compact(r.Result)).at(r.Index).of(op.ID))
		}
		if was := justNow[id]; was != nil && !op.Result.Replayed {
			found = append(found, violation("S2", "of one command it was said twice that it was done just now").of(was.ID, op.ID))
		} else if !op.Result.Replayed {
			justNow[id] = op
		}
	}
	return found
}

// tally is what is known of one counter.
type tally struct {
	effective      int // distinct increments that took effect
	acked, unknown map[identity]bool
}

// counters is S3: an item of an append key is an increment.
func counters(h *history.History, a *Order) (found []Finding) {
	keys := map[string]*tally{}
	for i := range h.Ops {
		op := &h.Ops[i]
		id := stated(op)
		if op.Kind != history.Append || id.none() {
			continue
		}
		if keys[op.Key] == nil {
			keys[op.Key] = &tally{acked: map[identity]bool{}, unknown: map[identity]bool{}}
		}
		switch {
		case op.Outcome == history.OK:
			keys[op.Key].acked[id] = true
		case op.Outcome == history.Info || notNow(op):
			keys[op.Key].unknown[id] = true
		}
	}
	for i := range a.Records {
		r := &a.Records[i]
		if k := keys[r.Command.GetAppend().GetKey()]; k != nil && r.Command.Board == h.Run.Board && r.OK() {
			k.effective++
		}
	}
	readers := finalReaders(h)
	if len(readers) == 0 {
		return []Finding{invalid("nobody read the counters at the end")}
	}
	for _, reader := range readers {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			found = append(found, keys[key].compare(reader.name, key, reader.items(key))...)
		}
	}
	return found
}

func (k *tally) compare(reader, key string, items []string) (found []Finding) {
	say := func(format string, args ...any) {
		found = append(found, violation("S3", "%s sees %d increments of %s: %s", reader, len(items), key, fmt.Sprintf(format, args...)))
	}
	most := len(k.acked)
	for id := range k.unknown {
		if !k.acked[id] {
			most++
		}
	}
	switch n := len(items); {
	case n < len(k.acked):
		say("%d were acknowledged", len(k.acked))
	case n > most:
		say("%d were acknowledged or may have been done", most)
	case n != k.effective:
		say("%d took effect", k.effective)
	}
	if unique := len(slices.Compact(slices.Sorted(slices.Values(items)))); unique != len(items) {
		say("%d of them are there twice", len(items)-unique)
	}
	return found
}
