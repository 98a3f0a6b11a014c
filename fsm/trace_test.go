package fsm

import (
	"bytes"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	boardpb "raftboard/fsm/pb"
)

// What happened to a state and was no command is told too: without it a trace that jumps over
// entries cannot be told from one with a hole.
func TestTheTraceTellsCommandsInstallsAndVoidedEntries(t *testing.T) {
	var told []TraceRecord
	r := newRig(t)
	r.fsm.opts.Trace = func(rec TraceRecord) { told = append(told, rec) }
	fact := func(v string) *boardpb.Command {
		return &boardpb.Command{Board: "default", Actor: worker("w1"),
			Op: &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/a", Value: []byte(v)}}}
	}
	first, second := fact("1"), fact("2")
	applied := r.entry(first, second)
	results := r.fsm.Apply(applied).(*Applied).Results
	digest := func(f *FSM) [16]byte { return f.View().Digest() }
	behind := digest(r.fsm)
	void := r.entry(fact("3"))
	void.Term = 2
	r.fsm.Apply(void)
	voided := digest(r.fsm)
	var snap bytes.Buffer
	if err := writeView(&snap, r.fsm.View()); err != nil {
		t.Fatal(err)
	}
	if err := r.fsm.Restore(io.NopCloser(bytes.NewReader(snap.Bytes()[:100]))); err == nil {
		t.Fatal("half a snapshot was taken")
	}
	if err := r.fsm.Restore(io.NopCloser(&snap)); err != nil {
		t.Fatal(err)
	}
	want := []TraceRecord{
		{Index: applied.Index, Term: 1, Position: 0, Command: first, Result: results[0], T: r.now},
		{Index: applied.Index, Term: 1, Position: 1, Command: second, Result: results[1], T: r.now, Digest: behind},
		{Index: void.Index, Term: 2, T: r.now, Digest: voided, Voided: true},
		{Index: void.Index, Term: 2, T: r.now, Digest: voided, Installed: true},
	}
	if diff := cmp.Diff(want, told, protocmp.Transform()); diff != "" {
		t.Errorf("-want +told:\n%s", diff)
	}
}
