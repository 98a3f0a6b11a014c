package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	boardpb "raftboard/fsm/pb"
	"raftboard/node"
	wirepb "raftboard/transport/pb"
)

const (
	discoverEvery  = 300 * time.Millisecond // between two rounds of Hello, with jitter
	helloTimeout   = 2 * time.Second
	joinTimeout    = 8 * time.Second
	seenFor        = 5 * time.Second  // a fresh node not heard of for so long is forgotten
	progressEvery  = 10 * time.Second // how often a waiting node says what it waits for
	maxJoinTargets = 64
)

// enlistment is how this node comes to belong to a cluster, once in its life (ECOSYSTEM
// §1.1). Fresh nodes that expect to found one exchange Hello over --join, each with the
// sorted ids it sees. When exactly as many as expected report the same set, the one with
// the smallest name writes down what the cluster will be (its intent), asks every member
// to accept that durably, and then bootstraps. A node that was stopped in between resumes.
// Where a cluster is found instead, the node asks to join it.
type enlistment struct {
	cfg      *Config
	self     *boardpb.Node
	dir      *node.Dir
	book     *addressBook
	network  Network
	logger   hclog.Logger
	links    *peerLinks                    // these two are set when the parts are tied together
	nodeByID func(id string) *boardpb.Node // what is known of a node; nil if nothing is

	process  string         // tells this process from others with its id
	asking   chan struct{}  // a token for each known address that is being asked
	refusals rate.Sometimes // how often a refusal is logged

	enlisted chan struct{} // closed when the directory belongs to a cluster
	once     sync.Once

	mu     sync.Mutex
	seen   map[string]*sighting // fresh nodes heard of lately, by id
	waits  string               // what the last round waited for
	conns  map[string]*grpc.ClientConn
	closed bool
}

// sighting is a fresh node as it described itself last.
type sighting struct {
	node *boardpb.Node
	at   time.Time
	sees []string // the ids it reported; nil if it only called
}

func newEnlistment(cfg *Config, self *boardpb.Node, dir *node.Dir, book *addressBook, network Network) *enlistment {
	e := &enlistment{
		cfg: cfg, self: self, dir: dir, book: book, network: network, logger: cfg.Logger.Named("join"),
		process: newProcess(),
		asking:  make(chan struct{}, rivalsAtOnce), refusals: rate.Sometimes{First: 1, Interval: progressEvery},
		enlisted: make(chan struct{}), seen: map[string]*sighting{}, conns: map[string]*grpc.ClientConn{},
	}
	if e.clusterID() != "" {
		e.done()
	}
	return e
}

// clusterID is the cluster this node belongs to; "" while it is fresh.
func (e *enlistment) clusterID() string { return e.dir.Identity().ClusterID }

func (e *enlistment) done() { e.once.Do(func() { close(e.enlisted) }) }

// founder says whether this node is the one that bootstraps the intended cluster: the
// member with the smallest name.
func (e *enlistment) founder() (node.Intent, bool, error) {
	in, accepted, err := e.dir.Intent()
	if err != nil || !accepted {
		return in, false, err
	}
	least := slices.MinFunc(in.Members, func(a, b node.Member) int { return strings.Compare(a.Name, b.Name) })
	return in, least.ID == e.self.Id, nil
}

// run works until the node belongs to a cluster. The error is one that waiting cannot mend.
func (e *enlistment) run(ctx context.Context) error {
	said := time.Now().Add(-progressEvery)
	for {
		waits, err := e.step(ctx)
		if err != nil {
			return err
		}
		e.mu.Lock()
		e.waits = waits
		e.mu.Unlock()
		if waits != "" && time.Since(said) >= progressEvery {
			e.logger.Info("not a member of a cluster yet", "waiting", waits)
			said = time.Now()
		}
		timer := time.NewTimer(discoverEvery + rand.N(discoverEvery/2))
		select {
		case <-e.enlisted:
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// waiting is what a fresh node waits for, for those who ask it.
func (e *enlistment) waiting() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waits
}

// step does what can be done now and answers what it waits for.
func (e *enlistment) step(ctx context.Context) (waits string, err error) {
	in, founder, err := e.founder()
	if err != nil {
		return "", err
	}
	if founder {
		return e.found(ctx, in)
	}
	answers, rival := e.round(ctx)
	if rival != "" {
		return "", e.rivalError(rival)
	}
	for _, a := range answers {
		if a.hello.ClusterId != "" {
			return e.join(ctx, a)
		}
	}
	if e.cfg.BootstrapExpect == 0 {
		return fmt.Sprintf("none of %s belongs to a cluster or answers", strings.Join(e.cfg.Join, ", ")), nil
	}
	members, waits := e.agreed()
	if waits != "" {
		return waits, nil
	}
	if slices.MinFunc(members, func(a, b *boardpb.Node) int { return strings.Compare(a.Name, b.Name) }).Id != e.self.Id {
		return "the member with the smallest name founds the cluster", nil
	}
	id, err := node.NewID()
	if err != nil {
		return "", err
	}
	in = node.NewIntent(id, e.cfg.ClusterName, members)
	if err := e.dir.AcceptIntent(in); err != nil {
		return "", err
	}
	return e.found(ctx, in)
}

// agreed answers the founding members if exactly the expected number of fresh nodes report
// the same set, or what is missing.
func (e *enlistment) agreed() (members []*boardpb.Node, waits string) {
	ids := e.seenIDs()
	if len(ids) != e.cfg.BootstrapExpect {
		return nil, fmt.Sprintf("%d of %d founding nodes are known: %s", len(ids), e.cfg.BootstrapExpect, strings.Join(e.seenNames(), ", "))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	members = append(members, e.self)
	names := map[string]bool{e.self.Name: true}
	for _, s := range e.seen {
		if names[s.node.Name] {
			return nil, fmt.Sprintf("two founding nodes are called %q; give each its own --node-name", s.node.Name)
		}
		if !slices.Equal(s.sees, ids) {
			return nil, fmt.Sprintf("%s does not see the same founding nodes yet", s.node.Name)
		}
		names[s.node.Name] = true
		members = append(members, s.node)
	}
	return members, ""
}

// found asks every member to accept the intent, and enlists this node when all have.
func (e *enlistment) found(ctx context.Context, in node.Intent) (waits string, err error) {
	request := &wirepb.IntentRequest{ClusterId: in.ClusterID, ClusterName: in.ClusterName, Members: in.Nodes()}
	for _, m := range in.Members {
		if m.ID == e.self.Id {
			continue
		}
		peer, err := e.peer(m.GRPCAddr)
		if err != nil {
			return "", err
		}
		call, cancel := context.WithTimeout(ctx, helloTimeout)
		answer, err := peer.Intent(call, request)
		cancel()
		if err != nil {
			return fmt.Sprintf("%s has not accepted the new cluster: %v", m.Name, status.Convert(err).Message()), nil
		}
		if !answer.Accepted {
			return fmt.Sprintf("%s does not accept the new cluster: %s", m.Name, clip(answer.Why, 256)), nil
		}
	}
	for _, n := range in.Nodes() {
		e.book.learn(n)
	}
	if err := e.dir.SetCluster(in.ClusterID, in.ClusterName); err != nil {
		return "", err
	}
	e.logger.Info("founding a cluster", "cluster", in.ClusterID, "members", len(in.Members))
	e.done()
	return "", nil
}

// join asks the cluster that was found to let this node in.
func (e *enlistment) join(ctx context.Context, via helloAnswer) (waits string, err error) {
	peer, err := e.peer(via.addr)
	if err != nil {
		return "", err
	}
	call, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	answer, err := peer.Join(call, &wirepb.JoinRequest{
		ClusterId: via.hello.ClusterId, Node: e.self, Timing: timingOf(e.cfg.Timing), Nonvoter: e.cfg.Nonvoter,
	})
	if err != nil {
		why := status.Convert(err).Message()
		if r := resultFromError(err); r.GetHint() != "" {
			why += "; " + r.Hint
		}
		return fmt.Sprintf("cluster %s at %s does not let this node in: %s", via.hello.ClusterId, via.addr, clip(why, 512)), nil
	}
	for _, n := range answer.Nodes {
		e.book.learn(n)
	}
	if err := e.dir.SetCluster(answer.ClusterId, answer.ClusterName); err != nil {
		return "", err
	}
	e.logger.Info("joined a cluster", "cluster", answer.ClusterId, "name", answer.ClusterName)
	e.done()
	return "", nil
}

// helloAnswer is who answered at an address.
type helloAnswer struct {
	addr    string
	hello   *wirepb.HelloResponse
	process string // which process it is; "" if it does not say
}

// round says Hello to every address of --join at once and takes down who answers.
func (e *enlistment) round(ctx context.Context) (answers []helloAnswer, rival string) {
	answers, rival = e.greetAll(ctx, e.targets(ctx))
	for _, a := range answers {
		e.takeDown(a)
	}
	return answers, rival
}

// greetAll says Hello to addresses at once and answers who let us in, and where another
// process with this node's id runs, if one of them knows.
func (e *enlistment) greetAll(ctx context.Context, addrs []string) (answers []helloAnswer, rival string) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	request := e.ownHello()
	found := make([]helloAnswer, len(addrs))
	var greeting sync.WaitGroup
	for i, addr := range addrs {
		greeting.Go(func() {
			peer, err := e.peer(addr)
			if err != nil {
				return
			}
			var head metadata.MD
			hello, err := peer.Hello(ctx, request, grpc.Header(&head))
			if err != nil {
				e.logger.Debug("no answer to hello", "addr", addr, "error", err)
				return
			}
			found[i] = helloAnswer{addr, hello, strings.Join(head.Get(processHdr), "")}
		})
	}
	greeting.Wait()
	for _, a := range found {
		if rival == "" && a.hello != nil {
			rival = e.rivalOf(a)
		}
		switch {
		case a.hello == nil:
		case a.hello.Refused != "":
			e.sayRefused(a)
		case a.hello.GetNode().GetId() != e.self.Id: // --join may list this node too
			answers = append(answers, a)
		}
	}
	return answers, rival
}

// takeDown notes what an answer says of who is where.
func (e *enlistment) takeDown(a helloAnswer) {
	ours := e.clusterID()
	switch {
	case a.hello.Fresh && ours == "":
		if sameTiming(a.hello.Timing, e.cfg.Timing) {
			e.sight(a.hello.Node, a.hello.Seen)
		} else {
			e.logger.Warn("a founding node has other timing; it must be equal everywhere", "node", a.hello.Node.GetName())
		}
	case ours != "" && a.hello.ClusterId == ours:
		e.book.learn(a.hello.Node)
		for _, n := range a.hello.Nodes {
			e.book.hearsay(n)
		}
	}
}

func (e *enlistment) ownHello() *wirepb.HelloRequest {
	return &wirepb.HelloRequest{ClusterId: e.clusterID(), Node: e.self, Timing: timingOf(e.cfg.Timing), Seen: e.seenIDs()}
}

// sight notes a fresh node. Who called without saying what it sees keeps what it said before.
func (e *enlistment) sight(n *boardpb.Node, sees []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.seen[n.Id]; s != nil && sees == nil {
		sees = s.sees
	}
	if len(e.seen) < maxJoinTargets || e.seen[n.Id] != nil {
		e.seen[n.Id] = &sighting{node: n, at: time.Now(), sees: sees}
	}
}

// seenIDs are the fresh nodes heard of lately and this one, sorted.
func (e *enlistment) seenIDs() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	ids := []string{e.self.Id}
	for id, s := range e.seen {
		if time.Since(s.at) > seenFor {
			delete(e.seen, id)
			continue
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (e *enlistment) seenNames() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	names := []string{e.self.Name}
	for _, s := range e.seen {
		names = append(names, s.node.Name)
	}
	slices.Sort(names)
	return names
}

// targets resolves --join: host:port as it is, dns:///name:port to all its addresses.
func (e *enlistment) targets(ctx context.Context) []string {
	var addrs []string
	for _, j := range e.cfg.Join {
		name, dns := strings.CutPrefix(j, "dns:///")
		if !dns {
			addrs = append(addrs, j)
			continue
		}
		found, err := resolve(ctx, name)
		if err != nil {
			e.logger.Debug("a name in --join does not resolve", "name", name, "error", err)
		}
		addrs = append(addrs, found...)
	}
	return addrs[:min(len(addrs), maxJoinTargets)]
}

// resolve looks up name:port, or, without a port, the SRV records of the name.
func resolve(ctx context.Context, name string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	var addrs []string
	host, port, err := net.SplitHostPort(name)
	if err != nil {
		_, records, err := net.DefaultResolver.LookupSRV(ctx, "", "", name)
		for _, r := range records {
			addrs = append(addrs, net.JoinHostPort(strings.TrimSuffix(r.Target, "."), fmt.Sprint(r.Port)))
		}
		return addrs, err
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	for _, ip := range ips {
		addrs = append(addrs, net.JoinHostPort(ip, port))
	}
	return addrs, err
}

// peer answers a client for an address; connections are kept until close.
func (e *enlistment) peer(addr string) (wirepb.PeerClient, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errors.New("this node is stopping")
	}
	conn := e.conns[addr]
	if conn == nil {
		var err error
		if conn, err = dialPeer(addr, e.network.Dial); err != nil {
			return nil, fmt.Errorf("%s: %w", addr, err)
		}
		e.conns[addr] = conn
	}
	return wirepb.NewPeerClient(conn), nil
}

// hangUp closes the connections that discovery made.
func (e *enlistment) hangUp(forGood bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = e.closed || forGood
	for addr, conn := range e.conns {
		conn.Close()
		delete(e.conns, addr)
	}
}

func timingOf(t node.Timing) *wirepb.Timing {
	return &wirepb.Timing{HeartbeatMs: t.Heartbeat.Milliseconds(), ElectionMs: t.Election.Milliseconds(), LeaseMs: t.Lease.Milliseconds()}
}

// sameTiming compares what another node runs with to our own (RAFT P34).
func sameTiming(theirs *wirepb.Timing, ours node.Timing) bool {
	t := timingOf(ours)
	return theirs.GetHeartbeatMs() == t.HeartbeatMs && theirs.GetElectionMs() == t.ElectionMs && theirs.GetLeaseMs() == t.LeaseMs
}
