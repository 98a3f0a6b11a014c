//go:build faults

package planted_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/planted"
	"raftboard/node/nodetest"
	"raftboard/transport/clustertest"
)

// skewed applies one log on two replicas of which the older does not know the operation of
// one entry; the newer one knows it as an append. It answers why the older one stopped, and
// what is found in the traces of both.
func skewed(t *testing.T) (stopped error, found []check.Finding) {
	t.Helper()
	log := history.NewLog(history.Run{})
	older := newMachine(t)
	older.append("a", "")
	appended := &boardpb.Command{Board: "default", Actor: &boardpb.Actor{Principal: "a", Roles: []boardpb.Role{boardpb.Role_ROLE_WORKER}}}
	known := proto.CloneOf(appended)
	known.Op = &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/x", Value: []byte("2")}}
	appended.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 900, protowire.BytesType), []byte("x")))
	entry := func(c *boardpb.Command) *raft.Log {
		data, err := proto.Marshal(&boardpb.Batch{Format: fsm.Format, Stamp: older.stamp(), Commands: []*boardpb.Command{c}})
		if err != nil {
			t.Fatal(err)
		}
		return &raft.Log{Index: older.index + 1, Term: 1, Type: raft.LogCommand, Data: data}
	}
	for name, c := range map[string]*boardpb.Command{"older": appended, "newer": known} {
		f := fsm.New(fsm.Options{Trace: func(r fsm.TraceRecord) { log.Applied(name, 1, r) }, Fatal: func(err error) { stopped = err }})
		for _, l := range append(older.log[:len(older.log):len(older.log)], entry(c), &raft.Log{Index: older.index + 2, Term: 1,
			Type: raft.LogCommand, Data: older.log[len(older.log)-1].Data}) {
			f.ApplyBatch([]*raft.Log{l})
		}
	}
	_, found = check.Agree(log.History())
	return stopped, found
}

func TestM34aWhatANodeDoesNotKnowItSkipsAndG1IsFired(t *testing.T) {
	defer planted.Reset()
	planted.Reset()
	if stopped, _ := skewed(t); stopped == nil || !strings.Contains(stopped.Error(), "upgrade it") {
		t.Errorf("without the bug the older node stops with %v", stopped)
	}
	planted.Set(planted.Setting{Bugs: []string{"M34a"}})
	stopped, found := skewed(t)
	if stopped != nil {
		t.Errorf("with the bug the older node stops with %v", stopped)
	}
	digests := false
	for _, f := range found {
		digests = digests || f.Checker == "G1"
	}
	if !digests {
		t.Errorf("G1 did not fire: %v", found)
	}
}

// altered runs three nodes of which one has its state altered on purpose, with writes that
// bring ticks with digests, and answers why that node stopped.
func altered(t *testing.T, bugs ...string) (why error) {
	synctest.Test(t, func(t *testing.T) {
		defer planted.Reset()
		planted.Set(planted.Setting{Bugs: bugs, Points: map[string]func(int) error{"state-alter": func(hit int) error {
			if hit == 60 {
				return planted.ErrHit
			}
			return nil
		}}})
		c := nodetest.Start(t, nodetest.Options{})
		c.WaitLeader()
		for range 60 { // and a digest interval is 5 s
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = c.WaitLeader().Node.Propose(ctx, &boardpb.Command{Board: "default",
				Actor: &boardpb.Actor{Principal: "a", Roles: []boardpb.Role{boardpb.Role_ROLE_WORKER}},
				Op:    &boardpb.Command_Append{Append: &boardpb.Append{Key: "facts/x", Value: []byte("1")}}})
			cancel()
			time.Sleep(500 * time.Millisecond)
		}
		digests := map[[16]byte]bool{}
		for _, m := range c.Members {
			if m.Died() != nil {
				why = m.Died()
			} else if m.Node != nil {
				digests[m.Node.View().Digest()] = true
			}
		}
		if why == nil && len(digests) != 2 {
			t.Errorf("the nodes show %d states: nothing was altered", len(digests))
		}
	})
	return why
}

func TestM34bAnAlteredNodeGoesOnWhichIsD1(t *testing.T) {
	if why := altered(t); why == nil || !strings.Contains(why.Error(), "differs from that of 2 voters") {
		t.Errorf("without the bug the altered node stops with %v", why)
	}
	if why := altered(t, "M34b"); why != nil {
		t.Errorf("with the bug a node stops: %v", why)
	}
}

// wiped empties the disk of a follower, starts it again, and says under which ids it was
// known before and after, and whether it was let in.
func wiped(t *testing.T, bugs ...string) (before, after string, member bool) {
	synctest.Test(t, func(t *testing.T) {
		defer planted.Reset()
		planted.Set(planted.Setting{Bugs: bugs})
		c := clustertest.Start(t, clustertest.Options{})
		i := c.Follower()
		before = c.Members[i].Server.NodeID()
		c.Kill(i)
		c.Wipe(i)
		c.Restart(i)
		after = c.Members[i].Server.NodeID()
		for range 60 {
			time.Sleep(time.Second)
			member = member || c.Members[i].Server.Node() != nil && c.Members[i].Server.Ready() == nil
		}
	})
	return before, after, member
}

func TestM37AWipedNodeComesBackUnderItsOldIDWhichIsB4(t *testing.T) {
	if before, after, member := wiped(t); before == after || member {
		t.Errorf("without the bug the wiped node %s comes back as %s, let in: %v", before, after, member)
	}
	if before, after, member := wiped(t, "M37"); before != after || !member {
		t.Errorf("with the bug the wiped node %s comes back as %s, let in: %v", before, after, member)
	}
}
