package node

import (
	"testing"

	"github.com/hashicorp/raft"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
)

func TestTheFeatureLevelIsWhatEveryNodeKnowsNonVotersToo(t *testing.T) {
	servers := []raft.Server{{ID: "a"}, {ID: "b"}, {ID: "c", Suffrage: raft.Nonvoter}}
	record := func(levels ...uint32) *boardpb.ClusterRecord {
		c := &boardpb.ClusterRecord{}
		for i, l := range levels {
			c.Nodes = append(c.Nodes, &boardpb.Node{Id: string("abc"[i]), MaxLevel: l})
		}
		return c
	}
	for _, c := range []struct {
		rec  *boardpb.ClusterRecord
		want uint32
	}{
		{record(9, 9, 9), fsm.MaxLevel}, // never above what this binary knows
		{record(1, 1, 0), 0},            // the non-voter is older
		{record(1, 1), 0},               // one has not reported
		{record(1, 1, 1), 1},
	} {
		if got := commonLevel(c.rec, servers); got != c.want {
			t.Errorf("%v: level %d, expected %d", c.rec, got, c.want)
		}
	}
}
