package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"raftboard/jepsen/history"
)

// mostPerKey bounds the search: linearizability of one key is exponential in what overlaps.
const mostPerKey = 200

// register is the state of one key: what its newest version says. version 0 never existed.
type register struct {
	version uint64
	value   string
	live    bool
}

// question and reply are an operation as the model sees it.
type question struct {
	kind      history.Kind
	value     string
	ifVersion uint64
}

type reply struct {
	outcome history.Outcome
	answer  string
	version uint64
	value   string
}

// step says whether a register can give this reply, and what it is afterwards. A conflict is
// a read of the version it reports, and must be one for this caller. Of an unknown write
// nothing is known but what it would do; one that never happened stands at the end.
func (s register) step(q question, r reply) (bool, register) {
	shows := r.version == s.version && (!s.live || r.value == s.value)
	free, named := q.ifVersion == 0 && !s.live, q.ifVersion == s.version && s.version > 0
	next := register{version: s.version + 1, value: q.value, live: true}
	matches, conflicts := free || named, !free && !named
	if q.kind == history.Delete {
		next = register{version: s.version + 1}
		matches, conflicts = s.live && (q.ifVersion == 0 || named), q.ifVersion > 0 && !named
	}
	switch {
	case q.kind == history.Get && r.answer == "ok":
		return s.live && shows, s
	case q.kind == history.Get: // not_found
		return !s.live && shows, s
	case r.outcome == history.Info && matches:
		return true, next
	case r.outcome == history.Info:
		return true, s
	case r.answer == "ok":
		return matches && r.version == next.version, next
	case r.answer == "conflict":
		return conflicts && shows, s
	case r.answer == "not_found": // of a delete
		return !s.live && !conflicts && shows, s
	}
	return false, s
}

func model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return register{} },
		Step: func(state, in, out any) (bool, any) {
			return state.(register).step(in.(question), out.(reply))
		},
		Hash: func(state any) uint64 { return state.(register).version },
		DescribeOperation: func(in, out any) string {
			q, r := in.(question), out.(reply)
			return fmt.Sprintf("%s %q if %d → %s v%d %q", q.kind, q.value, q.ifVersion, r.answer, r.version, r.value)
		},
		DescribeState: func(state any) string {
			s := state.(register)
			return fmt.Sprintf("v%d %q live %v", s.version, s.value, s.live)
		},
	}
}

// Registers checks R1: the operations on each key are linearizable. Ops of a history whose
// unknown writes were cut with Cut are judged faster. patience bounds the search in real time;
// keys it did not suffice for are undecided.
func Registers(ops []history.Op, patience time.Duration) (found []Finding) {
	byKey := map[string][]history.Op{}
	var keys []string
	for _, op := range ops {
		if !onRegister(op) {
			continue
		}
		if byKey[op.Key] == nil {
			keys = append(keys, op.Key)
		}
		byKey[op.Key] = append(byKey[op.Key], op)
	}
	slices.Sort(keys)
	deadline := time.Now().Add(patience)
	for _, key := range keys {
		left := max(time.Until(deadline), time.Millisecond) // 0 would mean without a bound
		found = append(found, oneRegister(key, byKey[key], left)...)
	}
	return found
}

// onRegister leaves out what says nothing about a key: reads that got no answer, and writes
// that were proved not to have been proposed.
func onRegister(op history.Op) bool {
	switch op.Kind {
	case history.Get:
		return op.Outcome == history.OK
	case history.Set, history.Delete, history.Mutate:
		return op.Outcome != history.Failed || op.Result.Answer == "conflict" || op.Result.Answer == "not_found"
	}
	return false
}

func oneRegister(key string, ops []history.Op, patience time.Duration) []Finding {
	if len(ops) > mostPerKey {
		return []Finding{invalid("key %s has %d operations, at most %d can be judged", key, len(ops), mostPerKey)}
	}
	if twice := twiceWritten(ops); twice != "" {
		return []Finding{invalid("key %s was written the value %q twice: what a read saw cannot be told", key, twice)}
	}
	var events []porcupine.Operation
	clients := map[string]int{}
	for _, op := range ops {
		if _, known := clients[op.Client]; !known {
			clients[op.Client] = len(clients)
		}
		events = append(events, event(op, clients[op.Client]))
	}
	switch porcupine.CheckOperationsTimeout(model(), events, patience) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return []Finding{{Checker: "R1", Class: Undecided, What: fmt.Sprintf("key %s could not be decided in %v", key, patience)}}
	}
	short, culprit := shortest(ops, patience)
	return []Finding{violation("R1", "key %s is not linearizable: nothing explains the answer to operation %d:\n%s",
		key, culprit.ID, tell(short)).of(culprit.ID)}
}

func event(op history.Op, client int) porcupine.Operation {
	ended := int64(op.Ended)
	if op.Outcome == history.Info {
		ended = math.MaxInt64 // it may take effect at any time from now on
	}
	kind := op.Kind
	if kind == history.Mutate {
		kind = history.Set
	}
	answer := op.Result.Answer
	if kind == history.Get && answer == "" {
		answer = "ok"
	}
	return porcupine.Operation{
		ClientId: client, Call: int64(op.Began), Return: ended,
		Input:  question{kind: kind, value: op.Args.Value, ifVersion: op.Args.IfVersion},
		Output: reply{outcome: op.Outcome, answer: answer, version: op.Result.Version, value: op.Result.Value},
	}
}

func twiceWritten(ops []history.Op) string {
	seen := map[string]bool{}
	for _, op := range ops {
		if op.Kind != history.Set && op.Kind != history.Mutate {
			continue
		}
		if seen[op.Args.Value] {
			return op.Args.Value
		}
		seen[op.Args.Value] = true
	}
	return ""
}

// shortest finds the shortest prefix, in the order of returns, that is not linearizable, and
// its last operation. Operations still open at its end count as unknown.
func shortest(ops []history.Op, patience time.Duration) ([]history.Op, history.Op) {
	byEnd := slices.Clone(ops)
	slices.SortFunc(byEnd, func(a, b history.Op) int { return cmp.Compare(event(a, 0).Return, event(b, 0).Return) })
	deadline := time.Now().Add(patience)
	for n := 1; n < len(byEnd) && time.Now().Before(deadline); n++ {
		last := byEnd[n-1]
		var events []porcupine.Operation
		for _, op := range ops {
			switch {
			case slices.ContainsFunc(byEnd[:n], func(o history.Op) bool { return o.ID == op.ID }):
			case op.Began < last.Ended && op.Kind != history.Get:
				op.Outcome = history.Info
			default:
				continue
			}
			events = append(events, event(op, len(events)))
		}
		if porcupine.CheckOperationsTimeout(model(), events, patience) == porcupine.Illegal {
			return byEnd[max(0, n-8):n], last
		}
	}
	return byEnd[max(0, len(byEnd)-8):], byEnd[len(byEnd)-1]
}

func tell(ops []history.Op) string {
	var lines []string
	for _, op := range ops {
		lines = append(lines, fmt.Sprintf("  %4d %-8s [%d,%d] %s %q if %d → %s %s v%d %q", op.ID, op.Client, op.Began, op.Ended,
			op.Kind, op.Args.Value, op.Args.IfVersion, op.Outcome, op.Result.Answer, op.Result.Version, op.Result.Value))
	}
	return strings.Join(lines, "\n")
}
