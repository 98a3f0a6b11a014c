package main

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
	wirepb "raftboard/transport/pb"
)

// clusterCommands are the verbs of whoever runs the nodes.
func (a *app) clusterCommands() []*cobra.Command {
	return []*cobra.Command{a.serveCommand(), a.devCommand(), a.demoCommand(), a.demoNodeCommand(), a.demoWorkerCommand(),
		a.statusCommand(), a.nodeCommand(), a.snapshotCommand()}
}

type statusFlags struct {
	local, check, watch bool
}

func (a *app) statusCommand() *cobra.Command {
	var f statusFlags
	c := leaf(verb{use: "status", short: "Who leads, who lags, what is wrong, on one screen",
		long:     "--check ends with 0 (healthy), 1 (works, but look), 2 (no writes possible) or 3 (nobody answers), for monitoring.",
		examples: [2]string{`raftboard status`, `raftboard status --check --local`},
		args:     cobra.NoArgs,
		run: func(ctx context.Context, _ []string) error {
			defer a.close()
			for {
				err := a.status(ctx, f)
				if err != nil || !f.watch {
					return err
				}
				if err := pause(ctx, time.Second); err != nil {
					return err
				}
			}
		}})
	c.Flags().BoolVar(&f.local, "local", false, "only what the first node that answers knows by itself")
	c.Flags().BoolVar(&f.check, "check", false, "one line and an exit code for monitoring")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "again every second until interrupted")
	return c
}

func (a *app) status(ctx context.Context, f statusFlags) error {
	s, err := a.askStatus(ctx, f.local)
	if f.check {
		return a.checkStatus(s, err)
	}
	if err != nil {
		return err
	}
	table := nodeTable(s.GetNodes(), s.GetLeader().GetNodeId())
	table.Title = statusTitle(s)
	if f.watch && !a.out.Machine() && a.stdoutTerminal {
		fmt.Fprint(a.stdout, "\x1b[H\x1b[2J")
	}
	var names []string
	for _, n := range s.GetNodes() {
		names = append(names, n.GetName())
	}
	if err := a.out.Print(render.View{Object: statusObject(s), Names: names, Table: table}); err != nil {
		return err
	}
	if !a.out.Machine() {
		return a.statusRest(ctx, s)
	}
	return nil
}

func (a *app) askStatus(ctx context.Context, local bool) (*wirepb.StatusResponse, error) {
	c, err := a.cluster(ctx)
	if err != nil {
		return nil, err
	}
	s, err := c.Status(ctx, local)
	if err != nil {
		return nil, refused(err)
	}
	sort.Slice(s.GetNodes(), func(i, j int) bool { return s.GetNodes()[i].GetName() < s.GetNodes()[j].GetName() })
	return s, nil
}

// checkStatus is for monitoring: one line, and OK, WARN, CRIT or UNKNOWN as 0 to 3.
func (a *app) checkStatus(s *wirepb.StatusResponse, err error) error {
	level, text := 0, ""
	switch {
	case err != nil:
		level, text = 3, err.Error()
	case s.GetLeader().GetNodeId() == "":
		level, text = 2, "no leader"
	case s.GetHealth() != "healthy" || len(s.GetWarnings()) > 0:
		level, text = 1, s.GetHealth()+": "+strings.Join(append(troubles(s.GetNodes()), s.GetWarnings()...), "; ")
	default:
		text = statusTitle(s)
	}
	word := []string{"OK", "WARN", "CRIT", "UNKNOWN"}[level]
	o := render.Obj("check", strings.ToLower(word), "text", text)
	if err := a.out.Print(render.View{Object: o, Names: []string{word}, Text: word + " " + text}); err != nil || level == 0 {
		return err
	}
	return &exitcode.Silent{Status: level}
}

// troubles names the nodes that are not ready, and why.
func troubles(nodes []*wirepb.NodeState) (list []string) {
	for _, n := range nodes {
		switch {
		case n.GetReady():
		case n.GetRole() == "unreachable" || n.GetNote() == "":
			list = append(list, n.GetName()+" is "+n.GetRole())
		default:
			list = append(list, n.GetName()+": "+n.GetNote())
		}
	}
	return list
}

func statusTitle(s *wirepb.StatusResponse) string {
	ready := 0
	up := int64(0)
	for _, n := range s.GetNodes() {
		if n.GetReady() && n.GetSuffrage() == "voter" {
			ready++
		}
		up = max(up, n.GetUptimeMs())
	}
	name := s.GetClusterName()
	if name == "" {
		name = s.GetClusterId()
	}
	return fmt.Sprintf("CLUSTER %s   %s   %d/%d voters   can lose %d   term %d   up %s", render.Or(name),
		s.GetHealth(), ready, s.GetVoters(),
		s.GetCanLose(), s.GetLeader().GetTerm(), render.Duration(up))
}

// statusRest is what stands below the table: boards, holds that look stuck, warnings.
func (a *app) statusRest(ctx context.Context, s *wirepb.StatusResponse) error {
	w := render.Document(a.stdout, a.stdoutTerminal)
	if len(s.GetBoards()) > 0 {
		fmt.Fprintln(w)
		if err := a.out.Print(render.View{Table: boardTable(s.GetBoards())}); err != nil {
			return err
		}
	}
	if s.GetLeader().GetNodeId() != "" {
		a.stuckHolds(ctx)
	}
	for _, warning := range s.GetWarnings() {
		a.warn("warning: %s", warning)
	}
	return nil
}

// stuckHolds names leases that ran out and that nobody took since.
func (a *app) stuckHolds(ctx context.Context) {
	b, err := a.board(ctx)
	if err != nil {
		return
	}
	answer, _, err := b.Leases(ctx, &wirepb.LeasesQuery{Reclaimable: true, Limit: 6}, a.reading())
	if err != nil {
		return // a status without it is better than none
	}
	for i, row := range answer.GetLeases() {
		if i == 5 {
			a.warn("warning: more leases of board %s ran out: raftboard claims --reclaimable", a.g.board)
			return
		}
		a.warn("warning: the lease of %s ran out and nobody has claimed it since (generation %d)",
			row.GetLease().GetKey(), row.GetLease().GetGeneration())
	}
}

func nodeObject(n *wirepb.NodeState) render.Object {
	o := render.Obj("name", n.GetName(), "id", n.GetId(), "role", n.GetRole(), "suffrage", n.GetSuffrage(), "ready",
		n.GetReady(),
		"grpc_addr", n.GetGrpcAddr(), "raft_addr", n.GetRaftAddr(), "version", n.GetVersion(), "term", n.GetTerm(),
		"applied", n.GetApplied(), "commit", n.GetCommit(), "first_log", n.GetFirstLog(), "last_log", n.GetLastLog(),
		"snapshot_index", n.GetSnapshotIndex(), "last_contact_ms", n.GetLastContactMs(), "state_bytes", n.GetStateBytes(),
		"log_bytes", n.GetLogBytes(), "disk_free_bytes", n.GetDiskFreeBytes(), "oldest_log_ms", n.GetOldestLogMs(),
		"last_restore_ms", n.GetLastRestoreMs(), "slowest_store_ms", n.GetSlowestStoreMs(),
		"snapshots_sent", n.GetSnapshotsSent(), "uptime_ms", n.GetUptimeMs(),
		"watchers", n.GetWatchers(), "sessions", n.GetSessions(), "admission_refused", n.GetAdmissionRefused())
	if len(n.GetDigest()) > 0 {
		o.Add("digest", fmt.Sprintf("%x", n.GetDigest()))
		o.Add("digest_index", n.GetDigestIndex())
	}
	o.AddSet("note", n.GetNote())
	return o
}

func statusObject(s *wirepb.StatusResponse) render.Object {
	nodes, boards, terms := []render.Object{}, []render.Object{}, []render.Object{}
	for _, n := range s.GetNodes() {
		nodes = append(nodes, nodeObject(n))
	}
	for _, b := range s.GetBoards() {
		boards = append(boards, boardObject(b))
	}
	for _, l := range s.GetCluster().GetLeaderships() {
		terms = append(terms, render.Obj("term", l.GetTerm(), "node_id", l.GetNodeId(), "time", render.Time(l.GetWallMs()),
			"resumed", l.GetResumed()))
	}
	o := render.Obj("cluster_id", s.GetClusterId(), "cluster_name", s.GetClusterName(), "health", s.GetHealth(),
		"voters", s.GetVoters(), "can_lose", s.GetCanLose(), "term", s.GetLeader().GetTerm())
	if l := s.GetLeader(); l.GetNodeId() != "" {
		o.Add("leader", render.Obj("node_id", l.GetNodeId(), "name", l.GetName(), "grpc_addr", l.GetGrpcAddr()))
	}
	o.Add("grace_ms", s.GetCluster().GetGraceMs())
	o.Add("level", s.GetCluster().GetLevel())
	o.Add("nodes", nodes)
	o.Add("boards", boards)
	o.Add("leaderships", terms)
	o.Add("warnings", append([]string{}, s.GetWarnings()...))
	return o
}

// nodeTable is one row a node. LAG counts the entries a node has not applied of those the furthest one has.
func nodeTable(nodes []*wirepb.NodeState, leader string) *render.Table {
	t := &render.Table{Columns: render.Cols("NODE", "ADDRESS", "STATE", "VERSION", "APPLIED", "LAG", "LAST CONTACT",
		"STATE SIZE", "LOG SIZE",
		"DISK FREE", "+OLDEST LOG", "+LAST RESTORE", "+SLOWEST STORE", "+GRPC", "+ID", "NOTES")}
	newest := uint64(0)
	for _, n := range nodes {
		newest = max(newest, n.GetApplied())
	}
	for _, n := range nodes {
		state := render.Cell{Text: n.GetRole()}
		if n.GetSuffrage() == "nonvoter" {
			state.Text += " (no vote)"
		}
		switch {
		case n.GetId() == leader && leader != "":
			state.Style = render.Good
		case n.GetRole() != "follower" && n.GetRole() != "leader":
			state.Style = render.Bad
		}
		lag, contact, applied, size, log, free, oldest, restore, slowest := "", "", "", "", "", "", "", "", ""
		if n.GetRole() != "unreachable" { // else nothing of it is known
			lag, applied, size = num(newest-n.GetApplied()), num(n.GetApplied()), render.Bytes(n.GetStateBytes())
			log, free = render.Bytes(n.GetLogBytes()), render.Bytes(n.GetDiskFreeBytes())
			slowest = render.Duration(n.GetSlowestStoreMs())
		}
		if n.GetOldestLogMs() >= 0 {
			oldest = render.Duration(n.GetOldestLogMs())
		}
		if n.GetLastRestoreMs() >= 0 {
			restore = render.Duration(n.GetLastRestoreMs())
		}
		if n.GetLastContactMs() >= 0 && n.GetRole() == "follower" {
			contact = render.Duration(n.GetLastContactMs())
		}
		t.Rows = append(t.Rows, []render.Cell{{Text: n.GetName()}, {Text: n.GetRaftAddr()}, state, {Text: n.GetVersion()},
			{Text: applied}, {Text: lag}, {Text: contact}, {Text: size}, {Text: log}, {Text: free}, {Text: oldest}, {Text: restore},
			{Text: slowest}, {Text: n.GetGrpcAddr()}, {Text: n.GetId()}, {Text: n.GetNote()}})
	}
	return t
}
