package fsm

import (
	"fmt"
	"strings"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/phase"
	"raftboard/fsm/state"
)

// phaseOperation reads the operations on phases. A phase is defined as ID, or as ID<DEP,DEP;
// expect= and strict hold for all phases of the line.
func phaseOperation(cmd *boardpb.Command, verb string, c *call) {
	switch verb {
	case "phase.define":
		cmd.Op = &boardpb.Command_PhaseDefine{PhaseDefine: phaseDefine(c)}
	case "phase.lock":
		cmd.Op = &boardpb.Command_PhaseLock{PhaseLock: &boardpb.PhaseLock{Phase: c.word("phase"), DurationMs: c.duration(c.maybe())}}
	case "phase.renew":
		o := &boardpb.PhaseRenew{Phase: c.word("phase"), Generation: c.number("gen"), DurationMs: c.duration(c.maybe())}
		cmd.Op = &boardpb.Command_PhaseRenew{PhaseRenew: o}
	case "phase.unlock":
		cmd.Op = &boardpb.Command_PhaseUnlock{PhaseUnlock: &boardpb.PhaseUnlock{Phase: c.word("phase"), Generation: c.number("gen")}}
	case "phase.write":
		cmd.Op = &boardpb.Command_PhaseWrite{PhaseWrite: phaseWrite(c)}
	case "phase.complete":
		o := &boardpb.PhaseComplete{Phase: c.word("phase"), Generation: c.number("gen"), Inputs: phaseInputs(c)}
		cmd.Op = &boardpb.Command_PhaseComplete{PhaseComplete: o}
	case "phase.reopen":
		cmd.Op = &boardpb.Command_PhaseReopen{PhaseReopen: &boardpb.PhaseReopen{Phase: c.word("phase")}}
	case "phase.resolve":
		o := phaseWrite(c)
		strategy := boardpb.PhaseStrategy(boardpb.PhaseStrategy_value["PHASE_STRATEGY_"+strings.ToUpper(c.word("strategy"))])
		cmd.Op = &boardpb.Command_PhaseResolve{PhaseResolve: &boardpb.PhaseResolve{Phase: o.Phase, Local: o.Patch, VersionRead: o.VersionRead,
			VersionSeen: c.number("seen"), Strategy: strategy, Generation: o.Generation}}
	case "phase.settle":
		o := &boardpb.PhaseSettle{KeepCurrent: c.flag("keep"), Conflict: c.word("conflict")}
		if text := c.maybe(); text != "" {
			o.Data = []byte(text)
		}
		cmd.Op = &boardpb.Command_PhaseSettle{PhaseSettle: o}
	default:
		c.fail("no verb %q", verb)
	}
}

func commas(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

func phaseDefine(c *call) *boardpb.PhaseDefine {
	strict, name, expect := c.flag("strict"), c.opt("name"), c.opt("expect")
	o := &boardpb.PhaseDefine{}
	for len(c.words) > 0 {
		id, needs, _ := strings.Cut(c.word("phase"), "<")
		p := &boardpb.PhaseSpec{Id: id, Name: name, Dependencies: commas(needs), Strict: strict}
		for _, text := range commas(expect) {
			key, kind, _ := strings.Cut(text, ":")
			p.Expected = append(p.Expected, &boardpb.ExpectedKey{Key: key, Type: kind})
		}
		o.Phases = append(o.Phases, p)
	}
	return o
}

func phaseWrite(c *call) *boardpb.PhaseWrite {
	o := &boardpb.PhaseWrite{Replace: c.flag("replace"), Complete: c.flag("complete"), Phase: c.word("phase"), Patch: []byte(c.word("patch")),
		DeleteKeys: commas(c.opt("delete")), Generation: c.number("gen"), Inputs: phaseInputs(c)}
	if v := c.opt("read"); v != "" {
		n := c.uint(v)
		o.VersionRead = &n
	}
	return o
}

// phaseInputs reads inputs=PHASE@VERSION,…
func phaseInputs(c *call) (inputs []*boardpb.PhaseInput) {
	for _, text := range commas(c.opt("inputs")) {
		id, version, _ := strings.Cut(text, "@")
		inputs = append(inputs, &boardpb.PhaseInput{Phase: id, Version: c.uint(version)})
	}
	return inputs
}

// readPhases answers "? phase ID as=ACTOR" and "? phases".
func (s *script) readPhases(b *state.Board, verb string, c *call) (lines []string, r *boardpb.Result) {
	if verb == "phase" {
		row, refused := phase.Read(b, s.actors[c.opt("as")], c.word("phase"))
		if refused != nil {
			return nil, refused
		}
		return append(lines, s.phaseRow(row), "  data "+string(row.Data.GetData())), nil
	}
	switch verb {
	case "conflicts":
		rows, next, refused := phase.Conflicts(b, s.actors[c.opt("as")], phase.ConflictFilter{Decided: c.flag("decided"), Phase: c.maybe(),
			After: c.opt("after"), Limit: uint32(c.number("limit"))})
		for _, row := range rows {
			lines = append(lines, "→ "+s.message(row.ProtoReflect()))
		}
		return append(lines, fmt.Sprintf("→ %d conflicts, next=%q", len(rows), next)), refused
	case "detect":
		found, refused := phase.Detect(b, s.actors[c.opt("as")], c.word("phase"), c.number("read"), commas(c.opt("keys")))
		return []string{fmt.Sprintf("→ theirs=%q overlap=%q by %q not_ready=%v", found.Theirs, found.Overlap, found.ModifiedBy, found.NotReady)}, refused
	}
	rows, next := phase.List(b, c.opt("after"), uint32(c.number("limit")))
	for _, row := range rows {
		lines = append(lines, s.phaseRow(row))
	}
	return append(lines, fmt.Sprintf("→ %d phases, next=%q", len(rows), next)), nil
}

func (s *script) phaseRow(row phase.Row) string {
	p := row.Phase
	text := fmt.Sprintf("→ %s %s v%d owner=%q not_ready=%v lock=g%d", p.Id, phase.StatusName(p.Status), p.Version, p.Owner, row.NotReady, row.Generation)
	if row.LockedBy != "" {
		text += fmt.Sprintf(" by %s until %s", row.LockedBy, clock(row.LockedUntil))
	}
	for _, in := range p.Inputs {
		text += fmt.Sprintf(" %s@%d", in.Phase, in.Version)
	}
	if p.StaleInputs {
		text += " stale"
	}
	return text
}
