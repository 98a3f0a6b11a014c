package board

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// BoardCreate makes a board (SPEC F-33). The event is the board's first.
func BoardCreate(s *state.State, c *boardpb.Command, o *boardpb.BoardCreate) *boardpb.Result {
	switch n := len(s.BoardNames()); {
	case s.BoardExists(o.Name):
		return &boardpb.Result{Code: boardpb.Code_CODE_EXISTS, Field: "board " + o.Name}
	case n >= state.MaxBoards:
		return &boardpb.Result{Code: boardpb.Code_CODE_LIMIT_BOARDS, Got: uint64(n), Limit: state.MaxBoards}
	}
	makeBoard(s, o.Name, c.Entropy, o.Settings)
	x := s.BeginTxn(o.Name, c)
	x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_BOARD_CREATE, Surface: boardpb.Surface_SURFACE_BOARD})
	incarnation := x.Incarnation()
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Incarnation: incarnation, Rev: x.Commit()}
}

func makeBoard(s *state.State, name string, entropy uint64, settings *boardpb.BoardSettings) {
	if len(settings.GetNamespaces()) == 0 {
		given := settings
		settings = state.DefaultSettings()
		settings.MaxValueBytes, settings.MaxBoardBytes = given.GetMaxValueBytes(), given.GetMaxBoardBytes()
		settings.HistoryVersions = given.GetHistoryVersions()
	}
	schema, bad := state.CompileSchema(settings.Namespaces)
	if bad != nil {
		panic("board: a table that Check passed does not compile: " + bad.Message)
	}
	s.CreateBoard(name, incarnationOf(entropy), settings, schema)
}

func incarnationOf(entropy uint64) string { return fmt.Sprintf("b-%016x", entropy) }

// FirstUse makes the default board when a command first writes to it.
func FirstUse(s *state.State, c *boardpb.Command) {
	if c.Board == state.DefaultBoard && !s.BoardExists(c.Board) {
		makeBoard(s, c.Board, c.Entropy, nil)
	}
}

// BoardSet replaces a board's table and limits. A table under which stored keys would
// lose their namespace, or get another mode, is refused (SPEC NS-5, T-72).
func BoardSet(s *state.State, c *boardpb.Command, o *boardpb.BoardSet) *boardpb.Result {
	FirstUse(s, &boardpb.Command{Board: o.Name, Entropy: c.Entropy})
	if !s.BoardExists(o.Name) {
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Field: "board " + o.Name}
	}
	x := s.BeginTxn(o.Name, c)
	if v := x.SettingsVersion(); o.IfSettingsVersion != 0 && o.IfSettingsVersion != v {
		return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_CONFLICT, Key: "settings", YourVersion: o.IfSettingsVersion, Version: v}
	}
	if r := Open(x); r != nil {
		return r
	}
	settings := proto.CloneOf(o.Settings)
	if len(settings.Namespaces) == 0 {
		settings.Namespaces = x.Settings().Namespaces
	}
	schema, bad := state.CompileSchema(settings.Namespaces)
	if bad != nil {
		return bad
	}
	if key, n := x.Stranded(schema); n > 0 {
		return &boardpb.Result{Code: boardpb.Code_CODE_WRONG_STATE, Key: key, Got: uint64(n), Field: "stored",
			Message: fmt.Sprintf("the new table would leave %d stored keys without their namespace or mode, %s first", n, key),
			Hint:    "delete them first, or keep their namespace in the table"}
	}
	x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_BOARD_SET, Surface: boardpb.Surface_SURFACE_BOARD, Version: x.SettingsVersion() + 1})
	version := x.SetSettings(settings, schema)
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Version: version, Rev: x.Commit()}
}

// BoardCompact gives up history and events before a rev, and says so in the feed.
func BoardCompact(s *state.State, c *boardpb.Command, o *boardpb.BoardCompact) *boardpb.Result {
	if !s.BoardExists(o.Name) {
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Field: "board " + o.Name}
	}
	x := s.BeginTxn(o.Name, c)
	if o.BeforeRev > x.Head()+1 {
		return &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Field: "before_rev", Rev: x.Head(),
			Message: fmt.Sprintf("before_rev: %d is above the head, %d", o.BeforeRev, x.Head())}
	}
	x.CompactBefore(o.BeforeRev)
	x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_COMPACTION, Surface: boardpb.Surface_SURFACE_BOARD, OldestRev: x.OldestRev()})
	oldest := x.OldestRev()
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Rev: x.Commit(), OldestRev: oldest}
}

// BoardClose ends a board (SPEC F-33). Time goes on in it: leases that were held expire.
// Closing it again changes nothing and answers the rev of the first.
func BoardClose(s *state.State, c *boardpb.Command, o *boardpb.BoardClose) *boardpb.Result {
	if !s.BoardExists(o.Name) {
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Field: "board " + o.Name}
	}
	x := s.BeginTxn(o.Name, c)
	if closed := x.ClosedRev(); closed > 0 {
		return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Rev: closed}
	}
	x.Close()
	x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_BOARD_CLOSE, Surface: boardpb.Surface_SURFACE_BOARD})
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Rev: x.Commit()}
}

// Open refuses what would change a closed board, or answers nil. A loop may still be
// closed: whoever worked here puts away what it had.
func Open(x *state.Txn) *boardpb.Result {
	if x.ClosedRev() == 0 || closes(x.Command()) {
		return nil
	}
	return &boardpb.Result{Code: boardpb.Code_CODE_STOPPING, Field: x.BoardName(), Limit: x.ClosedRev()}
}

// BoardDelete removes a board completely. "default" is then as before its first write.
func BoardDelete(s *state.State, o *boardpb.BoardDelete) *boardpb.Result {
	if !s.BoardExists(o.Name) {
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Field: "board " + o.Name}
	}
	s.DropBoard(o.Name)
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK}
}
