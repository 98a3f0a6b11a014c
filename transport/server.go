package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/planted"
	"raftboard/node"
	wirepb "raftboard/transport/pb"
)

const (
	minClientPing = 10 * time.Second // a client that pings more often is cut off
	serverPing    = 20 * time.Second // how the server notices clients that are gone
	connAge       = 30 * time.Minute
	connAgeGrace  = streamAge + 5*time.Minute // streams end by themselves before
)

// Server is one running node with its faces, from Start to Stop.
type Server struct {
	cfg     Config
	service *service
	dir     *node.Dir
	book    *addressBook
	links   *peerLinks
	enlist  *enlistment

	grpcListener, raftListener, adminListener net.Listener
	grpcServer                                *grpc.Server
	health                                    *health.Server
	stopAdmin                                 func()

	ctx     context.Context // of everything that runs beside calls; ends with stop
	stop    context.CancelFunc
	running sync.WaitGroup
	serving sync.WaitGroup

	stopping atomic.Bool
	stopped  chan struct{} // closed when everything has ended
	failure  chan error    // why the node below stopped by itself; holds one
	endErr   error         // set before stopped is closed
}

// Start opens the data directory and the listeners and returns when they are up. A node of
// a cluster is open by then; a fresh one founds or joins one in the background, and its
// log says what it waits for. The error is a *ConfigError or a *node.DirError where the
// caller can do something about it.
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Network = cfg.Network.withDefaults()
	if cfg.OpenStores == nil {
		cfg.OpenStores = node.OpenStores
	}
	s := &Server{cfg: cfg, stopped: make(chan struct{}), failure: make(chan error, 1), stopAdmin: func() {}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeAll(ctx))
		}
	}()
	if err := s.listen(); err != nil {
		return nil, err
	}
	s.dir, err = node.OpenDir(cfg.DataDir, node.Want{NodeName: cfg.Name, ClusterName: cfg.ClusterName, Timing: cfg.Timing})
	if err != nil {
		return nil, err
	}
	s.assemble()
	s.serving.Go(func() { s.grpcServer.Serve(s.grpcListener) }) // who starts at the same time gets an answer
	if s.enlist.clusterID() != "" {
		if err := s.enlist.claim(ctx); err != nil {
			return nil, err
		}
		s.showHealth() // a large state takes a while to restore: alive, and not ready
		if err := s.openNode(); err != nil {
			return nil, err
		}
	} else {
		s.showHealth()
	}
	s.serve()
	return s, nil
}

// listen opens the ports first: one that is busy is named, and nothing else was touched.
func (s *Server) listen() error {
	for _, l := range []struct {
		setting, addr string
		listener      *net.Listener
	}{
		{"grpc-addr", s.cfg.GRPCAddr, &s.grpcListener},
		{"raft-addr", s.cfg.RaftAddr, &s.raftListener},
		{"admin-addr", s.cfg.AdminAddr, &s.adminListener},
	} {
		if l.addr == "" {
			continue
		}
		listener, err := s.cfg.Network.Listen(l.addr)
		if err != nil {
			return &ConfigError{Setting: l.setting, Problem: fmt.Sprintf("cannot listen on %s: %v", l.addr, err),
				Hint: fmt.Sprintf("is another raftboard running? give a free address with --%s", l.setting)}
		}
		*l.listener = listener
	}
	return nil
}

// assemble makes the parts and ties them together.
func (s *Server) assemble() {
	cfg, identity := &s.cfg, s.dir.Identity()
	self := &boardpb.Node{
		Id: identity.NodeID, Name: identity.NodeName, Version: cfg.Version, MaxLevel: fsm.MaxLevel,
		GrpcAddr: advertised(cfg.AdvertiseGRPC, s.grpcListener), RaftAddr: advertised(cfg.AdvertiseRaft, s.raftListener),
	}
	s.book = openAddressBook(filepath.Join(cfg.DataDir, "addresses.json"), cfg.Logger.Named("addresses"))
	s.enlist = newEnlistment(cfg, self, s.dir, s.book, cfg.Network)
	s.links = newPeerLinks(self.Id, s.enlist.clusterID, s.book, cfg.Network.Dial)
	s.service = &service{
		self: self, auth: cfg.Auth, exposed: cfg.exposed(), dataDir: cfg.DataDir, started: time.Now(),
		limits: cfg.Limits, logger: cfg.Logger.Named("service"), book: s.book, forward: newForwarder(s.links),
		identity: func() (string, string) { i := s.dir.Identity(); return i.ClusterID, i.ClusterName },
		waiting:  s.enlist.waiting,
		inFlight: newGate("calls in flight", cfg.Limits.InFlight),
		sessions: newGate("session streams", cfg.Limits.Sessions),
		watchers: newGate("watchers", cfg.Limits.Watchers),
		exports:  newGate("exports", maxExports),
		receipts: newReceipts(),
		leaving:  make(chan struct{}), draining: make(chan struct{}), finished: make(chan struct{}),
	}
	if cfg.exposed() {
		cfg.Logger.Warn("authentication is off and this node listens on the network: whoever reaches it may state any name",
			"grpc", s.GRPCAddr(), "raft", self.RaftAddr)
	}
	s.grpcServer = grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessageBytes), grpc.MaxSendMsgSize(maxMessageBytes),
		grpc.UnaryInterceptor(s.service.recoverUnary), grpc.StreamInterceptor(s.service.recoverStream),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: serverPing, Timeout: peerPingWait, MaxConnectionAge: connAge, MaxConnectionAgeGrace: connAgeGrace,
		}),
	)
	s.enlist.links, s.enlist.nodeByID = s.links, s.service.nodeByID
	s.health = health.NewServer()
	wirepb.RegisterBoardServer(s.grpcServer, boardFace{service: s.service})
	wirepb.RegisterClusterServer(s.grpcServer, clusterFace{service: s.service})
	wirepb.RegisterPeerServer(s.grpcServer, &peerFace{service: s.service, enlist: s.enlist})
	healthpb.RegisterHealthServer(s.grpcServer, s.health)
	reflection.Register(s.grpcServer)
}

// advertised is what others are told: what was configured, or where we listen.
func advertised(configured string, l net.Listener) string {
	if configured != "" {
		return configured
	}
	return l.Addr().String()
}

// showHealth answers probes from now on.
func (s *Server) showHealth() {
	if s.adminListener != nil {
		s.stopAdmin = s.service.serveAdmin(s.adminListener)
	}
	s.running.Go(func() { s.service.watchHealth(s.ctx, s.health) })
}

// serve starts what runs beside the answers to calls.
func (s *Server) serve() {
	s.running.Go(func() {
		if err := s.belong(); err != nil && s.ctx.Err() == nil {
			s.fail(err)
		}
	})
}

// belong makes this node a member, if it is none yet, and keeps its relations with the
// others until the server stops.
func (s *Server) belong() error {
	if s.service.node.Load() == nil {
		if err := s.enlist.run(s.ctx); err != nil {
			return err
		}
		if err := s.openNode(); err != nil {
			return err
		}
	}
	n := s.service.node.Load()
	s.running.Go(func() { s.enlist.followRecord(s.ctx, n) })
	s.running.Go(func() { s.followLeader(n) })
	s.running.Go(func() { s.service.receipts.run(s.ctx, s.service.proposeReceipts) })
	if planted.Bug("M21") { // the bug: a leader's own timer, of which the log knows nothing
		s.running.Go(func() { s.timeLeases(n) })
	}
	return s.enlist.keepAnnounced(s.ctx, n)
}

// followLeader ends what is out to a leader that is one no more (RAFT P33).
func (s *Server) followLeader(n *node.Node) {
	for {
		changed := n.LeaderChanged()
		s.service.forward.heard(n.Leader())
		select {
		case <-changed:
		case <-s.ctx.Done():
			return
		}
	}
}

// openNode opens the Raft member of this directory. The founder of a cluster writes its
// first entry here; for everybody else that is a no-op.
func (s *Server) openNode() error {
	stores, err := s.cfg.OpenStores(s.dir, s.cfg.Logger.Named("stores"))
	if err != nil {
		return err
	}
	identity, self := s.dir.Identity(), s.service.self
	s.book.learn(self) // a copy of this directory asks here whether we live
	layer := newStreamLayer(streamLayerConfig{
		id: self.Id, listener: s.raftListener, dial: s.cfg.Network.Dial, book: s.book,
		hello:  func() *wirepb.HelloRequest { return &wirepb.HelloRequest{ClusterId: identity.ClusterID, Node: self} },
		admit:  s.enlist.admit(s.ctx, s.service.node.Load),
		logger: s.cfg.Logger.Named("raft-port"),
	})
	tr := node.NewTransport(layer, s.cfg.Logger.Named("raft-net"))
	intent, founder, err := s.enlist.founder()
	if err == nil && founder {
		err = node.Bootstrap(self.Id, stores, intent)
	}
	if err != nil {
		return errors.Join(err, tr.Close(), closeStores(stores))
	}
	n, err := node.Open(node.Config{
		ID: self.Id, Name: self.Name, ClusterID: identity.ClusterID, ClusterName: identity.ClusterName,
		Version: s.cfg.Version, GRPCAddr: self.GrpcAddr, RaftAddr: self.RaftAddr,
		Logger: s.cfg.Logger.Named("node"), Timing: s.cfg.Timing, Founders: intent.Nodes(),
		SnapshotThreshold: s.cfg.SnapshotThreshold, TrailingLogs: s.cfg.TrailingLogs, SnapshotInterval: s.cfg.SnapshotInterval,
		StoreTimeout: s.cfg.StoreTimeout, MinFree: s.cfg.MinFree,
		Peers: askPeers{s.links}, Clock: s.cfg.Clock, Trace: s.cfg.Trace, Roles: s.cfg.Roles, Die: s.fail,
	}, tr, stores)
	if err != nil {
		return err
	}
	s.service.node.Store(n)
	return nil
}

func closeStores(s node.Stores) error {
	if s.Close == nil {
		return nil
	}
	return s.Close()
}

// GRPCAddr is where clients connect, RaftAddr and AdminAddr the other two ports; AdminAddr
// is "" without an admin port.
func (s *Server) GRPCAddr() string { return s.grpcListener.Addr().String() }
func (s *Server) RaftAddr() string { return s.raftListener.Addr().String() }
func (s *Server) AdminAddr() string {
	if s.adminListener == nil {
		return ""
	}
	return s.adminListener.Addr().String()
}

// NodeID is the id of this node, which is also its Raft address.
func (s *Server) NodeID() string { return s.service.self.Id }

// Ready answers nil when this node may be given calls, or why not.
func (s *Server) Ready() error { return s.service.ready() }

// Node is the Raft member below; nil until this node belongs to a cluster.
func (s *Server) Node() *node.Node { return s.service.node.Load() }

// exposed says whether strangers can reach this node although nobody is authenticated.
func (c *Config) exposed() bool {
	for _, addr := range []string{c.GRPCAddr, c.RaftAddr, c.AdminAddr} {
		if host, _, err := net.SplitHostPort(addr); err == nil && !loopback(host) {
			return true
		}
	}
	return false
}
