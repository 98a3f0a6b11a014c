package transport_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	boardpb "raftboard/fsm/pb"
	"raftboard/node"
	"raftboard/transport"
	"raftboard/transport/clustertest"
)

// journal keeps what nodes log.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

// count is how many lines say something.
func (j *journal) count(what string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), what)
}

// fill writes different keys of about a kilobyte each, several at a time.
func fill(t *testing.T, c *clustertest.Cluster, at, from, to int) {
	t.Helper()
	var writers sync.WaitGroup
	const abreast = 16
	for n := range abreast {
		w := as(t, c, "w1", at)
		writers.Go(func() {
			for i := from + n; i < to; i += abreast {
				if r := w.apply(set(fmt.Sprintf("results/w1/k%d", i), `"`+strings.Repeat("x", 1000)+`"`)); r.Outcome != boardpb.Outcome_OUTCOME_OK {
					t.Error(r)
					return
				}
			}
		})
	}
	writers.Wait()
}

// T-83 at a twentieth of its size: 2,500 commits instead of 50,000, in entries of up to 16; 80
// entries kept behind a snapshot instead of 10,240; and a link of 100 kB/s instead of 1 MB/s, so
// that the snapshot takes as long. Its second part, a follower with a tail that never committed, is
// TestP4AnInstallThatRepeatsItselfEndsTheProcessAndARestartHeals of node.
func TestT83AFollowerFarBehindASlowLinkCatchesUpWhileWritesGoOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var said [3]journal
		c := clustertest.Start(t, clustertest.Options{Configure: func(i int, cfg *transport.Config) {
			cfg.SnapshotThreshold, cfg.TrailingLogs, cfg.SnapshotInterval = 30, 80, time.Second
			cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: &said[i], Level: hclog.Info})
		}})
		late, leader := c.Follower(), c.Leader()
		had := c.Members[late].Server.Node().Status().LastLog
		c.Kill(late)
		for i := range 5 { // a cut reaches back to the oldest of three snapshots
			fill(t, c, leader, 500*i, 500*(i+1))
			time.Sleep(5 * time.Second)
		}
		if first := c.Members[leader].Server.Node().Status().FirstLog; first <= had {
			t.Fatalf("the log of the leader begins at %d, the follower has %d: it was not truncated", first, had)
		}
		for _, m := range c.Members {
			if m.Index != late {
				c.Net.SetShape(m.Host, c.Members[late].Host, clustertest.Shape{Rate: 100_000})
			}
		}
		stop := make(chan struct{})
		var writing sync.WaitGroup
		w := as(t, c, "w1", leader)
		writing.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
					w.apply(set(fmt.Sprintf("results/w1/k%d", i%2500), `"`+strings.Repeat("y", 1000)+`"`))
				}
			}
		})
		c.Restart(late)
		began := time.Now()
		c.WaitReady(late)
		took := time.Since(began)
		time.Sleep(10 * time.Second)
		close(stop)
		writing.Wait()
		theSameOnEveryNode(t, c)
		sent := c.Members[leader].Server.Node().Status().SnapshotsSent
		t.Logf("ready after %v, %d snapshots sent", took, sent)
		if took < 10*time.Second || sent == 0 {
			t.Errorf("it was ready after %v, %d snapshots were sent: this shows nothing", took, sent)
		}
		if sent > 3 {
			t.Errorf("%d snapshots were sent", sent)
		}
		if shown := clusterStatus(t, c, late).Nodes; len(shown) != 3 {
			t.Errorf("%d nodes", len(shown))
		} else {
			for _, n := range shown {
				if n.Name == c.Members[leader].Name && n.SnapshotsSent != sent {
					t.Errorf("status shows %d snapshots sent, it were %d", n.SnapshotsSent, sent)
				}
			}
		}
		want := int(took/(5*time.Second)) / 2 // a part of the time is an election, and raft's own steps
		if got := said[leader].count("reading a snapshot to send it"); got < want {
			t.Errorf("the leader said %d times in %v how far it is", got, took)
		}
		if got := said[late].count("writing a snapshot"); got < want {
			t.Errorf("the follower said %d times in %v how far it is", got, took)
		}
	})
}

// slowly are snapshots whose reading takes its time, like a large state's.
type slowly struct {
	raft.SnapshotStore
	each func() time.Duration
}

func (s slowly) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, rc, err := s.SnapshotStore.Open(id)
	return meta, slowReader{rc, s.each}, err
}

type slowReader struct {
	io.ReadCloser
	each func() time.Duration
}

// Read gives a kilobyte at a time.
func (s slowReader) Read(b []byte) (int, error) {
	time.Sleep(s.each())
	return s.ReadCloser.Read(b[:min(len(b), 1<<10)])
}

// T-83: the start of a node with a large state. The state is small, and its disk as slow as a
// gigabyte is long: the check and the restore take half a minute each.
func TestT83ANodeThatRestoresForLongIsAliveNotReadyAndSaysHowFarItIs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var said journal
		pause := time.Duration(0)
		const admin = "127.0.1.1:8973"
		c := clustertest.Start(t, clustertest.Options{Nodes: 1, Configure: func(_ int, cfg *transport.Config) {
			cfg.AdminAddr = admin
			cfg.SnapshotThreshold, cfg.SnapshotInterval = 50, time.Second
			cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: &said, Level: hclog.Info})
			open := cfg.OpenStores
			cfg.OpenStores = func(d *node.Dir, l hclog.Logger) (node.Stores, error) {
				s, err := open(d, l)
				s.Snapshots = slowly{s.Snapshots, func() time.Duration { return pause }}
				return s, err
			}
		}})
		fill(t, c, 0, 0, 300)
		time.Sleep(10 * time.Second)
		c.Kill(0)
		pause = 100 * time.Millisecond
		probes := http.Client{Timeout: time.Second, Transport: &http.Transport{DialContext: dialTCP(c), DisableKeepAlives: true}}
		probe := func(path string) (int, string) {
			answer, err := probes.Get("http://" + admin + path)
			if err != nil {
				return 0, err.Error()
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Error(err)
			}
			return answer.StatusCode, string(body)
		}
		started := make(chan error, 1)
		began := time.Now()
		go func() { started <- c.TryRestart(0) }()
		looks := 0
		for up := false; !up; {
			select {
			case err := <-started:
				if up = true; err != nil {
					t.Fatal(err)
				}
				continue
			case <-time.After(time.Second):
			}
			looks++
			if code, body := probe("/livez"); code != http.StatusOK {
				t.Fatalf("after %v it is not alive: %d %s", time.Since(began), code, body)
			}
			if code, body := probe("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "restores its state") {
				t.Fatalf("after %v it says that it is ready: %d %s", time.Since(began), code, body)
			}
			if looks == 5 { // it waits a few seconds for the node
				if r := as(t, c, "w1", 0).refused(set("results/w1/a", "1")); r.Code != boardpb.Code_CODE_UNAVAILABLE || r.Hint == "" {
					t.Fatalf("a write gets %v", r)
				}
			}
		}
		took := time.Since(began)
		t.Logf("started in %v", took)
		if took < 40*time.Second {
			t.Fatalf("the start took %v: this shows nothing", took)
		}
		lines := said.count("checking a snapshot") + said.count("restoring a snapshot")
		if want := int(took/(5*time.Second)) - 2; lines < want {
			t.Errorf("it said %d times in %v how far it is, want %d", lines, took, want)
		}
		pause = 0
		c.WaitReady()
		if code, body := probe("/readyz"); code != http.StatusOK {
			t.Errorf("at the end it is not ready: %d %s", code, body)
		}
		as(t, c, "w1", 0).ok(set("results/w1/a", "1"))
	})
}
