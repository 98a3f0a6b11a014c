package transport

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/node"
	wirepb "raftboard/transport/pb"
)

// A node id belongs to one process. Who calls under a known id from another address may be
// that process, moved, or a second one on a copy of its data directory: only the address
// known so far can tell. A live process that answers there keeps the id, and the newcomer
// is refused (RAFT P26, P27).

const (
	rivalWait    = time.Second         // how long a known address has to answer
	rivalsAtOnce = 16                  // addresses asked at one time; more callers wait
	claimTimeout = 3 * time.Second     // a start waits so long for those who do not answer
	renewEvery   = 5 * time.Second     // between two announcements of a running member
	processHdr   = "raftboard-process" // with the answer to a Hello: which process it is
	rivalHint    = "a data directory belongs to one process; stop it, or join with an empty directory"
)

// newProcess tells this process from any other one, also from one that states the same
// addresses.
func newProcess() string { return rand.Text() }

func rivalAt(addr string) string {
	return fmt.Sprintf("another process with this node's id is running at %s", clip(addr, 256))
}

func sameAddrs(a, b *boardpb.Node) bool {
	return a.GetRaftAddr() == b.GetRaftAddr() && a.GetGrpcAddr() == b.GetGrpcAddr()
}

// rival answers the live process that holds the id of n at another address than n says;
// nil when n may be believed. The node answered is as it was known, so its address is one
// that was reached.
func (e *enlistment) rival(ctx context.Context, n *boardpb.Node) *boardpb.Node {
	known := e.nodeByID(n.GetId())
	if known.GetGrpcAddr() == "" || n.GetRaftAddr() == "" || sameAddrs(known, n) {
		return nil
	}
	select {
	case e.asking <- struct{}{}:
		defer func() { <-e.asking }()
	case <-ctx.Done(): // the caller is gone; nothing is learned from it
		return known
	}
	if !e.answersAs(ctx, known.GrpcAddr, n) {
		return nil
	}
	return known
}

// answersAs says whether a live process with the id of n, and other addresses than n has,
// answers at addr. It dials anew, so that an old connection decides nothing, and states no
// addresses of its own: the question cannot raise another one.
func (e *enlistment) answersAs(ctx context.Context, addr string, n *boardpb.Node) bool {
	conn, err := dialPeer(addr, e.network.Dial)
	if err != nil {
		return false
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, rivalWait)
	defer cancel()
	hello, err := wirepb.NewPeerClient(conn).Hello(ctx, &wirepb.HelloRequest{
		ClusterId: e.clusterID(), To: n.Id, Node: &boardpb.Node{Id: e.self.Id, Name: e.self.Name}})
	return err == nil && hello.Refused == "" && hello.GetNode().GetId() == n.Id && !sameAddrs(hello.Node, n)
}

// rivalOf reads from an answer where another process with this node's id runs: it is the
// one that answered, or the one a refusal names in its list of nodes. "" is none.
func (e *enlistment) rivalOf(a helloAnswer) string {
	if n := a.hello.GetNode(); n.GetId() == e.self.Id {
		if a.hello.ClusterId != "" && (!sameAddrs(n, e.self) || a.process != "" && a.process != e.process) {
			return a.addr
		}
		return ""
	}
	if a.hello.GetRefused() == "" {
		return ""
	}
	for _, n := range a.hello.Nodes {
		if n.Id == e.self.Id && !sameAddrs(n, e.self) {
			return n.GrpcAddr
		}
	}
	return ""
}

func (e *enlistment) rivalError(addr string) error {
	return &node.DirError{Dir: e.dir.Path(), What: rivalAt(addr), Hint: rivalHint}
}

// claim announces a node that has an identity before its Raft opens: to --join, to the
// book, and to the addresses this node had and has itself. It fails when one of them knows another
// live process with this id. Who does not answer does not keep it from starting.
func (e *enlistment) claim(ctx context.Context) error {
	defer e.hangUp(false)
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	addrs := append(e.targets(ctx), e.self.GrpcAddr)
	for _, known := range e.book.all() {
		if known.GrpcAddr != "" && known.GrpcAddr != e.self.GrpcAddr {
			addrs = append(addrs, known.GrpcAddr)
		}
	}
	answers, rival := e.greetAll(ctx, addrs)
	if rival != "" {
		return e.rivalError(rival)
	}
	for _, a := range answers {
		e.takeDown(a)
	}
	return nil
}

// keepAnnounced makes this member known and keeps it so until ctx ends: what others have
// been told wrongly is put right within seconds of the one that told it being gone. The
// error is the one of announce.
func (e *enlistment) keepAnnounced(ctx context.Context, n *node.Node) error {
	for {
		if err := e.announce(ctx, n); err != nil {
			return err
		}
		for e.recorded(n) {
			if !pause(ctx, renewEvery) {
				return nil
			}
			e.renew(ctx, n)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// renew says Hello to every other member where it is known to be.
func (e *enlistment) renew(ctx context.Context, n *node.Node) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	var greeting sync.WaitGroup
	for _, r := range n.View().Cluster().Nodes {
		if r.Removed || r.Id == e.self.Id {
			continue
		}
		peer, err := e.links.to(r.Id)
		if err != nil {
			continue
		}
		greeting.Go(func() {
			hello, err := peer.Hello(ctx, &wirepb.HelloRequest{
				ClusterId: e.clusterID(), To: r.Id, Node: e.self, Timing: timingOf(e.cfg.Timing)})
			switch {
			case err != nil:
			case hello.Refused != "":
				e.sayRefused(helloAnswer{addr: r.Name, hello: hello})
			case hello.GetNode().GetId() == r.Id:
				e.book.learn(hello.Node)
			}
		})
	}
	greeting.Wait()
}

// sayRefused logs a refusal, and the way back where there is one.
func (e *enlistment) sayRefused(a helloAnswer) {
	e.refusals.Do(func() {
		if at := e.rivalOf(a); at != "" {
			e.logger.Warn(rivalAt(at), "by", a.addr, "hint", rivalHint)
			return
		}
		e.logger.Warn("refused", "by", a.addr, "why", clip(a.hello.Refused, 512))
	})
}
