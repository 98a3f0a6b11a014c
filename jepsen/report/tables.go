package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"raftboard/jepsen/history"
)

// kindRow is one kind of operation: how many, by outcome, and how long the ok ones took.
type kindRow struct {
	Kind                     string
	All, OK, Fail, Unknown   int
	P50, P90, P99, Max, Open string
}

// answerRow is what clients were told, and what was concluded from it.
type answerRow struct {
	Answer, Outcome, Class string
	N                      int
}

func (f *facts) kindRows() (out []kindRow) {
	by := map[history.Kind][]*history.Op{}
	all := make([]*history.Op, 0, len(f.h.Ops))
	for i := range f.h.Ops {
		o := &f.h.Ops[i]
		by[o.Kind] = append(by[o.Kind], o)
		all = append(all, o)
	}
	for _, kind := range sortedKeys(by) {
		out = append(out, f.kindRow(string(kind), by[kind]))
	}
	if len(out) > 1 {
		out = append(out, f.kindRow("all", all))
	}
	return out
}

func (f *facts) kindRow(kind string, ops []*history.Op) kindRow {
	row := kindRow{Kind: one(kind), All: len(ops), P50: "–", P90: "–", P99: "–", Max: "–"}
	var took []time.Duration
	for _, o := range ops {
		switch o.Outcome {
		case history.OK:
			row.OK++
			took = append(took, f.took(o))
		case history.Failed:
			row.Fail++
		default:
			row.Unknown++
		}
	}
	if len(took) > 0 {
		slices.Sort(took)
		row.P50, row.P90, row.P99 = brief(quantile(took, 0.5)), brief(quantile(took, 0.9)), brief(quantile(took, 0.99))
		row.Max = brief(took[len(took)-1])
	}
	return row
}

// answerRows group operations by what they were told. Texts of errors are cut where they
// begin to differ by numbers.
func (f *facts) answerRows() (out []answerRow) {
	type told struct {
		answer  string
		outcome history.Outcome
	}
	counts := map[told]int{}
	for i := range f.h.Ops {
		o := &f.h.Ops[i]
		answer := o.Result.Answer
		switch {
		case o.Ended == 0:
			answer = "never returned"
		case answer == "" && o.Result.Error != "":
			answer = "error: " + errorKind(o.Result.Error)
		case answer == "" && o.Outcome == history.OK:
			answer = "ok"
		case o.Result.Proposed != "":
			answer += ", " + strings.ToLower(strings.ReplaceAll(o.Result.Proposed, "_", " "))
		}
		counts[told{answer, o.Outcome}]++
	}
	for t, n := range counts {
		out = append(out, answerRow{one(cmp.Or(t.answer, "nothing")), outcomeWord(t.outcome), string(t.outcome), n})
	}
	slices.SortFunc(out, func(a, b answerRow) int {
		return cmp.Or(-cmp.Compare(a.N, b.N), cmp.Compare(a.Answer, b.Answer), cmp.Compare(a.Outcome, b.Outcome))
	})
	if len(out) > mostAnswers {
		rest := answerRow{Answer: fmt.Sprintf("%d other answers", len(out)-mostAnswers), Outcome: "any"}
		for _, r := range out[mostAnswers:] {
			rest.N += r.N
		}
		out = append(out[:mostAnswers], rest)
	}
	return out
}

// errorKind is the beginning of an error's text, up to what is different each time.
func errorKind(text string) string {
	if i := strings.IndexFunc(text, func(r rune) bool { return r >= '0' && r <= '9' || r == '"' || r == '\n' }); i > 12 {
		text = strings.TrimRight(text[:i], " :(,[") + " …"
	}
	return clip(text, 100)
}

// waits is how long callers waited before they gave up, as seen.
func (f *facts) waits() (out []string) {
	for _, outcome := range []history.Outcome{history.Info, history.Failed} {
		var took []time.Duration
		open := 0
		for i := range f.h.Ops {
			o := &f.h.Ops[i]
			if o.Outcome != outcome {
				continue
			}
			if o.Ended == 0 {
				open++
				continue
			}
			took = append(took, o.Return-o.Invoke)
		}
		slices.Sort(took)
		if len(took) > 0 {
			out = append(out, fmt.Sprintf("%s with the outcome %s returned after a median of %s and at most %s.",
				count(len(took), "operation"), outcomeWord(outcome), brief(quantile(took, 0.5)), brief(took[len(took)-1])))
		}
		if open > 0 {
			out = append(out, count(open, "operation")+" never returned; the outcome is unknown.")
		}
	}
	if f.h.Run.Bound != 0 {
		out = append(out, fmt.Sprintf("After the heal at %s everything may take %s.", seconds(f.h.Run.Healed), brief(f.h.Run.Bound)))
	}
	if f.h.Run.Failover > 0 {
		out = append(out, fmt.Sprintf("With a connected majority operations may take %s until they succeed again.", brief(f.h.Run.Failover)))
	}
	return out
}

// leaseCounts are the numbers by which work under leases is judged at a glance.
func (f *facts) leaseCounts() (out []pair) {
	if len(f.j.Windows) == 0 {
		return nil
	}
	ended := map[string]int{}
	for _, w := range f.j.Windows {
		ended[cmp.Or(w.Cause, "still held at the end")]++
	}
	var ends []string
	for _, cause := range sortedKeys(ended) {
		ends = append(ends, fmt.Sprintf("%s %s", thousands(ended[cause]), cause))
	}
	g := f.j.Figures
	out = []pair{
		{"leases granted", thousands(len(f.j.Windows)) + ": " + strings.Join(ends, ", ")},
		{"conflict rate", fmt.Sprintf("%s %% of the sets that were decided: %s, and %s accepted", number(100*g.ConflictRate), count(g.Conflicts, "conflict"), thousands(g.Sets))},
		{"reclaims", count(g.Reclaims, "grant") + " of a lease that its last holder had lost by expiry"},
		{"fence refusals", fmt.Sprintf("%s of a holder that was one no more, and %s turned away by what guards itself outside the cluster", count(g.FenceRefusals, "write"), thousands(g.OutsideRefusals))},
	}
	if g.Posted > 0 {
		out = append(out, pair{"items", fmt.Sprintf("%s posted, %s completed, %s given back; workers crashed %s and were paused %s", thousands(g.Posted), thousands(g.Completed), thousands(g.GivenBack),
			count(g.Crashes, "time"), count(g.Pauses, "time"))})
	}
	if h := f.j.Holders; h != nil {
		out = append(out, pair{"what holders believed", h.String()})
	}
	return out
}
