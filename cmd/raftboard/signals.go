package main

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"sync/atomic"
	"syscall"

	"github.com/hashicorp/go-hclog"

	"raftboard/cmd/raftboard/exitcode"
	"raftboard/transport"
)

// signalWatch answers the signals of a node besides the first SIGTERM or SIGINT, which ends the
// context of the command: a second one ends the process at once, SIGHUP says what cannot be
// reloaded, SIGUSR1 writes goroutines and the state of Raft to the log.
type signalWatch struct {
	ch     chan os.Signal
	done   chan struct{}
	server atomic.Pointer[transport.Server]
}

func watchSignals(logger hclog.Logger) *signalWatch {
	w := &signalWatch{ch: make(chan os.Signal, 4), done: make(chan struct{})}
	signal.Notify(w.ch, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1)
	go w.run(logger) // ends with stop
	return w
}

// of names the server that SIGUSR1 is about.
func (w *signalWatch) of(s *transport.Server) { w.server.Store(s) }

func (w *signalWatch) stop() {
	signal.Stop(w.ch)
	close(w.done)
}

func (w *signalWatch) run(logger hclog.Logger) {
	ends := 0
	for {
		select {
		case <-w.done:
			return
		case s := <-w.ch:
			switch s {
			case syscall.SIGHUP:
				logger.Info("SIGHUP: nothing to reload", "needs a restart", "every flag and RAFTBOARD_ variable")
			case syscall.SIGUSR1:
				w.dump(logger)
			default:
				if ends++; ends == 2 {
					logger.Warn("a second signal: ending at once", "signal", fmt.Sprint(s))
					os.Exit(exitcode.Interrupted)
				}
			}
		}
	}
}

func (w *signalWatch) dump(logger hclog.Logger) {
	var stacks bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 1); err != nil {
		logger.Warn("SIGUSR1: no goroutines", "error", err)
	}
	state := "starting"
	if s := w.server.Load(); s != nil {
		state = serverState(s)
		if n := s.Node(); n != nil {
			state = fmt.Sprintf("%s; %+v", state, n.Status())
		}
	}
	logger.Info("SIGUSR1: state", "raft", state, "goroutines", stacks.String())
}
