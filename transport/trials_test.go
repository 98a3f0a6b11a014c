package transport_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	boardpb "raftboard/fsm/pb"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// A participant is one loop of a principal that asks every node of the cluster in turn,
// under one identity, until one of them has an answer. It begins with a node of its own
// and never follows a hint, so that its commands take every way there is.
type participant struct {
	t    testing.TB
	name string
	ctx  context.Context
	home int
	face []wirepb.BoardClient // by node
	loop string
	seq  uint64

	unanswered int // tries that ended without a Result
	replayed   int // answers that an earlier try had earned
}

// lines are the connections of a cluster's clients, one to each node.
func lines(c *clustertest.Cluster) (face []wirepb.BoardClient) {
	for i := range c.Members {
		face = append(face, wirepb.NewBoardClient(c.Conn("client", i)))
	}
	return face
}

func newParticipant(t testing.TB, face []wirepb.BoardClient, name string, home int) *participant {
	t.Helper()
	p := &participant{t: t, name: name, ctx: clustertest.As(context.Background(), name), home: home, face: face}
	r := p.send(&boardpb.Command{Board: "default", IdempotencyKey: "open",
		Op: &boardpb.Command_LoopOpen{LoopOpen: &boardpb.LoopOpen{Nonce: "n", TtlMs: 86_400_000}}})
	p.loop = r.Loop
	if p.loop == "" {
		t.Fatalf("%s opens no loop: %v", name, r)
	}
	return p
}

// try asks one node once. What is no Result is unavailable with an unknown outcome.
func (p *participant) try(node int, cmd *boardpb.Command) *boardpb.Result {
	ctx, cancel := context.WithTimeout(p.ctx, 6*time.Second)
	defer cancel()
	answer, err := p.face[node].Apply(ctx, &wirepb.ApplyRequest{Command: cmd})
	if err == nil {
		return answer.Result
	}
	for _, d := range status.Convert(err).Details() {
		if r, ok := d.(*boardpb.Result); ok {
			return r
		}
	}
	return &boardpb.Result{Code: boardpb.Code_CODE_UNAVAILABLE, Proposed: boardpb.Proposed_PROPOSED_UNKNOWN, Message: err.Error()}
}

// send repeats a command at one node after the other until there is a Result.
func (p *participant) send(cmd *boardpb.Command) *boardpb.Result {
	var r *boardpb.Result
	for n := range 200 {
		r = p.try((p.home+n)%len(p.face), cmd)
		if r.Code != boardpb.Code_CODE_UNAVAILABLE {
			if r.Replayed {
				p.replayed++
			}
			return r
		}
		p.unanswered++
		time.Sleep(100 * time.Millisecond)
	}
	p.t.Errorf("%s gets no answer to %v: %v", p.name, cmd, r)
	return r
}

// identify gives a command the participant's next seq.
func (p *participant) identify(cmd *boardpb.Command) *boardpb.Command {
	p.seq++
	cmd.Loop, cmd.Seq, cmd.Floor = p.loop, p.seq, p.seq
	return cmd
}

func (p *participant) do(cmd *boardpb.Command) *boardpb.Result { return p.send(p.identify(cmd)) }

func claimOf(key string, ms int64) *boardpb.Command {
	return &boardpb.Command{Board: "default", Op: &boardpb.Command_Claim{Claim: &boardpb.Claim{Key: key, DurationMs: &ms}}}
}

// feedOf reads the whole feed of the board from one node, behind a fence, and checks on the
// way that it has every rev, in order, each place once.
func feedOf(t testing.TB, face wirepb.BoardClient) (events []*boardpb.Event) {
	t.Helper()
	ctx := clustertest.As(context.Background(), "reader")
	query := &wirepb.EventsQuery{Limit: 1000, AfterWholeRev: true}
	for {
		answer, err := face.Read(ctx, &wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_Events{Events: query}},
			grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		page := answer.GetEvents()
		events = append(events, page.Events...)
		if !page.HasMore {
			break
		}
		last := page.Events[len(page.Events)-1]
		query.AfterRev, query.AfterSub, query.AfterWholeRev = last.Rev, last.Sub, false
	}
	rev, sub := uint64(0), uint32(0)
	for _, ev := range events {
		switch {
		case ev.Rev == rev+1 && ev.Sub == 0, ev.Rev == rev && ev.Sub == sub+1:
		default:
			t.Fatalf("%d.%d follows %d.%d in the feed", ev.Rev, ev.Sub, rev, sub)
		}
		rev, sub = ev.Rev, ev.Sub
	}
	return events
}

// itemsOf reads all items of an append key, oldest first.
func itemsOf(t testing.TB, face wirepb.BoardClient, key string) (entries []*boardpb.Entry) {
	t.Helper()
	query := &wirepb.HistoryQuery{Key: key, Limit: 500}
	for {
		answer, err := face.Read(clustertest.As(context.Background(), "reader"),
			&wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_History{History: query}}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range answer.GetHistory().Entries {
			entries = append([]*boardpb.Entry{e}, entries...)
		}
		if !answer.GetHistory().HasMore {
			return entries
		}
		query.BeforeVersion = entries[0].Version
	}
}

// theSameOnEveryNode waits until all nodes applied the same entries and compares what they hold.
func theSameOnEveryNode(t testing.TB, c *clustertest.Cluster) {
	t.Helper()
	c.WaitReady()
	c.Eventually("all nodes hold the same", func() bool {
		first := c.Members[0].Server.Node().View()
		for _, m := range c.Members[1:] {
			if v := m.Server.Node().View(); v.Applied() != first.Applied() || v.Digest() != first.Digest() {
				return false
			}
		}
		return true
	})
}

func TestT01OneOfManyWinsEachClaimAlsoWhenTheLeaderIsStoppedAtTheBarrier(t *testing.T) {
	const loops, rounds = 64, 12
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		face := lines(c)
		crowd := make([]*participant, loops)
		for i := range crowd {
			crowd[i] = newParticipant(t, face, fmt.Sprintf("w%d", i), i%3)
		}
		winners := map[string]*participant{}
		lost := 0
		for round := range rounds {
			key := fmt.Sprintf("claims/t%d", round)
			results := make([]*boardpb.Result, loops)
			barrier := make(chan struct{})
			var all sync.WaitGroup
			for i, p := range crowd {
				all.Go(func() {
					<-barrier
					results[i] = p.do(claimOf(key, 30_000))
				})
			}
			leader := c.Leader()
			close(barrier)
			if round%2 == 1 { // at another moment of the claims' way each time
				time.Sleep(time.Duration(round/2) * 2 * time.Millisecond)
				c.Kill(leader)
			}
			all.Wait()
			winner := -1
			for i, r := range results {
				if r.Outcome == boardpb.Outcome_OUTCOME_OK {
					if winner >= 0 || r.Generation != 1 {
						t.Fatalf("%s: w%d won with generation %d, and w%d before", key, i, r.Generation, winner)
					}
					winner = i
				}
			}
			if winner < 0 {
				t.Fatalf("%s: nobody won: %v", key, results)
			}
			winners[key] = crowd[winner]
			for i, r := range results {
				if i == winner {
					continue
				}
				if r.Outcome != boardpb.Outcome_OUTCOME_HELD || r.Holder != crowd[winner].name || r.Generation != 1 || r.ExpiresInMs <= 0 {
					t.Errorf("%s: w%d got %v; held by w%d", key, i, r, winner)
				}
			}
			if round%2 == 1 {
				c.Restart(leader)
				c.WaitReady()
			}
		}
		for _, p := range crowd {
			lost += p.unanswered
		}
		if lost < loops {
			t.Errorf("only %d tries were lost: the stopped leaders were in nobody's way", lost)
		}
		grants := map[string]int{}
		for _, ev := range feedOf(t, face[c.Follower()]) {
			if ev.Kind == boardpb.Kind_KIND_CLAIM {
				grants[ev.Key]++
				if ev.Author != winners[ev.Key].name || ev.Generation != 1 {
					t.Errorf("the feed tells %v; %s won", ev, winners[ev.Key].name)
				}
			}
		}
		for key := range winners {
			if grants[key] != 1 {
				t.Errorf("%s was granted %d times", key, grants[key])
			}
		}
		theSameOnEveryNode(t, c)
	})
}

func TestT33EveryAcknowledgedAppendIsThereOnceInItsLoopsOrder(t *testing.T) {
	const loops, each = 50, 60
	type item struct{ W, N int }
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		face := lines(c)
		versions := make([][each]uint64, loops)
		var crowd []*participant
		for w := range loops {
			crowd = append(crowd, newParticipant(t, face, fmt.Sprintf("w%d", w), w%3))
		}
		var writers sync.WaitGroup
		var mu sync.Mutex
		lost, replayed, written := 0, 0, 0
		for w, p := range crowd {
			writers.Go(func() {
				for n := range each {
					value, _ := json.Marshal(item{w, n})
					r := p.do(add("facts/log", string(value)))
					if r.Outcome != boardpb.Outcome_OUTCOME_OK {
						t.Errorf("w%d: item %d: %v", w, n, r)
						return
					}
					versions[w][n] = r.Version
					mu.Lock()
					written++
					mu.Unlock()
				}
				mu.Lock()
				lost, replayed = lost+p.unanswered, replayed+p.replayed
				mu.Unlock()
			})
		}
		for kill := range 2 {
			c.Eventually("a part is written", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return written >= (kill+1)*loops*each/4
			})
			leader := c.Leader()
			c.Kill(leader)
			c.Leader()
			c.Restart(leader)
			c.WaitReady()
		}
		writers.Wait()
		if lost == 0 || replayed == 0 {
			t.Errorf("%d tries were lost, %d answers given again: the killed leaders were in nobody's way", lost, replayed)
		}
		theSameOnEveryNode(t, c)
		for node := range c.Members {
			entries := itemsOf(t, face[node], "facts/log")
			if len(entries) != loops*each {
				t.Fatalf("node %d holds %d items, want %d", node, len(entries), loops*each)
			}
			next := [loops]int{}
			for i, e := range entries {
				var it item
				if err := json.Unmarshal(e.Value, &it); err != nil {
					t.Fatal(err)
				}
				if e.Version != uint64(i+1) || e.Author != fmt.Sprintf("w%d", it.W) || it.N != next[it.W] || versions[it.W][it.N] != e.Version {
					t.Fatalf("node %d: item %d is %v; the next of w%d is %d, answered as version %d",
						node, i, e, it.W, next[it.W], versions[it.W][min(it.N, each-1)])
				}
				next[it.W]++
			}
		}
	})
}
