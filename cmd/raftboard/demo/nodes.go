package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	wirepb "raftboard/transport/pb"
)

// node is a node process with its addresses, which stay over restarts.
type node struct {
	*process
	name              string
	grpc, raft, admin string
}

func (d *demo) startNodes(ctx context.Context) error {
	ports, err := freePorts(3 * d.o.Nodes)
	if err != nil {
		return err
	}
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	for i := range d.o.Nodes {
		d.nodes = append(d.nodes, &node{name: fmt.Sprintf("node-%d", i+1), grpc: at(3 * i), raft: at(3*i + 1),
			admin: at(3*i + 2)})
	}
	for _, n := range d.nodes {
		if err := d.startNode(n); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (d *demo) startNode(n *node) error {
	var join []string
	for _, other := range d.nodes {
		join = append(join, other.grpc)
	}
	p, err := spawn(d.o.Binary, d.home, n.name, "demo-node", "--node-name", n.name, "--data-dir", filepath.Join(d.home,
		n.name),
		"--grpc-addr", n.grpc, "--raft-addr", n.raft, "--admin-addr", n.admin, "--cluster-name", "demo", "--auth", "off",
		"--bootstrap-expect", strconv.Itoa(d.o.Nodes), "--join", strings.Join(join, ","), "--log-format", "json")
	if err == nil {
		n.process = p
	}
	return err
}

// awaitCluster waits until all nodes are voters of one cluster with a leader.
func (d *demo) awaitCluster(ctx context.Context) error {
	return d.await(ctx, startWithin, "the nodes did not form a cluster", func() bool {
		s := d.status(ctx)
		return s.GetLeader().GetNodeId() != "" && int(s.GetVoters()) == d.o.Nodes && allReady(s)
	})
}

func allReady(s *wirepb.StatusResponse) bool {
	for _, n := range s.GetNodes() {
		if !n.GetReady() {
			return false
		}
	}
	return len(s.GetNodes()) > 0
}

// await polls until done, and says what went wrong with the end of a dead node's log.
func (d *demo) await(ctx context.Context, within time.Duration, otherwise string, done func() bool) error {
	deadline := time.Now().Add(within)
	for !done() {
		for _, n := range d.nodes {
			if n.process != nil && !n.alive() && n.name != d.down {
				return fmt.Errorf("%s ended by itself: %s", n.name, n.lastWords())
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s within %v", otherwise, within)
		}
		if err := rest(ctx, pollEvery); err != nil {
			return err
		}
	}
	return nil
}

// status asks for the state of the cluster; nil while nobody answers.
func (d *demo) status(ctx context.Context) *wirepb.StatusResponse {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s, err := d.client.Cluster().Status(ctx, false)
	if err != nil {
		return nil
	}
	return s
}

// leader finds the process of the node that leads, or nil.
func (d *demo) leader(ctx context.Context) (*node, uint64) {
	s := d.status(ctx)
	for _, n := range d.nodes {
		if n.name == s.GetLeader().GetName() && s.GetLeader().GetName() != "" {
			return n, s.GetLeader().GetTerm()
		}
	}
	return nil, 0
}
