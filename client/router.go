package client

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	wirepb "raftboard/transport/pb"
)

// router knows the endpoints, which of them leads, and which have failed lately.
type router struct {
	c *Client

	mu     sync.Mutex
	all    []*endpoint // members before the others; each as configured, then as learned
	leader *endpoint
	term   uint64
	home   int // index of the endpoint used while no leader is known
	list   membership
	closed bool
}

// health is what the router remembers of an endpoint; guarded by router.mu.
type health struct {
	failures int
	until    time.Time // not asked before, unless all are in the same position
	cause    error     // last failure, for the error text
	nodeID   string    // who answered there, until it could not be reached
}

func newRouter(c *Client) (*router, error) {
	r := &router{c: c}
	for _, addr := range c.cfg.Endpoints {
		if r.find(addr, "") != nil {
			continue
		}
		ep, err := newEndpoint(c, addr)
		if err != nil {
			return nil, fmt.Errorf("client: endpoint %s: %w", addr, err)
		}
		ep.configured = true
		r.all = append(r.all, ep)
	}
	return r, nil
}

// find gives the endpoint where a node answers, under whatever name, or the one with its
// address.
func (r *router) find(addr, nodeID string) *endpoint {
	for _, ep := range r.all {
		if nodeID != "" && ep.health.nodeID == nodeID {
			return ep
		}
	}
	for _, ep := range r.all {
		if ep.addr == addr {
			return ep
		}
	}
	return nil
}

// place says which nodes a call wants.
type place int

const (
	atLeader place = iota // the leader once it is known
	anywhere              // whatever is at hand: watches, and reads that any node may answer
)

// pick chooses the endpoint for the next try. healthy is false when every endpoint has
// failed lately: the caller should wait before it asks this one, which failed longest ago.
func (r *router) pick(want place) (ep *endpoint, healthy bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if want == atLeader && r.leader != nil && !now.Before(r.leader.health.until) {
		return r.leader, true
	}
	for i := range r.all {
		at := (r.home + i) % len(r.all)
		if ep := r.all[at]; !now.Before(ep.health.until) {
			r.home = at
			return ep, true
		}
	}
	ep = r.all[0]
	for _, e := range r.all[1:] {
		if e.health.until.Before(ep.health.until) {
			ep = e
		}
	}
	return ep, false
}

// answered notes a good sign from an endpoint and what its answer said of the leader.
func (r *router) answered(ep *endpoint, nodeID string, leader *wirepb.Leader) {
	r.mu.Lock()
	ep.health.failures, ep.health.until, ep.health.cause = 0, time.Time{}, nil
	if nodeID != "" {
		ep.health.nodeID = nodeID
	}
	r.learn(leader)
	r.mu.Unlock()
	r.heard(ep)
}

// hint takes what an answer said of the leader and nothing else.
func (r *router) hint(leader *wirepb.Leader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.learn(leader)
}

// failureKind decides how long an endpoint is left alone.
type failureKind int

const (
	failedBusy   failureKind = iota // it spoke, and could not help: draining, without a leader
	failedSoon                      // refused or unreachable
	failedSilent                    // said nothing at all: perhaps it swallows packets
)

// failed notes that an endpoint was of no use, and what it said of the leader.
func (r *router) failed(ep *endpoint, kind failureKind, cause error, leader *wirepb.Leader) {
	first, most := 50*time.Millisecond, time.Second
	if kind == failedSilent {
		first, most = time.Second, 30*time.Second
	}
	if kind == failedBusy {
		defer r.heard(ep)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &ep.health
	h.until = time.Now().Add(backoff(h.failures, first, most))
	h.failures++
	h.cause = cause
	r.list.soon()
	if kind != failedBusy {
		h.nodeID = "" // whoever it was may have moved
	}
	if r.all[r.home] == ep {
		r.home = (r.home + 1) % len(r.all)
	}
	if r.leader == ep && (leader == nil || leader.GrpcAddr != ep.addr) {
		r.leader = nil
	}
	r.learn(leader)
}

// learn takes a hint that is not older than what is known. An address that is not among
// the endpoints becomes one, within the bound. A new leader is a reason to ask who the
// members are. Called with r.mu held.
func (r *router) learn(leader *wirepb.Leader) {
	if leader == nil || leader.GrpcAddr == "" || leader.Term < r.term {
		return
	}
	ep := r.find(leader.GrpcAddr, leader.NodeId)
	if ep == nil {
		if r.closed || !usable(leader.GrpcAddr) || !r.room() {
			return
		}
		fresh, err := newEndpoint(r.c, leader.GrpcAddr)
		if err != nil {
			return
		}
		ep = fresh
		r.all = append(r.all, ep)
	}
	if leader.Term > r.term {
		r.list.soon()
	}
	ep.health.nodeID = leader.NodeId
	r.leader, r.term = ep, leader.Term
}

// causes names the last failure of each endpoint, for the error of a call that gave up.
func (r *router) causes() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var parts []string
	for _, ep := range r.all {
		if ep.health.cause != nil {
			parts = append(parts, fmt.Sprintf("%s: %v", ep.addr, ep.health.cause))
		}
	}
	if len(parts) == 0 {
		return "no endpoint was asked"
	}
	return strings.Join(parts, "; ")
}

func (r *router) close() error {
	r.mu.Lock()
	r.closed = true
	all := append([]*endpoint(nil), r.all...)
	r.mu.Unlock()
	var first error
	for _, ep := range all {
		if err := ep.conn.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// backoff gives the wait after n failures in a row: doubled each time from first up to
// most, then somewhere in its upper half, so that clients that failed together do not
// return together.
func backoff(n int, first, most time.Duration) time.Duration {
	d := most
	if n < 20 && first<<n < most {
		d = first << n
	}
	return d/2 + rand.N(d/2+1)
}
