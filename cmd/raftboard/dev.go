package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"raftboard/cmd/raftboard/exitcode"
	"raftboard/transport"
)

func (a *app) devCommand() *cobra.Command {
	cfg := transport.DefaultConfig()
	cfg.AdminAddr, cfg.RaftAddr = "", "127.0.0.1:0"
	var level string
	c := leaf(verb{use: "dev", short: "Run one node for trying things out: no auth, loopback, data deleted on exit",
		examples: [2]string{`raftboard dev`, `raftboard dev --data-dir ./board --grpc-addr 127.0.0.1:9970`},
		args:     cobra.NoArgs,
		run: func(ctx context.Context, _ []string) error {
			return a.dev(ctx, cfg, level)
		}})
	c.Flags().StringVar(&cfg.GRPCAddr, "grpc-addr", cfg.GRPCAddr, "where clients connect")
	c.Flags().StringVar(&cfg.AdminAddr, "admin-addr", cfg.AdminAddr, "/livez and /readyz; empty: none")
	c.Flags().StringVar(&cfg.DataDir, "data-dir", "", "keep the data there")
	c.Flags().StringVar(&level, "log-level", "warn", "trace, debug, info, warn, error")
	fromEnv(c.Flags(), "grpc-addr", "admin-addr", "data-dir", "log-level")
	return c
}

func (a *app) dev(ctx context.Context, cfg transport.Config, level string) error {
	cfg.Name, cfg.Auth, cfg.BootstrapExpect, cfg.Version, cfg.ClusterName = "dev", transport.AuthOff, 1, version(), "dev"
	logger, err := a.logger(level, "auto")
	if err != nil {
		return err
	}
	cfg.Logger = logger
	if err := devPort(cfg.GRPCAddr); err != nil {
		return err
	}
	fate := "data is kept in " + cfg.DataDir
	if cfg.DataDir == "" {
		dir, err := os.MkdirTemp("", "raftboard-dev-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		cfg.DataDir, fate = dir, "data is deleted on exit (--data-dir keeps it)"
	}
	return a.serve(ctx, cfg, func(s *transport.Server) {
		a.warn("raftboard dev · one node · no auth · %s · not for production", fate)
		if err := awaitReady(ctx, s); err != nil {
			return // a signal, or the node failed: serve says which
		}
		endpoint := ""
		if s.GRPCAddr() != "127.0.0.1:8970" {
			endpoint = "export RAFTBOARD_ENDPOINTS=" + s.GRPCAddr() + "; "
		}
		a.warn("gRPC %s is ready. Try: %sraftboard append facts/hello '\"world\"'; raftboard list; raftboard watch",
			s.GRPCAddr(), endpoint)
	})
}

// devPort says early and in one line that the address is taken.
func devPort(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return exitcode.Usagef("raftboard dev --grpc-addr 127.0.0.1:9970", "--grpc-addr: cannot listen on %s: %v", addr, err)
	}
	return l.Close()
}

// awaitReady waits until the node leads itself; a fresh one needs a moment.
func awaitReady(ctx context.Context, s *transport.Server) error {
	for deadline := time.Now().Add(30 * time.Second); ; {
		err := s.Ready()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the node did not become ready: %w", err)
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}
