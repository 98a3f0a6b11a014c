package transport

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"

	"raftboard/fsm"
	"raftboard/node"
)

// AuthOff is the one way of authentication there is so far: the caller states its name.
const AuthOff = "off"

// Config is everything a server can vary. Zero values that mean "the default" are filled
// in by DefaultConfig, not later.
type Config struct {
	Name    string // of the node; a new data directory is given it
	DataDir string

	GRPCAddr  string // where clients and other nodes connect
	RaftAddr  string // where the Raft of other nodes connects
	AdminAddr string // /livez and /readyz; "" is none

	AdvertiseGRPC string // what others are told; "" is the address listened on
	AdvertiseRaft string

	Join            []string // gRPC addresses of other nodes: host:port, or dns:///name:port
	BootstrapExpect int      // a new cluster is made by this many fresh nodes; 0: join one
	Nonvoter        bool     // joins without a vote
	ClusterName     string

	Auth                  string // "off"; must be stated
	UnsafeNoAuthOnNetwork bool   // with auth off, allow addresses that are not loopback

	DrainDelay time.Duration // between "not ready" and handing leadership over
	Timing     node.Timing   // equal on every node (RAFT P34)
	Limits     Limits

	SnapshotThreshold uint64 // 0: the node's default, as for the two below
	SnapshotInterval  time.Duration
	TrailingLogs      uint64
	StoreTimeout      time.Duration // as node.Config says, like the next
	MinFree           uint64

	Version string // of the binary
	Logger  hclog.Logger

	// Trace is told of every command applied here and Roles of every change of role, as
	// node.Config says; nil is off.
	Trace func(fsm.TraceRecord)
	Roles func(node.RoleChange)
	// Clock is the node's seam to the machine's clocks; its zero value is the real ones.
	Clock node.Clock
	// Network is how the server listens and dials; its zero value is TCP.
	Network Network
	// OpenStores opens the raft state of the data directory; nil is the files in it.
	OpenStores func(*node.Dir, hclog.Logger) (node.Stores, error)
}

// Network is the seam to the outside: tests put pipes in memory here. A nil field is TCP.
type Network struct {
	Listen func(addr string) (net.Listener, error)
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
}

func (n Network) withDefaults() Network {
	if n.Listen == nil {
		n.Listen = func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
	}
	if n.Dial == nil {
		var d net.Dialer
		n.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	return n
}

// DefaultConfig is a node of a cluster that listens on loopback. Name, data directory and
// auth are the caller's to state.
func DefaultConfig() Config {
	return Config{
		GRPCAddr: "127.0.0.1:8970", RaftAddr: "127.0.0.1:8971", AdminAddr: "127.0.0.1:8973",
		Timing: node.DefaultTiming(), Limits: DefaultLimits(), Logger: hclog.NewNullLogger(),
	}
}

// ConfigError says which setting cannot be used, why, and what to do. A process exits 2
// with it.
type ConfigError struct {
	Setting string // as the flag is called: "auth", "grpc-addr"
	Problem string
	Hint    string
}

func (e *ConfigError) Error() string { return fmt.Sprintf("--%s: %s", e.Setting, e.Problem) }

// Validate refuses a configuration that could not serve, or that would serve strangers
// without a credential (SPEC F-10). The error is a *ConfigError.
func (c *Config) Validate() error {
	wrong := func(setting, problem, hint string) error {
		return &ConfigError{Setting: setting, Problem: problem, Hint: hint}
	}
	switch {
	case c.Auth == "":
		return wrong("auth", "it is not stated how callers are authenticated",
			"say --auth off to let every caller state its name, on loopback only")
	case c.Auth != AuthOff:
		return wrong("auth", fmt.Sprintf("%q is not known; so far there is only off", c.Auth), "say --auth off")
	case c.Name == "":
		return wrong("node-name", "the node has no name", "give it one; it stays with the data directory")
	case c.DataDir == "":
		return wrong("data-dir", "no data directory is given", "give an empty directory, or the one this node had before")
	case c.BootstrapExpect < 0:
		return wrong("bootstrap-expect", fmt.Sprintf("%d is no number of nodes", c.BootstrapExpect), "say how many nodes found the cluster: 1, 3 or 5")
	case c.BootstrapExpect > 1 && len(c.Join) == 0:
		return wrong("join", fmt.Sprintf("%d nodes are to found a cluster, and no address of another one is given", c.BootstrapExpect),
			"give --join with the gRPC addresses of the others")
	case c.Nonvoter && c.BootstrapExpect > 0:
		return wrong("nonvoter", "a founding node has a vote", "leave --bootstrap-expect out to join without one")
	}
	if err := c.Limits.Validate(); err != nil {
		return wrong("limits", err.Error(), "raise it")
	}
	if err := c.validateTiming(); err != nil {
		return err
	}
	return c.validateAddresses()
}

func (c *Config) validateTiming() error {
	t := c.Timing
	if t.Lease <= 0 || t.Lease > t.Heartbeat || t.Heartbeat > t.Election {
		return &ConfigError{Setting: "timing", Hint: "the default is 1s, 1s and 500ms; every node must have the same",
			Problem: fmt.Sprintf("lease %v <= heartbeat %v <= election %v does not hold", t.Lease, t.Heartbeat, t.Election)}
	}
	return nil
}

// validateAddresses keeps a server without credentials off the network.
func (c *Config) validateAddresses() error {
	for _, a := range []struct{ setting, addr string }{
		{"grpc-addr", c.GRPCAddr}, {"raft-addr", c.RaftAddr}, {"admin-addr", c.AdminAddr},
	} {
		if a.addr == "" && a.setting == "admin-addr" {
			continue
		}
		host, _, err := net.SplitHostPort(a.addr)
		if err != nil {
			return &ConfigError{Setting: a.setting, Problem: fmt.Sprintf("%q is not host:port", a.addr), Hint: "for example 127.0.0.1:8970"}
		}
		if !c.UnsafeNoAuthOnNetwork && !loopback(host) {
			return &ConfigError{Setting: a.setting,
				Problem: fmt.Sprintf("%s is not a loopback address, and with --auth off everybody who reaches it may state any name", a.addr),
				Hint:    "listen on 127.0.0.1, or accept that with --unsafe-no-auth-on-network"}
		}
	}
	return nil
}

// loopback says whether only this machine reaches the host. A name is resolved nowhere:
// only "localhost" is believed.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
