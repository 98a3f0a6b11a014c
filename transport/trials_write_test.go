package transport_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

func newestOf(b *state.Board, key string) *boardpb.Entry {
	if k := b.Key(key); k != nil {
		return k.Newest()
	}
	return nil
}

// wholeOrNot says what is wrong with an item at one revision: with its result stored it must be
// done and name the result, and the reverse.
func wholeOrNot(b *state.Board, item, results, result string) string {
	if b == nil {
		return ""
	}
	lease, stored := b.Lease(item), newestOf(b, results)
	done := lease.GetState() == boardpb.LeaseState_LEASE_STATE_DONE
	switch {
	case done != (stored != nil):
		return fmt.Sprintf("rev %d: lease %v, stored %v", b.Rev(), lease, stored)
	case !done:
		return ""
	case string(stored.Value) != result || lease.Generation != 1 || lease.Owner != "w1" || lease.ResultRef != results+"@1" ||
		lease.Rev != stored.Rev:
		return fmt.Sprintf("rev %d: done as %v, stored %v", b.Rev(), lease, stored)
	}
	return ""
}

// eachView calls look with every View that a node publishes, until the node or the test ends.
func eachView(ctx context.Context, m *clustertest.Member, look func(*state.View)) {
	n := m.Server.Node()
	go func() {
		for {
			changed := n.Changed()
			look(n.View())
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
}

func TestT42AnItemIsDoneWithItsResultOrHeldWithoutWhereverTheLeaderDies(t *testing.T) {
	// A hop takes 2 ms. The command reaches the leader after one and two other nodes after
	// the next; a majority has it after the third, and the caller and the others hear of it
	// after the fourth. In the cut runs it reaches the leader's disk and no other.
	type point struct {
		after time.Duration
		cut   bool
	}
	var points []point
	for ms := range 12 {
		points = append(points, point{after: time.Duration(ms) * time.Millisecond})
	}
	points = append(points, point{5 * time.Millisecond, true}, point{time.Second, true})
	const result = `{"ok": true}`
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		p := newParticipant(t, lines(c), "w1", 0)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first, late, anew := 0, 0, 0 // who had the answer: the first try, a repeat, a repeat that did the work
		for i, at := range points {
			item, results := fmt.Sprintf("claims/c%d", i), fmt.Sprintf("results/w1/c%d", i)
			var mu sync.Mutex
			var wrong string
			look := func(v *state.View) {
				if why := wholeOrNot(v.Board("default"), item, results, result); why != "" {
					mu.Lock()
					wrong = why
					mu.Unlock()
				}
			}
			watching, stop := context.WithCancel(ctx)
			for _, m := range c.Members {
				eachView(watching, m, look)
			}
			if r := p.do(claimOf(item, 3_600_000)); r.Outcome != boardpb.Outcome_OUTCOME_OK || r.Generation != 1 {
				t.Fatalf("claim: %v", r)
			}
			leader := c.Leader()
			p.home = (leader + i%2) % 3 // straight, and forwarded by a follower
			if _, err := p.face[p.home].Read(p.ctx, getQuery(item), grpc.WaitForReady(true)); err != nil {
				if r := detail(t, err); r.Code != boardpb.Code_CODE_NOT_FOUND {
					t.Fatal(err) // an unposted item is not found, and the connection is open
				}
			}
			if at.cut {
				for j := range c.Members {
					if j != leader {
						c.Net.SetCut(c.Members[leader].Host, c.Members[j].Host, true)
					}
				}
				p.home = leader
			}
			cmd := p.identify(&boardpb.Command{Board: "default", Op: &boardpb.Command_Complete{Complete: &boardpb.Complete{
				Key: item, Generation: 1, Result: []byte(result), ResultsKey: results}}})
			answered := make(chan *boardpb.Result, 1)
			go func() { answered <- p.try(p.home, cmd) }()
			time.Sleep(at.after)
			c.Kill(leader)
			for j := range c.Members {
				c.Net.SetCut(c.Members[leader].Host, c.Members[j].Host, false)
			}
			before := <-answered
			r := p.send(cmd)
			if r.Outcome != boardpb.Outcome_OUTCOME_OK || r.ResultRef != "" && r.ResultRef != results+"@1" {
				t.Errorf("killed %v after: completing answered %v", at, r)
			}
			switch {
			case before.Outcome == boardpb.Outcome_OUTCOME_OK:
				first++
				if !r.Replayed || r.Rev != before.Rev {
					t.Errorf("killed %v after: the first answer was %v, the repeat got %v", at, before, r)
				}
			case r.Replayed:
				late++
			default:
				anew++
			}
			c.Restart(leader)
			eachView(watching, c.Members[leader], look)
			theSameOnEveryNode(t, c)
			stop()
			for _, m := range c.Members {
				b := m.Server.Node().View().Board("default")
				if why := wholeOrNot(b, item, results, result); why != "" || b.Lease(item).GetState() != boardpb.LeaseState_LEASE_STATE_DONE {
					t.Errorf("killed %v after: in the end %s has %v, %s", at, m.Name, b.Lease(item), why)
				}
			}
			mu.Lock()
			if wrong != "" {
				t.Errorf("killed %v after: at some rev %s", at, wrong)
			}
			mu.Unlock()
		}
		if first == 0 || late == 0 || anew == 0 {
			t.Errorf("%d answers arrived, %d were given again, %d did the work: the kills missed a part of the way", first, late, anew)
		}
		told := map[string]int{}
		for _, ev := range feedOf(t, p.face[c.Follower()]) {
			if ev.Kind == boardpb.Kind_KIND_COMPLETE {
				told[ev.Key]++
			}
		}
		if len(told) != len(points) {
			t.Errorf("the feed tells of %v", told)
		}
		for key, n := range told {
			if n != 1 {
				t.Errorf("%s was completed %d times", key, n)
			}
		}
	})
}

func TestT43NothingCollidesOrIsLostAfterAMinorityWasCutOff(t *testing.T) {
	const writers, each = 4, 5 // of each node, in each of three phases
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		face := lines(c)
		byNode := make([][]*participant, 3)
		for node := range byNode {
			for i := range writers {
				byNode[node] = append(byNode[node], newParticipant(t, face, fmt.Sprintf("n%d-%d", node+1, i), node))
			}
		}
		var mu sync.Mutex
		answers := map[string]*boardpb.Result{} // by the item's text
		kept := func(value string, r *boardpb.Result) {
			mu.Lock()
			defer mu.Unlock()
			if r.Outcome != boardpb.Outcome_OUTCOME_OK || answers[value] != nil {
				t.Errorf("%s: %v", value, r)
			}
			answers[value] = r
		}
		// The minority is the leader first, then a follower.
		for round := range 2 {
			away := c.Leader()
			if round == 1 {
				away = (away + 1) % 3
			}
			c.Isolate(away)
			var all sync.WaitGroup
			for node, group := range byNode {
				for i, p := range group {
					if node != away {
						p.home = node
						all.Go(func() {
							for n := range each {
								value := fmt.Sprintf(`"%d %s %d"`, round, p.name, n)
								cmd := p.identify(add("facts/log", value))
								var r *boardpb.Result
								for r = p.try(node, cmd); r.Code == boardpb.Code_CODE_UNAVAILABLE; r = p.try(node, cmd) {
									time.Sleep(100 * time.Millisecond)
								}
								kept(value, r)
							}
						})
						continue
					}
					all.Go(func() {
						value := fmt.Sprintf(`"%d %s away"`, round, p.name)
						cmd := p.identify(add("facts/log", value))
						post := &boardpb.Command{Board: "default", IdempotencyKey: fmt.Sprintf("post %d", round),
							Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: fmt.Sprintf("claims/r%d-%d", round, i), Value: []byte(`1`)}}}
						for _, cmd := range []*boardpb.Command{cmd, post, cmd} {
							began := time.Now()
							r := p.try(away, cmd)
							if took := time.Since(began); r.Code != boardpb.Code_CODE_UNAVAILABLE || took > 5*time.Second {
								t.Errorf("%s, cut off, got %v after %v", p.name, r, took)
							}
						}
						time.Sleep(10 * time.Second) // until the others are through and the cut is mended
						for _, cmd := range []*boardpb.Command{cmd, post} {
							var r *boardpb.Result
							for r = p.try(away, cmd); r.Code == boardpb.Code_CODE_UNAVAILABLE; r = p.try(away, cmd) {
								time.Sleep(100 * time.Millisecond)
							}
							if cmd == post {
								value = fmt.Sprintf("post %d %d", round, i)
							}
							kept(value, r)
						}
					})
				}
			}
			time.Sleep(18 * time.Second)
			c.Rejoin(away)
			all.Wait()
			c.WaitReady()
		}
		theSameOnEveryNode(t, c)
		revs := map[uint64]string{}
		for value, r := range answers {
			if other := revs[r.Rev]; other != "" {
				t.Errorf("rev %d was given to %s and to %s", r.Rev, other, value)
			}
			revs[r.Rev] = value
		}
		want := 2 * (2*writers*each + 2*writers)
		if len(answers) != want {
			t.Errorf("%d writes were answered, want %d", len(answers), want)
		}
		for node := range face {
			seen := 0
			for _, ev := range feedOf(t, face[node]) {
				if ev.Kind == boardpb.Kind_KIND_APPEND || ev.Kind == boardpb.Kind_KIND_POST {
					seen++
					if revs[ev.Rev] == "" || answers[revs[ev.Rev]].Version != ev.Version {
						t.Errorf("node %d: the feed tells %v, answered was %v", node, ev, answers[revs[ev.Rev]])
					}
				}
			}
			if seen != want {
				t.Errorf("node %d: the feed tells %d writes, want %d", node, seen, want)
			}
			for i, e := range itemsOf(t, face[node], "facts/log") {
				r := answers[string(e.Value)]
				if e.Version != uint64(i+1) || r.GetVersion() != e.Version || r.GetRev() != e.Rev {
					t.Errorf("node %d: item %d is %v, answered was %v", node, i+1, e, r)
				}
			}
		}
	})
}

func TestT41NoReadOnAnotherNodeIsOlderThanAnAcknowledgedWrite(t *testing.T) {
	const rounds = 1200
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		face := lines(c)
		p := newParticipant(t, face, "w1", 0)
		ask := func(node int, request *wirepb.ReadRequest) *wirepb.ReadResponse {
			for range 200 {
				ctx, cancel := context.WithTimeout(p.ctx, 6*time.Second)
				answer, err := face[node].Read(ctx, request)
				cancel()
				if err == nil {
					return answer
				}
				time.Sleep(50 * time.Millisecond)
			}
			t.Fatalf("node %d gives no answer", node)
			return nil
		}
		request := func(kind wirepb.Consistency, rev uint64) *wirepb.ReadRequest {
			r := proto.CloneOf(getQuery("results/w1/r"))
			r.Consistency, r.AtLeastRev = kind, rev
			return r
		}
		down, leaders, behind := -1, map[int]bool{}, 0
		written := map[uint64]string{} // by rev
		newest := func(rev uint64) (value string) {
			for ; rev > 0 && value == ""; rev-- {
				value = written[rev]
			}
			return value
		}
		for n := range rounds {
			switch { // five leaders change, by a kill or by their own will, and a follower restarts
			case n%240 == 119:
				down = c.Leader()
				if n%480 == 119 {
					c.Kill(down)
				} else if err := c.Members[down].Server.Node().StepDown(t.Context(), ""); err != nil {
					t.Fatal(err)
				} else {
					down = -1
				}
			case n == 780:
				down = c.Follower()
				c.Kill(down)
			case n%240 == 160 && down >= 0, n == 820:
				c.Restart(down)
				down = -1
			}
			writer := n % 3
			if writer == down {
				writer = (writer + 1) % 3
			}
			p.home = writer
			value := fmt.Sprint(n)
			r := p.do(set("results/w1/r", value))
			if r.Outcome != boardpb.Outcome_OUTCOME_OK {
				t.Fatalf("set %d: %v", n, r)
			}
			written[r.Rev] = value
			for node := range face {
				if node == writer || node == down {
					continue
				}
				kind, rev := wirepb.Consistency_CONSISTENCY_UNSPECIFIED, uint64(0)
				if n%4 == 3 {
					kind, rev = wirepb.Consistency_CONSISTENCY_AT_LEAST, r.Rev
				}
				// Nobody else writes: what is not older is this value.
				stale := ask(node, request(wirepb.Consistency_CONSISTENCY_STALE, 0))
				if want := newest(stale.Rev); stale.Rev == 0 || string(stale.GetGet().Entry.Value) != want || stale.GetGet().Entry.Rev > stale.Rev {
					t.Fatalf("round %d: a stale read on node %d says rev %d and shows %v, want %s", n, node, stale.Rev, stale.GetGet().Entry, want)
				}
				if stale.Rev < r.Rev {
					behind++
				}
				fresh := ask(node, request(kind, rev))
				if string(fresh.GetGet().Entry.Value) != value || fresh.Rev < r.Rev {
					t.Fatalf("round %d: node %d shows %v at rev %d; %s was acknowledged on node %d at rev %d",
						n, node, fresh.GetGet().Entry, fresh.Rev, value, writer, r.Rev)
				}
			}
			if n%50 == 0 {
				leaders[c.Leader()] = true
			}
		}
		if behind == 0 || len(leaders) < 2 {
			t.Errorf("%d stale reads were behind, nodes %v led: the test proves nothing", behind, leaders)
		}
	})
}

func TestT41AReadOfARevOnACutOffFollowerWaitsForItOrSaysThatItDidNotCome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		face := lines(c)
		p := newParticipant(t, face, "w1", 0)
		p.do(set("results/w1/r", "1"))
		away := c.Follower()
		theSameOnEveryNode(t, c)
		c.Isolate(away)
		p.home = c.Leader()
		r := p.do(set("results/w1/r", "2"))
		read := getQuery("results/w1/r")
		read.Consistency = wirepb.Consistency_CONSISTENCY_STALE
		if got := as(t, c, "w2", away).read(read); string(got.GetGet().Entry.Value) != "1" || got.Rev != r.Rev-1 {
			t.Errorf("stale: %v", got)
		}
		read.Consistency, read.AtLeastRev = wirepb.Consistency_CONSISTENCY_AT_LEAST, r.Rev
		short, cancel := context.WithTimeout(p.ctx, time.Second)
		defer cancel()
		began := time.Now()
		if _, err := face[away].Read(short, read); status.Code(err) != codes.DeadlineExceeded || time.Since(began) > 1100*time.Millisecond {
			t.Errorf("a second is given: %v after %v", err, time.Since(began))
		}
		go func() {
			time.Sleep(3 * time.Second)
			c.Rejoin(away)
		}()
		began = time.Now()
		got, err := face[away].Read(p.ctx, read)
		if err != nil || got.Rev < r.Rev || string(got.GetGet().Entry.Value) != "2" || time.Since(began) < 3*time.Second {
			t.Errorf("the rev came with the link, and the read got %v, %v after %v", got, err, time.Since(began))
		}
		read.AtLeastRev += 1000
		began = time.Now()
		if r := as(t, c, "w2", away).readError(read); r.Code != boardpb.Code_CODE_READ_TIMEOUT || time.Since(began) > 5*time.Second {
			t.Errorf("a rev that does not come: %v after %v", r, time.Since(began))
		}
	})
}
