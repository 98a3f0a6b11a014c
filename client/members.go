package client

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// The nodes of a cluster are replaced while clients run: one that knew only its Config and
// the leaders it met would one day know none that is left. So a client in use asks a node
// that just spoke to it for the list of members, beside its calls: at first, after a change
// of leader, after an endpoint failed, and every membersEvery. An idle one asks nothing.
const (
	membersEvery   = 10 * time.Second
	membersAgain   = time.Second      // at the earliest; later each time when no list comes,
	membersRarely  = 30 * time.Second // up to this
	membersTimeout = 2 * time.Second  // of one question
	membersBytes   = 256 << 10        // of one answer
)

// membership is what the router knows of the list; guarded by router.mu.
type membership struct {
	cluster string    // whose list it is
	applied uint64    // and how new
	asking  bool      // one question at a time
	asked   time.Time // when the last one was answered, or was not
	due     time.Time // not asked before
	misses  int       // questions in a row that brought no list
}

// soon makes the list due, not more often than membersAgain.
func (m *membership) soon() {
	if at := m.asked.Add(membersAgain); at.Before(m.due) {
		m.due = at
	}
}

// heard notes that a node spoke, and asks it for the members if that is due.
func (r *router) heard(ep *endpoint) {
	r.mu.Lock()
	ask := !r.closed && !r.list.asking && !time.Now().Before(r.list.due)
	r.list.asking = r.list.asking || ask
	r.mu.Unlock()
	if ask {
		r.c.start(func() { r.refresh(ep) })
	}
}

// refresh asks a node for the members once. No list is no failure of the node: an older
// one does not know the question, and the calls go on as they would without it.
func (r *router) refresh(ep *endpoint) {
	resp, err := ep.members()
	r.mu.Lock()
	defer r.mu.Unlock()
	took := err == nil && r.take(resp)
	l := &r.list
	l.asking, l.asked = false, time.Now()
	if took || status.Code(err) == codes.Unimplemented {
		l.misses, l.due = 0, l.asked.Add(membersEvery)
		return
	}
	l.due = l.asked.Add(backoff(l.misses, membersAgain, membersRarely))
	l.misses++
}

func (e *endpoint) members() (*wirepb.MembersResponse, error) {
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.exit()
	ctx, cancel := context.WithTimeout(e.c.ctx, membersTimeout)
	defer cancel()
	return wirepb.NewClusterClient(e.conn).Members(ctx, &wirepb.MembersRequest{}, grpc.MaxCallRecvMsgSize(membersBytes))
}

// take makes the members of a list the endpoints that are asked first. What was learned
// and is no member is given up as soon as nothing is under way there; what was configured
// stays behind the members: perhaps it is another name of one. A list of another cluster,
// or an older one than the last, changes nothing. Called with r.mu held.
func (r *router) take(resp *wirepb.MembersResponse) bool {
	l, list := &r.list, resp.Members[:min(len(resp.Members), maxEndpoints)]
	if r.closed || len(list) == 0 || resp.Applied < l.applied || (l.cluster != "" && resp.ClusterId != l.cluster) {
		return false
	}
	l.cluster, l.applied = resp.ClusterId, resp.Applied
	r.learn(resp.Leader)
	for _, ep := range r.all {
		ep.member = false
	}
	var missing []string
	for _, m := range list {
		if !r.mark(m) && usable(m.GrpcAddr) && !slices.Contains(missing, m.GrpcAddr) {
			missing = append(missing, m.GrpcAddr)
		}
	}
	members, others := make([]*endpoint, 0, len(r.all)), []*endpoint(nil)
	for _, ep := range r.all {
		switch {
		case ep.member:
			members = append(members, ep)
		case ep.configured || ep == r.leader || !ep.retire():
			others = append(others, ep)
		}
	}
	for _, addr := range missing[:min(len(missing), maxEndpoints-len(members)-len(others))] {
		if ep, err := newEndpoint(r.c, addr); err == nil {
			ep.member = true
			members = append(members, ep)
		}
	}
	r.replace(append(members, others...))
	if !r.all[r.home].member {
		r.home = 0
	}
	return true
}

// mark finds the endpoints of a member: its address, or another name under which it
// answers on a connection that stands. Called with r.mu held.
func (r *router) mark(m *boardpb.Node) (known bool) {
	for _, ep := range r.all {
		if ep.addr == m.GrpcAddr || (m.Id != "" && ep.health.nodeID == m.Id && ep.connected()) {
			ep.member, known = true, true
		}
	}
	return known
}

// room makes a place for one more endpoint, if need be that of a learned one which is not
// known as a member: of those the one that failed most, then the one learned first. Called
// with r.mu held.
func (r *router) room() bool {
	if len(r.all) < maxEndpoints {
		return true
	}
	var spare []*endpoint
	for _, ep := range r.all {
		if !ep.configured && !ep.member && ep != r.leader {
			spare = append(spare, ep)
		}
	}
	slices.SortStableFunc(spare, func(a, b *endpoint) int { return b.health.failures - a.health.failures })
	for _, ep := range spare {
		if ep.retire() {
			r.replace(slices.DeleteFunc(slices.Clone(r.all), func(e *endpoint) bool { return e == ep }))
			return true
		}
	}
	return false
}

// replace changes the list of endpoints and finds home again, or the first. Called with
// r.mu held.
func (r *router) replace(all []*endpoint) {
	r.home = max(0, slices.Index(all, r.all[r.home]))
	r.all = all
}

// usable says whether an address that a node told of can be one: host:port, with a host
// that means the same machine here as there.
func usable(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || len(host) > 253 {
		return false
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return false
	}
	ip, err := netip.ParseAddr(host)
	if err == nil {
		return !ip.IsUnspecified()
	}
	return strings.IndexFunc(host, func(c rune) bool {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		return !letter && !strings.ContainsRune(".-_", c)
	}) < 0
}
