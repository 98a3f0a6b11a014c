package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"raftboard/client"
	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/fsm/view"
	wirepb "raftboard/transport/pb"
)

// boardCommands are the verbs about boards as a whole.
func (a *app) boardCommands() []*cobra.Command {
	board := noun("board", "Boards: create, list, describe, settings, compact, snapshot, replay, close, fork, delete", a.boardCreateCommand(),
		a.boardListCommand(), a.boardDescribeCommand(), a.boardSettingsCommand(), a.boardCompactCommand(),
		a.boardSnapshotCommand(), a.boardReplayCommand(), a.boardCloseCommand(), a.boardForkCommand(),
		a.boardDeleteCommand())
	return []*cobra.Command{board, a.schemaCommand(), a.statsCommand()}
}

// schemaFile is the written form of a board's namespaces and limits, in JSON or YAML.
type schemaFile struct {
	MaxValueBytes   uint64            `yaml:"max_value_bytes"`
	MaxBoardBytes   uint64            `yaml:"max_board_bytes"`
	HistoryVersions uint32            `yaml:"history_versions"`
	Namespaces      []schemaNamespace `yaml:"namespaces"`
}

type schemaNamespace struct {
	Pattern       string `yaml:"pattern"`
	Mode          string `yaml:"mode"`
	Writer        string `yaml:"writer"`
	Purpose       string `yaml:"purpose"`
	LeaseMS       int64  `yaml:"lease_ms"`
	MaxValueBytes uint64 `yaml:"max_value_bytes"`
	MaxAttempts   uint32 `yaml:"max_attempts"`
	Unique        bool   `yaml:"unique"`
	OneLine       bool   `yaml:"one_line"`
}

// readSchema reads the file of --schema. A member it does not know is an error with its line.
func (a *app) readSchema(source string) (*boardpb.BoardSettings, error) {
	raw, err := a.readInput(source)
	if err != nil {
		return nil, err
	}
	var f schemaFile
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, refusal(boardpb.Code_CODE_BAD_REQUEST, fmt.Sprintf("%s: %v", source, err),
			"raftboard schema -o json shows the form")
	}
	s := &boardpb.BoardSettings{MaxValueBytes: f.MaxValueBytes, MaxBoardBytes: f.MaxBoardBytes,
		HistoryVersions: f.HistoryVersions}
	for i, ns := range f.Namespaces {
		mode, known := boardpb.Mode_value["MODE_"+strings.ToUpper(ns.Mode)]
		if !known || mode == 0 {
			return nil, refusal(boardpb.Code_CODE_BAD_REQUEST,
				fmt.Sprintf("%s: namespaces/%d/mode is %q, not one of append, owned, leased, single, shared, once", source, i,
					ns.Mode), "")
		}
		s.Namespaces = append(s.Namespaces, &boardpb.Namespace{Pattern: ns.Pattern, Mode: boardpb.Mode(mode), Writer: ns.Writer,
			Purpose: ns.Purpose, LeaseMs: ns.LeaseMS, MaxValueBytes: ns.MaxValueBytes,
			MaxAttempts: ns.MaxAttempts, Unique: ns.Unique, OneLine: ns.OneLine})
	}
	return s, nil
}

func (a *app) boardCreateCommand() *cobra.Command {
	var schema string
	c := leaf(verb{use: "create NAME", short: "Create a board (operator)",
		long:     "Without --schema it gets the default namespaces: raftboard schema -o json shows them in the form that --schema reads.",
		examples: [2]string{`raftboard board create apollo`, `raftboard board create apollo --schema apollo.yaml`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			var settings *boardpb.BoardSettings
			if schema != "" {
				var err error
				if settings, err = a.readSchema(schema); err != nil {
					return err
				}
			}
			return a.admin(ctx, "created board "+args[0], func(c *conn) (*boardpb.Result, error) {
				return c.CreateBoard(ctx, args[0], settings)
			})
		}})
	c.Flags().StringVar(&schema, "schema", "", "file (JSON or YAML) with namespaces and limits; - is standard input")
	return c
}

// admin sends a command about boards and prints its answer.
func (a *app) admin(ctx context.Context, did string, send func(*conn) (*boardpb.Result, error)) error {
	defer a.close()
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	r, err := settled(send(c))
	if err != nil {
		return err
	}
	return a.printResult(r, did)
}

func (a *app) boardListCommand() *cobra.Command {
	return leaf(verb{use: "list", short: "The boards of the cluster",
		examples: [2]string{`raftboard board list`, `raftboard board list -o name`},
		args:     cobra.NoArgs,
		run: func(ctx context.Context, _ []string) error {
			defer a.close()
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			answer, err := c.Boards(ctx)
			if err != nil {
				return refused(err)
			}
			view := render.View{Lines: []render.Object{}, Table: boardTable(answer.GetBoards())}
			for _, b := range answer.GetBoards() {
				view.Lines, view.Names = append(view.Lines, boardObject(b)), append(view.Names, b.GetName())
			}
			view.Object = render.Obj("boards", view.Lines)
			return a.out.Print(view)
		}})
}

func boardObject(b *wirepb.BoardRow) render.Object {
	o := render.Obj("board", b.GetName(), "rev", b.GetRev(), "keys", b.GetKeys(), "bytes", b.GetLiveBytes())
	o.AddSet("incarnation", b.GetIncarnation())
	o.AddSet("implicit", b.GetImplicit())
	o.AddSet("closed_rev", b.GetClosedRev())
	return o
}

func boardTable(rows []*wirepb.BoardRow) *render.Table {
	t := &render.Table{Columns: render.Cols("BOARD", "REV", "KEYS", "SIZE", "STATE", "+INCARNATION")}
	for _, b := range rows {
		t.Row(b.GetName(), num(b.GetRev()), num(b.GetKeys()), render.Bytes(b.GetLiveBytes()), stateWord(b.GetClosedRev()), b.GetIncarnation())
	}
	return t
}

// describe reads a board's head.
func (a *app) describe(ctx context.Context, b *client.Board) (*wirepb.DescribeAnswer, error) {
	answer, _, err := b.Describe(ctx, a.reading())
	return answer, refused(err)
}

// boardOf is the board named as argument, else that of -b.
func (a *app) boardOf(ctx context.Context, args []string) (*client.Board, error) {
	if len(args) == 1 {
		a.g.board = args[0]
	}
	return a.board(ctx)
}

func (a *app) boardDescribeCommand() *cobra.Command {
	c := leaf(verb{use: "describe [NAME]", short: "Numbers, limits and namespaces of a board",
		examples: [2]string{`raftboard board describe`, `raftboard board describe apollo -o yaml`},
		args:     cobra.MaximumNArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			b, err := a.boardOf(ctx, args)
			if err != nil {
				return err
			}
			answer, err := a.describe(ctx, b)
			if err != nil {
				return err
			}
			h := answer.GetHead()
			settings := effective(h.GetSettings())
			o := render.Obj("board", a.g.board, "rev", h.GetRev(), "incarnation", h.GetIncarnation(), "bytes", h.GetLiveBytes(),
				"compacted_rev", h.GetCompactedRev(), "settings_version", h.GetSettingsVersion())
			o.AddSet("closed_rev", h.GetClosedRev())
			o.AddSet("created_at", render.Time(h.GetCreatedWallMs()))
			o.AddSet("digest", fmt.Sprintf("%x", answer.GetDigest()))
			o = append(o, settingsObject(settings, answer.GetCounts())...)
			table := namespaceTable(settings, answer.GetCounts())
			table.Title = fmt.Sprintf("BOARD %s   %s   rev %d   %s of %s   incarnation %s", a.g.board, stateWord(h.GetClosedRev()), h.GetRev(),
				render.Bytes(h.GetLiveBytes()),
				render.Bytes(settings.GetMaxBoardBytes()), render.Or(h.GetIncarnation()))
			return a.out.Print(render.View{Object: o, Names: []string{a.g.board}, Table: table})
		}})
	c.ValidArgsFunction = a.completeBoards
	return c
}

// effective fills in the limits that a board left to their defaults.
func effective(s *boardpb.BoardSettings) *boardpb.BoardSettings {
	out := &boardpb.BoardSettings{Namespaces: s.GetNamespaces(), MaxValueBytes: s.GetMaxValueBytes(),
		MaxBoardBytes:   s.GetMaxBoardBytes(),
		HistoryVersions: s.GetHistoryVersions()}
	if out.MaxValueBytes == 0 {
		out.MaxValueBytes = state.DefaultValueBytes
	}
	if out.MaxBoardBytes == 0 {
		out.MaxBoardBytes = state.DefaultBoardBytes
	}
	if out.HistoryVersions == 0 {
		out.HistoryVersions = state.DefaultHistoryVersions
	}
	return out
}

func settingsObject(s *boardpb.BoardSettings, counts []*boardpb.NamespaceCounts) render.Object {
	o := render.Obj("max_value_bytes", s.GetMaxValueBytes(), "max_board_bytes", s.GetMaxBoardBytes(),
		"history_versions", s.GetHistoryVersions())
	list := []render.Object{}
	for _, ns := range s.GetNamespaces() {
		n := render.Obj("pattern", ns.GetPattern(), "mode", modeWord(ns.GetMode()))
		n.AddSet("writer", ns.GetWriter())
		n.AddSet("purpose", ns.GetPurpose())
		n.AddSet("lease_ms", ns.GetLeaseMs())
		n.AddSet("max_value_bytes", ns.GetMaxValueBytes())
		n.AddSet("max_attempts", ns.GetMaxAttempts())
		n.AddSet("unique", ns.GetUnique())
		n.AddSet("one_line", ns.GetOneLine())
		if c := countsOf(counts, ns.GetPattern()); c != nil {
			n.Add("counts", countsObject(c)[1:])
		}
		list = append(list, n)
	}
	o.Add("namespaces", list)
	return o
}

func countsOf(counts []*boardpb.NamespaceCounts, pattern string) *boardpb.NamespaceCounts {
	for _, c := range counts {
		if c.GetPattern() == pattern {
			return c
		}
	}
	return nil
}

func namespaceTable(s *boardpb.BoardSettings, counts []*boardpb.NamespaceCounts) *render.Table {
	t := &render.Table{Columns: render.Cols("NAMESPACE", "MODE", "WRITER", "LEASE", "+MAX VALUE", "ENTRIES", "PURPOSE")}
	for _, ns := range s.GetNamespaces() {
		lease := ""
		if ns.GetMode() == boardpb.Mode_MODE_LEASED {
			lease = render.Duration(commonLease.Milliseconds())
			if ns.GetLeaseMs() > 0 {
				lease = render.Duration(ns.GetLeaseMs())
			}
		}
		t.Row(ns.GetPattern(), modeWord(ns.GetMode()), ns.GetWriter(), lease, render.Bytes(cmp.Or(ns.GetMaxValueBytes(),
			s.GetMaxValueBytes())),
			num(countsOf(counts, ns.GetPattern()).GetEntries()), ns.GetPurpose())
	}
	return t
}

func (a *app) schemaCommand() *cobra.Command {
	var prompt, tools bool
	c := leaf(verb{use: "schema", short: "The namespaces of the board: who may write what, and how",
		long: "--tools prints what a host hands to a model: name, description and JSON Schema of each tool, as JSON. What the\n" +
			"model then calls runs with raftboard tool, or with UseTool of the Go client.",
		examples: [2]string{`raftboard schema --prompt`, `raftboard schema --tools`},
		args:     cobra.NoArgs,
		run: func(ctx context.Context, _ []string) error {
			if tools && prompt {
				return exitcode.Usagef("leave out one of them", "--prompt and --tools exclude each other")
			}
			if tools {
				return a.printTools()
			}
			defer a.close()
			if prompt {
				return a.printPrompt(ctx, view.Schema)
			}
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			answer, err := a.describe(ctx, b)
			if err != nil {
				return err
			}
			s := effective(answer.GetHead().GetSettings())
			var names []string
			for _, ns := range s.GetNamespaces() {
				names = append(names, ns.GetPattern())
			}
			return a.out.Print(render.View{Object: settingsObject(s, nil), Names: names, Table: namespaceTable(s,
				answer.GetCounts())})
		}})
	c.Flags().BoolVar(&prompt, "prompt", false, "as text for the prompt of an agent, with the rules of reading and writing")
	c.Flags().BoolVar(&tools, "tools", false, "the tools that a model may call, as JSON")
	return c
}

func (a *app) printTools() error {
	raw, err := json.MarshalIndent(client.Tools(), "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, string(raw))
	return err
}

func (a *app) boardSettingsCommand() *cobra.Command {
	var schema string
	c := leaf(verb{use: "settings [NAME=VALUE…]", short: "Show or change limits and namespaces of the board (operator)",
		long:     "Names: max_value_bytes, max_board_bytes, history_versions. --schema replaces namespaces and limits as a whole.",
		examples: [2]string{`raftboard board settings -b apollo`, `raftboard board settings -b apollo max_value_bytes=131072`},
		args:     cobra.ArbitraryArgs,
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			if schema != "" && len(args) > 0 {
				return exitcode.Usagef("leave out one of them", "--schema and NAME=VALUE exclude each other")
			}
			b, err := a.board(ctx)
			if err != nil {
				return err
			}
			answer, err := a.describe(ctx, b)
			if err != nil {
				return err
			}
			settings := effective(answer.GetHead().GetSettings())
			if schema == "" && len(args) == 0 {
				return a.out.Print(render.View{Object: settingsObject(settings, nil), Text: fmt.Sprintf(
					"max_value_bytes=%d\nmax_board_bytes=%d\nhistory_versions=%d", settings.GetMaxValueBytes(),
					settings.GetMaxBoardBytes(), settings.GetHistoryVersions())})
			}
			if schema != "" {
				if settings, err = a.readSchema(schema); err != nil {
					return err
				}
			}
			if err := changeSettings(settings, args); err != nil {
				return err
			}
			return a.admin(ctx, "changed the settings of board "+a.g.board, func(c *conn) (*boardpb.Result, error) {
				return c.SetBoard(ctx, a.g.board, settings, answer.GetHead().GetSettingsVersion())
			})
		}})
	c.Flags().StringVar(&schema, "schema", "", "file (JSON or YAML) with namespaces and limits; - is standard input")
	return c
}

func changeSettings(s *boardpb.BoardSettings, args []string) error {
	for _, arg := range args {
		name, value, is := strings.Cut(arg, "=")
		n, err := strconv.ParseUint(value, 10, 64)
		if !is || err != nil {
			return exitcode.Usagef("max_value_bytes=65536", "%q is not NAME=NUMBER", arg)
		}
		switch name {
		case "max_value_bytes":
			s.MaxValueBytes = n
		case "max_board_bytes":
			s.MaxBoardBytes = n
		case "history_versions":
			if n > 1<<31 {
				return exitcode.Usagef("history_versions=100", "%q is too large", arg)
			}
			s.HistoryVersions = uint32(n)
		default:
			return exitcode.Usagef("max_value_bytes, max_board_bytes, history_versions", "%q is no setting of a board", name)
		}
	}
	return nil
}

func (a *app) boardCompactCommand() *cobra.Command {
	var before uint64
	var yes confirmFlags
	c := leaf(verb{use: "compact", short: "Give up history and events before a rev (operator)",
		examples: [2]string{`raftboard board compact -b apollo --before 18000 --yes`,
			`raftboard board compact --before 500 --dry-run`},
		args: cobra.NoArgs,
		run: func(ctx context.Context, _ []string) error {
			if before == 0 {
				return exitcode.Usagef("--before REV", "compact needs --before REV")
			}
			what := fmt.Sprintf("give up history and events of board %s before rev %d", a.g.board, before)
			if ok, err := a.confirm(yes, what); !ok {
				return err
			}
			return a.admin(ctx, fmt.Sprintf("compacted board %s before rev %d", a.g.board, before),
				func(c *conn) (*boardpb.Result, error) {
					return c.CompactBoard(ctx, a.g.board, before)
				})
		}})
	c.Flags().Uint64Var(&before, "before", 0, "the oldest rev to keep")
	yes.declare(c.Flags())
	return c
}

func (a *app) boardDeleteCommand() *cobra.Command {
	var yes confirmFlags
	c := leaf(verb{use: "delete NAME", short: "Delete a board with all it holds (operator)",
		examples: [2]string{`raftboard board delete apollo`, `raftboard board delete apollo --yes`},
		args:     cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			if ok, err := a.confirm(yes, "delete board "+args[0]+" with all it holds"); !ok {
				return err
			}
			return a.admin(ctx, "deleted board "+args[0], func(c *conn) (*boardpb.Result, error) {
				return c.DeleteBoard(ctx, args[0])
			})
		}})
	yes.declare(c.Flags())
	c.ValidArgsFunction = a.completeBoards
	return c
}
