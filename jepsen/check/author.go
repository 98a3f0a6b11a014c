package check

import (
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// Authors checks W11 as far as it can be judged without credentials: a caller is who it states
// to be. I1: that name, and no other, is on what it caused: on every command in A, on every
// event, on every version that is there at the end. I2: what claims to be another's, or is
// malformed, does nothing, on whatever node and however forwarded, and leaves nothing behind.
// R1: text that was stored is read back byte for byte, by everybody. V1 to V4: what views show
// of it is in views.go.
func Authors(h *history.History, a *Order) (found []Finding) {
	stated := map[string]bool{}
	byCall := map[string]*history.Op{}
	for i := range h.Ops {
		op := &h.Ops[i]
		byCall[op.CallID()] = op
		if op.Args.As != "" {
			stated[op.Args.As] = true
		}
	}
	for i := range a.Records {
		if r := &a.Records[i]; r.Command.Board == h.Run.Board {
			found = append(found, authorOf(r, byCall[r.Command.CallId], stated)...)
		}
	}
	for _, t := range h.Feed {
		op := byCall[t.Event.GetCallId()]
		if t.Event != nil && op != nil && t.Event.Author != op.Args.As {
			found = append(found, violation("I1", "%s was told of a %v by %s at rev %d; its caller stated %q",
				t.Watcher, kindWord(t.Event.Kind), t.Event.Author, t.Event.Rev, op.Args.As).of(op.ID))
		}
	}
	for _, op := range h.Ops {
		if op.Kind == history.Forged && op.Outcome == history.OK {
			found = append(found, violation("I2", "what %s was accepted from %s", op.Args.Trick, op.Client).of(op.ID))
		}
	}
	found = append(found, views(h, a)...)
	return append(found, texts(h, a)...)
}

// authorOf judges one command: what it did is its caller's, and a forged one did nothing.
func authorOf(r *history.Applied, op *history.Op, stated map[string]bool) (found []Finding) {
	who := r.Command.Actor.GetPrincipal()
	if other := r.Command.Actor.GetActingFor(); other != "" {
		found = append(found, violation("I1", "a command of %s was applied as acting for %s", who, other).at(r.Index))
	}
	switch {
	case op == nil && r.Command.GetReceipts() != nil && who == "system":
		// The nodes' own: who was shown what. No caller has a way to send it.
	case op == nil && !stated[who]:
		found = append(found, violation("I1", "a command was applied under the name %q, which nobody stated", who).at(r.Index))
	case op != nil && who != op.Args.As:
		found = append(found, violation("I1", "a command was applied under the name %q; its caller stated %q (%s)",
			who, op.Args.As, op.Args.Trick).at(r.Index).of(op.ID))
	}
	if op != nil && op.Kind == history.Forged && r.OK() {
		found = append(found, violation("I2", "what %s was done for %s", op.Args.Trick, op.Client).at(r.Index).of(op.ID))
	}
	return found
}

// stored is a version that somebody wrote.
type stored struct {
	key     string
	version uint64
}

// texts judges what is read, and what is there at the end.
func texts(h *history.History, a *Order) (found []Finding) {
	wrote, refusedAt := map[stored]*history.Op{}, map[string]*history.Op{}
	for i := range h.Ops {
		switch op := &h.Ops[i]; {
		case op.Kind == history.Forged, op.Outcome == history.Failed && op.Kind == history.Set:
			refusedAt[op.Key] = op
		case op.Kind == history.Set || op.Kind == history.Append || op.Kind == history.Post:
			for _, r := range a.ByCall(op.CallID()) {
				if r.OK() {
					wrote[stored{op.Key, r.Result.Version}] = op
				}
			}
		}
	}
	for i := range h.Ops {
		op := &h.Ops[i]
		by := wrote[stored{op.Key, op.Result.Version}]
		if op.Kind == history.Get && op.Result.Answer == "ok" && by != nil && op.Result.Value != by.Args.Value {
			found = append(found, violation("R1", "%s reads %q at %s; %q was stored there", op.Client, op.Result.Value, op.Key, by.Args.Value).of(by.ID, op.ID))
		}
	}
	if len(h.Finals) == 0 {
		found = append(found, invalid("nobody read the board at the end"))
	}
	for _, f := range h.Finals {
		if f.Entry != nil {
			found = append(found, atRest(f.Reader, f.Entry, wrote, refusedAt)...)
		}
	}
	return found
}

// atRest judges one version that is there at the end.
func atRest(reader string, e *boardpb.Entry, wrote map[stored]*history.Op, refusedAt map[string]*history.Op) (found []Finding) {
	by, value := wrote[stored{e.Key, e.Version}], history.Text(e.Value)
	switch {
	case by == nil && refusedAt[e.Key] != nil:
		op := refusedAt[e.Key]
		return []Finding{violation("I2", "%s sees %q at %s, where only something refused was to go (%s)", reader, value, e.Key, op.Args.Trick).of(op.ID)}
	case by == nil:
		return nil
	case value != by.Args.Value:
		found = append(found, violation("R1", "%s sees %q at %s; %q was stored there", reader, value, e.Key, by.Args.Value).of(by.ID))
	}
	if e.Author != by.Args.As || e.ActingFor != "" {
		found = append(found, violation("I1", "%s sees %s as the author of %s (acting for %q); its writer stated %q",
			reader, e.Author, e.Key, e.ActingFor, by.Args.As).of(by.ID))
	}
	return found
}
