package transport

import (
	"fmt"
	"sync/atomic"
	"time"

	boardpb "raftboard/fsm/pb"
)

// The bounds of one server. None of them changes what a command does: they decide only
// whether it is let in (DESIGN §10). Numbers that change a result are constants of
// fsm/state or replicated settings.
const (
	maxMessageBytes = 4 << 20 // one gRPC message, both ways
	maxRequestBytes = 1 << 20 // one command or query

	// unavailableAfter bounds how long a call waits for a leader and a majority (SPEC F-9:
	// an answer within 5 s). The rest of the 5 s belongs to the way back.
	unavailableAfter = 4500 * time.Millisecond
	// defaultCallTimeout is the deadline of a mutation that names none (ECOSYSTEM §3).
	defaultCallTimeout = 10 * time.Second
	// maxCallTimeout is the longest deadline a call on a session may ask for.
	maxCallTimeout = 10 * time.Minute
	// retryAfterMs is the pause suggested with unavailable.
	retryAfterMs = 100
)

// Limits are the admission limits: flags at the edge.
type Limits struct {
	InFlight           int // calls being answered at this node, over all faces
	InFlightPerSession int // calls of one session stream
	Sessions           int // session streams
	Watchers           int // watch streams
}

// DefaultLimits fit a node of two cores with thousands of workers.
func DefaultLimits() Limits {
	return Limits{InFlight: 4096, InFlightPerSession: 1024, Sessions: 4000, Watchers: 2000}
}

// Validate refuses limits that would let nothing in.
func (l Limits) Validate() error {
	for _, x := range []struct {
		name  string
		value int
	}{
		{"in flight", l.InFlight}, {"in flight per session", l.InFlightPerSession},
		{"sessions", l.Sessions}, {"watchers", l.Watchers},
	} {
		if x.value < 1 {
			return fmt.Errorf("limit %q is %d; it must be at least 1", x.name, x.value)
		}
	}
	return nil
}

// gate counts what is inside and turns away what would exceed its limit.
type gate struct {
	what    string
	most    int64
	inside  atomic.Int64
	refused atomic.Uint64
}

func newGate(what string, most int) *gate { return &gate{what: what, most: int64(most)} }

// enter lets one in and answers nil, or answers the refusal. Who got in must leave.
func (g *gate) enter() *boardpb.Result {
	if n := g.inside.Add(1); n <= g.most {
		return nil
	}
	g.inside.Add(-1)
	g.refused.Add(1)
	r := refuse(boardpb.Code_CODE_LIMIT_REQUESTS,
		fmt.Sprintf("this node already has %d %s; that is its limit", g.most, g.what),
		"wait and repeat, or ask another node")
	r.Got, r.Limit = uint64(g.most)+1, uint64(g.most)
	r.Proposed, r.RetryAfterMs = boardpb.Proposed_PROPOSED_NO, retryAfterMs
	return r
}

func (g *gate) leave() { g.inside.Add(-1) }
