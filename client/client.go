package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
)

// Config says where the nodes are and who the client is. Start from DefaultConfig.
type Config struct {
	// Endpoints are gRPC addresses of nodes, host:port, asked in this order. One is
	// enough to start: answers name the leader, and a client in use asks for the members
	// now and then, so it outlives the nodes named here. They stay the last resort, when
	// no member answers; only a client that was idle while all of them were replaced
	// depends on them. A DNS name that follows the nodes serves that too.
	Endpoints []string
	// As is the name the client states to a server with --auth off (SPEC F-11).
	As string
	// Name is sent as x-raftboard-client, "name/version".
	Name string
	// Dialer opens connections; nil is TCP.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
	// Timeout bounds a call whose context has no deadline.
	Timeout time.Duration
	// NoLeader is how long such a call goes on asking while every node it asks is
	// unreachable or knows no leader. It is shorter than Timeout, because then nothing
	// is under way that would be worth waiting for, and longer than an election.
	NoLeader time.Duration
	// OnState hears of connections made and lost. OnEnded hears of each lease that ended
	// without its holder's doing, once. Both are called on goroutines of the client and
	// must return quickly; they may be nil.
	OnState func(State)
	OnEnded func(Ended)
}

// DefaultConfig is a client of a node on this machine.
func DefaultConfig() Config {
	return Config{
		Endpoints: []string{"127.0.0.1:8970"},
		Name:      "raftboard-go",
		Timeout:   10 * time.Second,
		NoLeader:  4500 * time.Millisecond,
	}
}

// principalName is SPEC F-11.
const principalName = `^[a-z][a-z0-9_-]{0,47}$`

// maxEndpoints bounds the endpoints given and those learned together.
const maxEndpoints = 64

// Validate says what is wrong with a Config, naming the field.
func (c Config) Validate() error {
	if len(c.Endpoints) == 0 {
		return errors.New("client: Endpoints is empty: name at least one node as host:port")
	}
	if len(c.Endpoints) > maxEndpoints {
		return fmt.Errorf("client: %d Endpoints, at most %d", len(c.Endpoints), maxEndpoints)
	}
	for _, addr := range c.Endpoints {
		if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
			return fmt.Errorf("client: endpoint %q is not host:port", addr)
		}
	}
	if c.As != "" && !regexp.MustCompile(principalName).MatchString(c.As) {
		return fmt.Errorf("client: As %q is no principal name: it must match %s", c.As, principalName)
	}
	if c.Timeout <= 0 || c.NoLeader <= 0 {
		return fmt.Errorf("client: Timeout %v and NoLeader %v must be above zero", c.Timeout, c.NoLeader)
	}
	return nil
}

// Client speaks to one cluster as one principal. It is safe for any number of
// goroutines. It owns its connections, one goroutine that renews loops and leases, and
// what is started on its behalf; Close ends them all.
type Client struct {
	cfg    Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // every goroutine of this client

	routes *router
	keeper *keeper

	mu     sync.Mutex
	closed bool
	boards map[string]*Board
}

// Dial makes a client. It connects when it is first used, so it neither blocks nor
// fails because a node is down; it returns an error only for a bad Config. Zero fields
// take their value from DefaultConfig.
func Dial(cfg Config) (*Client, error) {
	def := DefaultConfig()
	if len(cfg.Endpoints) == 0 {
		cfg.Endpoints = def.Endpoints
	}
	if cfg.Name == "" {
		cfg.Name = def.Name
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = def.Timeout
	}
	if cfg.NoLeader == 0 {
		cfg.NoLeader = def.NoLeader
	}
	if cfg.Dialer == nil {
		cfg.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, boards: map[string]*Board{}}
	base, cancel := context.WithCancel(context.Background())
	md := metadata.Pairs("x-raftboard-client", cfg.Name)
	if cfg.As != "" {
		md.Set("raftboard-as", cfg.As)
	}
	c.ctx, c.cancel = metadata.NewOutgoingContext(base, md), cancel
	routes, err := newRouter(c)
	if err != nil {
		cancel()
		return nil, err
	}
	c.routes = routes
	c.keeper = newKeeper(c)
	c.start(c.keeper.run)
	return c, nil
}

// Close ends all calls, watches, connections and renewals of this client and waits for
// its goroutines. It sends nothing: loops left open end by their ttl, leases by their
// duration; end them first with Loop.Close to free them at once.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	err := c.routes.close()
	c.tasks.Wait()
	return err
}

// start runs fn as a goroutine owned by the client; after Close it does not run at all.
func (c *Client) start(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.tasks.Go(fn)
	return true
}

// outgoing gives ctx the client's own metadata: who it is and what it is.
func (c *Client) outgoing(ctx context.Context) context.Context {
	md, _ := metadata.FromOutgoingContext(c.ctx)
	return metadata.NewOutgoingContext(ctx, md)
}

// StateKind is what happened to a connection or a watch.
type StateKind int

// The kinds of State.
const (
	StateConnected    StateKind = iota + 1 // a session or a watch is open
	StateReconnecting                      // it broke; the client tries again, elsewhere if it can
)

// String names the kind as logs show it.
func (k StateKind) String() string {
	if k == StateConnected {
		return "connected"
	}
	return "reconnecting"
}

// State is one change of a connection.
type State struct {
	Kind     StateKind
	Endpoint string
	Err      error // why it broke
}

func (c *Client) state(kind StateKind, endpoint string, err error) {
	if c.cfg.OnState != nil && c.ctx.Err() == nil {
		c.cfg.OnState(State{Kind: kind, Endpoint: endpoint, Err: err})
	}
}

type contextKey int

const (
	callIDKey contextKey = iota + 1
	identityKey
)

// WithCallID gives the calls made with ctx a call_id: opaque, at most 128 bytes, shown
// in the events of these calls, deciding nothing (SPEC F-23).
func WithCallID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, callIDKey, id)
}

// WithIdempotencyKey gives the next write made with ctx this identity in place of one
// made by the client: a repeat within an hour, also by another process, is answered with
// the first Result (SPEC F-7). One key is for one write.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, identityKey, key)
}

func stringFrom(ctx context.Context, key contextKey) string {
	s, _ := ctx.Value(key).(string)
	return s
}
