package transport

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

const (
	// The services of the health protocol: "" is the process, boardHealth says whether
	// this node answers reads, leaderHealth is serving on the leader alone.
	boardHealth  = "raftboard.v1.Board"
	leaderHealth = "raftboard.v1.leader"

	healthEvery = 250 * time.Millisecond
	// applyStuck is how long the node below may fail to answer a look at it before the
	// process counts as dead.
	applyStuck = 2 * time.Second
)

// watchHealth keeps the health service in step with the node until ctx ends.
func (s *service) watchHealth(ctx context.Context, h *health.Server) {
	set := func(name string, serving bool) {
		status := healthpb.HealthCheckResponse_NOT_SERVING
		if serving {
			status = healthpb.HealthCheckResponse_SERVING
		}
		h.SetServingStatus(name, status)
	}
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for {
		n := s.node.Load()
		set("", s.notLeaving() == nil)
		set(boardHealth, s.ready() == nil)
		set(leaderHealth, n != nil && n.IsLeader())
		select {
		case <-tick.C:
		case <-s.leaving:
			h.Shutdown()
			return
		case <-ctx.Done():
			h.Shutdown()
			return
		}
	}
}

// ready answers nil when this node may be given calls: it knows a leader and lags little.
func (s *service) ready() error {
	if err := s.notLeaving(); err != nil {
		return err
	}
	n := s.node.Load()
	if n == nil {
		return errors.New(s.noMember().Message)
	}
	return n.Ready()
}

func (s *service) notLeaving() error {
	select {
	case <-s.leaving:
		return errors.New("this node is stopping")
	default:
		return nil
	}
}

// alive answers nil while the process does its work. It never asks for a quorum: a
// partition must not get the survivors killed.
func (s *service) alive() error {
	n := s.node.Load()
	if n == nil {
		return nil
	}
	if err := n.Failure(); err != nil {
		return err
	}
	return s.looking.within(applyStuck, func() { n.Status() })
}

// looks keeps at most one look at the node below in flight, for all who ask meanwhile. If
// it hangs for ever, so does the node, and no probe adds another that waits.
type looks struct {
	mu   sync.Mutex
	done chan struct{} // of the look in flight; nil without one
}

// within answers nil when the look that is in flight, or this one, ends within most.
func (l *looks) within(most time.Duration, look func()) error {
	l.mu.Lock()
	done := l.done
	if done == nil {
		done = make(chan struct{})
		l.done = done
		go func() { // ends with the look
			look()
			l.mu.Lock()
			l.done = nil
			l.mu.Unlock()
			close(done)
		}()
	}
	l.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return errors.New("the node does not answer")
	}
}

// AdminHandler is what the admin port serves.
func (s *Server) AdminHandler() http.Handler { return s.service.adminHandler() }

// adminHandler serves the probes of the admin port. The reason is in the body as text.
func (s *service) adminHandler() http.Handler {
	mux := http.NewServeMux()
	probe := func(check func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			if err := check(); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				w.Write([]byte(err.Error() + "\n"))
				return
			}
			w.Write([]byte("ok\n"))
		}
	}
	mux.HandleFunc("GET /livez", probe(s.alive))
	mux.HandleFunc("GET /readyz", probe(s.ready))
	return mux
}

// serveAdmin runs the admin port until stop is called.
func (s *service) serveAdmin(listener net.Listener) (stop func()) {
	server := &http.Server{Handler: s.adminHandler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Serve(listener)
	}()
	return func() {
		server.Close()
		<-done
	}
}
