package history_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
	"raftboard/node"
	"raftboard/node/tracefile"
)

// records are what one life of a node does, in order.
func records() []fsm.TraceRecord {
	cmd := &boardpb.Command{Board: "b", CallId: "op-1", Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "k", Value: []byte(`"x"`)}}}
	return []fsm.TraceRecord{
		{Installed: true, Index: 4, Term: 2, T: 9, Digest: [16]byte{4}},
		{Index: 5, Term: 2, Position: 0, T: 10, Command: cmd, Result: &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Rev: 3}},
		{Index: 5, Term: 2, Position: 1, T: 10, Command: cmd, Result: &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND}, Digest: [16]byte{5}},
		{Voided: true, Index: 6, Term: 3, Digest: [16]byte{6}},
		{Index: 7, Term: 3, T: 11, Command: cmd, Result: &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Replayed: true}, Digest: [16]byte{7}},
	}
}

// lives writes a file of two lives with a torn line between them.
func lives(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace")
	for range 2 {
		w, err := tracefile.Open(path, tracefile.Life{Node: "n1", PID: 1}, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		w.Roles(node.RoleChange{Role: "follower", Term: 2})
		for _, r := range records() {
			w.Trace(r)
		}
		w.Roles(node.RoleChange{Role: "shutdown", Term: 3})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		torn, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := torn.WriteString(`{"applied":{"at":17,"ind`); err != nil {
			t.Fatal(err)
		}
		if err := torn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestATraceFileSaysWhatTheTraceSaid(t *testing.T) {
	direct, log := history.NewLog(history.Run{}), history.NewLog(history.Run{})
	for life := 3; life <= 4; life++ {
		direct.Role(history.Role{Node: "n1", Life: life, Term: 2, Role: "follower"})
		for _, r := range records() {
			direct.Applied("n1", life, r)
		}
		direct.Role(history.Role{Node: "n1", Life: life, Term: 3, Role: "down"})
	}
	file := lives(t)
	if err := history.ReadTrace(iotest.OneByteReader(bytes.NewReader(file)), log, "n1", 3); err != nil {
		t.Fatal(err)
	}
	want, got := direct.History(), log.History()
	placed := cmpopts.IgnoreTypes(time.Duration(0))
	if diff := cmp.Diff([]any{want.Applied, want.Install, want.Roles}, []any{got.Applied, got.Install, got.Roles}, protocmp.Transform(), placed); diff != "" {
		t.Errorf("-direct +read:\n%s", diff)
	}
	if len(got.Applied) != 6 || len(got.Install) != 2 {
		t.Fatalf("%d commands and %d installs, want 6 and 2", len(got.Applied), len(got.Install))
	}
	if at := got.Applied[0].At; at <= 0 || at > got.Run.Ended {
		t.Errorf("applied at %v of a run of %v", at, got.Run.Ended)
	}
}

func TestATraceFileIsReadWhileItGrows(t *testing.T) {
	file := lives(t)
	log := history.NewLog(history.Run{})
	r := history.NewTraceReader(log, "n1", 1)
	half := bytes.LastIndex(file, []byte(`{"life"`)) - 10 // inside the torn line
	for _, part := range [][]byte{file[:half], file[half:]} {
		if _, err := io.Copy(r, bytes.NewReader(part)); err != nil {
			t.Fatal(err)
		}
		if err := r.End(); err != nil { // a file may end in a torn line, and go on later
			t.Fatal(err)
		}
	}
	if r.Life() != 2 || len(log.History().Applied) != 6 {
		t.Errorf("life %d, %d commands, want 2 and 6", r.Life(), len(log.History().Applied))
	}
}

func TestATraceFileWithAHoleIsRefused(t *testing.T) {
	const life, role = `{"life":{"at":1,"node":"n1","pid":1,"version":""}}` + "\n", `{"role":{"at":2,"term":1,"role":"leader"}}` + "\n"
	for name, text := range map[string]string{
		"a damaged line inside a life":   life + `{"role":{"at":2,"te` + "\n" + role,
		"two damaged lines":              life + "{\n{\n" + life,
		"a damaged line at the end":      life + "{\n",
		"an unknown field":               life + `{"role":{"at":2,"term":1,"role":"leader","colour":"red"}}` + "\n" + role,
		"a line that says nothing":       life + "{}\n",
		"something before a life":        role + life,
		"the file of another node":       `{"life":{"at":1,"node":"n2","pid":1,"version":""}}` + "\n",
		"changes that were not written":  life + `{"role":{"at":2,"term":1,"role":"leader","missed":1}}` + "\n",
		"a digest that is none":          life + `{"voided":{"at":2,"index":1,"term":1,"t":1,"digest":"0g"}}` + "\n",
		"a command that does not decode": life + `{"applied":{"at":2,"index":1,"term":1,"t":1,"position":0,"command":"/w==","result":""}}` + "\n",
	} {
		if err := history.ReadTrace(strings.NewReader(text), history.NewLog(history.Run{}), "n1", 1); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
