//go:build faults

package transport

import (
	"time"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/node"
)

// timeLeases is M21: while this node leads it times every lease, and when it leads no more its
// timers run on. What is due by them it reports to whoever leads now, in a command that the
// mutated state machine believes. It ends with the server.
func (s *Server) timeLeases(n *node.Node) {
	type grant struct {
		board, key string
		generation uint64
	}
	due := map[grant]time.Time{}
	every := time.NewTicker(50 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-s.ctx.Done():
			return
		}
		view, leads, held := n.View(), n.IsLeader(), map[grant]bool{}
		for _, name := range view.BoardNames() {
			b := view.Board(name)
			b.Leases("", func(key string, l *boardpb.Lease) bool {
				g := grant{name, key, l.Generation}
				held[g] = l.State == boardpb.LeaseState_LEASE_STATE_HELD
				if held[g] && leads {
					left := board.EffectiveExpiry(l, b.Loop(l.Loop)) - b.T()
					due[g] = time.Now().Add(time.Duration(left) * time.Millisecond)
				}
				return true
			})
		}
		for g, at := range due {
			switch {
			case !held[g]:
				delete(due, g)
			case !leads && time.Now().After(at):
				c := &boardpb.Command{Board: g.board, Actor: &boardpb.Actor{Principal: "timer", Roles: everyRole()},
					Op: &boardpb.Command_ReportConflict{ReportConflict: &boardpb.ReportConflict{
						Key: g.key, Version: g.generation, Attempts: 1 << 31}}}
				if r, _ := s.service.propose(s.ctx, c); r.Outcome == boardpb.Outcome_OUTCOME_OK {
					delete(due, g)
				}
			}
		}
	}
}
