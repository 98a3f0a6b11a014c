package check

import (
	"fmt"
	"html"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/anishathalye/porcupine"

	"raftboard/jepsen/history"
)

// Picture writes porcupine's page of one key of registers: the operations as Registers judged
// them, the longest orders that explain them, and the faults of the run drawn in. The page is
// whole in itself and loads nothing. patience bounds the search in real time; what it had
// found by then is drawn.
func Picture(w io.Writer, h *history.History, key string, patience time.Duration) error {
	ops := h.Ops
	if order, found := Agree(h); trusted(append(found, Answers(h.Ops, order)...)) {
		ops = Cut(h.Ops, order)
	}
	var events []porcupine.Operation
	clients := map[string]int{}
	for _, op := range ops {
		if !onRegister(op) || op.Key != key {
			continue
		}
		if _, known := clients[op.Client]; !known {
			clients[op.Client] = len(clients)
		}
		e := event(op, clients[op.Client])
		e.Metadata = fmt.Sprintf("operation %d of %s, called at %v", op.ID, printed(op.Client), op.Invoke)
		events = append(events, e)
	}
	drawn := model()
	drawn.DescribeOperation = func(in, out any) string { return drawnOp(in.(question), out.(reply)) }
	describe := drawn.DescribeState
	// The page takes these two for HTML.
	drawn.DescribeState = func(state any) string { return html.EscapeString(printed(describe(state))) }
	drawn.DescribeOperationMetadata = func(of any) string { return html.EscapeString(fmt.Sprint(of)) }
	_, info := porcupine.CheckOperationsVerbose(drawn, events, max(patience, time.Millisecond))
	info.AddAnnotations(faultsOn(h, events))
	return porcupine.Visualize(drawn, info, w)
}

// drawnOp is an operation as it fits into a bar: what was asked, and what was answered.
func drawnOp(q question, r reply) string {
	text := string(q.kind)
	if q.value != "" {
		text += " " + printed(q.value)
	}
	if q.ifVersion > 0 {
		text += fmt.Sprintf(" if v%d", q.ifVersion)
	}
	if text += " → "; r.outcome == history.Info {
		return text + "unknown"
	}
	if q.kind != history.Get || r.answer != "ok" {
		text += r.answer + " "
	}
	return text + fmt.Sprintf("v%d %s", r.version, printed(r.value))
}

// printed spells out what does not print, of text that has any of it.
func printed(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) || r == utf8.RuneError }) {
		quoted := strconv.Quote(s)
		return quoted[1 : len(quoted)-1]
	}
	return s
}

// faultsOn places faults in the count of beginnings and ends, which is the time of the page,
// and leaves out those that were over before the key's first operation or came after its last.
func faultsOn(h *history.History, events []porcupine.Operation) (out []porcupine.Annotation) {
	first, last := int64(math.MaxInt64), int64(0)
	for _, e := range events {
		first = min(first, e.Call)
		if last = max(last, e.Call); e.Return != math.MaxInt64 {
			last = max(last, e.Return)
		}
	}
	for _, f := range h.Faults {
		start, end := countAt(h.Ops, f.Start), countAt(h.Ops, f.End)
		if end < first || start > last {
			continue
		}
		out = append(out, porcupine.Annotation{Tag: "faults", Start: max(start, first), End: min(max(end, start), last), Description: printed(f.Name),
			Details: printed(f.Name) + " " + f.Start.String() + " to " + f.End.String() + ": " + printed(f.Witness), BackgroundColor: "#f3c6c6"})
	}
	return out
}

// countAt is how far the count of beginnings and ends had come at a time.
func countAt(ops []history.Op, at time.Duration) (count int64) {
	for _, op := range ops {
		if op.Invoke <= at {
			count = max(count, int64(op.Began))
		}
		if op.Ended > 0 && op.Return <= at {
			count = max(count, int64(op.Ended))
		}
	}
	return count
}
