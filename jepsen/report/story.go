package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

const (
	mostLines   = 20 // of what happened
	mostRecords = 12 // of an entry that differs
	beside      = 2 * time.Second
)

// Story is the short text of what went wrong: the first finding, and in words and in order the
// operations, entries, faults and leaders around it, 20 at most; for an entry that is not the
// same everywhere what each node recorded; for a cycle the cycle. Of a run without a finding it
// says in one line what that means. Everything in it prints: it may be shown on a terminal.
func Story(h *history.History, j check.Judgement) string {
	if len(j.Findings) == 0 {
		return "No anomaly found under these faults at this rate.\n"
	}
	return gather(h, j).story(j.Findings[0])
}

func (f *facts) story(found check.Finding) string {
	var b strings.Builder
	what := strings.TrimSpace(plain(found.What))
	if !isCycle(found) {
		what, _, _ = strings.Cut(what, "\n") // what follows is told below, in words
	}
	fmt.Fprintf(&b, "%s by %s: %s\n", f.j.Verdict, found.Checker, strings.TrimSuffix(what, ":"))
	if n := len(f.j.Findings) - 1; n > 0 {
		fmt.Fprintf(&b, "(the first of %d findings)\n", n+1)
	}
	if found.Class != check.Violation {
		return b.String()
	}
	if found.Checker == "G1" {
		f.differing(&b, found)
	}
	if watcher := f.watcherOf(found); watcher != "" {
		f.told(&b, watcher, found)
	} else {
		f.happened(&b, found)
	}
	return b.String()
}

// moment is one line of a story.
type moment struct {
	at    time.Duration
	order int  // of what happens at the same time
	must  bool // the finding names it
	tell  func() string
}

func says(text string) func() string { return func() string { return text } }

// happened lists what was done around a finding.
func (f *facts) happened(b *strings.Builder, found check.Finding) {
	ops := f.involved(found)
	keys := f.keysIn(found, ops)
	all := f.opMoments(ops, keys, found)
	all = append(all, f.entryMoments(ops, keys, found)...)
	middle, any := f.focus(found, ops)
	if !any || len(all) == 0 {
		if len(all) == 0 {
			return
		}
		middle = all[0].at
	}
	all = nearest(all, middle, mostLines-4)
	from, to := all[0].at, all[len(all)-1].at
	around := nearest(f.faultMoments(from-beside, to+beside), middle, 6)
	all = append(all, around...)
	slices.SortStableFunc(all, func(a, b moment) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order)) })
	b.WriteString("\nWhat happened, in seconds since the run began (what the finding names has a *):\n")
	for _, m := range all {
		mark := " "
		if m.must {
			mark = "*"
		}
		fmt.Fprintf(b, "%s %9.3f  %s\n", mark, m.at.Seconds(), m.tell())
	}
	f.windowsOf(b, keys)
}

// focus is the moment that a finding is about.
func (f *facts) focus(found check.Finding, ops []*history.Op) (time.Duration, bool) {
	if len(ops) > 0 {
		last := ops[0]
		for _, o := range ops {
			if o.Invoke > last.Invoke {
				last = o
			}
		}
		return last.Invoke, true
	}
	if found.Index > 0 {
		for i := range f.records() {
			if r := &f.j.Order.Records[i]; r.Index == found.Index {
				return f.clock.when(r)
			}
		}
	}
	return 0, false
}

// keysIn are the keys that a finding is about: those of its operations and of its entry, and
// those that it names.
func (f *facts) keysIn(found check.Finding, ops []*history.Op) []string {
	keys := map[string]bool{}
	for _, o := range ops {
		keys[keyOf(o)] = true
	}
	if len(f.records()) > 0 {
		words := map[string]bool{}
		for _, w := range strings.FieldsFunc(found.What, func(r rune) bool { return r == ' ' || r == ':' || r == ',' || r == ';' || r == '"' || r == '\n' }) {
			words[w] = true
		}
		for i := range f.records() {
			r := &f.j.Order.Records[i]
			for _, key := range keysOf(r) {
				if words[key] || r.Index == found.Index && found.Index > 0 && len(ops) == 0 {
					keys[key] = true
				}
			}
		}
	}
	delete(keys, "")
	return sortedKeys(keys)
}

// opMoments are the operations of a finding and those on its keys.
func (f *facts) opMoments(ops []*history.Op, keys []string, found check.Finding) (out []moment) {
	named := map[uint64]bool{}
	for _, o := range ops {
		named[o.ID] = true
	}
	for i := range f.h.Ops {
		o := &f.h.Ops[i]
		if !named[o.ID] && !slices.Contains(keys, keyOf(o)) && !slices.Contains(keys, o.Key) {
			continue
		}
		out = append(out, moment{at: o.Invoke, must: named[o.ID], tell: func() string { return f.tellOp(o) }})
	}
	return out
}

// tellOp is an operation in one sentence.
func (f *facts) tellOp(o *history.Op) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", clip(o.Client, 30), wish(o))
	if o.Asked != "" {
		fmt.Fprintf(&b, ", asked of %s", clip(o.Asked, 30))
	}
	if o.Ended == 0 {
		b.WriteString(" → never returned: unknown")
	} else {
		fmt.Fprintf(&b, " → %s after %s: %s", outcomeWord(o.Outcome), brief(o.Return-o.Invoke), reply(o))
	}
	if by := f.node(o.Answered); by != "" && by != o.Asked {
		fmt.Fprintf(&b, ", by %s", clip(by, 40))
	}
	fmt.Fprintf(&b, " (operation %d)", o.ID)
	return b.String()
}

// entryMoments are the commands of a finding and those on its keys.
func (f *facts) entryMoments(ops []*history.Op, keys []string, found check.Finding) (out []moment) {
	named := map[uint64]bool{}
	for _, o := range ops {
		named[o.ID] = true
	}
	for i := range f.records() {
		r := &f.j.Order.Records[i]
		must := named[history.OpOf(r.Command.GetCallId())] || found.Index > 0 && r.Index == found.Index
		if !must && !slices.ContainsFunc(keysOf(r), func(k string) bool { return slices.Contains(keys, k) }) {
			continue
		}
		at, known := f.clock.when(r)
		if !known {
			continue
		}
		out = append(out, moment{at: at, order: 1, must: must, tell: func() string { return tellEntry(r) }})
	}
	return out
}

func tellEntry(r *history.Applied) string {
	text := fmt.Sprintf("  entry %d, term %d, %s: %s → %s", r.Index, r.Term, boardTime(r.T), command(r), resultOf(r))
	if id := history.OpOf(r.Command.GetCallId()); id > 0 {
		text += fmt.Sprintf(" (of operation %d)", id)
	}
	return text
}

// faultMoments are faults and changes of the leader in a stretch of the run.
func (f *facts) faultMoments(from, to time.Duration) (out []moment) {
	for _, one := range f.faults {
		name := "FAULT " + clip(one.Name, 40) + " of " + clip(one.targets(), 60)
		if one.Start >= from && one.Start <= to {
			out = append(out, moment{at: one.Start, order: 2, tell: says(name + " begins; " + cmp.Or(clip(one.Witness, 120), "nothing shows that it happened"))})
		}
		if one.End >= from && one.End <= to && one.End > one.Start {
			out = append(out, moment{at: one.End, order: 2, tell: says(name + " is over")})
		}
		if one.Start < from && one.End > to {
			out = append(out, moment{at: max(from, 0), order: -1, tell: says(name + " lasts since " + seconds(one.Start))})
		}
	}
	for _, l := range f.leaders {
		if l.at >= from && l.at <= to {
			out = append(out, moment{at: l.at, order: 2, tell: says(fmt.Sprintf("LEADER in term %d is %s", l.term, clip(l.node, 40)))})
		}
	}
	return out
}

// nearest keeps what must be told and of the rest what is nearest to a moment, in order.
func nearest(all []moment, middle time.Duration, most int) []moment {
	slices.SortStableFunc(all, func(a, b moment) int {
		return cmp.Or(-cmp.Compare(boolInt(a.must), boolInt(b.must)), cmp.Compare((a.at-middle).Abs(), (b.at-middle).Abs()))
	})
	all = all[:min(len(all), most)]
	slices.SortStableFunc(all, func(a, b moment) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order)) })
	return all
}

// windowsOf tells who held the keys of a finding.
func (f *facts) windowsOf(b *strings.Builder, keys []string) {
	lines := 0
	for _, w := range f.held() {
		if !slices.Contains(keys, w.Key) || lines == 8 {
			continue
		}
		if lines++; lines == 1 {
			b.WriteString("\nWho held it, by the checker's own account:\n")
		}
		fmt.Fprintf(b, "  %s\n", w.tip())
	}
}
