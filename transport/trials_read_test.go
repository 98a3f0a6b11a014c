package transport_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	boardpb "raftboard/fsm/pb"
	"raftboard/transport"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// sample is the versions of all keys that one list or dump showed.
type sample struct {
	what     string
	rev      uint64
	versions map[string]uint64
}

// readAll makes one sample: a list or a dump of the results, in any consistency.
func readAll(ctx context.Context, face wirepb.BoardClient, dump bool, kind wirepb.Consistency) (sample, error) {
	request := &wirepb.ReadRequest{Board: "default", Consistency: kind,
		Query: &wirepb.ReadRequest_List{List: &wirepb.ListQuery{Pattern: "results/**"}}}
	if dump {
		request.Query = &wirepb.ReadRequest_Dump{Dump: &wirepb.DumpQuery{Namespace: "results/*/**"}}
	}
	answer, err := face.Read(ctx, request)
	s := sample{what: fmt.Sprintf("%v, dump %v", kind, dump), rev: answer.GetRev(), versions: map[string]uint64{}}
	for _, e := range answer.GetDump().GetEntries() {
		s.versions[e.Key] = e.Version
	}
	for _, it := range answer.GetList().GetItems() {
		s.versions[it.Key] = it.Version
	}
	return s, err
}

func TestT44ReadersOfManyRecordsShowOneRevWhileWritersWrite(t *testing.T) {
	const readers, writers, each = 50, 5, 30
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		face := lines(c)
		ctx := clustertest.As(t.Context(), "reader")
		var writing, reading sync.WaitGroup
		done := make(chan struct{})
		for w := range writers {
			p := newParticipant(t, face, fmt.Sprintf("w%d", w), w%3)
			writing.Go(func() {
				for n := range each { // three keys of one owner, and every fifth time two of them at once
					key := func(i int) string { return fmt.Sprintf("results/%s/k%d", p.name, i%3) }
					cmd := set(key(n), fmt.Sprint(n))
					if n%5 == 4 {
						var ops []*boardpb.TxnOp
						for i := range 2 {
							ops = append(ops, &boardpb.TxnOp{Op: &boardpb.TxnOp_Set{Set: set(key(n+i), fmt.Sprint(n)).GetSet()}})
						}
						cmd = &boardpb.Command{Board: "default", Op: &boardpb.Command_Txn{Txn: &boardpb.Txn{Ops: ops}}}
					}
					if r := p.do(cmd); r.Outcome != boardpb.Outcome_OUTCOME_OK || p.unanswered > 0 {
						t.Errorf("%s: %v after %d tries without an answer", p.name, r, p.unanswered)
					}
				}
			})
		}
		samples := make([][]sample, readers)
		kinds := []wirepb.Consistency{wirepb.Consistency_CONSISTENCY_LINEARIZABLE, wirepb.Consistency_CONSISTENCY_STALE}
		for i := range readers {
			reading.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-done:
						return
					default:
					}
					s, err := readAll(ctx, face[i%3], n%2 == 0, kinds[i/3%2])
					if err != nil {
						t.Errorf("a read on node %d: %v", i%3, err)
						return
					}
					samples[i] = append(samples[i], s)
				}
			})
		}
		writing.Wait()
		close(done)
		reading.Wait()
		all := slices.Concat(samples...)
		slices.SortFunc(all, func(a, b sample) int { return int(a.rev) - int(b.rev) })
		events, now, different := feedOf(t, face[0]), map[string]uint64{}, 0
		for i, s := range all {
			for len(events) > 0 && events[0].Rev <= s.rev {
				if events[0].Kind == boardpb.Kind_KIND_SET {
					now[events[0].Key] = events[0].Version
				}
				events = events[1:]
			}
			if !maps.Equal(s.versions, now) {
				t.Fatalf("%s at rev %d shows %v, the board was %v", s.what, s.rev, s.versions, now)
			}
			if i > 0 && all[i-1].rev != s.rev {
				different++
			}
		}
		if len(all) < 10*readers || different < writers*each/2 {
			t.Errorf("%d reads of %d revs prove little", len(all), different)
		}
	})
}

// logged collects what servers log.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take empties the log and answers how many lines there were, and those that call for a person.
func (l *logged) take() (lines int, loud []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		lines++
		if strings.Contains(line, "[WARN]") || strings.Contains(line, "[ERROR]") || strings.Contains(line, "panic") {
			loud = append(loud, line)
		}
	}
	l.text.Reset()
	return lines, loud
}

func TestT45OrdinaryOutcomesLeaveTheErrorLogEmptyAndAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := &logged{}
		c := clustertest.Start(t, clustertest.Options{Configure: func(_ int, cfg *transport.Config) {
			cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Debug})
		}})
		face := lines(c)
		var crowd []*participant
		for node := range face {
			crowd = append(crowd, newParticipant(t, face, fmt.Sprintf("w%d", node), node))
		}
		crowd[0].do(&boardpb.Command{Board: "default", Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "draft", Value: []byte(`1`)}}})
		crowd[0].do(claimOf("claims/x", 3_600_000))
		time.Sleep(10 * time.Second)
		if lines, _ := log.take(); lines == 0 {
			t.Fatal("nothing was logged during the start: the log is not heard")
		}
		expect := func(n int, want boardpb.Outcome, cmd func() *boardpb.Command) {
			t.Helper()
			for i := range n {
				if r := crowd[i%3].do(cmd()); r.Outcome != want {
					t.Fatalf("got %v, want %v", r, want)
				}
			}
		}
		expect(1000, boardpb.Outcome_OUTCOME_CONFLICT, func() *boardpb.Command {
			return &boardpb.Command{Board: "default", Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "draft", Value: []byte(`2`)}}}
		})
		crowd = append(crowd[1:], crowd[1]) // the holder's own claim would renew
		expect(100, boardpb.Outcome_OUTCOME_HELD, func() *boardpb.Command { return claimOf("claims/x", 1000) })
		expect(100, boardpb.Outcome_OUTCOME_TIMEOUT, func() *boardpb.Command {
			return &boardpb.Command{Board: "default", Op: &boardpb.Command_ClaimNext{ClaimNext: &boardpb.ClaimNext{Pattern: "claims/*"}}}
		})
		time.Sleep(10 * time.Second)
		if _, loud := log.take(); len(loud) > 0 {
			t.Errorf("%d lines of the log call for a person: %s", len(loud), loud[0])
		}
		for node := range face {
			read := &wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_Stats{Stats: &wirepb.StatsQuery{}}}
			n := as(t, c, "op", node).read(read).GetStats().Counters
			if n.Conflicts != 1000 || n.Claims != 1 || n.Refusals != 0 || n.FenceRejections != 0 {
				t.Errorf("node %d counts %v", node, n)
			}
		}
	})
}
