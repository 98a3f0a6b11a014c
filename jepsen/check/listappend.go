package check

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"slices"

	"raftboard/jepsen/history"
)

// ExportListAppend writes the transactions of W3 as a list-append history in the JSON that
// Elle's command line reads (--model list-append): an array of what was called and what came
// of it, with lists and elements as numbers. What a client gave up on is of type info, and the
// client goes on as another process, as Jepsen has it.
func ExportListAppend(w io.Writer, h *history.History) error {
	k := &book{writer: map[string]int{}, order: map[string][]string{}}
	for key, lists := range k.collect(h) {
		k.order[key] = longestOf(lists)
	}
	x := &exporter{book: k, numbers: map[string]int{}, lists: map[string]int{}, processes: map[string]int{}}
	for _, t := range k.all {
		if t.op != nil && (t.op.Kind != history.Txn || len(t.appends) > 0) {
			x.take(t)
		}
	}
	slices.SortFunc(x.lines, func(a, b exported) int { return cmp.Compare(a.count, b.count) })
	return x.write(w)
}

// exported is one line of a list-append history.
type exported struct {
	count  uint64
	client string

	Index   int     `json:"index"`
	Process int     `json:"process"`
	Type    string  `json:"type"`
	F       string  `json:"f"`
	Value   [][]any `json:"value"`
	Time    int64   `json:"time"`
}

type exporter struct {
	*book
	numbers   map[string]int // of elements
	lists     map[string]int
	processes map[string]int // by client: its number now
	lines     []exported
}

// number gives what stands for a name; it is the same each time.
func number(of map[string]int, name string) int {
	if of[name] == 0 {
		of[name] = len(of) + 1
	}
	return of[name]
}

func (x *exporter) take(t *transaction) {
	var asked, told [][]any
	for _, r := range t.reads {
		list := number(x.lists, r.key)
		items := []int{}
		for _, item := range x.order[r.key][:min(r.n, len(x.order[r.key]))] {
			items = append(items, number(x.numbers, item))
		}
		asked, told = append(asked, []any{"r", list, nil}), append(told, []any{"r", list, items})
	}
	if t.op.Kind == history.Dump {
		told = nil // what it saw itself, whatever the others did
		for _, s := range t.op.Result.Seen {
			if _, isList := x.order[s.Key]; !isList {
				continue
			}
			items := []int{}
			for _, item := range s.Items {
				items = append(items, number(x.numbers, item))
			}
			told = append(told, []any{"r", number(x.lists, s.Key), items})
		}
	}
	for _, p := range t.appends {
		op := []any{"append", number(x.lists, p.Key), number(x.numbers, p.Value)}
		asked, told = append(asked, op), append(told, op)
	}
	if t.op.Outcome != history.OK {
		told = asked
	}
	x.lines = append(x.lines, exported{count: t.op.Began, client: t.op.Client, Type: "invoke", F: "txn", Value: asked, Time: int64(t.op.Invoke)})
	if t.op.Ended > 0 {
		x.lines = append(x.lines, exported{count: t.op.Ended, client: t.op.Client, Type: string(t.op.Outcome), F: "txn", Value: told, Time: int64(t.op.Return)})
	}
}

// write numbers the lines and the processes in order.
func (x *exporter) write(w io.Writer) error {
	buffered := bufio.NewWriter(w)
	next := 0
	for i := range x.lines {
		l := &x.lines[i]
		if _, known := x.processes[l.client]; !known {
			x.processes[l.client] = next
			next++
		}
		l.Index, l.Process = i, x.processes[l.client]
		if l.Type == string(history.Info) {
			delete(x.processes, l.client)
		}
		lead := ",\n"
		if i == 0 {
			lead = "["
		}
		text, err := json.Marshal(l)
		if err != nil {
			return err
		}
		if _, err := buffered.WriteString(lead + string(text)); err != nil {
			return err
		}
	}
	if len(x.lines) == 0 {
		if _, err := buffered.WriteString("["); err != nil {
			return err
		}
	}
	if _, err := buffered.WriteString("]\n"); err != nil {
		return err
	}
	return buffered.Flush()
}
