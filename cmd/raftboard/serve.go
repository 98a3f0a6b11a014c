package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"raftboard/cmd/raftboard/exitcode"
	"raftboard/node"
	"raftboard/node/tracefile"
	"raftboard/transport"
)

// serveFlags are those of a node. Each one can also come from its variable.
type serveFlags struct {
	cfg       transport.Config
	logStore  string
	advertise string
	logLevel  string
	logFormat string
	traceFile string
	minFree   uint64 // MiB
}

func (a *app) serveCommand() *cobra.Command {
	f := &serveFlags{cfg: transport.DefaultConfig()}
	c := leaf(verb{use: "serve", short: "Run a node",
		examples: [2]string{`raftboard serve --auth off --bootstrap-expect 1 --data-dir ./data`,
			`raftboard serve --auth off --node-name n2 --bootstrap-expect 3 --join n1:8970,n2:8970,n3:8970`},
		args: cobra.NoArgs,
		run: func(ctx context.Context, _ []string) error {
			if err := f.finish(); err != nil {
				return err
			}
			logger, err := a.logger(f.logLevel, f.logFormat)
			if err != nil {
				return err
			}
			f.cfg.Logger = logger
			end, err := f.openTrace()
			if err != nil {
				return err
			}
			return errors.Join(a.serve(ctx, f.cfg, nil), end())
		}})
	f.declare(c.Flags())
	return c
}

func (f *serveFlags) declare(fs *pflag.FlagSet) {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	cfg := &f.cfg
	fs.StringVar(&cfg.Name, "node-name", host, "of this node; it stays with the data directory")
	fs.StringVar(&cfg.DataDir, "data-dir", "/var/lib/raftboard", "where the node keeps its log and snapshots")
	fs.StringVar(&f.logStore, "log-store", "boltdb", "how the log is kept: boltdb")
	fs.StringVar(&cfg.GRPCAddr, "grpc-addr", cfg.GRPCAddr, "where clients and nodes connect")
	fs.StringVar(&cfg.RaftAddr, "raft-addr", cfg.RaftAddr, "where the Raft of other nodes connects")
	fs.StringVar(&cfg.AdminAddr, "admin-addr", cfg.AdminAddr, "/livez and /readyz; empty: none")
	fs.StringVar(&f.advertise, "advertise", "", "host that others reach this node by, with the ports above")
	fs.StringVar(&cfg.AdvertiseGRPC, "advertise-grpc", "", "host:port that others reach --grpc-addr by")
	fs.StringVar(&cfg.AdvertiseRaft, "advertise-raft", "", "host:port that others reach --raft-addr by")
	fs.IntVar(&cfg.BootstrapExpect, "bootstrap-expect", 0, "found a cluster of this many fresh nodes; 0: join one")
	fs.StringSliceVar(&cfg.Join, "join", nil, "gRPC addresses of other nodes: host:port or dns:///name:port")
	fs.BoolVar(&cfg.Nonvoter, "nonvoter", false, "join without a vote")
	fs.StringVar(&cfg.ClusterName, "cluster-name", "", "shown by status; a node of another name is refused")
	fs.StringVar(&cfg.Auth, "auth", "", "must be stated: off (callers state their names)")
	fs.BoolVar(&cfg.UnsafeNoAuthOnNetwork, "unsafe-no-auth-on-network", false,
		"with --auth off: addresses that are not loopback")
	fs.DurationVar(&cfg.DrainDelay, "drain-delay", 0, "between \"not ready\" and handing over, on SIGTERM")
	fs.DurationVar(&cfg.Timing.Heartbeat, "heartbeat-timeout", cfg.Timing.Heartbeat, "the same on every node")
	fs.DurationVar(&cfg.Timing.Election, "election-timeout", cfg.Timing.Election, "the same on every node")
	fs.DurationVar(&cfg.Timing.Lease, "leader-lease-timeout", cfg.Timing.Lease, "the same on every node")
	fs.Uint64Var(&cfg.SnapshotThreshold, "snapshot-threshold", 8192, "entries between two snapshots")
	fs.Uint64Var(&cfg.TrailingLogs, "trailing-logs", 10240, "entries kept behind a snapshot")
	fs.DurationVar(&cfg.SnapshotInterval, "snapshot-interval", 30*time.Second, "how often a snapshot is considered")
	fs.DurationVar(&cfg.StoreTimeout, "store-timeout", 20*time.Second, "a call of the disk that lasts longer ends the process; below 0: none")
	fs.Uint64Var(&f.minFree, "min-free-mib", 64, "no writes while less than this is free beside a snapshot's size")
	fs.StringVar(&f.traceFile, "trace-file", "", "for fault tests: append what is applied here, outside --data-dir")
	fs.StringVar(&f.logLevel, "log-level", "info", "trace, debug, info, warn, error")
	fs.StringVar(&f.logFormat, "log-format", "auto", "auto (text on a terminal), text, json")
	var all []string
	fs.VisitAll(func(flag *pflag.Flag) {
		all = append(all, flag.Name)
		flag.Hidden = flag.Name == "snapshot-interval" || flag.Name == "trace-file" // of use in fault tests only
	})
	fromEnv(fs, all...)
}

// finish checks what transport does not know and derives what was left out.
func (f *serveFlags) finish() error {
	if f.logStore != "boltdb" {
		return exitcode.Usagef("--log-store boltdb", "--log-store %q is not known; so far there is only boltdb", f.logStore)
	}
	for _, part := range []struct {
		advertised *string
		addr       string
	}{{&f.cfg.AdvertiseGRPC, f.cfg.GRPCAddr}, {&f.cfg.AdvertiseRaft, f.cfg.RaftAddr}} {
		if f.advertise == "" || *part.advertised != "" {
			continue
		}
		_, port, err := net.SplitHostPort(part.addr)
		if err != nil {
			return exitcode.Usagef("--grpc-addr 127.0.0.1:8970", "%q is not host:port", part.addr)
		}
		*part.advertised = net.JoinHostPort(f.advertise, port)
	}
	if f.minFree < 1 || f.minFree > 1<<30 || f.cfg.StoreTimeout == 0 {
		return exitcode.Usagef("--min-free-mib 64 --store-timeout 20s", "--min-free-mib is from 1 to %d, and --store-timeout is not 0", 1<<30)
	}
	f.cfg.MinFree = f.minFree << 20
	f.cfg.Version = version()
	return nil
}

// openTrace makes the node write down what it applies, if that is asked for. What cannot be
// written ends the process on the spot: a trace with a hole would prove what it does not show.
func (f *serveFlags) openTrace() (end func() error, err error) {
	if f.traceFile == "" {
		return func() error { return nil }, nil
	}
	logger := f.cfg.Logger
	w, err := tracefile.Open(f.traceFile, tracefile.Life{Node: f.cfg.Name, PID: os.Getpid(), Version: f.cfg.Version}, func(err error) {
		logger.Error(err.Error(), "hint", "free space where --trace-file is, or start without it")
		os.Exit(exitcode.Other)
	})
	if err != nil {
		return nil, exitcode.Usagef("--trace-file PATH", "--trace-file: %v", err)
	}
	f.cfg.Trace, f.cfg.Roles = w.Trace, w.Roles
	return w.Close, nil
}

// logger writes to stderr: for people on a terminal, JSON elsewhere.
func (a *app) logger(level, format string) (hclog.Logger, error) {
	if !slices.Contains([]string{"trace", "debug", "info", "warn", "error"}, level) {
		return nil, exitcode.Usagef("--log-level info", "--log-level %q is none of trace, debug, info, warn, error", level)
	}
	if !slices.Contains([]string{"auto", "text", "json"}, format) {
		return nil, exitcode.Usagef("--log-format auto", "--log-format %q is none of auto, text, json", format)
	}
	return hclog.New(&hclog.LoggerOptions{Name: "raftboard", Level: hclog.LevelFromString(level), Output: a.safeErr(),
		JSONFormat: format == "json" || format == "auto" && !a.stderrTerminal}), nil
}

// serve runs a node until a signal or until the node stops by itself. Once it is up, up is told.
func (a *app) serve(ctx context.Context, cfg transport.Config, up func(*transport.Server)) error {
	signals := watchSignals(cfg.Logger) // before the start: a second signal ends that, too
	defer signals.stop()
	s, err := transport.Start(ctx, cfg)
	if err != nil {
		return startError(err)
	}
	cfg.Logger.Info("serving", "grpc", s.GRPCAddr(), "raft", s.RaftAddr(), "admin", s.AdminAddr(), "data", cfg.DataDir,
		"version", cfg.Version)
	sd := newNotifier()
	sd.say("READY=1", "STATUS=serving on "+s.GRPCAddr())
	signals.of(s)
	if up != nil {
		up(s)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Wait() }() // ends with the server
	report := time.NewTicker(5 * time.Second)
	defer report.Stop()
	for {
		select {
		case err := <-ended:
			sd.say("STOPPING=1")
			return endError(err)
		case <-report.C:
			sd.say("STATUS=" + serverState(s))
		case <-ctx.Done():
			sd.say("STOPPING=1", "STATUS=draining")
			cfg.Logger.Info("stopping", "hint", "a second signal ends the process at once")
			if err := s.Stop(context.WithoutCancel(ctx)); err != nil {
				return fmt.Errorf("stopping: %w", err)
			}
			return nil
		}
	}
}

// startError gives what a caller can mend the status of a usage error.
func startError(err error) error {
	var config *transport.ConfigError
	var dir *node.DirError
	switch {
	case errors.As(err, &config):
		return &exitcode.Error{Status: exitcode.Usage, Msg: config.Error(), Hint: config.Hint}
	case errors.As(err, &dir):
		return &exitcode.Error{Status: exitcode.Usage, Msg: dir.Error(), Hint: dir.Hint}
	}
	return err
}

// endError is why a node that ran has ended by itself, with the way back.
func endError(err error) error {
	var dir *node.DirError
	if errors.As(err, &dir) {
		return &exitcode.Error{Status: exitcode.Other, Msg: dir.Error(), Hint: dir.Hint}
	}
	return err
}

// serverState is one line about the node: "leader, term 4, applied 1812".
func serverState(s *transport.Server) string {
	n := s.Node()
	if n == nil {
		return "waiting for a cluster"
	}
	st := n.Status()
	text := fmt.Sprintf("%s, term %d, applied %d, %d voters", st.Role, st.Term, st.Applied, len(st.Voters))
	if st.Note != nil {
		text += ", not ready: " + strings.ReplaceAll(st.Note.Error(), "\n", " ")
	}
	return text
}
