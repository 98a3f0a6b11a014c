//go:build faults

package planted_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"raftboard/client"
	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/planted"
	"raftboard/transport"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// bench is three servers and a caller of each.
type bench struct {
	*clustertest.Cluster
	t         *testing.T
	ctx       context.Context // states a name
	bugs      []string        // that are planted
	installed atomic.Int32    // snapshots, on all nodes

	mu    sync.Mutex
	conns []net.Conn // of clients, to be broken
}

func newBench(t *testing.T, bugs []string) *bench {
	b := &bench{t: t, bugs: bugs}
	b.Cluster = clustertest.Start(t, clustertest.Options{Configure: func(_ int, c *transport.Config) {
		c.SnapshotThreshold, c.SnapshotInterval, c.TrailingLogs = 30, time.Second, 10
		c.Trace = func(r fsm.TraceRecord) {
			if r.Installed {
				b.installed.Add(1)
			}
		}
	}})
	ctx, cancel := context.WithCancel(clustertest.As(context.Background(), "w"))
	t.Cleanup(cancel)
	b.ctx = ctx
	return b
}

func (b *bench) board(i int) wirepb.BoardClient { return wirepb.NewBoardClient(b.Conn("caller", i)) }

// append adds to facts/x through one node, and says what became of it.
func (b *bench) append(i int, within time.Duration) (*boardpb.Result, error) {
	ctx, cancel := context.WithTimeout(b.ctx, within)
	defer cancel()
	answer, err := b.board(i).Apply(ctx, &wirepb.ApplyRequest{Command: &boardpb.Command{Board: "default",
		Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/x", Value: []byte("1")}}}})
	return answer.GetResult(), err
}

func (b *bench) appended(i int) {
	b.t.Helper()
	if _, err := b.append(i, 10*time.Second); err != nil {
		b.t.Fatal(err)
	}
}

// items reads by default how many items facts/x has, from one node.
func (b *bench) items(i int) (n uint64, err error) {
	ctx, cancel := context.WithTimeout(b.ctx, 6*time.Second)
	defer cancel()
	answer, err := b.board(i).Read(ctx, &wirepb.ReadRequest{Board: "default",
		Query: &wirepb.ReadRequest_Get{Get: &wirepb.GetQuery{Key: "facts/x"}}})
	return answer.GetGet().GetEntry().GetVersion(), err
}

// dial makes a client of one node; what it dials can be broken.
func (b *bench) dial(name string, nodes ...int) *client.Client {
	b.t.Helper()
	var addrs []string
	for _, i := range nodes {
		addrs = append(addrs, b.Addr(i))
	}
	next := b.Dialer(name)
	c, err := client.Dial(client.Config{Endpoints: addrs, As: name, NoLeader: 30 * time.Second, Timeout: 10 * time.Second,
		Dialer: func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := next(ctx, addr)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.conns = append(b.conns, conn)
			return conn, err
		}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	return c
}

func (b *bench) breakConns() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		if c != nil {
			c.Close()
		}
	}
	b.conns = nil
}

// told reads a feed of one node from a rev on, for a while, and answers the revs it tells.
func (b *bench) told(i int, from uint64, lasts time.Duration) (revs []uint64, err error) {
	ctx, cancel := context.WithTimeout(b.ctx, lasts)
	defer cancel()
	stream, err := b.board(i).Watch(ctx, &wirepb.WatchRequest{Board: "default", Patterns: []string{"**"},
		Start: &wirepb.WatchRequest_FromRev{FromRev: from}})
	for err == nil {
		var m *wirepb.WatchResponse
		if m, err = stream.Recv(); err == nil {
			for _, e := range m.GetEvents().GetEvents() {
				revs = append(revs, e.Event.Rev)
			}
		}
	}
	if ctx.Err() != nil {
		err = nil // it lasted as long as it was to
	}
	return revs, err
}

// deposed isolates the leader and waits for another one.
func (b *bench) deposed() (old, next int) {
	old = b.Leader()
	b.Isolate(old)
	return old, b.Leader(old)
}

// serverBugs are bugs of servers and clients, each with what can be seen of it from outside.
var serverBugs = []struct {
	name  string
	shows func(b *bench) bool
}{
	{"M2", func(b *bench) bool {
		b.appended(0)
		old, next := b.deposed()
		b.appended(next)
		n, err := b.items(old)
		return err == nil && n == 1
	}},
	{"M4", func(b *bench) (stale bool) {
		for range 8 {
			b.appended(b.Leader())
		}
		for i := range b.Members { // and none has a snapshot
			b.Kill(i)
		}
		planted.Set(planted.Setting{Bugs: b.bugs, Points: map[string]func(int) error{"apply-before": func(int) error {
			time.Sleep(50 * time.Millisecond)
			return nil
		}}})
		for i := range b.Members {
			b.Restart(i)
		}
		var readers sync.WaitGroup
		var mu sync.Mutex
		for i := range b.Members {
			readers.Go(func() {
				for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
					n, err := b.items(i)
					mu.Lock()
					stale = stale || err == nil && n < 8 || status.Code(err) == codes.NotFound
					mu.Unlock()
				}
			})
		}
		readers.Wait()
		return stale
	}},
	{"M9", func(b *bench) bool {
		b.appended(0)
		return b.Members[0].Server.Node().View().T() > 1_000_000_000
	}},
	{"M12", func(b *bench) bool {
		old := b.Leader()
		b.Isolate(old)
		_, err := b.append(old, 100*time.Millisecond)
		return err == nil
	}},
	{"M13", func(b *bench) bool {
		old := b.Leader()
		l, err := b.dial("c", old).Board("default").OpenLoop(b.ctx, client.LoopOptions{Manual: true})
		if err != nil {
			b.t.Fatal(err)
		}
		b.Isolate(old)
		ctx, cancel := context.WithTimeout(b.ctx, 500*time.Millisecond) // before another node could be asked
		defer cancel()
		_, err = l.Append(ctx, "facts/x", []byte("1"), client.AppendOptions{})
		return errors.Is(err, client.ErrNotDone)
	}},
	{"M14", func(b *bench) bool {
		leader := b.Leader()
		c := b.dial("c", leader)
		answers := b.lose()
		if _, err := c.Board("default").Append(b.ctx, "facts/x", []byte("1"), client.AppendOptions{}); err != nil {
			b.t.Fatal(err)
		}
		n, err := b.items(leader)
		if err != nil || answers() != 1 {
			b.t.Errorf("%v, %d answers were lost", err, answers())
		}
		return n == 2
	}},
	{"M15", func(b *bench) bool {
		c := b.dial("c", b.Leader()).Board("default")
		n := 0
		r, err := c.Mutate(b.ctx, "draft", func(cur *boardpb.Entry) ([]byte, error) {
			n++
			if _, err := c.Set(b.ctx, "draft", fmt.Appendf(nil, "%d", n), client.SetOptions{IfVersion: cur.GetVersion()}); err != nil {
				b.t.Error(err)
			}
			return []byte(`"mine"`), nil
		})
		if err != nil || n != 4 {
			b.t.Errorf("%d attempts: %v", n, err)
		}
		return r.GetOutcome() == boardpb.Outcome_OUTCOME_OK
	}},
	{"M16a", func(b *bench) bool {
		for range 5 {
			b.appended(0)
		}
		revs, err := b.told(1, 3, time.Second)
		return err == nil && slices.Equal(revs, []uint64{4, 5})
	}},
	{"M16b", func(b *bench) bool {
		c := b.dial("c", b.Leader())
		w, err := c.Board("default").Watch(b.ctx, client.WatchOptions{Patterns: []string{"**"}, FromRev: 1})
		if err != nil {
			b.t.Fatal(err)
		}
		var revs []uint64
		for i := range 3 {
			b.appended(0)
			b.appended(0)
			until, cancel := context.WithTimeout(b.ctx, 10*time.Second)
			for {
				m, err := w.Next(until)
				if err != nil {
					break
				}
				revs = append(revs, m.Rev)
			}
			cancel()
			if i < 2 {
				b.breakConns()
			}
		}
		return !slices.Equal(revs, []uint64{1, 2, 3, 4, 5, 6}) && slices.Equal(slices.Compact(revs), []uint64{1, 2, 3, 4, 5, 6})
	}},
	{"M17", func(b *bench) bool {
		b.appended(0)
		old := b.Leader()
		b.Isolate(old)
		go func() { _, _ = b.append(old, 100*time.Millisecond) }()
		revs, _ := b.told(old, 1, 400*time.Millisecond)
		return slices.Equal(revs, []uint64{1, 2})
	}},
	{"M18", func(b *bench) bool {
		for range 6 {
			b.appended(0)
		}
		if _, err := b.board(0).Apply(b.ctx, &wirepb.ApplyRequest{Command: &boardpb.Command{
			Op: &boardpb.Command_BoardCompact{BoardCompact: &boardpb.BoardCompact{Name: "default", BeforeRev: 4}}}}); err != nil {
			b.t.Fatal(err)
		}
		compacted, err := b.told(0, 1, time.Second)
		behind := b.Follower()
		b.Kill(behind)
		for range 5 { // three snapshots are kept, and the log back to the oldest
			for range 40 {
				b.appended(b.Leader())
			}
			time.Sleep(3 * time.Second)
		}
		b.Restart(behind)
		b.WaitReady(behind)
		time.Sleep(3 * time.Second)
		if b.installed.Load() != 1 {
			b.t.Errorf("%d snapshots were installed", b.installed.Load())
		}
		restored, err2 := b.told(behind, 8, time.Second)
		return err == nil && err2 == nil && compacted[0] == 4 && (len(restored) == 0 || restored[0] > 8)
	}},
	{"M19", func(b *bench) bool {
		b.appended(0)
		planted.Set(planted.Setting{Bugs: b.bugs, Points: map[string]func(int) error{"feed-subscribe": func(int) error {
			time.Sleep(200 * time.Millisecond)
			return nil
		}}})
		go func() {
			time.Sleep(100 * time.Millisecond)
			b.appended(0)
			time.Sleep(300 * time.Millisecond)
			b.appended(0)
		}()
		revs, err := b.told(0, 1, 2*time.Second)
		return err == nil && slices.Equal(revs, []uint64{1, 3})
	}},
	{"M21", func(b *bench) bool {
		old := b.Leader()
		l, err := b.dial("c", (old+1)%3, (old+2)%3).Board("default").OpenLoop(b.ctx, client.LoopOptions{})
		if err != nil {
			b.t.Fatal(err)
		}
		if _, _, err := l.Claim(b.ctx, "claims/x", client.ClaimOptions{Duration: 20 * time.Second}); err != nil {
			b.t.Fatal(err)
		}
		time.Sleep(time.Second)
		_, next := b.deposed()
		time.Sleep(30 * time.Second) // and all the while the client renews
		b.Rejoin(old)
		time.Sleep(5 * time.Second)
		return b.Members[next].Server.Node().View().Board("default").Lease("claims/x").State != boardpb.LeaseState_LEASE_STATE_HELD
	}},
	{"M35", func(b *bench) bool {
		old, _ := b.deposed()
		began := time.Now()
		_, err := b.append(old, 30*time.Second)
		return err != nil && time.Since(began) > 20*time.Second
	}},
}

// lose breaks the connections of the client when the next answer to a write is about to be
// sent, and counts how often that happened.
func (b *bench) lose() (answers func() int) {
	n := 0
	planted.Set(planted.Setting{Bugs: b.bugs, Points: map[string]func(int) error{"answer-send": func(hit int) error {
		if hit == 1 {
			n++
			b.breakConns()
		}
		return nil
	}}})
	return func() int { return n }
}

func TestEachPlantedBugOfServersAndClientsShowsAndTheClusterGoesOn(t *testing.T) {
	for _, bug := range serverBugs {
		for _, with := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %v", bug.name, with), func(t *testing.T) {
				defer planted.Reset()
				var bugs []string
				if with {
					bugs = []string{bug.name}
				}
				planted.Set(planted.Setting{Bugs: bugs})
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, bugs)
					if shows := bug.shows(b); shows != with {
						t.Errorf("with the bug: %v, it shows: %v", with, shows)
					}
					for i := range b.Members {
						b.Rejoin(i)
					}
					time.Sleep(10 * time.Second)
					b.appended(b.Leader())
				})
			})
		}
	}
}
