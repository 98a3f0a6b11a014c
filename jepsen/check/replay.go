package check

import (
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// Replay runs the commands of A through the state machine of this build, from an empty state.
// R2: each of them answers what the nodes answered; G4: each entry leaves the state that the nodes
// had. It finds what all nodes did alike and nothing in the log explains: a rule that depends on
// more than state, stamp and command, or a history whose commands are not those that ran. It tells
// the first difference only: a state that differs once does so ever after. A must be agreed, and
// made by the source of this build.
func Replay(a *Order) []Finding {
	r := &replay{}
	machine := fsm.New(fsm.Options{Trace: r.compare, Fatal: r.refuse})
	for i := 0; i < len(a.Records) && r.found == nil; {
		first := &a.Records[i]
		n := slices.IndexFunc(a.Records[i:], func(b history.Applied) bool { return b.Index != first.Index })
		if n < 0 {
			n = len(a.Records) - i
		}
		r.entry = a.Records[i : i+n]
		machine.Apply(r.log())
		i += n
	}
	return r.found
}

// replayed says what a replay says of a run. Nodes and clients of a planted bug ran by other rules
// than this build. A history that follows no plan was written by hand, for a test; one that only
// hides its plan is refused for that (planned).
func replayed(run *history.Run, a *Order) []Finding {
	if run.Mutant != "" || run.Rerun == "" || run.Time == 0 {
		return nil
	}
	return Replay(a)
}

// replay is the entry that is being applied, and what differed.
type replay struct {
	entry []history.Applied
	found []Finding
}

// log is the entry as it was: one batch under one stamp.
func (r *replay) log() *raft.Log {
	first := &r.entry[0]
	batch := &boardpb.Batch{Format: fsm.Format, Stamp: &boardpb.Stamp{TMs: first.T, WallMs: first.Result.GetWallMs(), Term: first.Term}}
	for i := range r.entry {
		batch.Commands = append(batch.Commands, r.entry[i].Command)
	}
	data, err := proto.Marshal(batch)
	if err != nil {
		r.refuse(err)
	}
	return &raft.Log{Index: first.Index, Term: first.Term, Type: raft.LogCommand, Data: data}
}

func (r *replay) refuse(err error) { r.differs("R2", "cannot be replayed: %v", err) }

func (r *replay) differs(checker, format string, args ...any) {
	if r.found == nil {
		r.found = []Finding{violation(checker, format, args...).at(r.entry[0].Index)}
	}
}

// compare is the trace of the machine that replays.
func (r *replay) compare(t fsm.TraceRecord) {
	told := &r.entry[t.Position]
	if !proto.Equal(told.Result, t.Result) {
		r.differs("R2", "command %d answered %s on the nodes, and %s when it is run again", t.Position, brief(told.Result), brief(t.Result))
	}
	if digest := hex.EncodeToString(t.Digest[:]); told.Digest != "" && told.Digest != digest {
		r.differs("G4", "the nodes had the state %s after this entry, and running the log again comes to %s", told.Digest, digest)
	}
}

func brief(r *boardpb.Result) string {
	return fmt.Sprintf("{%s, rev %d, version %d, generation %d, %d ms}", name(r), r.GetRev(), r.GetVersion(), r.GetGeneration(), r.GetTMs())
}
