package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
)

func (a *app) snapshotCommand() *cobra.Command {
	return noun("snapshot", "Copies of the whole state", a.snapshotSaveCommand(), a.snapshotInspectCommand())
}

func (a *app) snapshotSaveCommand() *cobra.Command {
	var node string
	c := leaf(verb{use: "save FILE", short: "Write a consistent, checked copy of the whole state to a file",
		long:     "The file appears only when it is whole and its checksum is right. An existing file is not replaced.",
		examples: [2]string{`raftboard snapshot save board-$(date +%F).snap`, `raftboard snapshot save copy.snap --node node-3`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			if node != "" {
				if err := a.pinNode(ctx, node); err != nil {
					return err
				}
			}
			return a.saveSnapshot(ctx, args[0])
		}})
	c.Flags().StringVar(&node, "node", "", "from this node, by name or id (any follower will do)")
	return c
}

// pinNode makes the address of one node the only endpoint.
func (a *app) pinNode(ctx context.Context, node string) error {
	c, err := a.cluster(ctx)
	if err != nil {
		return err
	}
	answer, err := c.Nodes(ctx)
	if err != nil {
		return refused(err)
	}
	for _, n := range answer.GetNodes() {
		if n.GetName() == node || n.GetId() == node {
			a.close()
			a.g.endpoints = []string{n.GetGrpcAddr()}
			return nil
		}
	}
	return &exitcode.Error{Status: exitcode.NotFound, Msg: "no node is called " + node, Hint: "raftboard node list"}
}

// saveSnapshot writes beside the target, checks, and only then gives it its name.
func (a *app) saveSnapshot(ctx context.Context, path string) error {
	c, err := a.cluster(ctx)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".raftboard-snapshot-*")
	if err != nil {
		return exitcode.Usagef("", "%v", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	w := bufio.NewWriter(f)
	index, term, err := c.Snapshot(ctx, w)
	if err != nil {
		return refused(err)
	}
	if err := errors.Join(w.Flush(), f.Sync()); err != nil {
		return err
	}
	header, err := verifyFile(f.Name())
	if err != nil {
		return fmt.Errorf("the copy is damaged: %w", err)
	}
	if err := os.Link(f.Name(), path); err != nil { // refuses to replace
		if errors.Is(err, fs.ErrExist) {
			return exitcode.Usagef("give another file name; raftboard snapshot inspect "+path+" shows what it is", "%s exists already", path)
		}
		return exitcode.Usagef("give another file name", "%v", err)
	}
	o := render.Obj("file", path, "index", index, "term", term, "format", header.GetFormat(), "digest",
		fmt.Sprintf("%x", header.GetDigest()))
	return a.out.Print(render.View{Object: o, Names: []string{path},
		Text: fmt.Sprintf("saved %s  index %d  term %d  digest %x", path, index, term, header.GetDigest())})
}

func verifyFile(path string) (*boardpb.SnapshotHeader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return fsm.VerifySnapshot(bufio.NewReader(f))
}

// boardTally counts what a snapshot holds of one board.
type boardTally struct {
	rev                            uint64
	entries, leases, loops, events uint64
	name                           string
	notCounted                     uint64
}

func (a *app) snapshotInspectCommand() *cobra.Command {
	return leaf(verb{use: "inspect FILE", short: "Check a snapshot file and say what it holds, without a server",
		examples: [2]string{`raftboard snapshot inspect board.snap`, `raftboard snapshot inspect board.snap -o json`},
		args:     cobra.ExactArgs(1),
		run: func(_ context.Context, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return exitcode.Usagef("", "%v", err)
			}
			defer f.Close()
			var order []string
			tallies := map[string]*boardTally{}
			header, err := fsm.ReadSnapshot(bufio.NewReader(f), func(r *boardpb.SnapshotRecord) error {
				t := tallies[r.GetBoard()]
				if t == nil {
					t = &boardTally{name: r.GetBoard()}
					tallies[r.GetBoard()], order = t, append(order, r.GetBoard())
				}
				t.count(r)
				return nil
			})
			if err != nil {
				return &exitcode.Error{Status: exitcode.Unacceptable, Msg: fmt.Sprintf("%s is no whole snapshot: %v", args[0], err),
					Hint: "raftboard snapshot save FILE makes a new one"}
			}
			return a.printSnapshot(args[0], header, order, tallies)
		}})
}

func (t *boardTally) count(r *boardpb.SnapshotRecord) {
	switch rec := r.GetRecord().(type) {
	case *boardpb.SnapshotRecord_Head:
		t.rev = rec.Head.GetRev()
	case *boardpb.SnapshotRecord_Entry:
		t.entries++
	case *boardpb.SnapshotRecord_Lease:
		t.leases++
	case *boardpb.SnapshotRecord_Loop:
		t.loops++
	case *boardpb.SnapshotRecord_Event:
		t.events++
	default:
		t.notCounted++
	}
}

func (a *app) printSnapshot(path string, h *boardpb.SnapshotHeader, order []string, tallies map[string]*boardTally) error {
	table := &render.Table{Columns: render.Cols("BOARD", "REV", "VERSIONS", "LEASES", "LOOPS", "EVENTS"),
		Title: fmt.Sprintf("SNAPSHOT %s   format %d   index %d   term %d   digest %x   checksum ok", path, h.GetFormat(),
			h.GetApplied(),
			h.GetTerm(), h.GetDigest())}
	boards := []render.Object{}
	for _, name := range order {
		if name == "" {
			continue // records of the cluster
		}
		t := tallies[name]
		table.Row(name, num(t.rev), num(t.entries), num(t.leases), num(t.loops), num(t.events))
		boards = append(boards, render.Obj("board", name, "rev", t.rev, "versions", t.entries, "leases", t.leases,
			"loops", t.loops, "events", t.events))
	}
	o := render.Obj("file", path, "format", h.GetFormat(), "index", h.GetApplied(), "term", h.GetTerm(),
		"digest", fmt.Sprintf("%x", h.GetDigest()), "boards", boards)
	return a.out.Print(render.View{Object: o, Names: []string{path}, Table: table})
}
