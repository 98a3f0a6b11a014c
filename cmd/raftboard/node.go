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

func (a *app) nodeCommand() *cobra.Command {
	return noun("node", "Nodes of the cluster", a.nodeListCommand(), a.nodeAddCommand(), a.nodeRemoveCommand(),
		a.nodePromoteCommand(),
		a.nodeDemoteCommand(), a.nodeStepDownCommand(), a.nodeSettingsCommand())
}

func (a *app) nodeListCommand() *cobra.Command {
	return leaf(verb{use: "list", short: "The nodes and how far they are",
		examples: [2]string{`raftboard node list -o wide`, `raftboard node list -o name`},
		args:     cobra.NoArgs,
		run: func(ctx context.Context, _ []string) error {
			defer a.close()
			c, err := a.cluster(ctx)
			if err != nil {
				return err
			}
			answer, err := c.Nodes(ctx)
			if err != nil {
				return refused(err)
			}
			nodes := answer.GetNodes()
			sort.Slice(nodes, func(i, j int) bool { return nodes[i].GetName() < nodes[j].GetName() })
			view := render.View{Lines: []render.Object{}, Table: nodeTable(nodes, leaderOf(nodes))}
			for _, n := range nodes {
				view.Lines, view.Names = append(view.Lines, nodeObject(n)), append(view.Names, n.GetName())
			}
			view.Object = render.Obj("nodes", view.Lines)
			return a.out.Print(view)
		}})
}

func leaderOf(nodes []*wirepb.NodeState) string {
	for _, n := range nodes {
		if n.GetRole() == "leader" {
			return n.GetId()
		}
	}
	return ""
}

// operate makes one call of the operators' face and prints what it says.
func (a *app) operate(ctx context.Context, name string, call func(context.Context) (string, error)) error {
	defer a.close()
	if _, err := a.connect(ctx); err != nil {
		return err
	}
	said, err := call(ctx)
	if err != nil {
		return refused(err)
	}
	return a.out.Print(render.View{Object: render.Obj("outcome", "ok", "node", name, "message", said),
		Names: []string{name}, Text: said})
}

func (a *app) nodeAddCommand() *cobra.Command {
	return leaf(verb{use: "add NAME", short: "Re-admit a name that was removed; a new node joins by itself with --join",
		examples: [2]string{`raftboard node add node-3`, `raftboard node add node-3 -o json`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			return a.operate(ctx, args[0], func(ctx context.Context) (string, error) {
				r, err := a.conn.Cluster().Add(ctx, args[0])
				return r.GetMessage(), err
			})
		}})
}

func (a *app) nodeRemoveCommand() *cobra.Command {
	var yes confirmFlags
	c := leaf(verb{use: "remove NODE", short: "Take a node, by name or id, out of the cluster for good",
		examples: [2]string{`raftboard node remove node-3`, `raftboard node remove 0d9f6a1e-… --yes`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			if ok, err := a.confirm(yes, "remove node "+args[0]+" from the cluster"); !ok {
				return err
			}
			return a.operate(ctx, args[0], func(ctx context.Context) (string, error) {
				r, err := a.conn.Cluster().Remove(ctx, args[0])
				return r.GetMessage(), err
			})
		}})
	yes.declare(c.Flags())
	return c
}

func (a *app) nodePromoteCommand() *cobra.Command {
	return leaf(verb{use: "promote NODE", short: "Give a node a vote",
		examples: [2]string{`raftboard node promote node-4`, `raftboard node promote node-4 -o json`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			return a.operate(ctx, args[0], func(ctx context.Context) (string, error) {
				r, err := a.conn.Cluster().Promote(ctx, args[0])
				return r.GetMessage(), err
			})
		}})
}

func (a *app) nodeDemoteCommand() *cobra.Command {
	return leaf(verb{use: "demote NODE", short: "Take a node's vote; it goes on getting copies",
		examples: [2]string{`raftboard node demote node-4`, `raftboard node demote node-4 -o json`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			return a.operate(ctx, args[0], func(ctx context.Context) (string, error) {
				r, err := a.conn.Cluster().Demote(ctx, args[0])
				return r.GetMessage(), err
			})
		}})
}

func (a *app) nodeStepDownCommand() *cobra.Command {
	var to string
	c := leaf(verb{use: "step-down", short: "Hand leadership to another node",
		examples: [2]string{`raftboard node step-down`, `raftboard node step-down --to node-2`},
		args:     cobra.NoArgs,
		run: func(ctx context.Context, _ []string) error {
			return a.operate(ctx, to, func(ctx context.Context) (string, error) {
				r, err := a.conn.Cluster().StepDown(ctx, to)
				return fmt.Sprintf("%s leads, term %d", r.GetLeader().GetName(), r.GetLeader().GetTerm()), err
			})
		}})
	c.Flags().StringVar(&to, "to", "", "to this node (default: the most up to date one)")
	return c
}

func (a *app) nodeSettingsCommand() *cobra.Command {
	return leaf(verb{use: "settings [NAME=VALUE…]", short: "Show or change settings of the cluster",
		long:     "grace=DURATION is how long after an election no lease ends.",
		examples: [2]string{`raftboard node settings`, `raftboard node settings grace=10s`},
		args:     cobra.ArbitraryArgs,
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			grace, err := parseGrace(args)
			if err != nil {
				return err
			}
			c, err := a.cluster(ctx)
			if err != nil {
				return err
			}
			s, err := c.Settings(ctx, grace)
			if err != nil {
				return refused(err)
			}
			o := render.Obj("grace_ms", s.GetGraceMs(), "level", s.GetLevel())
			return a.out.Print(render.View{Object: o, Names: []string{"grace"},
				Text: fmt.Sprintf("grace=%v\nlevel=%d", time.Duration(s.GetGraceMs())*time.Millisecond, s.GetLevel())})
		}})
}

func parseGrace(args []string) (*time.Duration, error) {
	var grace *time.Duration
	for _, arg := range args {
		value, is := strings.CutPrefix(arg, "grace=")
		d, err := time.ParseDuration(value)
		if !is || err != nil {
			return nil, exitcode.Usagef("grace=10s", "%q is not grace=DURATION", arg)
		}
		grace = &d
	}
	return grace, nil
}
