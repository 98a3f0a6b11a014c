package history_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// record is a run with one of everything.
func record() *history.Log {
	log := history.NewLog(history.Run{Workload: "W1", Nemesis: "N7", Driver: "hand", Board: "b", Seed: 7})
	op := log.Begin(history.Op{Client: "c1", Kind: history.Set, Board: "b", Key: "k", Args: history.Args{Value: `"x"`, IfVersion: 3}})
	lost := log.Begin(history.Op{Client: "c2", Kind: history.Get, Board: "b", Key: "k"})
	_ = lost
	time.Sleep(time.Second)
	cmd := &boardpb.Command{Board: "b", Loop: "l-1", Seq: 9, CallId: op.CallID(), Op: &boardpb.Command_Set{Set: &boardpb.Set{Key: "k", Value: []byte(`"x"`)}}}
	res := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Version: 4, Rev: 8}
	log.Applied("n1", 2, fsm.TraceRecord{Index: 5, Term: 3, Command: cmd, Result: res, T: 11, Digest: [16]byte{1}})
	log.End(op, func(o *history.Op) {
		o.Outcome, o.Result = history.OK, history.Result{Answer: "ok", Version: 4, Rev: 8}
	})
	log.Told(history.Told{Watcher: "w", Board: "b", Event: &boardpb.Event{Rev: 8, Kind: boardpb.Kind_KIND_SET, Key: "k"}})
	log.Told(history.Told{Watcher: "w", Board: "b", Bookmark: 8})
	log.Fault(history.Fault{Name: "kill", Targets: []string{"n1"}, Witness: "term 4"})
	log.Final(history.Final{Reader: "r", Board: "b", Entry: &boardpb.Entry{Key: "k", Version: 4}})
	log.Final(history.Final{Reader: "r", Board: "b", Lease: &boardpb.Lease{Key: "k", Generation: 2}})
	log.Outside(history.Outside{Client: "c1", Key: "k", Generation: 1, Accepted: true})
	log.Believed(history.Belief{Client: "c1", Key: "k", Generation: 1, From: 1, To: 2, Until: 3, Why: history.BeliefGiven})
	log.Note(history.Note{Kind: history.NoteDied, Node: "n2", Text: "exit status 1"})
	log.Healed(time.Minute)
	return log
}

func TestAHistorySurvivesItsFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := record().History()
		var file bytes.Buffer
		if err := h.Write(&file); err != nil {
			t.Fatal(err)
		}
		got, err := history.Read(&file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(h, got, protocmp.Transform()); diff != "" {
			t.Errorf("-written +read:\n%s", diff)
		}
	})
}

func TestALineThatIsNotUnderstoodIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"an unknown kind of line":  `{"run":{}}` + "\n" + `{"surprise":{}}`,
		"an unknown field":         `{"run":{}}` + "\n" + `{"op":{"id":1,"colour":"red"}}`,
		"an unknown trace field":   `{"run":{}}` + "\n" + `{"applied":{"index":1,"colour":"red","command":{},"result":{}}}`,
		"a line that says nothing": `{"run":{}}` + "\n" + `{}`,
		"a file cut short":         `{"run":{}}` + "\n" + `{"op":{"id":1`,
		"no run":                   `{"op":{"id":1}}`,
		"two runs":                 `{"run":{}}` + "\n" + `{"run":{}}`,
	} {
		if h, err := history.Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: read %+v", name, h)
		}
	}
}

func TestAFileThatIsNotWholeIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var file bytes.Buffer
		if err := record().History().Write(&file); err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(strings.TrimSuffix(file.String(), "\n"), "\n")
		for n := range lines {
			if _, err := history.Read(strings.NewReader(strings.Join(lines[:n], ""))); err == nil {
				t.Errorf("the first %d of %d lines were read as a whole history", n, len(lines))
			}
			without := strings.Join(slices.Delete(slices.Clone(lines), n, n+1), "")
			if _, err := history.Read(strings.NewReader(without)); err == nil {
				t.Errorf("a history was read without its line %d", n+1)
			}
		}
		if _, err := history.Read(strings.NewReader(file.String() + lines[1])); err == nil {
			t.Error("a line behind the end was read")
		}
	})
}

func TestAHistoryWithADamagedByteIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var file bytes.Buffer
		if err := record().History().Write(&file); err != nil {
			t.Fatal(err)
		}
		for i, b := range file.Bytes() {
			if b < '0' || b > '9' {
				continue
			}
			damaged := bytes.Clone(file.Bytes())
			damaged[i] = '0' + (b-'0'+1)%10
			if _, err := history.Read(bytes.NewReader(damaged)); err == nil {
				t.Errorf("a history was read with another digit at byte %d: …%s", i, damaged[max(0, i-40):i+1])
			}
		}
	})
}

func TestARecordThatIsNotWhatWasHashedIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, spoil := range map[string]func(*history.Applied){
			"another result":  func(a *history.Applied) { a.Result.Version += 7 },
			"another command": func(a *history.Applied) { a.Command.Seq++ },
		} {
			h, file := record().History(), bytes.Buffer{}
			spoil(&h.Applied[0])
			if err := h.Write(&file); err != nil {
				t.Fatal(err)
			}
			if _, err := history.Read(&file); err == nil {
				t.Errorf("%s was read under the hash of the first", name)
			}
		}
	})
}

func TestBeginningsAndEndsAreCountedAndTheLostOneIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := record().History()
		set, get := h.Ops[0], h.Ops[1]
		if set.Began != 1 || get.Began != 2 || set.Ended != 3 || set.Return-set.Invoke != time.Second {
			t.Errorf("set %+v, get %+v", set, get)
		}
		if get.Outcome != history.Info || get.Ended != 0 {
			t.Errorf("an operation that never returned is %q and ended at %d", get.Outcome, get.Ended)
		}
		if set.Loop != "l-1" || set.Seq != 9 {
			t.Errorf("the nodes saw it as %s %d", set.Loop, set.Seq)
		}
	})
}

func TestWhatHappensToAMessageAfterItWasRecordedDoesNotShow(t *testing.T) {
	res := &boardpb.Result{Version: 1}
	before := history.Trace("n1", 1, fsm.TraceRecord{Command: &boardpb.Command{}, Result: res})
	res.Version = 2
	after := history.Trace("n1", 1, fsm.TraceRecord{Command: &boardpb.Command{}, Result: res})
	if before.Result.Version != 1 || before.ResultHash == after.ResultHash {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

func TestCallIDsOfOthersAreNotOurs(t *testing.T) {
	for id, want := range map[string]uint64{"op-12": 12, "": 0, "op-": 0, "op-x": 0, "12": 0, "span-12": 0} {
		if got := history.OpOf(id); got != want {
			t.Errorf("%q: got %d, want %d", id, got, want)
		}
	}
}
