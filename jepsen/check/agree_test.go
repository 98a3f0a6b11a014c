package check_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// twoNodes is one trace as two nodes wrote it.
func twoNodes() (records []history.Applied, second int) {
	for _, node := range []string{"n1", "n2"} {
		b := newTrace()
		b.lead(2).at(1000).open("a", 1).post(1, "claims/i", 2).claim("a", 1, "claims/i", 1, 3000, 3).at(2000).keepalive("a", 2)
		for _, r := range b.records {
			r.Node = node
			records = append(records, r)
		}
	}
	return records, len(records) / 2
}

func agree(records []history.Applied) (*check.Order, []check.Finding) {
	return check.Agree(&history.History{Applied: records})
}

func TestNodesThatAppliedTheSameAgree(t *testing.T) {
	records, _ := twoNodes()
	order, found := agree(records)
	fires(t, "", found)
	if len(order.Records) != 5 {
		t.Errorf("A has %d commands, want 5", len(order.Records))
	}
}

func TestADifferenceBetweenTwoNodesIsFound(t *testing.T) {
	for name, spoil := range map[string]func(*history.Applied){
		"term":       func(a *history.Applied) { a.Term++ },
		"command":    func(a *history.Applied) { a.CommandHash = "other" },
		"result":     func(a *history.Applied) { a.ResultHash = "other" },
		"digest":     func(a *history.Applied) { a.Digest = "other" },
		"board time": func(a *history.Applied) { a.T++ },
	} {
		t.Run(name, func(t *testing.T) {
			records, second := twoNodes()
			spoil(&records[second+2])
			_, found := agree(records)
			fires(t, "G1", found)
		})
	}
}

func TestAnEntryThatOneNodeLeftOutIsFound(t *testing.T) {
	records, second := twoNodes()
	_, found := agree(slices.Delete(records, second+2, second+3))
	fires(t, "G1", found)
}

func TestAnEntryAppliedTwiceInOneLifeIsFoundAndInTwoLivesIsFine(t *testing.T) {
	records, second := twoNodes()
	again := records[len(records)-1]
	_, found := agree(append(records, again))
	fires(t, "G2", found)
	var anew []history.Applied
	for _, r := range records[second:] {
		r.Life++
		anew = append(anew, r)
	}
	_, found = agree(append(records, anew...))
	fires(t, "", found)
}

// installOf is the snapshot of the state behind a record.
func installOf(r history.Applied, node string, life int) history.Installed {
	return history.Installed{Node: node, Life: life, Index: r.Index, Term: r.Term, T: r.T, Digest: r.Digest}
}

// jump takes from a trace of two nodes what the second one applied before its nth entry, and
// gives it a snapshot of that instead.
func jump(n int) *history.History {
	records, second := twoNodes()
	return &history.History{
		Applied: slices.Delete(records, second, second+n),
		Install: []history.Installed{installOf(records[n-1], "n2", 1)},
	}
}

func TestALifeMayJumpExactlyWhereASnapshotCoversIt(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(h *history.History)
	}{
		{"good: it begins behind the snapshot", "", func(*history.History) {}},
		{"good: the snapshot also has an entry without commands", "", func(h *history.History) {
			for i := range h.Applied {
				if h.Applied[i].Index > 2 {
					h.Applied[i].Index++
				}
			}
			h.Install[0].Index++
		}},
		{"good: it installs one and then another", "", func(h *history.History) {
			h.Install = append([]history.Installed{installOf(h.Applied[0], "n2", 1)}, h.Install...)
		}},
		{"good: it falls behind and is given a snapshot", "", func(h *history.History) {
			first := h.Applied[0]
			first.Node = "n2"
			h.Applied = slices.Insert(h.Applied, 5, first)
		}},
		{"good: a snapshot takes it back, and it goes on from there", "", func(h *history.History) {
			for _, r := range h.Applied[5:] {
				h.Applied = append(h.Applied, r)
			}
			h.Install = append(h.Install, h.Install[0])
		}},
		{"good: a snapshot and nothing behind it", "", func(h *history.History) {
			h.Applied = h.Applied[:5]
			h.Install = []history.Installed{installOf(h.Applied[4], "n2", 1)}
		}},
		{"G2: it begins in the middle without a snapshot", "G2", func(h *history.History) { h.Install = nil }},
		{"G2: the snapshot was another life's", "G2", func(h *history.History) { h.Install[0].Life = 2 }},
		{"G2: it begins before its snapshot", "G2", func(h *history.History) {
			before := h.Applied[1]
			before.Node = "n2"
			h.Applied = slices.Insert(h.Applied, 5, before)
		}},
		{"G2: it goes back with one snapshot too few", "G2", func(h *history.History) {
			for _, r := range h.Applied[5:] {
				h.Applied = append(h.Applied, r)
			}
		}},
		{"G1: it leaves out one more than the snapshot covers", "G1", func(h *history.History) {
			first := h.Applied[0]
			first.Node = "n2"
			h.Applied = append(h.Applied[:5], first, h.Applied[6])
		}},
		{"G1: the state in the snapshot is another one", "G1", func(h *history.History) { h.Install[0].Digest = "other" }},
		{"G1: board time in the snapshot is another one", "G1", func(h *history.History) { h.Install[0].T++ }},
		{"G1: the term in the snapshot is before its last entry's", "G1", func(h *history.History) { h.Install[0].Term-- }},
		{"invalid: nobody's trace shows what led to the snapshot", "G7", func(h *history.History) {
			h.Applied = h.Applied[:5]
			last := h.Applied[4]
			last.Index, last.Digest = last.Index+3, "of entries that no trace has"
			h.Install = []history.Installed{installOf(last, "n2", 1)}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := jump(2)
			c.spoil(h)
			_, found := check.Agree(h)
			fires(t, c.want, found)
		})
	}
}

func TestATermHasOneLeaderAndNeverFalls(t *testing.T) {
	puts := func(b *traceOf, id, name string) {
		b.raw(&boardpb.Command{Op: &boardpb.Command_NodePut{NodePut: &boardpb.NodePut{Node: &boardpb.Node{Id: id, Name: name}}}}, ok(0, 0))
	}
	leads := func(b *traceOf, term uint64, id string) {
		b.term = term
		b.raw(&boardpb.Command{Op: &boardpb.Command_Lead{Lead: &boardpb.Lead{NodeId: id}}}, ok(0, 0))
	}
	role := func(node string, life int, term uint64, role string) history.Role {
		return history.Role{Node: node, Life: life, Term: term, Role: role}
	}
	for _, c := range []struct {
		name, want string
		spoil      func(b *traceOf, h *history.History)
	}{
		{"good: one after the other", "", func(*traceOf, *history.History) {}},
		{"good: the same leader opens its leadership again", "", func(b *traceOf, _ *history.History) { leads(b, 3, "id-2") }},
		{"good: a new life may begin lower than another node is", "", func(_ *traceOf, h *history.History) {
			h.Roles = append(h.Roles, role("n1", 2, 2, "follower"))
		}},
		{"G2: two Leads of one term", "G2", func(b *traceOf, _ *history.History) { leads(b, 3, "id-1") }},
		{"G2: the log falls to an older term", "G2", func(b *traceOf, _ *history.History) { leads(b, 2, "id-1") }},
		{"G2: raft tells of two leaders in one term", "G2", func(_ *traceOf, h *history.History) {
			h.Roles = append(h.Roles, role("n3", 1, 3, "leader"))
		}},
		{"G2: one node leads a term in two lives", "G2", func(_ *traceOf, h *history.History) {
			h.Roles = append(h.Roles, role("n2", 2, 3, "leader"))
		}},
		{"G2: raft's leader is not the one in the log", "G2", func(_ *traceOf, h *history.History) { h.Roles[1].Node = "n1" }},
		{"G2: a term falls within a life", "G2", func(_ *traceOf, h *history.History) {
			h.Roles = append(h.Roles, role("n2", 1, 2, "follower"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, h := newTrace(), &history.History{}
			puts(b, "id-1", "n1")
			puts(b, "id-2", "n2")
			leads(b, 2, "id-1")
			leads(b, 3, "id-2")
			h.Roles = []history.Role{role("n1", 1, 2, "leader"), role("n2", 1, 3, "leader"), role("n1", 1, 3, "follower")}
			c.spoil(b, h)
			h.Applied = b.records
			_, found := check.Agree(h)
			fires(t, c.want, found)
		})
	}
}

// TestTracesOfAMinuteAreJudgedInSeconds: what is checked on every run must not be the longest
// part of it. The bound is wide, and far below what a square of the entries would take.
func TestTracesOfAMinuteAreJudgedInSeconds(t *testing.T) {
	once := make([]history.Applied, 0, 30_000)
	for i := range uint64(cap(once)) {
		once = append(once, history.Trace("", 0, fsm.TraceRecord{Index: i + 1, Term: 2, T: int64(i),
			Command: &boardpb.Command{Board: theBoard, CallId: history.CallID(i + 1)}, Result: ok(i+1, 1), Digest: [16]byte{1, byte(i)}}))
	}
	h := &history.History{Applied: make([]history.Applied, 0, 5*len(once))}
	for _, node := range []string{"n1", "n2", "n3"} {
		for life := 1; life <= 2; life++ {
			for _, r := range once[:len(once)/2*life] {
				r.Node, r.Life = node, life
				h.Applied = append(h.Applied, r)
			}
		}
	}
	for i := range 20_000 {
		at := time.Duration(i) * time.Millisecond
		h.Ops = append(h.Ops, history.Op{ID: uint64(i + 1), Client: fmt.Sprint(i % 50), Kind: history.Set, Outcome: history.OK,
			Began: uint64(2*i + 1), Ended: uint64(2*i + 2), Invoke: at, Return: at, Result: history.Result{Rev: uint64(i + 1), Version: 1}})
	}
	began := time.Now()
	order, found := check.Agree(h)
	found = append(found, check.Globals(h, order)...)
	fires(t, "", append(found, check.Answers(h.Ops, order)...))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("%d records took %v", len(h.Applied), took)
	} else {
		t.Logf("%d records took %v", len(h.Applied), took)
	}
}
