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

	"raftboard/client"
	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

func (a *app) boardSnapshotCommand() *cobra.Command {
	var to string
	c := leaf(verb{use: "snapshot [NAME]", short: "Write all that a board holds, as it is at one rev, as JSON lines (operator)",
		long: "History, leases, loops and events are in it. Its last line says how many records there are and what they sum up to,\n" +
			"so that a cut file is noticed. With --to the file appears only when it is whole, and an existing one is not replaced.",
		examples: [2]string{`raftboard board snapshot apollo --to apollo.jsonl`,
			`raftboard board snapshot apollo | jq -r 'select(.entry.key == "plan") | .value'`},
		args: cobra.MaximumNArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			b, err := a.boardOf(ctx, args)
			if err != nil {
				return err
			}
			if to == "-" {
				_, err := b.Export(ctx, a.out.Out)
				return exportError(err)
			}
			return a.saveExport(ctx, b, to, "saved")
		}})
	c.Flags().StringVar(&to, "to", "-", "file to write; - is standard output")
	c.ValidArgsFunction = a.completeBoards
	return c
}

// saveExport writes beside the target, folds what it wrote, and only then gives it its name.
func (a *app) saveExport(ctx context.Context, b *client.Board, path, did string) error {
	if err := absent(path); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".raftboard-export-*")
	if err != nil {
		return exitcode.Usagef("give another file name", "%v", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := b.Export(ctx, f); err != nil {
		return exportError(err)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	head, err := replayFile(f.Name())
	if err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil { // refuses to replace
		return exitcode.Usagef("give another file name", "%v", err)
	}
	return a.printExport(path, head, did)
}

func (a *app) boardCloseCommand() *cobra.Command {
	var to string
	var yes confirmFlags
	c := leaf(verb{use: "close NAME", short: "End a board, and write all it holds as JSON lines (operator)",
		long: "From then on writes are refused as stopping and reads go on. The snapshot is that of raftboard board snapshot; if it\n" +
			"can't be written, take it with that: the board stays as it is. Closing it again changes nothing.",
		examples: [2]string{`raftboard board close apollo --yes`, `raftboard board close apollo --to /backup/apollo.jsonl --yes`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			name := args[0]
			if to == "" {
				to = name + ".jsonl"
			}
			if ok, err := a.confirm(yes, "close board "+name+": it will take no writes"); !ok {
				return err
			}
			if err := absent(to); err != nil {
				return err
			}
			defer a.close()
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			if _, err := settled(c.CloseBoard(ctx, name)); err != nil {
				return err
			}
			return a.saveExport(ctx, c.Board(name), to, "closed the board and saved")
		}})
	c.Flags().StringVar(&to, "to", "", "file for the snapshot; NAME.jsonl if not given")
	yes.declare(c.Flags())
	c.ValidArgsFunction = a.completeBoards
	return c
}

func (a *app) boardForkCommand() *cobra.Command {
	var at uint64
	c := leaf(verb{use: "fork NAME NEWNAME", short: "Make a board of what another holds, or held at a rev (operator)",
		long: "Keys with their history, items and marks come along; loops, counters and events do not, and work that was held is\n" +
			"free. The fork goes on from that rev; versions and generations go on above those of NAME, so none is given twice.",
		examples: [2]string{`raftboard board fork apollo retry`, `raftboard board fork apollo retry --at-rev 41`},
		args:     cobra.ExactArgs(2),
		run: func(ctx context.Context, args []string) error {
			return a.admin(ctx, fmt.Sprintf("forked board %s as %s", args[0], args[1]), func(c *conn) (*boardpb.Result, error) {
				return c.ForkBoard(ctx, args[0], args[1], at)
			})
		}})
	c.Flags().Uint64Var(&at, "at-rev", 0, "as it was right after this rev, as far as history is kept; 0 is now")
	c.ValidArgsFunction = a.completeBoards
	return c
}

// stateWord tells an open board from a closed one.
func stateWord(closedRev uint64) string {
	if closedRev > 0 {
		return fmt.Sprintf("closed at rev %d", closedRev)
	}
	return "open"
}

// absent refuses a file that is there already, before anything is done.
func absent(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return exitcode.Usagef("give another file name; raftboard board replay "+path+" shows what it is", "%s exists already", path)
	}
	return nil
}

func exportError(err error) error {
	if errors.Is(err, client.ErrExportDamaged) {
		return &exitcode.Error{Status: exitcode.Unacceptable, Msg: err.Error(), Hint: "take it again"}
	}
	return refused(err)
}

func (a *app) boardReplayCommand() *cobra.Command {
	return leaf(verb{use: "replay FILE", short: "Fold a snapshot of a board without a server, and print the digest it comes to",
		long:     "The digest is the one that raftboard board describe showed at that rev. A file that is cut off or changed is refused.",
		examples: [2]string{`raftboard board replay apollo.jsonl`, `raftboard board replay apollo.jsonl -o json`},
		args:     cobra.ExactArgs(1),
		run: func(_ context.Context, args []string) error {
			head, err := replayFile(args[0])
			if err != nil {
				return err
			}
			return a.printExport(args[0], head, "replayed")
		}})
}

// replayFile folds an export again. The digest of what it comes to is the one its first
// line names, or it is refused.
func replayFile(path string) (client.Exported, error) {
	f, err := os.Open(path)
	if err != nil {
		return client.Exported{}, exitcode.Usagef("", "%v", err)
	}
	defer f.Close()
	bad := func(format string, args ...any) error {
		return &exitcode.Error{Status: exitcode.Unacceptable, Msg: path + ": " + fmt.Sprintf(format, args...),
			Hint: "raftboard board snapshot NAME --to FILE makes a new one"}
	}
	fold := state.NewReplay()
	head, err := client.ReadExport(bufio.NewReader(f), fold.Take)
	if err != nil {
		return head, bad("%v", err)
	}
	b, err := fold.Board(head.Board)
	switch {
	case err != nil:
		return head, bad("%v", err)
	case b == nil:
		return head, bad("it holds no head of board %q", head.Board)
	}
	if got := fmt.Sprintf("%x", b.Digest()); got != head.Digest || b.Rev() != head.Rev {
		return head, bad("it comes to digest %s at rev %d, its first line says %s at rev %d", got, b.Rev(), head.Digest, head.Rev)
	}
	return head, nil
}

func (a *app) printExport(path string, h client.Exported, did string) error {
	o := render.Obj("file", path, "board", h.Board, "incarnation", h.Incarnation, "rev", h.Rev, "records", h.Records,
		"digest", h.Digest, "sha256", h.SHA256, "time", render.Time(h.WallMs))
	return a.out.Print(render.View{Object: o, Names: []string{path},
		Text: fmt.Sprintf("%s %s  board %s  rev %d  %d records  digest %s", did, path, h.Board, h.Rev, h.Records, h.Digest)})
}
