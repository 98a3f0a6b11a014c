package board

import (
	"fmt"
	"slices"
	"strings"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// WhyRow is one thing that explains how a key or a phase stands: who is concerned, since when,
// and the command that ends it. A row without a command ends by itself, or is no hindrance.
type WhyRow struct {
	What    string // held, parked, waits, blocks, wrong …
	Who     string // a principal, or a role that may write; "" is nobody
	About   string // names, numbers, and the label of a loop, quoted; no stored text
	Since   int64  // wall time, 0: not known
	EndsIn  int64  // of board time, by itself; 0: it does not
	Command string
}

// The bounds of an explanation: it fits a screen.
const whyReaders, whyCiting = 3, 3

// Why explains how a key stands: who holds it or may write it, why it cannot be claimed, what
// is wrong with it, who fights over it, and what rests on it. It answers bad_key or
// undeclared_namespace; a key that was never written is explained as well.
func Why(b *state.Board, key string) (rows []WhyRow, r *boardpb.Result) {
	space, r := readSpace(b, key)
	if r != nil {
		return nil, r
	}
	k := b.Key(key)
	rows = append(rows, whyEntry(space, key, k))
	if space.Mode == boardpb.Mode_MODE_LEASED {
		rows = append(rows, whyLease(b, key, shown(b, b.Lease(key)))...)
	}
	if k != nil && !k.Newest().Deleted {
		rows = append(rows, whyMarks(b, k.Newest())...)
	}
	for _, by := range b.ConflictCount(key).GetBy() {
		rows = append(rows, WhyRow{What: "contended", Who: by.Principal, About: fmt.Sprintf("met %d conflicts, the last at rev %d", by.Count, by.Rev),
			Command: "raftboard history " + key})
	}
	return rows, nil
}

func whyEntry(space *state.Space, key string, k *state.Key) WhyRow {
	if k == nil || k.Newest().Deleted {
		row := WhyRow{What: "absent", About: "never written", Who: space.Writer}
		if k != nil {
			e := k.Newest()
			row.About, row.Who, row.Since = fmt.Sprintf("deleted at version %d", e.Version), e.Author, e.WallMs
		}
		switch space.Mode {
		case boardpb.Mode_MODE_LEASED:
			row.Command = fmt.Sprintf("raftboard post %s VALUE", key)
		case boardpb.Mode_MODE_APPEND:
			row.Command = fmt.Sprintf("raftboard append %s VALUE", key)
		default:
			row.Command = fmt.Sprintf("raftboard set %s VALUE", key)
		}
		return row
	}
	e := k.Newest()
	return WhyRow{What: "written", Who: e.Author, About: fmt.Sprintf("version %d, mode %s", e.Version, ModeName(space.Mode)), Since: e.WallMs}
}

// whyLease says who works on an item, or why nobody may.
func whyLease(b *state.Board, key string, l *boardpb.Lease) (rows []WhyRow) {
	switch {
	case l == nil:
		return []WhyRow{{What: "free", About: "never claimed", Command: "raftboard claim " + key}}
	case l.State == held:
		label := ""
		if text := b.Loop(l.Loop).GetLabel(); text != "" {
			label = ", label " + fmt.Sprintf("%+q", text)
		}
		rows = append(rows, WhyRow{What: "held", Who: l.Owner, Since: l.AcquiredWallMs, EndsIn: max(1, l.ExpiresTMs-b.T()),
			About:   fmt.Sprintf("generation %d, attempt %d, loop %s%s", l.Generation, l.Attempts, l.Loop, label),
			Command: fmt.Sprintf("raftboard release %s --force --reason TEXT", key)})
	case l.State == boardpb.LeaseState_LEASE_STATE_DONE:
		rows = append(rows, WhyRow{What: "done", Who: l.Owner, Since: l.EndedWallMs, About: fmt.Sprintf("generation %d", l.Generation),
			Command: "raftboard reopen " + key})
	case l.State == boardpb.LeaseState_LEASE_STATE_PARKED:
		rows = append(rows, WhyRow{What: "parked", Who: l.Owner, Since: l.EndedWallMs, About: fmt.Sprintf("tried %d times", l.Attempts),
			Command: "raftboard unpark " + key})
	case l.FreeTMs > b.T():
		rows = append(rows, WhyRow{What: "delayed", Since: l.EndedWallMs, EndsIn: l.FreeTMs - b.T(), About: "may be claimed again then"})
	default:
		rows = append(rows, WhyRow{What: "free", Since: l.EndedWallMs, About: fmt.Sprintf("generation %d was the last", l.Generation),
			Command: "raftboard claim " + key})
	}
	if len(l.Previous) > 0 {
		p := l.Previous[0]
		rows = append(rows, WhyRow{What: "before", Who: p.Owner, Since: p.EndedWallMs, About: fmt.Sprintf("generation %d ended: %s", p.Generation, causeName(p.EndedBy))})
	}
	return rows
}

func causeName(c boardpb.EndedBy) string {
	return strings.ToLower(strings.TrimPrefix(c.String(), "ENDED_BY_"))
}

// whyMarks says what is wrong with a version, what rests on it, and who saw it.
func whyMarks(b *state.Board, e *boardpb.Entry) (rows []WhyRow) {
	ref := fmt.Sprintf("%s@%d", e.Key, e.Version)
	if m := b.Mark(e); m.GetInvalidation() != nil {
		rows = append(rows, WhyRow{What: "wrong", Who: m.Invalidation.Author, Since: m.Invalidation.WallMs, About: ref + " was invalidated",
			Command: "raftboard trace " + ref})
	} else if m != nil {
		rows = append(rows, WhyRow{What: "wrong", About: "rests on invalidated " + strings.Join(m.RestsOn[:min(len(m.RestsOn), whyCiting)], ", "),
			Command: "raftboard trace " + ref})
	}
	var citing []string
	more := false
	b.CitedBy(state.EntryRef(e), func(by string) bool {
		if more = len(citing) == whyCiting; !more {
			citing = append(citing, by)
		}
		return !more
	})
	if len(citing) > 0 {
		row := WhyRow{What: "cited", About: "by " + strings.Join(citing, ", "), Command: "raftboard trace " + ref}
		if more {
			row.About += " and more"
		}
		rows = append(rows, row)
	}
	n := 0
	for _, r := range slices.Backward(b.Readers(state.Ref{Kind: state.RefKey, Key: e.Key}.String()).GetReaders()) {
		if n++; n > whyReaders {
			break
		}
		rows = append(rows, WhyRow{What: "read", Who: r.Principal, Since: r.WallMs, About: fmt.Sprintf("up to version %d", r.HighestVersion),
			Command: "raftboard who-read " + e.Key})
	}
	return rows
}
