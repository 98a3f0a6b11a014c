package transport_test

import (
	"fmt"
	"testing"

	boardpb "raftboard/fsm/pb"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

func TestT57TheLeasesOfALoopComeInPages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Nodes: 1})
		w := as(t, c, "w1", 0)
		loop := w.openLoop()
		const n = 25
		for i := range n {
			claim := claimOf(fmt.Sprintf("claims/%02d", i), 60_000)
			claim.Loop, claim.IdempotencyKey = loop, fmt.Sprint(i)
			w.ok(claim)
		}
		status := func(limit uint32, after string) *wirepb.ReadRequest {
			return &wirepb.ReadRequest{Board: "default", Query: &wirepb.ReadRequest_LoopStatus{
				LoopStatus: &wirepb.LoopQuery{Loop: loop, Limit: limit, After: after}}}
		}
		if all := w.read(status(0, "")).GetLoopStatus(); len(all.Leases) != n || all.Next != "" {
			t.Errorf("without a limit: %d leases, next %q", len(all.Leases), all.Next)
		}
		var keys []string
		for pages, after := 0, ""; pages == 0 || after != ""; pages++ {
			page := w.read(status(10, after)).GetLoopStatus()
			if page.Loop.GetId() != loop || len(page.Leases) == 0 || len(page.Leases) > 10 || pages > 3 {
				t.Fatalf("page %d is of loop %s with %d leases", pages, page.Loop.GetId(), len(page.Leases))
			}
			for _, l := range page.Leases {
				keys = append(keys, l.Key)
			}
			after = page.Next
		}
		if len(keys) != n || keys[0] != "claims/00" || keys[n-1] != "claims/24" {
			t.Errorf("pages of 10 hold %d: %v", len(keys), keys)
		}
		if r := w.readError(status(0, "no key/")); r.Code != boardpb.Code_CODE_BAD_REQUEST || r.Field != "after" {
			t.Errorf("a bad after: %v", r)
		}
	})
}
