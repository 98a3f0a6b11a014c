package report

import (
	"cmp"
	"slices"
	"strings"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// facts is a run with what several parts of its page need.
type facts struct {
	h       *history.History
	j       check.Judgement
	whole   span
	nodes   []string
	names   map[string]string // of nodes, by their ids
	leaders []leader
	faults  []fault
	clock   boardClock
}

// leader is the moment at which a node began to lead.
type leader struct {
	at   time.Duration
	term uint64
	node string
}

// fault is a fault with what it did to the clients.
type fault struct {
	history.Fault
	derived  bool          // says only what other faults come to together
	onClient bool          // done to a client by its workload, not to the cluster
	first    time.Duration // from the start to the first ok of an operation that began after it
	answered bool          // there was one
	silence  time.Duration // the longest time without an ok, begun within the fault
}

func gather(h *history.History, j check.Judgement) *facts {
	f := &facts{h: h, j: j, whole: span{0, end(h)}}
	f.nodes = nodesOf(h)
	f.names = namesOf(j.Order)
	f.clock = newBoardClock(h, j.Order)
	f.leaders = leadersOf(h, j.Order, f.clock)
	for i := range f.leaders {
		f.leaders[i].node = f.node(f.leaders[i].node)
	}
	f.faults = faultsOf(h)
	return f
}

// records are the commands in the agreed order; none if there is no such order.
func (f *facts) records() []history.Applied {
	if f.j.Order == nil {
		return nil
	}
	return f.j.Order.Records
}

// end is when the last thing was recorded, and never 0.
func end(h *history.History) time.Duration {
	last := h.Run.Ended
	for i := range h.Ops {
		last = max(last, h.Ops[i].Invoke, h.Ops[i].Return)
	}
	for i := range h.Faults {
		last = max(last, h.Faults[i].End)
	}
	for i := range h.Feed {
		last = max(last, h.Feed[i].At)
	}
	return max(last, time.Second)
}

// nodesOf lists the nodes of the run, also those that joined later.
func nodesOf(h *history.History) []string {
	nodes := slices.Clone(h.Run.Nodes)
	var more []string
	add := func(n string) {
		if n != "" && !slices.Contains(nodes, n) && !slices.Contains(more, n) {
			more = append(more, n)
		}
	}
	for i := range h.Applied {
		add(h.Applied[i].Node)
	}
	for i := range h.Roles {
		add(h.Roles[i].Node)
	}
	for i := range h.Install {
		add(h.Install[i].Node)
	}
	slices.Sort(more)
	return append(nodes, more...)
}

// namesOf is what ids the nodes registered themselves under.
func namesOf(order *check.Order) map[string]string {
	names := map[string]string{}
	if order == nil {
		return names
	}
	for i := range order.Records {
		if put := order.Records[i].Command.GetNodePut(); put != nil {
			names[put.Node.GetId()] = put.Node.GetName()
		}
	}
	return names
}

// node is the name of a node that is given by its id or its name.
func (f *facts) node(id string) string { return cmp.Or(f.names[id], id) }

// leadersOf is from what raft said; where that was not recorded, from the entries with which
// leaders open their leadership.
func leadersOf(h *history.History, order *check.Order, clock boardClock) (out []leader) {
	seen := map[uint64]bool{}
	for _, r := range h.Roles {
		if r.Role == "leader" && !seen[r.Term] {
			seen[r.Term] = true
			out = append(out, leader{r.At, r.Term, r.Node})
		}
	}
	if len(out) == 0 && order != nil {
		for i := range order.Records {
			r := &order.Records[i]
			if r.Command.GetLead() == nil || seen[r.Term] {
				continue
			}
			if at, known := clock.when(r); known {
				seen[r.Term] = true
				out = append(out, leader{at, r.Term, r.Command.GetLead().NodeId})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b leader) int { return cmp.Compare(a.at, b.at) })
	return out
}

func faultsOf(h *history.History) (out []fault) {
	var returned []time.Duration // of what was ok
	var began []*history.Op      // what was ok, by when it began
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Outcome == history.OK && o.Ended > 0 {
			returned, began = append(returned, o.Return), append(began, o)
		}
	}
	slices.Sort(returned)
	slices.SortStableFunc(began, func(a, b *history.Op) int { return cmp.Compare(a.Invoke, b.Invoke) })
	soonest := make([]time.Duration, len(began)) // the first return of what began then or later
	for i := len(began) - 1; i >= 0; i-- {
		soonest[i] = began[i].Return
		if i+1 < len(began) {
			soonest[i] = min(soonest[i], soonest[i+1])
		}
	}
	for _, one := range h.Faults {
		f := fault{Fault: one, derived: one.Name == history.NoMajority, onClient: one.Nemesis == "" && one.Name != history.NoMajority}
		at, _ := slices.BinarySearchFunc(began, f.Start, func(o *history.Op, start time.Duration) int { return cmp.Compare(o.Invoke, start) })
		if f.answered = at < len(began); f.answered {
			f.first = soonest[at] - f.Start
		}
		f.silence = silence(returned, f.Start, f.End)
		out = append(out, f)
	}
	slices.SortStableFunc(out, func(a, b fault) int { return cmp.Compare(a.Start, b.Start) })
	return out
}

// silence is the longest time without a return that began between start and end.
func silence(returned []time.Duration, start, end time.Duration) (longest time.Duration) {
	last := start
	at, _ := slices.BinarySearch(returned, start)
	for ; at < len(returned); at++ {
		longest = max(longest, returned[at]-last)
		if last = returned[at]; last > end {
			return longest
		}
	}
	return max(longest, end-last)
}

// targets names what was hurt.
func (f fault) targets() string {
	if len(f.Targets) == 0 {
		return "all"
	}
	return one(strings.Join(f.Targets, ", "))
}

func (f fault) tip() string {
	return one(f.Name) + " of " + f.targets() + ", " + seconds(f.Start) + " to " + seconds(f.End)
}

// boardClock places board time in the time of the run.
type boardClock struct {
	first map[place]time.Duration // when the first node applied a command
	t     []int64
	at    []time.Duration
	exact bool // from the nodes' own records, and not from answers to clients
}

type place struct {
	index    uint64
	position int
}

// newBoardClock uses the moments at which nodes applied commands. Where none were recorded,
// it uses the moments at which clients were told of them, which are a little later.
func newBoardClock(h *history.History, order *check.Order) boardClock {
	c := boardClock{first: map[place]time.Duration{}}
	for i := range h.Applied {
		a := &h.Applied[i]
		p := place{a.Index, a.Position}
		if was, any := c.first[p]; a.At > 0 && (!any || a.At < was) {
			c.first[p] = a.At
		}
	}
	c.exact = len(c.first) > 0
	if order == nil {
		return c
	}
	if !c.exact {
		for i := range h.Ops {
			o := &h.Ops[i]
			if records := order.ByCall(o.CallID()); len(records) > 0 && o.Ended > 0 {
				c.first[place{records[len(records)-1].Index, records[len(records)-1].Position}] = o.Return
			}
		}
	}
	for i := range order.Records {
		r := &order.Records[i]
		at, known := c.first[place{r.Index, r.Position}]
		if n := len(c.t); !known || n > 0 && (r.T <= c.t[n-1] || at < c.at[n-1]) {
			continue
		}
		c.t, c.at = append(c.t, r.T), append(c.at, at)
	}
	return c
}

// when is the moment at which a command was first applied.
func (c boardClock) when(a *history.Applied) (time.Duration, bool) {
	if at, known := c.first[place{a.Index, a.Position}]; known {
		return at, true
	}
	return c.real(a.T)
}

// real is the moment of a board time: between two known ones in proportion, outside of them
// at the same speed as the run's time. False if nothing is known.
func (c boardClock) real(t int64) (time.Duration, bool) {
	if len(c.t) == 0 {
		return 0, false
	}
	i, exact := slices.BinarySearch(c.t, t)
	switch {
	case exact:
		return c.at[i], true
	case i == 0:
		return max(0, c.at[0]-time.Duration(c.t[0]-t)*time.Millisecond), true
	case i == len(c.t):
		return c.at[i-1] + time.Duration(t-c.t[i-1])*time.Millisecond, true
	}
	part := float64(t-c.t[i-1]) / float64(c.t[i]-c.t[i-1])
	return c.at[i-1] + time.Duration(part*float64(c.at[i]-c.at[i-1])), true
}

// staleWrite says that a write or a hand-in was refused because its holder was one no more.
func staleWrite(a *history.Applied) bool {
	r := a.Result
	return !r.GetReplayed() && (r.GetCode() == boardpb.Code_CODE_STALE_LEASE || r.GetCode() == boardpb.Code_CODE_LEASE_EXPIRED)
}
