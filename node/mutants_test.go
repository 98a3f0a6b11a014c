//go:build faults

package node_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"raftboard/jepsen/planted"
	"raftboard/node"
	"raftboard/node/nodetest"
)

// staleCandidate crashes a voter at a point of storing its vote for one candidate and starts
// it again. It answers whether it then votes, in the same term, for another one whose log is
// behind, because it voted for that one in the term before.
func staleCandidate(t *testing.T, crashAt string, bugs ...string) (granted bool) {
	synctest.Test(t, func(t *testing.T) {
		defer planted.Reset()
		armed := false
		var disk *nodetest.Disk
		crash := func(int) error {
			if armed {
				disk.Fail(errors.New("the machine is off"))
			}
			return nil
		}
		planted.Set(planted.Setting{Bugs: bugs, Points: map[string]func(int) error{crashAt: crash}})
		c := nodetest.Start(t, nodetest.Options{})
		c.WaitLeader()
		c.WaitSame()
		voter, behind, ahead := c.Members[0], c.Members[1], c.Members[2]
		disk = voter.Disk
		c.Crash(behind.Index)
		c.Crash(ahead.Index)
		asker := node.NewTransport(c.Net.Listen("asker"), nil)
		defer asker.Close()
		ask := func(candidate *nodetest.Member, term, lastIndex, lastTerm uint64) (granted, answered bool) {
			request := &raft.RequestVoteRequest{Term: term, LastLogIndex: lastIndex, LastLogTerm: lastTerm, Candidate: []byte(candidate.ID),
				RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(candidate.ID), Addr: []byte(candidate.ID)}}
			var answer raft.RequestVoteResponse
			for range 4 { // connections of the voter's former life may be left
				if asker.RequestVote(raft.ServerID(voter.ID), raft.ServerAddress(voter.ID), request, &answer) == nil {
					return answer.Granted, true
				}
			}
			return false, false
		}
		time.Sleep(30 * time.Second) // the voter has no leader any more
		if given, _ := ask(behind, 100, 1000, 99); !given {
			t.Fatal("the voter does not vote in term 100")
		}
		armed = true
		if given, _ := ask(ahead, 101, 1000, 99); given {
			t.Fatal("the voter gave a vote that it could not store")
		}
		armed = false
		c.Crash(voter.Index)
		disk.Fail(nil)
		c.Restart(voter.Index)
		var answered bool
		if granted, answered = ask(behind, 101, 0, 0); !answered {
			t.Fatal("the voter does not answer after its crash")
		}
	})
	return granted
}

func TestM24P3ACrashBetweenTheTwoWritesOfAVoteGivesOneToWhoIsBehindWhichIsG2(t *testing.T) {
	if !staleCandidate(t, "vote-between", "M24") {
		t.Error("with the bug a candidate whose log is behind gets no vote")
	}
	if staleCandidate(t, "vote-before") {
		t.Error("without it, where a vote is one record, a candidate whose log is behind gets a vote")
	}
}

func TestM20OnTheFastHeartbeatPathReplicasDivergeWhichIsG1(t *testing.T) {
	defer planted.Reset()
	planted.Set(planted.Setting{Bugs: []string{"M20"}})
	if n := countDivergence(t, node.Guarded); n < divergenceRuns/2 {
		t.Errorf("diverged in %d of %d runs, expected at least half", n, divergenceRuns)
	}
}

func TestM3AFenceByVerifyLeaderPassesOnADeposedLeaderWhichIsH1(t *testing.T) {
	defer planted.Reset()
	planted.Set(planted.Setting{Bugs: []string{"M3"}})
	fence := func(n *node.Node) bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := n.FenceIndex(ctx)
		return err == nil
	}
	const batches = 10 // it shows in about one of six runs, and in fewer where the machine is busy
	for range batches {
		if countStale(t, fence) > 0 {
			return
		}
	}
	t.Errorf("stale in none of %d runs, expected some", batches*verifyRuns)
}
