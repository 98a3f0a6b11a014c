package tracefile

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/node"
)

// lines reads a file as it stands, with the times struck out once they are known to rise.
func lines(t *testing.T, path string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var before float64
	for row := range strings.Lines(string(text)) {
		var l map[string]map[string]any
		if err := json.Unmarshal([]byte(row), &l); err != nil || len(l) != 1 {
			out = append(out, "no line: "+strings.TrimSuffix(row, "\n"))
			continue
		}
		for _, body := range l {
			at, _ := body["at"].(float64)
			if at < before || at == 0 {
				t.Errorf("at %v after %v: %s", at, before, row)
			}
			before = at
			delete(body, "at")
		}
		plain, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(plain))
	}
	return out
}

func never(t *testing.T) func(error) { return func(err error) { t.Errorf("fatal: %v", err) } }

func TestEveryRecordIsInTheFileWhenItsCallReturns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace")
	w, err := Open(path, Life{Node: "n1", PID: 7, Version: "v"}, never(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`{"life":{"node":"n1","pid":7,"version":"v"}}`}
	for _, step := range []struct {
		do   func()
		line string
	}{
		{func() { w.Trace(fsm.TraceRecord{Installed: true, Index: 4, Term: 2, T: 9, Digest: [16]byte{0xab}}) },
			`{"installed":{"digest":"ab000000000000000000000000000000","index":4,"t":9,"term":2}}`},
		{func() {
			w.Trace(fsm.TraceRecord{Index: 5, Term: 2, T: 10, Command: &boardpb.Command{Seq: 1}, Result: &boardpb.Result{Rev: 1}})
		}, `{"applied":{"command":"` + base64Of(t, &boardpb.Command{Seq: 1}) + `","index":5,"position":0,"result":"` +
			base64Of(t, &boardpb.Result{Rev: 1}) + `","t":10,"term":2}}`},
		{func() { w.Trace(fsm.TraceRecord{Voided: true, Index: 6, Term: 3, T: 10, Digest: [16]byte{1}}) },
			`{"voided":{"digest":"01000000000000000000000000000000","index":6,"t":10,"term":3}}`},
		{func() { w.Roles(node.RoleChange{Role: "leader", Term: 3, Missed: 2}) },
			`{"role":{"missed":2,"role":"leader","term":3}}`},
	} {
		step.do()
		want = append(want, step.line)
		if diff := cmp.Diff(want, lines(t, path)); diff != "" {
			t.Fatalf("-want +file:\n%s", diff)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func base64Of(t *testing.T, m proto.Message) string {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(string(text), `"`)
}

func TestALifeBeginsOnALineOfItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace")
	if err := os.WriteFile(path, []byte(`{"applied":{"at":1,"ind`), 0o600); err != nil {
		t.Fatal(err)
	}
	for pid := range 2 {
		w, err := Open(path, Life{Node: "n1", PID: pid}, never(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{`no line: {"applied":{"at":1,"ind`, `{"life":{"node":"n1","pid":0,"version":""}}`, `{"life":{"node":"n1","pid":1,"version":""}}`}
	if diff := cmp.Diff(want, lines(t, path)); diff != "" {
		t.Errorf("-want +file:\n%s", diff)
	}
}

func TestWhatCannotBeWrittenIsFatalOnce(t *testing.T) {
	if _, err := Open("/dev/full", Life{Node: "n1"}, never(t)); err == nil {
		t.Error("a life began on a full device")
	}
	var told []error
	w, err := Open(filepath.Join(t.TempDir(), "trace"), Life{Node: "n1"}, func(err error) { told = append(told, err) })
	if err != nil {
		t.Fatal(err)
	}
	if err := w.file.Close(); err != nil { // every write fails from here on
		t.Fatal(err)
	}
	w.Roles(node.RoleChange{Role: "leader", Term: 1})
	w.Roles(node.RoleChange{Role: "follower", Term: 1})
	if len(told) != 1 || !strings.Contains(told[0].Error(), "the trace cannot be written") {
		t.Errorf("told %v, want one error", told)
	}
}

func TestLinesOfTwoGoroutinesDoNotMix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace")
	w, err := Open(path, Life{Node: "n1"}, never(t))
	if err != nil {
		t.Fatal(err)
	}
	var writing sync.WaitGroup
	for range 2 {
		writing.Go(func() {
			for i := range 200 {
				w.Trace(fsm.TraceRecord{Index: uint64(i), Command: &boardpb.Command{Board: strings.Repeat("b", 5000)}, Result: &boardpb.Result{}})
			}
		})
	}
	writing.Wait()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n != 401 {
		t.Errorf("%d lines, want 401", n)
	}
	for _, l := range lines(t, path) {
		if strings.HasPrefix(l, "no line") {
			t.Fatal(l[:80])
		}
	}
}
