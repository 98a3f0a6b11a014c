package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// statusJSON is what these tests read of status -o json.
type statusJSON struct {
	Health  string `json:"health"`
	Voters  int    `json:"voters"`
	CanLose int    `json:"can_lose"`
	Leader  struct {
		Name string `json:"name"`
	} `json:"leader"`
	Nodes []struct {
		Name     string `json:"name"`
		ID       string `json:"id"`
		Suffrage string `json:"suffrage"`
		Ready    bool   `json:"ready"`
	} `json:"nodes"`
}

// trio is three nodes as a person would start them.
type trio struct {
	t         *testing.T
	nodes     map[string]*background
	endpoints string
}

func launchTrio(t *testing.T) *trio {
	t.Helper()
	c := &trio{t: t, nodes: map[string]*background{}}
	names := []string{"n1", "n2", "n3"}
	addrs := []string{listenAddr(t), listenAddr(t), listenAddr(t)}
	c.endpoints = strings.Join(addrs, ",")
	for i, name := range names {
		c.nodes[name] = launch(t, "serve", "--auth", "off", "--data-dir", t.TempDir(), "--node-name", name, "--bootstrap-expect", "3",
			"--join", c.endpoints, "--grpc-addr", addrs[i], "--raft-addr", "127.0.0.1:0", "--admin-addr", "", "--log-level", "warn")
	}
	return c
}

func (c *trio) run(args ...string) (stdout, stderr string, status int) {
	c.t.Helper()
	return raftboard(c.t, c.t.TempDir(), []string{"RAFTBOARD_ENDPOINTS=" + c.endpoints}, args...)
}

func (c *trio) must(args ...string) string {
	c.t.Helper()
	stdout, stderr, status := c.run(args...)
	if status != 0 {
		c.t.Fatalf("%v: exit status %d, %s", args, status, stderr)
	}
	return stdout
}

// awaits asks for the status until it is as wanted.
func (c *trio) awaits(what string, wanted func(*statusJSON) bool) *statusJSON {
	c.t.Helper()
	var last string
	for deadline := time.Now().Add(40 * time.Second); time.Now().Before(deadline); {
		stdout, stderr, status := c.run("status", "-o", "json")
		last = stdout + stderr
		var s statusJSON
		if status == 0 && json.Unmarshal([]byte(stdout), &s) == nil && wanted(&s) {
			return &s
		}
	}
	c.t.Fatalf("the cluster did not become %s: %s", what, last)
	return nil
}

func ready(voters int) func(*statusJSON) bool {
	return func(s *statusJSON) bool {
		n := 0
		for _, node := range s.Nodes {
			if node.Ready {
				n++
			}
		}
		return s.Voters == voters && n == 3 && s.Leader.Name != ""
	}
}

// A cluster is operated from the command line: hand over, take a vote and give it back, lose one node and then
// the majority, which is unavailable within its bound and never a stale answer.
func TestThreeNodesAreOperatedFromTheCommandLine(t *testing.T) {
	t.Parallel()
	c := launchTrio(t)
	s := c.awaits("ready", ready(3))
	if s.Health != "healthy" || s.CanLose != 1 {
		t.Errorf("%+v", s)
	}
	c.must("set", "draft", `"kept"`)
	next := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[s.Leader.Name]
	c.awaits("one whose nodes are all announced", func(*statusJSON) bool { // founders announce themselves one by one
		_, _, status := c.run("node", "promote", next) // which has a vote already: no change
		return status != 3
	})
	if said := c.must("node", "step-down", "--to", next); !strings.Contains(said, next+" leads") {
		t.Errorf("step-down: %s", said)
	}
	s = c.awaits("led by "+next, func(s *statusJSON) bool { return s.Leader.Name == next && ready(3)(s) })
	third := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[next]
	c.must("node", "demote", third)
	c.awaits("a cluster of two votes", ready(2))
	c.must("node", "promote", third)
	c.awaits("a cluster of three votes", ready(3))
	if table := c.must("status"); strings.Count(table, "follower") != 2 || !strings.Contains(table, "leader") {
		t.Errorf("%s", table)
	}
	c.must("snapshot", "save", "copy.snap", "--node", third)
	if _, stderr, status := c.run("snapshot", "save", "copy.snap", "--node", "nobody"); status != 3 {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	c.loseNodes(next)
}

// loseNodes kills the leader, then one more.
func (c *trio) loseNodes(leader string) {
	c.t.Helper()
	c.nodes[leader].signal(syscall.SIGKILL)
	if got := c.must("get", "draft", "--raw"); got != `"kept"` {
		c.t.Errorf("after the leader was killed: %q", got)
	}
	s := c.awaits("led by another", func(s *statusJSON) bool { return s.Leader.Name != "" && s.Leader.Name != leader })
	if said, _, status := c.run("status", "--check"); status != 1 || !strings.Contains(said, " is unreachable") {
		c.t.Errorf("status --check with a node down: exit status %d, want 1, and which: %s", status, said)
	}
	c.nodes[s.Leader.Name].signal(syscall.SIGKILL)
	began := time.Now()
	for _, args := range [][]string{{"set", "draft", "2", "--if-version", "1"}, {"get", "draft"}} {
		stdout, stderr, status := c.run(args...)
		if status != 5 || !strings.Contains(stderr, "unavailable: ") || stdout != "" {
			c.t.Errorf("%v without a majority: exit status %d, %s%s", args, status, stdout, stderr)
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		c.t.Errorf("two answers took %v", took)
	}
	if got := c.must("get", "draft", "--raw", "--consistency", "stale"); got != `"kept"` {
		c.t.Errorf("a stale read: %q", got)
	}
}

func TestAnExpiredLeaseIsRedAndSaysSo(t *testing.T) {
	gone := &boardpb.Lease{Key: "claims/a", State: boardpb.LeaseState_LEASE_STATE_FREE, EndedBy: boardpb.EndedBy_ENDED_BY_EXPIRED,
		Owner: "w1", Generation: 2}
	due := &boardpb.Lease{Key: "claims/b", State: boardpb.LeaseState_LEASE_STATE_HELD, Owner: "w2", DurationMs: 10_000}
	for _, row := range []*wirepb.LeaseRow{{Lease: gone}, {Lease: due, ExpiresInMs: 0}} {
		red := 0
		for _, cell := range claimRow(row, 1000) {
			if cell.Text == "expired" && cell.Style == render.Bad {
				red++
			}
		}
		if red != 2 {
			t.Errorf("%s: %+v", row.GetLease().GetKey(), claimRow(row, 1000))
		}
	}
	soon := claimRow(&wirepb.LeaseRow{Lease: due, ExpiresInMs: 2000, MissedKeepalives: 1}, 1000)
	if soon[3].Text != "0m02s !" || soon[3].Style != render.Warn || soon[7].Text != "missed 1 keepalive" {
		t.Errorf("%+v", soon)
	}
}
