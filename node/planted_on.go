//go:build faults

package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/planted"
)

// withFaults puts the points of jepsen/planted between the guards and the disk: what is made to
// fail here fails as the disk would.
func withFaults(s Stores) Stores {
	s.Log, s.Stable, s.Snapshots = faultyLog{s.Log}, faultyStable{s.Stable}, faultySnapshots{s.Snapshots}
	return s
}

type faultyLog struct{ raft.LogStore }

func (f faultyLog) IsMonotonic() bool {
	m, ok := f.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

func (f faultyLog) StoreLog(l *raft.Log) error { return f.StoreLogs([]*raft.Log{l}) }

func (f faultyLog) StoreLogs(logs []*raft.Log) error {
	planted.Point("log-before")
	if err := planted.Error("log-write"); err != nil {
		if errors.Is(err, io.ErrShortWrite) && len(logs) > 1 {
			err = errors.Join(err, f.LogStore.StoreLogs(logs[:len(logs)/2]))
		}
		return err
	}
	if err := f.LogStore.StoreLogs(logs); err != nil {
		return err
	}
	planted.Point("log-after")
	return nil
}

type faultyStable struct{ raft.StableStore }

func (f faultyStable) SetUint64(key []byte, v uint64) error {
	if err := planted.Error("stable-write"); err != nil {
		return err
	}
	return f.StableStore.SetUint64(key, v)
}

func (f faultyStable) Set(key, value []byte) error {
	if string(key) == keyVoteCand { // only with M24: else it is keyVote, and in one record
		planted.Point("vote-between")
	}
	planted.Point("vote-before")
	if err := planted.Error("stable-write"); err != nil {
		return err
	}
	if err := f.StableStore.Set(key, value); err != nil {
		return err
	}
	planted.Point("vote-after")
	return nil
}

type faultySnapshots struct{ raft.SnapshotStore }

func (f faultySnapshots) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration,
	confIndex uint64, tr raft.Transport) (raft.SnapshotSink, error) {
	sink, err := f.SnapshotStore.Create(version, index, term, conf, confIndex, tr)
	if err != nil {
		return nil, err
	}
	return faultySink{sink}, nil
}

type faultySink struct{ raft.SnapshotSink }

func (f faultySink) Write(b []byte) (int, error) {
	if err := planted.Error("snapshot-data"); err != nil {
		n := 0
		if errors.Is(err, io.ErrShortWrite) {
			n, _ = f.SnapshotSink.Write(b[:len(b)/2])
		}
		return n, err
	}
	return f.SnapshotSink.Write(b)
}

func (f faultySink) Close() error {
	planted.Point("snapshot-rename-before")
	if err := f.SnapshotSink.Close(); err != nil {
		return err
	}
	planted.Point("snapshot-rename-after")
	return nil
}

// acknowledge is M12: the callers of appends hear ok before anybody stored them. Their places
// in the batch are taken by proposals that nobody waits for.
func acknowledge(batch []*proposal) {
	for i, p := range batch {
		c := &boardpb.Command{}
		if proto.Unmarshal(p.data, c) != nil || c.GetAppend() == nil {
			continue
		}
		batch[i] = &proposal{data: p.data, deadline: p.deadline, state: p.state, answer: make(chan answer, 1)}
		p.answer <- answer{result: &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: c.GetAppend().Key}}
	}
}

// emitAtAppend is M17: a second state machine, which takes entries when they are proposed, and
// whose View the watchers of this node are shown. alone says that nothing else is on its way.
func (n *Node) emitAtAppend(data []byte, term uint64, alone bool) {
	ahead, _ := planted.Noted(n.proposer).(*fsm.FSM)
	if alone && (ahead == nil || ahead.View().Digest() != n.fsm.View().Digest()) {
		ahead = twin(n.fsm)
	}
	if ahead == nil {
		return
	}
	planted.Note(n.proposer, ahead)
	ahead.ApplyBatch([]*raft.Log{{Index: max(ahead.Applied(), n.raft.LastIndex()) + 1, Term: term, Type: raft.LogCommand, Data: data}})
	planted.Note(n, ahead.View())
}

// verifyLeader is M3. The library forgets such a future when it stops, so it is told to end then.
func (n *Node) verifyLeader(time.Duration) raft.Future {
	future, stopped := n.raft.VerifyLeader(), make(chan struct{})
	context.AfterFunc(n.ctx, func() { close(stopped) })
	reflect.ValueOf(future).Elem().FieldByName("ShutdownCh").Set(reflect.ValueOf(stopped))
	return future
}

// twin is another state machine with the state of f.
func twin(f *fsm.FSM) *fsm.FSM {
	s, err := f.Snapshot()
	if err != nil {
		return nil
	}
	var file memorySink
	t := fsm.New(fsm.Options{Fatal: func(error) {}})
	if s.Persist(&file) != nil || t.Restore(io.NopCloser(&file.Buffer)) != nil {
		return nil
	}
	return t
}

type memorySink struct{ bytes.Buffer }

func (*memorySink) ID() string    { return "memory" }
func (*memorySink) Cancel() error { return nil }
func (*memorySink) Close() error  { return nil }
