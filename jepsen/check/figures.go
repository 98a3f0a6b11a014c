package check

import (
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
)

// Figures are what a run of work shows beside its verdict. None of them is right or wrong.
type Figures struct {
	Sets            int     `json:"sets"` // accepted
	Conflicts       int     `json:"conflicts"`
	ConflictRate    float64 `json:"conflict_rate"` // conflicts of all that were decided, 0 to 1
	Posted          int     `json:"posted"`
	Completed       int     `json:"completed"`
	GivenBack       int     `json:"given_back"` // failed or released
	Grants          int     `json:"grants"`
	Reclaims        int     `json:"reclaims"`         // grants that followed an expiry
	FenceRefusals   int     `json:"fence_refusals"`   // writes of holders that were holders no more
	OutsideRefusals int     `json:"outside_refusals"` // the same, by what guards itself outside the cluster
	Crashes         int     `json:"crashes"`          // of workers
	Pauses          int     `json:"pauses"`
}

// FiguresOf counts them in A and in what clients recorded.
func FiguresOf(h *history.History, a *Order) (f Figures) {
	posts := map[string]bool{}
	for _, op := range h.Ops {
		if op.Kind == history.Post {
			posts[op.CallID()] = true
		}
	}
	for i := range a.Records {
		r := &a.Records[i]
		if r.Command.Board != h.Run.Board || r.Result.Replayed {
			continue
		}
		f.count(r)
		if r.OK() && posts[r.Command.CallId] {
			f.Posted++
		}
	}
	if n := f.Sets + f.Conflicts; n > 0 {
		f.ConflictRate = float64(f.Conflicts) / float64(n)
	}
	for _, o := range h.Outside {
		if !o.Accepted {
			f.OutsideRefusals++
		}
	}
	for _, fault := range h.Faults {
		switch {
		case fault.Nemesis != "" || fault.Name == history.NoMajority:
		case fault.Name == "crash":
			f.Crashes++
		case fault.Name == "pause":
			f.Pauses++
		}
	}
	return f
}

func (f *Figures) count(r *history.Applied) {
	if lost(r.Result) {
		f.FenceRefusals++
	}
	if r.Result.Outcome == boardpb.Outcome_OUTCOME_CONFLICT {
		f.Conflicts++
	}
	if !r.OK() {
		return
	}
	switch r.Command.Op.(type) {
	case *boardpb.Command_Set:
		f.Sets++
	case *boardpb.Command_Complete:
		f.Completed++
	case *boardpb.Command_Fail, *boardpb.Command_Release:
		f.GivenBack++
	case *boardpb.Command_Claim, *boardpb.Command_ClaimNext:
		if r.Result.Renewed {
			return
		}
		f.Grants++
		if p := r.Result.Previous; len(p) > 0 && p[0].EndedBy == boardpb.EndedBy_ENDED_BY_EXPIRED {
			f.Reclaims++
		}
	}
}
